//! Attempts to get bytes out: TCP, UDP, Unix sockets, raw sockets.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use escape_audit_probe::packet;
use escape_audit_probe::target::Target;
use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::sys;

/// How much of a reply is read.
const REPLY: usize = 1024;

/// How long to wait for more of a reply that has begun.
const PAUSE: Duration = Duration::from_millis(200);

/// How many targets are tried at once: more would need more descriptors than a sandbox may have.
const AT_ONCE: usize = 64;

/// A target, as it was written and as it is.
type Place<'a> = (&'a [u8], SocketAddr);

/// Connects and sends the payload, over TCP and UDP. What a firewall drops costs its time once a round, however many
/// targets there are: each is tried as often as if it were alone.
pub fn connect(attempt: &mut Attempt) {
    if attempt.is_on("control") {
        let heard = loopback();
        attempt.step("control", "loopback", sys::io_outcome(&heard));
    }
    let (mut streams, mut datagrams): (Vec<Place>, Vec<Place>) = Default::default();
    for text in attempt.all("target") {
        match std::str::from_utf8(text).ok().and_then(Target::parse) {
            Some(Target::Tcp(address)) => streams.push((text, address)),
            Some(Target::Udp(address)) => datagrams.push((text, address)),
            _ => attempt.step("malformed", text, Outcome::Errno(libc::EINVAL)),
        }
    }
    for some in streams.chunks(AT_ONCE) {
        tcp(attempt, some);
    }
    for some in datagrams.chunks(AT_ONCE) {
        udp(attempt, some);
    }
}

/// A connection to itself shows that this client works, or how the kernel refuses sockets as such.
fn loopback() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let mut client = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    client.write_all(b".")
}

fn tries(attempt: &Attempt) -> u64 {
    attempt.capped("tries", 1, 100)
}

fn gap(attempt: &Attempt) {
    attempt.sleep(attempt.time("gap_ms", 100, 10_000));
}

/// Tries again only where nothing answers: a refusal is an answer.
fn tcp(attempt: &mut Attempt, places: &[Place]) {
    let mut open = places.to_vec();
    for round in 0..tries(attempt) {
        if round > 0 {
            gap(attempt);
        }
        let limit = attempt.time("timeout_ms", 1000, 30_000);
        let addresses: Vec<SocketAddr> = open.iter().map(|(_, address)| *address).collect();
        let connected = connect_all(&addresses, limit);
        let mut silent = Vec::new();
        let mut streams = Vec::new();
        for (place, connected) in open.into_iter().zip(connected) {
            let result = sys::io_outcome(&connected);
            attempt.step("connect", place.0, result);
            match connected {
                Ok(stream) => streams.push((place.0, stream)),
                Err(_) if result == Outcome::Timeout => silent.push(place),
                Err(_) => {}
            }
        }
        for (text, stream) in &mut streams {
            let _ = stream.set_write_timeout(Some(limit));
            if let Err(error) = stream.write_all(attempt.bytes("payload")) {
                attempt.step("send", *text, sys::io_error(&error));
            }
        }
        for (text, stream) in &mut streams {
            listen(attempt, text, stream, limit);
        }
        open = silent;
        if open.is_empty() || attempt.is_over() {
            return;
        }
    }
}

/// Connects to all of these at once; what has not answered by the limit has timed out.
fn connect_all(addresses: &[SocketAddr], limit: Duration) -> Vec<io::Result<TcpStream>> {
    let until = Instant::now() + limit;
    settled(begin_all(addresses), until)
}

/// Connections on their way.
pub struct Begun(Vec<io::Result<TcpStream>>);

/// Begins to connect to all of these.
pub fn begin_all(addresses: &[SocketAddr]) -> Begun {
    let each = addresses.iter();
    Begun(
        each.map(|address| sys::begin_to_connect(*address))
            .collect(),
    )
}

/// How each connection came out by then.
pub fn settled(begun: Begun, until: Instant) -> Vec<io::Result<TcpStream>> {
    let mut all: Vec<(io::Result<TcpStream>, bool)> =
        begun.0.into_iter().map(|tried| (tried, false)).collect();
    loop {
        let mut waiting = Vec::new();
        for (tried, settled) in all.iter_mut().filter(|(_, settled)| !settled) {
            let Ok(stream) = tried else {
                *settled = true;
                continue;
            };
            match is_connected(stream) {
                Ok(false) => waiting.push(sys::raw(stream)),
                Ok(true) => *settled = true,
                Err(error) => (*tried, *settled) = (Err(error), true),
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if waiting.is_empty() || left.is_zero() {
            break;
        }
        sys::wait_for_any(&waiting, libc::POLLOUT, left.max(Duration::from_millis(1)));
    }
    let blocking = |stream: TcpStream| stream.set_nonblocking(false).map(|()| stream);
    all.into_iter()
        .map(|(tried, settled)| match settled {
            true => tried.and_then(blocking),
            false => Err(io::ErrorKind::TimedOut.into()),
        })
        .collect()
}

fn is_connected(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reports what comes back until the other side is done, pauses, or the time is over.
fn listen(attempt: &mut Attempt, text: &[u8], stream: &mut TcpStream, limit: Duration) {
    let until = Instant::now() + limit;
    let mut reply = [0; REPLY];
    let mut got = 0;
    while got < REPLY {
        let left = until.saturating_duration_since(Instant::now());
        let wait = if got == 0 { left } else { left.min(PAUSE) };
        if wait.is_zero() || stream.set_read_timeout(Some(wait)).is_err() {
            break;
        }
        match stream.read(&mut reply[got..]) {
            Ok(n @ 1..) => got += n,
            _ => break,
        }
    }
    if got > 0 {
        attempt.reply(text, &reply[..got]);
    }
}

/// Sends every datagram, whatever becomes of the one before: none of them says whether it arrived.
fn udp(attempt: &mut Attempt, places: &[Place]) {
    let mut sockets = Vec::new();
    for (text, address) in places {
        match udp_socket(*address) {
            Ok(socket) => sockets.push((*text, socket)),
            Err(error) => attempt.step("send", *text, sys::io_error(&error)),
        }
    }
    for round in 0..tries(attempt) {
        if round > 0 {
            gap(attempt);
        }
        for (text, socket) in &sockets {
            let sent = socket.send(attempt.bytes("payload"));
            attempt.step("send", *text, sys::io_outcome(&sent));
        }
        if sockets.is_empty() || attempt.is_over() {
            return;
        }
    }
    let limit = attempt.time("timeout_ms", 1000, 30_000);
    for (text, answer) in answers(sockets, limit) {
        match answer {
            Ok(answer) => attempt.reply(text, &answer),
            Err(error) => attempt.step("reply", text, sys::io_error(&error)),
        }
    }
}

/// What arrives at each of these sockets until the limit: the first datagram, or why there is none.
pub fn answers<T>(sockets: Vec<(T, UdpSocket)>, limit: Duration) -> Vec<(T, io::Result<Vec<u8>>)> {
    let until = Instant::now() + limit;
    let mut open = sockets;
    let mut done = Vec::new();
    loop {
        let mut waiting = Vec::new();
        for (what, socket) in open {
            let mut answer = [0; REPLY];
            let received = socket.set_nonblocking(true);
            match received.and_then(|()| socket.recv(&mut answer)) {
                Ok(got) => done.push((what, Ok(answer[..got].to_vec()))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    waiting.push((what, socket));
                }
                Err(error) => done.push((what, Err(error))),
            }
        }
        open = waiting;
        let left = until.saturating_duration_since(Instant::now());
        if open.is_empty() || left.is_zero() {
            break;
        }
        let fds: Vec<_> = open.iter().map(|(_, socket)| sys::raw(socket)).collect();
        sys::wait_for_any(&fds, libc::POLLIN, left.max(Duration::from_millis(1)));
    }
    let silent = |(what, _)| (what, Err(io::ErrorKind::TimedOut.into()));
    done.extend(open.into_iter().map(silent));
    done
}

/// A UDP socket that sends to this address, and hears what the network says about it.
pub fn udp_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    Ok(socket)
}

/// Connects to Unix sockets and sends the payload.
pub fn connect_unix(attempt: &mut Attempt) {
    let pair = UnixStream::pair().and_then(|(mut one, _other)| one.write_all(b"."));
    attempt.step("control", "socketpair", sys::io_outcome(&pair));
    for text in attempt.all("target") {
        let address = match std::str::from_utf8(text).ok().and_then(Target::parse) {
            Some(Target::Path(path)) => UnixAddr::from_pathname(path),
            Some(Target::Abstract(name)) => UnixAddr::from_abstract_name(name),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        let sent = address.and_then(|address| send_unix(&address, attempt.bytes("payload")));
        attempt.step("connect", text, sys::io_outcome(&sent));
    }
}

/// Connects to a Unix socket of either type and sends.
pub fn send_unix(address: &UnixAddr, payload: &[u8]) -> io::Result<()> {
    match UnixStream::connect_addr(address) {
        Ok(mut stream) => {
            stream.set_write_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(payload)
        }
        Err(error) if error.raw_os_error() == Some(libc::EPROTOTYPE) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(address)?;
            socket.send(payload).map(drop)
        }
        Err(error) => Err(error),
    }
}

/// Makes raw sockets, and sends a hand-made UDP datagram through one.
pub fn raw_socket(attempt: &mut Attempt) {
    let stream = socket(libc::AF_INET, libc::SOCK_STREAM, 0);
    attempt.step("control", "stream", sys::outcome(&stream));
    // With protocol 0 a packet socket receives nothing.
    let packet = socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
    attempt.step("socket", "packet", sys::outcome(&packet));
    let raw = socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_UDP);
    attempt.step("socket", "raw-udp", sys::outcome(&raw));
    let text = attempt.bytes("target");
    let target = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    let (Ok(raw), Some(target)) = (raw, target) else {
        return;
    };
    let datagram = packet::udp_datagram(49_152, target, attempt.bytes("payload"));
    for _ in 0..tries(attempt) {
        let sent = send_raw(&raw, target, &datagram);
        attempt.step("send", text, sys::outcome(&sent));
        gap(attempt);
    }
}

fn socket(domain: i32, kind: i32, protocol: i32) -> sys::Try<std::os::fd::OwnedFd> {
    // SAFETY: takes numbers.
    let made = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
    sys::check(i64::from(made)).map(sys::own)
}

fn send_raw(socket: &std::os::fd::OwnedFd, target: SocketAddrV4, data: &[u8]) -> sys::Try<()> {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(target.ip().octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: the data and the address are valid for the lengths that are passed with them.
    let sent = unsafe {
        libc::sendto(
            sys::raw(socket),
            data.as_ptr().cast(),
            data.len(),
            libc::MSG_DONTWAIT,
            (&raw const address).cast(),
            std::mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    sys::check(sent as i64).map(drop)
}
