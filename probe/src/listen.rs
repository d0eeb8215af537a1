//! Listening: the probe as a canary, where the harness itself cannot stand. What arrives is an attacker's, so everything
//! is bounded; what is told is where it was touched, and by which token.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use escape_audit_probe::target::Target;
use escape_audit_probe::token;
use escape_audit_probe::wire::{Message, Outcome};

use crate::input::Input;
use crate::network;
use crate::session::{Output, words};
use crate::sys;

/// On so many addresses it listens.
const ADDRESSES: usize = 64;
/// It ends by itself after so many seconds, whatever it was asked for: a day.
const LONGEST: u64 = 24 * 3600;
/// So many conversations are held at once; the oldest gives way.
const CONVERSATIONS: usize = 64;
/// What is kept of one conversation, in bytes.
const KEPT: usize = 4096;
/// How long a conversation may be silent.
const SILENCE: Duration = Duration::from_secs(2);
/// What is taken in a second, in bytes; a conversation that says nothing counts for [`GREETING`].
const BYTES_PER_SECOND: usize = 64 * 1024;
const GREETING: usize = 64;
/// How long a touch of its own may take.
const TOUCH: Duration = Duration::from_secs(1);

/// Listens until the input ends, nobody reads any more, or the time is over.
pub fn run(request: &Message, input: &mut Input, output: &mut Output) {
    let seconds = request.number("seconds").unwrap_or(0).min(LONGEST);
    let until = Instant::now() + Duration::from_secs(seconds);
    let own = own_addresses();
    let mut ears = open(&own, request.number("port").unwrap_or(0));
    for ear in &ears {
        output.record(&ear.record("listens").with("interface", &ear.interface));
    }
    output.record(&Message::new(&["ready"]));
    let mut talks = VecDeque::new();
    let mut pace = Pace::begin();
    while Instant::now() < until && !output.is_broken() {
        while let Some(line) = input.line() {
            if let Ok(message) = Message::decode(&line)
                && words(&message) == ["touch"]
            {
                output.record(&touched(&message, &own));
            }
        }
        if input.has_ended() {
            return;
        }
        let left = until.saturating_duration_since(Instant::now());
        let rest = pace.rest();
        let mut waiting = vec![sys::STDIN];
        if rest.is_zero() {
            waiting.extend(ears.iter().map(Ear::fd));
            waiting.extend(talks.iter().map(Talk::fd));
        }
        let next = if rest.is_zero() { SILENCE } else { rest };
        let wait = next.min(left).max(Duration::from_millis(1));
        sys::wait_for_any(&waiting, libc::POLLIN, wait);
        if sys::wait_readable([Some(sys::STDIN), None], Duration::ZERO)[0] {
            input.read();
        }
        if pace.rest().is_zero() {
            for ear in &mut ears {
                ear.hear(&mut talks, &mut pace, output);
            }
            talks.retain_mut(|talk| talk.goes_on(&mut pace, output));
        }
    }
}

/// The addresses of this network; one that is valid on a single link cannot be named without it.
fn own_addresses() -> Vec<(String, IpAddr)> {
    let mut own = sys::addresses().unwrap_or_default();
    own.retain(|(_, ip)| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    own
}

/// A socket for each address and kind. Where there can be none (a port that is taken), nothing is told of one.
fn open(own: &[(String, IpAddr)], port: u16) -> Vec<Ear> {
    let mut ears = Vec::new();
    for (interface, ip) in own.iter().take(ADDRESSES) {
        let at = SocketAddr::new(*ip, port);
        let sockets = [
            TcpListener::bind(at).map(Socket::Stream),
            UdpSocket::bind(at).map(Socket::Datagram),
        ];
        let opened = sockets.into_iter().flatten();
        ears.extend(opened.filter_map(|socket| Ear::new(socket, interface).ok()));
    }
    ears
}

/// Shows a listener of this network a token. Nothing is sent to an address that is not this network's own.
fn touched(request: &Message, own: &[(String, IpAddr)]) -> Message {
    let address = request.text("address").unwrap_or_default();
    let payload = request.bytes("payload").unwrap_or_default();
    let is_own = |at: SocketAddr| own.iter().any(|(_, ip)| *ip == at.ip());
    let result = match Target::parse(address) {
        Some(Target::Tcp(at)) if is_own(at) => sys::io_outcome(&greet(at, payload)),
        Some(Target::Udp(at)) if is_own(at) => {
            let sent = network::udp_socket(at).and_then(|socket| socket.send(payload));
            sys::io_outcome(&sent)
        }
        _ => Outcome::Errno(libc::EADDRNOTAVAIL),
    };
    Message::new(&["touched"])
        .with("address", address)
        .with("result", result.encode())
}

fn greet(at: SocketAddr, payload: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&at, TOUCH)?;
    stream.set_write_timeout(Some(TOUCH))?;
    stream.write_all(payload)
}

enum Socket {
    Stream(TcpListener),
    Datagram(UdpSocket),
}

/// One address that is listened on.
struct Ear {
    socket: Socket,
    at: Place,
    interface: String,
}

/// Where something was heard.
#[derive(Clone)]
struct Place {
    kind: &'static str,
    address: String,
}

impl Ear {
    fn new(socket: Socket, interface: &str) -> io::Result<Self> {
        let (kind, at) = match &socket {
            Socket::Stream(socket) => {
                socket.set_nonblocking(true)?;
                ("tcp", socket.local_addr()?)
            }
            Socket::Datagram(socket) => {
                socket.set_nonblocking(true)?;
                ("udp", socket.local_addr()?)
            }
        };
        let address = format!("{kind}://{at}");
        Ok(Self {
            socket,
            at: Place { kind, address },
            interface: interface.to_owned(),
        })
    }

    fn fd(&self) -> i32 {
        match &self.socket {
            Socket::Stream(socket) => sys::raw(socket),
            Socket::Datagram(socket) => sys::raw(socket),
        }
    }

    fn record(&self, word: &str) -> Message {
        self.at.record(word)
    }

    /// Takes what has come, as far as the pace allows.
    fn hear(&mut self, talks: &mut VecDeque<Talk>, pace: &mut Pace, output: &mut Output) {
        let mut bytes = [0; KEPT];
        while pace.rest().is_zero() {
            match &self.socket {
                Socket::Stream(socket) => {
                    let Ok((stream, _)) = socket.accept() else {
                        return;
                    };
                    pace.take(GREETING);
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    // One that clings to its place must not keep the others out.
                    while talks.len() >= CONVERSATIONS {
                        talks.pop_front();
                    }
                    talks.push_back(Talk::new(stream, self.at.clone()));
                }
                Socket::Datagram(socket) => {
                    let Ok((length, _)) = socket.recv_from(&mut bytes) else {
                        return;
                    };
                    pace.take(length.max(GREETING));
                    self.at.tell(&bytes[..length], &mut Vec::new(), output);
                }
            }
        }
    }
}

impl Place {
    fn record(&self, word: &str) -> Message {
        Message::new(&[word])
            .with("kind", self.kind)
            .with("address", &self.address)
    }

    /// Tells of each token in what was heard that was not told of yet.
    fn tell(&self, heard: &[u8], told: &mut Vec<String>, output: &mut Output) {
        for token in token::find(heard) {
            if !told.contains(&token) {
                output.record(&self.record("touch").with("token", &token));
                told.push(token);
            }
        }
    }
}

/// One conversation over TCP.
struct Talk {
    stream: TcpStream,
    at: Place,
    heard: Vec<u8>,
    told: Vec<String>,
    last: Instant,
}

impl Talk {
    fn new(stream: TcpStream, at: Place) -> Self {
        Self {
            stream,
            at,
            heard: Vec::new(),
            told: Vec::new(),
            last: Instant::now(),
        }
    }

    fn fd(&self) -> i32 {
        sys::raw(&self.stream)
    }

    /// Takes what has come; whether more may come.
    fn goes_on(&mut self, pace: &mut Pace, output: &mut Output) -> bool {
        let mut part = [0; 1024];
        while pace.rest().is_zero() {
            match self.stream.read(&mut part) {
                Ok(length @ 1..) => {
                    pace.take(length);
                    self.last = Instant::now();
                    let room = KEPT - self.heard.len();
                    self.heard.extend_from_slice(&part[..length.min(room)]);
                    self.at.tell(&self.heard, &mut self.told, output);
                    if length >= room {
                        return false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return false,
            }
        }
        self.last.elapsed() < SILENCE
    }
}

/// How much was taken in the current second.
struct Pace {
    since: Instant,
    taken: usize,
}

impl Pace {
    fn begin() -> Self {
        Self {
            since: Instant::now(),
            taken: 0,
        }
    }

    fn take(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// How long to rest before more is taken.
    fn rest(&mut self) -> Duration {
        const SECOND: Duration = Duration::from_secs(1);
        if self.since.elapsed() >= SECOND {
            *self = Self::begin();
        }
        match self.taken > BYTES_PER_SECOND {
            true => SECOND.saturating_sub(self.since.elapsed()),
            false => Duration::ZERO,
        }
    }
}
