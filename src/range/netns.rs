//! A network namespace of our own with no uplink, made the same way for root and for ordinary users.
//!
//! Namespaces belong to threads, and only a process with a single one may make a user namespace: so a helper (this
//! program, executed again) makes them, opens every socket in there, hands all of it over, and stays as the one that
//! can touch the canaries from the inside. It ends when its end of the socket pair is closed: with the harness,
//! however that ends.

use std::fs;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net as unix;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use escape_audit_probe::wire::Message;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockType, sockopt};
use nix::sys::time::TimeVal;

use super::journal::{self, Journal};
use super::line::{receive, send};
use super::places::{self, Ground, Spot, Wire};
use super::{Opened, TargetSpec, Token};
use crate::case::{CanaryKind, Position};

pub use super::helper::helper_main;

/// The hidden subcommand that is the helper.
pub const HELPER: &str = "__range";

/// Longer than the helper ever needs, even on a machine under load.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the range could not be opened: the step, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {why}")]
pub struct RangeError {
    pub(super) step: String,
    pub(super) why: String,
    /// The kernel does not let this user make the namespaces.
    pub(super) refused: bool,
}

impl RangeError {
    pub(super) fn new(step: impl Into<String>, why: impl ToString) -> Self {
        Self {
            step: step.into(),
            why: why.to_string(),
            refused: false,
        }
    }
}

/// The way into the range's namespaces, for a child that is about to execute a program.
#[derive(Debug, Default)]
pub struct Entry {
    /// The network namespace.
    pub net: Option<OwnedFd>,
    /// The user namespace that owns it, where an ordinary user had to make one.
    pub user: Option<OwnedFd>,
}

impl Entry {
    /// A second handle on the same namespaces.
    pub fn try_clone(&self) -> io::Result<Self> {
        let clone = |fd: &Option<OwnedFd>| fd.as_ref().map(OwnedFd::try_clone).transpose();
        Ok(Self {
            net: clone(&self.net)?,
            user: clone(&self.user)?,
        })
    }

    /// Whether there is a user namespace to enter: what enters has no say over other users then.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Moves the calling process into the namespaces. It must have a single thread, as a child has after `fork`: made
    /// for [`CommandExt::pre_exec`], this is nothing but system calls.
    ///
    /// The user namespace maps the same user and group and nobody else, and the program that is executed afterwards
    /// has the capabilities that it would have had outside.
    pub fn enter(&self) -> io::Result<()> {
        // The user namespace first: it gives the right to enter the network namespace that it owns.
        if let Some(user) = &self.user {
            setns(user, CloneFlags::CLONE_NEWUSER)?;
        }
        if let Some(net) = &self.net {
            setns(net, CloneFlags::CLONE_NEWNET)?;
        }
        Ok(())
    }
}

/// A socket that a canary listens on.
#[derive(Debug)]
pub(super) enum Socket {
    Stream(TcpListener),
    Datagram(UdpSocket),
    Unix(unix::UnixListener),
    /// It could not be opened; the canary is dead from the beginning.
    Closed,
}

/// What the helper handed over.
pub(super) struct Handover {
    pub(super) helper: Helper,
    pub(super) entry: Entry,
    pub(super) sockets: Vec<Opened>,
}

/// The process that stays in the namespace and touches canaries when told to.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    line: Option<OwnedFd>,
}

impl Helper {
    /// Tells it to send the token to this address. Whether it got there, the canary knows.
    pub(super) fn touch(&self, address: &str, token: &Token) {
        let message = Message::new(&["touch"])
            .with("target", address)
            .with("payload", format!("{token}\r\n\r\n"));
        if let Some(line) = &self.line {
            // A helper that died or is behind leaves the canary silent, which is what counts.
            let _ = send(line.as_fd(), &message, None, MsgFlags::MSG_DONTWAIT);
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.line = None;
        // It owns nothing that would have to be cleaned up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the helper and takes over what it made on this ground.
pub(super) fn open(program: &Path, ground: &Ground) -> Result<Handover, RangeError> {
    let step = |step: &'static str| move |error: io::Error| RangeError::new(step, error);
    let pair = || -> io::Result<(OwnedFd, OwnedFd)> {
        let (ours, theirs) = socket::socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
        socket::setsockopt(&ours, sockopt::ReceiveTimeout, &patience)?;
        Ok((ours, theirs))
    };
    let (ours, theirs) = pair().map_err(step("make a socket pair for the range's helper"))?;
    let child = Command::new(program)
        .args([HELPER, &ground.argument()])
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // It holds no secret that a sandbox could read from it, and no folder; Ctrl-C is for the harness alone.
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .spawn()
        .map_err(step("start the range's helper"))?;
    let mut opened = Handover {
        helper: Helper {
            child,
            line: Some(ours),
        },
        entry: Entry::default(),
        sockets: Vec::new(),
    };
    let spots = places::spots(ground);
    loop {
        let line = opened.helper.line.as_ref().map(AsFd::as_fd);
        let received = line.map(receive).transpose().ok().flatten().flatten();
        let Some((message, descriptor)) = received else {
            let why = "it ended, or said nothing for ten seconds";
            return Err(RangeError::new("hear from the range's helper", why));
        };
        let text = |key: &str| message.text(key).unwrap_or_default().to_owned();
        match message.words.first().map(String::as_str) {
            Some("namespace") if text("name") == "net" => opened.entry.net = descriptor,
            Some("namespace") => opened.entry.user = descriptor,
            Some("socket") => {
                let spot = message.number("spot").and_then(|n: usize| spots.get(n));
                let Some(spot) = spot else { continue };
                let spec = TargetSpec {
                    canary: spot.canary,
                    position: spot.position,
                    address: text("address"),
                    ours: true,
                    beyond: false,
                };
                opened.sockets.push((spec, spot.adopt(descriptor)));
            }
            Some("ready") => break,
            Some("failed") => {
                let mut error = RangeError::new(text("step"), text("why"));
                error.refused = text("refused") == "1";
                return Err(error);
            }
            _ => {}
        }
    }
    if *ground == Ground::Own && opened.entry.net.is_none() {
        let why = "the helper handed none over";
        return Err(RangeError::new("enter the range's namespace", why));
    }
    Ok(opened)
}

/// Unix sockets in folders of their own that everybody may open, one that only listens and one that plays a container
/// engine in each: in the run's folder, and outside the places that launchers like to cover. Where none can be made
/// this is an error.
pub(super) fn file_sockets(
    run_dir: &Path,
    name: &str,
) -> Result<(Vec<PathBuf>, Vec<Opened>), RangeError> {
    let step = |error: io::Error| RangeError::new("open a Unix socket", error);
    let mut journal = Journal::open(run_dir).map_err(step)?;
    let (mut folders, mut opened) = (Vec::new(), Vec::new());
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for folder in [
        run_dir.join(name), // short: a socket's path has room for 107 bytes
        Path::new("/var/tmp").join(journal::unique()),
        Path::new("/dev/shm").join(journal::unique()),
    ] {
        match file_sockets_in(&mut journal, &folder) {
            Ok(sockets) => {
                folders.push(folder);
                opened.extend(sockets);
            }
            Err(error) => last = error,
        }
    }
    if opened.is_empty() {
        return Err(step(last));
    }
    Ok((folders, opened))
}

fn file_sockets_in(journal: &mut Journal, folder: &Path) -> io::Result<[Opened; 2]> {
    journal.make_folder(folder, 0o755)?;
    Ok([
        file_socket(folder.join("s"), CanaryKind::Unix)?,
        file_socket(folder.join("docker.sock"), CanaryKind::Engine)?,
    ])
}

fn file_socket(path: PathBuf, canary: CanaryKind) -> io::Result<Opened> {
    let listener = unix::UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    let spec = TargetSpec {
        canary,
        position: Position::Host,
        address: format!("path:{}", path.display()),
        ours: true,
        beyond: false,
    };
    Ok((spec, Socket::Unix(listener)))
}

impl Spot {
    fn adopt(&self, descriptor: Option<OwnedFd>) -> Socket {
        match (descriptor, self.wire) {
            (None, _) => Socket::Closed,
            (Some(fd), Wire::Stream) => Socket::Stream(fd.into()),
            (Some(fd), Wire::Datagram) => Socket::Datagram(fd.into()),
            (Some(fd), Wire::Abstract) => Socket::Unix(fd.into()),
        }
    }
}
