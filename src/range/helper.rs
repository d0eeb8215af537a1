//! The helper's side: it makes the namespaces, opens every socket in there, and then touches canaries when told to.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::time::Duration;

use escape_audit_probe::wire::Message;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::MsgFlags;

use super::Token;
use super::line::{receive, send};
use super::netlink::Netlink;
use super::netns::RangeError;
use super::places::{self, Ground, Spot, Wire};

/// What `escape-audit __range GROUND` is. Its standard input is one end of the harness's socket pair. Must run
/// before the process has a second thread.
pub fn helper_main() -> i32 {
    let Some(ground) = std::env::args().nth(2).as_deref().and_then(Ground::parse) else {
        return 2;
    };
    let stdin = io::stdin();
    let line = stdin.as_fd();
    if let Err(error) = hand_over(line, &ground) {
        let failed = Message::new(&["failed"])
            .with("step", error.step)
            .with("why", error.why)
            .with("refused", if error.refused { "1" } else { "0" });
        let _ = send(line, &failed, None, MsgFlags::empty());
        return 1;
    }
    while let Ok(Some((message, _))) = receive(line) {
        if let (Some(target), Some(payload)) = (message.text("target"), message.bytes("payload")) {
            // Success and failure alike are for the canary to tell.
            let _ = touch(target, payload, &ground);
        }
    }
    0
}

fn hand_over(line: BorrowedFd<'_>, ground: &Ground) -> Result<(), RangeError> {
    let say = |message: &Message, fd: Option<BorrowedFd<'_>>| {
        send(line, message, fd, MsgFlags::empty())
            .map_err(|error| RangeError::new("answer the harness", error))
    };
    if *ground == Ground::Own {
        let refused = |error| RangeError {
            refused: true,
            ..error
        };
        for name in make_namespaces().map_err(refused)? {
            let path = format!("/proc/self/ns/{name}");
            let file = fs::File::open(&path)
                .map_err(|error| RangeError::new(format!("open {path}"), error))?;
            let message = Message::new(&["namespace"]).with("name", *name);
            say(&message, Some(file.as_fd()))?;
        }
    }
    for (number, spot) in places::spots(ground).iter().enumerate() {
        let (socket, address) = match spot.open() {
            Ok((socket, address)) => (Some(socket), address),
            // Without IPv6 the canary has no address at all. Any other is said to be there, and dead; but what the
            // machine itself runs on its own address is no canary of ours.
            Err(_) if spot.ip.is_ipv6() || matches!(ground, Ground::Here(_)) => continue,
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

/// Sends the payload to a canary. Outside a namespace of our own no address is ever used but this machine's.
fn touch(target: &str, payload: &[u8], ground: &Ground) -> io::Result<()> {
    use io::Write as _;
    let limit = Duration::from_secs(1);
    let place = |text: &str| -> io::Result<SocketAddr> {
        text.parse()
            .ok()
            .filter(|place: &SocketAddr| ground.holds(place.ip()))
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
}
