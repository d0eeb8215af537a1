//! The line protocol between harness and probe: one message a line, `WORD WORD … key=value key=value …`.
//!
//! Harness to probe, on standard input:
//!
//! ```text
//! EA1 hello nonce=<hex> name=<thread name>
//! EA1 attempt id=<word> kind=<attempt kind> deadline_ms=<n> hold=<0|1> <arguments of the kind>
//! EA1 go
//! EA1 next [id=<word>]          (answers a `hold`; with an id, only that attempt's)
//! ```
//!
//! Or, in place of the list, a wish to listen, and then any number of touches:
//!
//! ```text
//! EA1 listen seconds=<n> [port=<n>]
//! EA1 touch address=<tcp|udp>://<A:P> payload=<bytes>     (an address of its own network alone)
//! ```
//!
//! Probe to harness, on standard output; `<n>` counts the records from 0 without a gap:
//!
//! ```text
//! EA1 <nonce> <n> start pid= ppid= uid= euid= gid= cpus= boot= kernel= nnp= seccomp=
//! EA1 <nonce> <n> begin id= kind= fork=<0|1>
//! EA1 <nonce> <n> step  id= what= target= result=<ok|timeout|errno:N|signal:N|exit:N>
//! EA1 <nonce> <n> fact  id= key= name= value=
//! EA1 <nonce> <n> hold  id=
//! EA1 <nonce> <n> done  id= result=<ok|timeout|signal:N|exit:N>
//! EA1 <nonce> <n> end
//! ```
//!
//! And where it listens:
//!
//! ```text
//! EA1 <nonce> <n> listens kind=<tcp|udp> address=<tcp|udp>://<A:P> interface=<name>
//! EA1 <nonce> <n> ready                                      (no `listens` comes after it)
//! EA1 <nonce> <n> touch   kind=<tcp|udp> address=<where it was touched> token=<token>
//! EA1 <nonce> <n> touched address= result=<ok|timeout|errno:N>   (answers a `touch` that it was asked for)
//! ```
//!
//! Before a valid `hello` there is no nonce: a probe that reads end-of-file instead says `EA1 - 0 no-input`.
//! Values are percent-encoded, so that no value can hold a space, a line feed or a control character.
//!
//! - `nnp` and `seccomp` are what `prctl` says (`errno:N` where it refuses), `boot` is empty where it cannot be read.
//! - An attempt with `hold=1` holds exactly once: where its kind says so, else at its end. If standard input has ended,
//!   a hold lasts 700 ms. After its deadline an attempt has half a second for cleaning up; then its whole process group
//!   is killed.
//! - What the probe does not understand is answered in its place with `begin`, `fact key=unsupported name=KIND
//!   value=WHY` and `done result=exit:2`; a line without an id gets the id `-`. One argument that it does not
//!   understand is `step what=malformed target=ARGUMENT`.
//! - It listens until its input ends or the seconds are over, on each address of its network, over TCP and UDP.
//! - Exit status: 0 after `end`, 3 if there was no session, no `go`, or nobody listened, 4 if an attempt without a
//!   process of its own (`fork=0`) did not stop in time.

use std::fmt::Write as _;

/// The protocol's name and version: the first word of every line.
pub const PROTOCOL: &str = "EA1";

/// The longest line that either side accepts, in bytes, without its line feed.
pub const MAX_LINE: usize = 16 * 1024;

/// One message: its words (protocol name excluded) and its fields, in order. A key may repeat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The bare words: `["hello"]`, or `[nonce, count, "step"]`.
    pub words: Vec<String>,
    /// The `key=value` pairs, decoded.
    pub fields: Vec<(String, Vec<u8>)>,
}

/// Why a line is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// It does not begin with [`PROTOCOL`]: ordinary output, not a message.
    NotOurs,
    /// It is longer than [`MAX_LINE`].
    TooLong,
    /// A percent escape is cut short or not hexadecimal, or a byte that has to be escaped is not.
    Escape,
    /// A bare word follows a field.
    Order,
}

impl Message {
    /// A message of these bare words, without fields.
    pub fn new<S: AsRef<str>>(words: &[S]) -> Self {
        Self {
            words: words.iter().map(|w| w.as_ref().to_owned()).collect(),
            fields: Vec::new(),
        }
    }

    /// Adds a field; keys may repeat.
    pub fn with(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push((key.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// The first value of `key`, as bytes.
    pub fn bytes(&self, key: &str) -> Option<&[u8]> {
        self.fields
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_slice())
    }

    /// The first value of `key`, if it is UTF-8.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.bytes(key).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// The first value of `key`, as a number.
    pub fn number<N: std::str::FromStr>(&self, key: &str) -> Option<N> {
        self.text(key).and_then(|v| v.parse().ok())
    }

    /// All values of `key`, as text; values that are not UTF-8 are left out.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.fields
            .iter()
            .filter(move |(k, _)| k == key)
            .filter_map(|(_, v)| std::str::from_utf8(v).ok())
    }

    /// The line, without a line feed.
    pub fn encode(&self) -> String {
        let mut line = String::from(PROTOCOL);
        for word in &self.words {
            line.push(' ');
            escape(word.as_bytes(), &mut line);
        }
        for (key, value) in &self.fields {
            line.push(' ');
            escape(key.as_bytes(), &mut line);
            line.push('=');
            escape(value, &mut line);
        }
        line
    }

    /// Reads one line (without its line feed).
    pub fn decode(line: &[u8]) -> Result<Self, Malformed> {
        let rest = line
            .strip_prefix(PROTOCOL.as_bytes())
            .filter(|rest| rest.is_empty() || rest[0] == b' ')
            .ok_or(Malformed::NotOurs)?;
        if line.len() > MAX_LINE {
            return Err(Malformed::TooLong);
        }
        let mut message = Self::default();
        for part in rest.split(|b| *b == b' ').filter(|part| !part.is_empty()) {
            match part.iter().position(|b| *b == b'=') {
                Some(at) => {
                    let key =
                        String::from_utf8(unescape(&part[..at])?).map_err(|_| Malformed::Escape)?;
                    message.fields.push((key, unescape(&part[at + 1..])?));
                }
                None if message.fields.is_empty() => message
                    .words
                    .push(String::from_utf8(unescape(part)?).map_err(|_| Malformed::Escape)?),
                None => return Err(Malformed::Order),
            }
        }
        Ok(message)
    }
}

/// How one elementary step, or a whole attempt, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It worked.
    Ok,
    /// Nothing answered in time; of an attempt: its deadline passed.
    Timeout,
    /// The kernel refused with this error number.
    Errno(i32),
    /// The process that tried was ended by this signal.
    Signal(i32),
    /// The process that tried ended with this status.
    Exit(i32),
}

impl Outcome {
    /// The value of a `result=` field.
    pub fn encode(self) -> String {
        match self {
            Self::Ok => "ok".into(),
            Self::Timeout => "timeout".into(),
            Self::Errno(n) => format!("errno:{n}"),
            Self::Signal(n) => format!("signal:{n}"),
            Self::Exit(n) => format!("exit:{n}"),
        }
    }

    /// Reads the value of a `result=` field.
    pub fn decode(text: &str) -> Option<Self> {
        let number = |n: &str| n.parse().ok();
        Some(match text.split_once(':') {
            None if text == "ok" => Self::Ok,
            None if text == "timeout" => Self::Timeout,
            Some(("errno", n)) => Self::Errno(number(n)?),
            Some(("signal", n)) => Self::Signal(number(n)?),
            Some(("exit", n)) => Self::Exit(number(n)?),
            _ => return None,
        })
    }
}

/// The kinds of attempt that the probe knows, with the fields that each one reads. A field marked `*` may repeat.
///
/// Every kind reports `step`s and `fact`s; what they are called is part of the protocol and stands beside the kind.
/// Where a bound of the probe's own leaves something out, any kind says `fact truncated name=WHAT value=BOUND`.
pub const KINDS: &[(&str, &str)] = &[
    ("run", "-> step run"),
    (
        "environment",
        "-> fact env-count; fact env name=VAR value=SECRET-HASH",
    ),
    (
        "process-environment",
        "proc* (where else the host's processes appear) -> step read target=/proc/PID/environ; fact env name=PID:VAR value=SECRET-HASH (each value once); fact refused (count); step control target=/proc/self/environ",
    ),
    (
        "read-file",
        "path*(~/ is the home of the variable and of /etc/passwd; of a file, 1 MiB) -> step read target=PATH; fact file name=PATH value=SECRET-HASH",
    ),
    (
        "write-file",
        "dir* name content mounts(0|1) -> step write target=DIR/NAME; step create too where the file could be made, even if it took no content; holds before it removes the files again",
    ),
    (
        "connect",
        "target*(tcp://A:P|udp://A:P) payload tries timeout_ms gap_ms control(0|1) -> step connect|send target=; fact reply name=TARGET value=N%20bytes,%20SECRET-HASH (of the first KiB; empty of none); step reply (UDP, without one); step control target=loopback",
    ),
    (
        "dns",
        "server*(udp://A:P|tcp://A:P) name tries timeout_ms resolver(0|1) -> step query target=SERVER; fact reply name=SERVER (as of connect)",
    ),
    (
        "connect-unix",
        "target*(path:/P|abstract:N) payload -> step connect target=; step control target=socketpair",
    ),
    (
        "engine-socket",
        "path* known(0|1: the usual paths, those of the user, and that of DOCKER_HOST) token timeout_ms -> step connect target=PATH; of each that accepts: fact peer name=PATH value=PID of who listens (0: outside this process namespace); step ask target=PATH (GET /_ping, else the greeting of HTTP/2); fact reply name=PATH (as of connect); fact engine name=PATH value=docker|libpod|api|http2 where it looks like one; step nowhere (connecting to a path where nothing is); step control target=socketpair",
    ),
    (
        "raw-socket",
        "target(A:P) payload -> step socket target=raw-udp|packet; step send target=A:P (tries gap_ms); step control target=stream",
    ),
    (
        "spawn",
        "count -> step fork; fact made; holds while the children live",
    ),
    (
        "allocate",
        "bytes processes -> fact touched (cumulative, bytes); step allocate target=NUMBER for each process; after one that ends at ENOMEM another goes on, up to 16; step fork if there can be none; fact held (bytes, by those that live); holds while the memory is held",
    ),
    (
        "spin",
        "processes ms -> step spin; fact spun (ms of wall clock); fact cpu-ms (of all of them)",
    ),
    (
        "fill",
        "dir* bytes(in each) file_bytes mounts(0|1: each other file system too) -> fact written name=DIR value=BYTES; step write target=DIR; after EFBIG the next file goes on; the files have no name, and are gone with the attempt; holds before that",
    ),
    (
        "flood",
        "bytes -> step flood; that many bytes of noise on standard output, no line of it a message; fact sent",
    ),
    (
        "list-processes",
        "pid* proc* -> step list target=/proc, and each place; fact process name=PID value=SECRET-HASH of the thread name; step probe target=PID (kill 0)",
    ),
    (
        "signal",
        "pid* value -> step signal target=PID (SIGURG by sigqueue); step control target=child (self where there can be none)",
    ),
    (
        "outlive",
        "ms name beacon*(tcp://A:P|abstract:N) payload linger_ms -> step detach; fact survivor (its pid); a detached process beacons every 200 ms for at most ms",
    ),
    (
        "capabilities",
        "-> fact cap-eff|cap-prm|cap-bnd|cap-amb (hex); fact uid-map; each dangerous one used without effect: step use target=CAP_NAME",
    ),
    (
        "gain-privileges",
        "helper*(path) -> fact no-new-privs; fact nosuid name=PATH value=1 where its mount ignores set-uid; step exec target=PATH; fact euid name=PATH|self value=N",
    ),
    (
        "user-namespace",
        "-> step unshare|clone|clone3 target=user; step map target=setgroups|uid_map|gid_map; step use target=mount (source escape-audit); holds inside the namespace",
    ),
    (
        "mount",
        "dir* source -> step unshare target=mount (its own mount namespace, where it can); step mount target=DIR; step fsopen target=tmpfs; holds before it unmounts",
    ),
    (
        "syscall",
        "number args*(0|bad-pointer|number) -> step syscall target=NUMBER",
    ),
];

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._/:@,+-~*[]{}".contains(&byte)
}

fn escape(bytes: &[u8], line: &mut String) {
    for byte in bytes {
        if plain(*byte) {
            line.push(char::from(*byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(line, "%{byte:02x}");
        }
    }
}

fn unescape(part: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity(part.len());
    let mut bytes = part.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'%' {
            let mut digit = || {
                bytes
                    .next()
                    .and_then(|d| char::from(*d).to_digit(16))
                    .and_then(|d| u8::try_from(d).ok())
                    .ok_or(Malformed::Escape)
            };
            out.push(digit()? << 4 | digit()?);
        } else if plain(*byte) {
            out.push(*byte);
        } else {
            return Err(Malformed::Escape);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_journey() {
        let all: Vec<u8> = (0..=255).collect();
        let sent = Message::new(&["step"])
            .with("value", &all)
            .with("value", "b c=d");
        let line = sent.encode();
        assert!(line.bytes().all(|b| (0x20..0x7f).contains(&b)), "{line}");
        assert_eq!(Message::decode(line.as_bytes()), Ok(sent));
    }

    #[test]
    fn what_is_not_ours_is_told_from_what_is_broken() {
        assert_eq!(Message::decode(b"hello"), Err(Malformed::NotOurs));
        assert_eq!(Message::decode(b"EA12 x"), Err(Malformed::NotOurs));
        assert_eq!(Message::decode(b"EA1 a k=%4"), Err(Malformed::Escape));
        assert_eq!(Message::decode(b"EA1 a k=\x07"), Err(Malformed::Escape));
        assert_eq!(Message::decode(b"EA1 a k=v b"), Err(Malformed::Order));
        let long = format!("EA1 a k={}", "x".repeat(MAX_LINE));
        assert_eq!(Message::decode(long.as_bytes()), Err(Malformed::TooLong));
    }

    #[test]
    fn outcomes_survive_the_journey() {
        for outcome in [
            Outcome::Ok,
            Outcome::Timeout,
            Outcome::Errno(13),
            Outcome::Signal(9),
            Outcome::Exit(2),
        ] {
            assert_eq!(Outcome::decode(&outcome.encode()), Some(outcome));
        }
        assert_eq!(Outcome::decode("okay"), None);
        assert_eq!(Outcome::decode("errno:x"), None);
    }
}
