//! The audit's side: a connection to a canary on another machine, and what that one tells of.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{Ear, LONGEST_LINE, Line};
use crate::case::Position;
use crate::range::TargetSpec;
use crate::range::netns::RangeError;
use crate::range::registry::Registry;

/// How long a canary elsewhere may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// More sockets than a canary has.
const EARS: usize = 64;

/// A canary on another machine. Dropping it closes the connection.
#[derive(Debug)]
pub(in crate::range) struct Outpost {
    specs: Vec<(Ear, TargetSpec)>,
    task: Option<JoinHandle<()>>,
    connection: Option<std::net::TcpStream>,
}

impl Outpost {
    /// Connects, and learns what it listens for. Blocks for as long as that takes; [`Outpost::start`] comes next.
    pub(in crate::range) fn open(control: SocketAddr) -> Result<Self, RangeError> {
        let step = || format!("speak to the internet canary at {control}");
        let fail = |why: io::Error| {
            RangeError::new(
                step(),
                format!(
                    "{why}\nhelp: run `escape-audit canary` on that host and let this one connect to it, or take the \
                     address out of `[range] internet`"
                ),
            )
        };
        let connection = std::net::TcpStream::connect_timeout(&control, PATIENCE).map_err(fail)?;
        let ears = greet(&connection).map_err(fail)?;
        let of_family = ears.into_iter().filter(|ear| ear.six == control.is_ipv6());
        let specs: Vec<_> = of_family.map(|ear| (ear, spec(control, ear))).collect();
        if specs.is_empty() {
            let why = "it listens for nothing over this version of IP";
            return Err(RangeError::new(step(), why));
        }
        Ok(Self {
            specs,
            task: None,
            connection: Some(connection),
        })
    }

    /// Listens to what it tells of from now on, as a task.
    pub(in crate::range) fn start(&mut self, registry: &Arc<Registry>) -> Result<(), RangeError> {
        let Some(connection) = self.connection.take() else {
            return Ok(());
        };
        let fail = |why| RangeError::new("listen to the internet canary", why);
        connection.set_nonblocking(true).map_err(fail)?;
        let stream = TcpStream::from_std(connection).map_err(fail)?;
        let (specs, registry) = (self.specs.clone(), Arc::clone(registry));
        self.task = Some(tokio::spawn(async move {
            let _ = listen(stream, &specs, &registry).await;
        }));
        Ok(())
    }

    pub(in crate::range) fn specs(&self) -> impl Iterator<Item = &TargetSpec> {
        self.specs.iter().map(|(_, spec)| spec)
    }

    pub(in crate::range) fn is_running(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }
}

impl Drop for Outpost {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

fn spec(control: SocketAddr, ear: Ear) -> TargetSpec {
    let scheme = if ear.datagrams { "udp" } else { "tcp" };
    TargetSpec {
        canary: ear.canary,
        position: Position::Internet,
        address: format!("{scheme}://{}", SocketAddr::new(control.ip(), ear.port)),
        ours: true,
        beyond: true,
    }
}

/// Reads byte by byte: what comes after the last line of the greeting belongs to the task.
fn greet(mut connection: &std::net::TcpStream) -> io::Result<Vec<Ear>> {
    use std::io::Read as _;
    let strange = || io::Error::other("what answers there is no canary of this version");
    let deadline = Instant::now() + PATIENCE;
    let (mut ears, mut line, mut hello) = (Vec::new(), Vec::new(), false);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        connection.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut byte = [0];
        let length = match connection.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::other(
                    "it took the connection and said nothing in time",
                ));
            }
            length => length?,
        };
        if length == 0 {
            return Err(match hello {
                true => io::ErrorKind::UnexpectedEof.into(),
                false => {
                    io::Error::other("it closed the connection at once; does it serve too many?")
                }
            });
        }
        if byte != *b"\n" {
            line.push(byte[0]);
            if line.len() > LONGEST_LINE {
                return Err(strange());
            }
            continue;
        }
        let text = std::str::from_utf8(&line).ok();
        match text.and_then(Line::parse) {
            Some(Line::Hello) if !hello => hello = true,
            Some(Line::Listens(ear)) if hello && ears.len() < EARS => ears.push(ear),
            Some(Line::Ready) if hello => return Ok(ears),
            Some(Line::Touch(..)) if hello => {}
            _ => return Err(strange()),
        }
        line.clear();
    }
}

/// Until the connection ends, or something comes that is no line: its silence would mean nothing from then on.
async fn listen(
    stream: TcpStream,
    specs: &[(Ear, TargetSpec)],
    registry: &Registry,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut reader).take(LONGEST_LINE as u64);
        let length = bounded.read_until(b'\n', &mut line).await?;
        let text = std::str::from_utf8(&line).ok();
        let text = text.and_then(|text| text.strip_suffix('\n'));
        let Some(Line::Touch(ear, hash)) = text.filter(|_| length > 0).and_then(Line::parse) else {
            return Ok(());
        };
        // Of the other family: the connection to that address tells of it.
        if let Some((_, spec)) = specs.iter().find(|(known, _)| *known == ear) {
            registry.hear_of(&hash, spec, Instant::now());
        }
    }
}
