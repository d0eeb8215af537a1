//! A network namespace of our own with no uplink, made the same way for root and for ordinary users.
//!
//! Namespaces belong to threads, and only a process with a single one may make a user namespace: so a helper (this
//! program, executed again) makes them, opens every socket in there, hands all of it over, and stays as the one that
//! can touch the canaries from the inside. It ends when its end of the socket pair is closed: with the harness,
//! however that ends.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net as unix;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use escape_audit_probe::wire::{MAX_LINE, Message};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{
    self, AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, sockopt,
};
use nix::sys::time::TimeVal;

use super::journal::{self, Journal};
use super::netlink::Netlink;
use super::places::{self, Spot, Wire};
use super::{Opened, TargetSpec, Token};
use crate::case::{CanaryKind, Position};

/// The hidden subcommand that is the helper.
pub const HELPER: &str = "__range";

/// Longer than the helper ever needs, even on a machine under load.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the range could not be opened: the step, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {why}")]
pub struct RangeError {
    step: String,
    why: String,
}

impl RangeError {
    pub(super) fn new(step: impl Into<String>, why: impl ToString) -> Self {
        Self {
            step: step.into(),
            why: why.to_string(),
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

/// Starts the helper and takes over what it made: in a namespace of its own, or on this host's loopback.
pub(super) fn open(program: &Path, own: bool) -> Result<Handover, RangeError> {
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
        .args([HELPER, if own { "own" } else { "loopback" }])
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
    let spots = places::spots(own);
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
                };
                opened.sockets.push((spec, spot.adopt(descriptor)));
            }
            Some("ready") => break,
            Some("failed") => return Err(RangeError::new(text("step"), text("why"))),
            _ => {}
        }
    }
    if own && opened.entry.net.is_none() {
        let why = "the helper handed none over";
        return Err(RangeError::new("enter the range's namespace", why));
    }
    Ok(opened)
}

/// Unix sockets in folders of their own that everybody may open: in the run's folder, and outside the places that
/// launchers like to cover. Where none can be made this is an error.
pub(super) fn file_sockets(run_dir: &Path) -> Result<(Vec<PathBuf>, Vec<Opened>), RangeError> {
    let step = |error: io::Error| RangeError::new("open a Unix socket", error);
    let mut journal = Journal::open(run_dir).map_err(step)?;
    let (mut folders, mut opened) = (Vec::new(), Vec::new());
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for folder in [
        run_dir.join("socket"), // short: a socket's path has room for 107 bytes
        Path::new("/var/tmp").join(journal::unique()),
        Path::new("/dev/shm").join(journal::unique()),
    ] {
        match file_socket(&mut journal, &folder) {
            Ok(socket) => {
                folders.push(folder);
                opened.push(socket);
            }
            Err(error) => last = error,
        }
    }
    if opened.is_empty() {
        return Err(step(last));
    }
    Ok((folders, opened))
}

fn file_socket(journal: &mut Journal, folder: &Path) -> io::Result<Opened> {
    journal.make_folder(folder, 0o755)?;
    let path = folder.join("s");
    let listener = unix::UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    let spec = TargetSpec {
        canary: CanaryKind::Unix,
        position: Position::Host,
        address: format!("path:{}", path.display()),
    };
    Ok((spec, Socket::Unix(listener)))
}

impl Spot {
    /// The address as the probe wants it, given the port or name that the socket got.
    fn address(&self, port: u16, name: &str) -> String {
        let place = SocketAddr::new(self.ip, port);
        match self.wire {
            Wire::Stream => format!("tcp://{place}"),
            Wire::Datagram => format!("udp://{place}"),
            Wire::Abstract => format!("abstract:{name}"),
        }
    }

    /// Opens the socket in the namespace of the calling thread.
    fn open(&self) -> io::Result<(OwnedFd, String)> {
        let place = SocketAddr::new(self.ip, self.port);
        Ok(match self.wire {
            Wire::Stream => {
                let socket = TcpListener::bind(place)?;
                let port = socket.local_addr()?.port();
                (socket.into(), self.address(port, ""))
            }
            Wire::Datagram => {
                let socket = UdpSocket::bind(place)?;
                let port = socket.local_addr()?.port();
                (socket.into(), self.address(port, ""))
            }
            Wire::Abstract => {
                let name = Token::random().as_str().replacen("ea-", "escape-audit-", 1);
                let place = unix::SocketAddr::from_abstract_name(&name)?;
                let socket = unix::UnixListener::bind_addr(&place)?;
                (socket.into(), self.address(0, &name))
            }
        })
    }

    fn adopt(&self, descriptor: Option<OwnedFd>) -> Socket {
        match (descriptor, self.wire) {
            (None, _) => Socket::Closed,
            (Some(fd), Wire::Stream) => Socket::Stream(fd.into()),
            (Some(fd), Wire::Datagram) => Socket::Datagram(fd.into()),
            (Some(fd), Wire::Abstract) => Socket::Unix(fd.into()),
        }
    }
}

/// What `escape-audit __range own|loopback` is. Its standard input is one end of the harness's socket pair. Must run
/// before the process has a second thread.
pub fn helper_main() -> i32 {
    let own = std::env::args().nth(2).as_deref() == Some("own");
    let stdin = io::stdin();
    let line = stdin.as_fd();
    if let Err(error) = hand_over(line, own) {
        let failed = Message::new(&["failed"])
            .with("step", error.step)
            .with("why", error.why);
        let _ = send(line, &failed, None, MsgFlags::empty());
        return 1;
    }
    while let Ok(Some((message, _))) = receive(line) {
        if let (Some(target), Some(payload)) = (message.text("target"), message.bytes("payload")) {
            // Success and failure alike are for the canary to tell.
            let _ = touch(target, payload, own);
        }
    }
    0
}

fn hand_over(line: BorrowedFd<'_>, own: bool) -> Result<(), RangeError> {
    let say = |message: &Message, fd: Option<BorrowedFd<'_>>| {
        send(line, message, fd, MsgFlags::empty())
            .map_err(|error| RangeError::new("answer the harness", error))
    };
    if own {
        for name in make_namespaces()? {
            let path = format!("/proc/self/ns/{name}");
            let file = fs::File::open(&path)
                .map_err(|error| RangeError::new(format!("open {path}"), error))?;
            let message = Message::new(&["namespace"]).with("name", *name);
            say(&message, Some(file.as_fd()))?;
        }
    }
    for (number, spot) in places::spots(own).iter().enumerate() {
        let (socket, address) = match spot.open() {
            Ok((socket, address)) => (Some(socket), address),
            // Without IPv6 the canary has no address at all. Any other is said to be there, and dead.
            Err(_) if spot.ip.is_ipv6() => continue,
            Err(_) => (None, spot.address(spot.port, "unbound")),
        };
        let message = Message::new(&["socket"])
            .with("spot", number.to_string())
            .with("address", address);
        say(&message, socket.as_ref().map(AsFd::as_fd))?;
    }
    say(&Message::new(&["ready"]), None)
}

/// Moves this process into a fresh network namespace, sets up its loopback device, and says which namespaces are new.
fn make_namespaces() -> Result<&'static [&'static str], RangeError> {
    let here = || fs::read_link("/proc/self/ns/net");
    let before = here().map_err(|error| RangeError::new("read /proc/self/ns/net", error))?;
    let made: &[&str] = match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => &["net"],
        Err(nix::Error::EPERM) => {
            make_user_namespace()?;
            &["user", "net"]
        }
        Err(error) => return Err(RangeError::new("make a network namespace", error)),
    };
    // From here on addresses of others are taken: never on the strength of a call that only claims to have worked.
    if here().ok().is_none_or(|after| after == before) {
        let why = "the kernel said yes, and the namespace is still the old one";
        return Err(RangeError::new("make a network namespace", why));
    }
    // Container engines and careful hosts switch IPv6 off in new namespaces. Where it cannot be had, the IPv6 canaries
    // stay away.
    for device in ["all", "lo"] {
        let switch = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
        let _ = fs::write(switch, "0");
    }
    let netlink = Netlink::open()
        .map_err(|error| RangeError::new("speak to the kernel's network tables", error))?;
    netlink
        .loopback_up()
        .map_err(|error| RangeError::new("bring the loopback device up", error))?;
    for ip in places::addresses() {
        match netlink.add_address(ip) {
            Err(_) if ip.is_ipv6() => {}
            result => {
                result.map_err(|error| RangeError::new(format!("add the address {ip}"), error))?
            }
        }
    }
    Ok(made)
}

/// A user namespace, in which this user and group are themselves, with a network namespace that it owns.
fn make_user_namespace() -> Result<(), RangeError> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|error| RangeError::new("make a user namespace for the network", error))?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} {uid} 1")),
        ("gid_map", format!("{gid} {gid} 1")),
    ] {
        let path = format!("/proc/self/{file}");
        fs::write(&path, text).map_err(|error| RangeError::new(format!("write {path}"), error))?;
    }
    Ok(())
}

/// Sends the payload to a canary. Outside a namespace of our own nothing but loopback is ever addressed.
fn touch(target: &str, payload: &[u8], own: bool) -> io::Result<()> {
    use io::Write as _;
    let limit = Duration::from_secs(1);
    let place = |text: &str| -> io::Result<SocketAddr> {
        text.parse()
            .ok()
            .filter(|place: &SocketAddr| own || place.ip().is_loopback())
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
    };
    if let Some(text) = target.strip_prefix("tcp://") {
        let mut stream = TcpStream::connect_timeout(&place(text)?, limit)?;
        stream.set_write_timeout(Some(limit))?;
        return stream.write_all(payload);
    }
    if let Some(text) = target.strip_prefix("udp://") {
        let place = place(text)?;
        let any: IpAddr = match place {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        return UdpSocket::bind((any, 0))?.send_to(payload, place).map(drop);
    }
    let place = match (
        target.strip_prefix("path:"),
        target.strip_prefix("abstract:"),
    ) {
        (Some(path), _) => unix::SocketAddr::from_pathname(path)?,
        (_, Some(name)) => unix::SocketAddr::from_abstract_name(name)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let mut stream = unix::UnixStream::connect_addr(&place)?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(payload)
}

/// One message, with at most one descriptor.
fn send(
    line: BorrowedFd<'_>,
    message: &Message,
    descriptor: Option<BorrowedFd<'_>>,
    flags: MsgFlags,
) -> io::Result<()> {
    let text = message.encode();
    let descriptors: Vec<RawFd> = descriptor.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() {
        &rights[..0]
    } else {
        &rights
    };
    let flags = flags | MsgFlags::MSG_NOSIGNAL;
    let parts = [IoSlice::new(text.as_bytes())];
    socket::sendmsg::<()>(line.as_raw_fd(), &parts, control, flags, None)?;
    Ok(())
}

/// The next message, with its descriptor; nothing at the end.
fn receive(line: BorrowedFd<'_>) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut text = vec![0; MAX_LINE];
    let mut control = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut text)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let (length, descriptor) = loop {
        let received =
            socket::recvmsg::<()>(line.as_raw_fd(), &mut parts, Some(&mut control), flags);
        let received = match received {
            Err(nix::Error::EINTR) => continue,
            received => received?,
        };
        let mut descriptor = None;
        for part in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(descriptors) = part {
                for fd in descriptors {
                    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
                    descriptor = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
        break (received.bytes, descriptor);
    };
    if length == 0 {
        return Ok(None);
    }
    let message = Message::decode(&text[..length])
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no message"))?;
    Ok(Some((message, descriptor)))
}
