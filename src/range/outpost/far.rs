//! The canary's side, on the other machine: what `escape-audit canary` is. It listens, answers as little as a canary
//! does, and tells everybody who is connected of every touch.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::broadcast;

use super::{Ear, Hash, Line};
use crate::case::{CanaryKind, Position};
use crate::range::TargetSpec;
use crate::range::canary::Listener;
use crate::range::netns::Socket;
use crate::range::registry::Registry;

/// Audits that are connected at once.
const AUDITS: usize = 64;

/// Touches that one audit may lag behind. One that lags further is cut off: it must not take what it missed for silence.
const BACKLOG: usize = 1024;

/// An audit that takes nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// The ports that it listens on; 0 is any free one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// For connections.
    pub tcp: Vec<u16>,
    /// For datagrams.
    pub udp: Vec<u16>,
    /// For questions about names, over both.
    pub dns: Vec<u16>,
    /// For audits.
    pub control: u16,
}

/// A port that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {place} for {what}: {why}")]
pub struct CannotListen {
    place: SocketAddr,
    what: &'static str,
    why: io::Error,
}

/// A canary that listens, as tasks of the runtime that opened it.
#[derive(Debug)]
pub struct Canary {
    ears: Vec<Ear>,
    touches: broadcast::Sender<(Ear, Hash)>,
    control: Vec<TcpListener>,
    taken: Vec<SocketAddr>,
    _listeners: Vec<Listener>,
}

impl Canary {
    /// Opens every port on every address, over IPv4 and, where the machine has it, IPv6. Call it inside the runtime.
    ///
    /// # Errors
    /// Every port that this user may not have. One that another program has is told by [`Canary::taken`].
    pub fn open(ports: &Ports) -> Result<Self, Vec<CannotListen>> {
        let (touches, _) = broadcast::channel(BACKLOG);
        let mut canary = Self {
            ears: Vec::new(),
            touches,
            control: Vec::new(),
            taken: Vec::new(),
            _listeners: Vec::new(),
        };
        let mut errors = Vec::new();
        let families: &[IpAddr] = match has_ipv6() {
            true => &[
                IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            ],
            false => &[IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        };
        let wanted = [
            (CanaryKind::Tcp, false, "connections", &ports.tcp),
            (CanaryKind::Udp, true, "datagrams", &ports.udp),
            (CanaryKind::Dns, false, "names", &ports.dns),
            (CanaryKind::Dns, true, "names", &ports.dns),
        ];
        for ip in families {
            for (kind, datagrams, what, ports) in &wanted {
                for port in *ports {
                    let place = SocketAddr::new(*ip, *port);
                    match canary.listen(*kind, *datagrams, place) {
                        Ok(()) => {}
                        // A canary's host has a life of its own: its `sshd`, its resolver.
                        Err(why) if why.kind() == io::ErrorKind::AddrInUse => {
                            canary.taken.push(place);
                        }
                        Err(why) => errors.push(CannotListen { place, what, why }),
                    }
                }
            }
            let place = SocketAddr::new(*ip, ports.control);
            match bind(place, false).map(TcpListener::from) {
                Ok(listener) => canary.control.push(listener),
                Err(why) => errors.push(CannotListen {
                    place,
                    what: "audits",
                    why,
                }),
            }
        }
        if canary.ears.is_empty() && errors.is_empty() {
            let place = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), ports.control);
            let why = io::Error::other("another program has every port that it was to listen on");
            let what = "anything";
            errors.push(CannotListen { place, what, why });
        }
        if errors.is_empty() {
            Ok(canary)
        } else {
            Err(errors)
        }
    }

    fn listen(&mut self, canary: CanaryKind, datagrams: bool, place: SocketAddr) -> io::Result<()> {
        let socket = bind(place, datagrams)?;
        let port = socket.local_addr()?.as_socket().map_or(0, |at| at.port());
        let ear = Ear {
            canary,
            datagrams,
            six: place.is_ipv6(),
            port,
        };
        let socket = match datagrams {
            true => Socket::Datagram(UdpSocket::from(socket)),
            false => Socket::Stream(TcpListener::from(socket)),
        };
        let spec = TargetSpec {
            canary,
            position: Position::Internet,
            address: ear.text(),
            ours: true,
            beyond: false,
        };
        let touches = self.touches.clone();
        let registry = Arc::new(Registry::telling(move |hash| {
            // Nobody is connected: nobody asks.
            let _ = touches.send((ear, hash));
        }));
        let listener = Listener::start(spec, socket, &registry).map_err(io::Error::other)?;
        self._listeners.push(listener);
        self.ears.push(ear);
        Ok(())
    }

    /// The ports that another program has.
    pub fn taken(&self) -> &[SocketAddr] {
        &self.taken
    }

    /// What it listens for, in words for a person.
    pub fn description(&self) -> String {
        let four = self.ears.iter().filter(|ear| !ear.six);
        let each: Vec<String> = four
            .map(|ear| {
                let kind = match (ear.canary, ear.datagrams) {
                    (CanaryKind::Dns, true) => "dns over udp",
                    (CanaryKind::Dns, _) => "dns over tcp",
                    (_, true) => "udp",
                    _ => "tcp",
                };
                format!("{kind} {}", ear.port)
            })
            .collect();
        each.join(", ")
    }

    /// Serves audits until the future is dropped.
    pub async fn serve(mut self) -> io::Result<()> {
        let (sender, mut arrived) = tokio::sync::mpsc::channel::<TcpStream>(AUDITS);
        for listener in std::mem::take(&mut self.control) {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let sender = sender.clone();
            tokio::spawn(async move {
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            if sender.send(stream).await.is_err() {
                                return;
                            }
                        }
                        Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                    }
                }
            });
        }
        let room = Arc::new(tokio::sync::Semaphore::new(AUDITS));
        while let Some(stream) = arrived.recv().await {
            // One too many is closed at once, and says so where it connected from.
            if let Ok(place) = Arc::clone(&room).try_acquire_owned() {
                let news = self.touches.subscribe();
                let ears = self.ears.clone();
                tokio::spawn(async move {
                    let _ = tell(stream, &ears, news).await;
                    drop(place);
                });
            }
        }
        Ok(())
    }
}

/// Tells one audit of everything, until it is gone or lags behind.
async fn tell(
    mut stream: TcpStream,
    ears: &[Ear],
    mut news: broadcast::Receiver<(Ear, Hash)>,
) -> io::Result<()> {
    let listens = ears.iter().copied().map(Line::Listens);
    let all = std::iter::once(Line::Hello)
        .chain(listens)
        .chain([Line::Ready]);
    let text: String = all.map(|line| line.text() + "\n").collect();
    within(stream.write_all(text.as_bytes())).await?;
    let (mut read, mut write) = stream.split();
    let mut ignored = [0; 64];
    loop {
        tokio::select! {
            heard = news.recv() => {
                let Ok((ear, hash)) = heard else { return Ok(()) };
                let line = Line::Touch(ear, hash).text() + "\n";
                within(write.write_all(line.as_bytes())).await?;
            }
            // An audit says nothing; its end is the end of the stream.
            length = tokio::io::AsyncReadExt::read(&mut read, &mut ignored) => {
                if length? == 0 { return Ok(()) }
            }
        }
    }
}

async fn within(write: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    tokio::time::timeout(PATIENCE, write).await?
}

/// A socket for one family alone, so that a touch has a family.
fn bind(place: SocketAddr, datagrams: bool) -> io::Result<socket2::Socket> {
    let (kind, protocol) = match datagrams {
        true => (Type::DGRAM, Protocol::UDP),
        false => (Type::STREAM, Protocol::TCP),
    };
    let socket = socket2::Socket::new(Domain::for_address(place), kind, Some(protocol))?;
    if place.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if !datagrams {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&place.into())?;
    if !datagrams {
        socket.listen(128)?;
    }
    Ok(socket)
}

fn has_ipv6() -> bool {
    bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0), false).is_ok()
}
