//! The sockets of container engines: whether one is there, may be used, and answers.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use escape_audit_probe::engine;
use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::sys;

/// How much of an answer is read: the head of any engine's.
const ANSWER: usize = 1024;

/// More sockets are not tried.
const MOST: usize = 128;

/// A path at which nothing is: what connecting to it gives tells a filter on `connect` from a socket that is closed.
const NOWHERE: &[u8] = b"/escape-audit-nowhere/none.sock";

/// Connects to every path, and asks what accepts whether it is an engine. Nothing is asked for that changes anything.
pub fn ask(attempt: &mut Attempt) {
    let pair = UnixStream::pair().and_then(|(mut one, _other)| one.write_all(b"."));
    attempt.step("control", "socketpair", sys::io_outcome(&pair));
    let limit = attempt.time("timeout_ms", 1000, 10_000);
    let nowhere = connect(NOWHERE, limit);
    attempt.step("nowhere", NOWHERE, sys::io_outcome(&nowhere));
    let mut paths: Vec<Vec<u8>> = Vec::new();
    for path in attempt.all("path") {
        paths.push(path.to_vec());
    }
    if attempt.is_on("known") {
        let docker_host = std::env::var_os("DOCKER_HOST").map(OsStringExt::into_vec);
        paths.extend(engine::known(sys::ids().1, docker_host.as_deref()));
    }
    let mut seen = std::collections::BTreeSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    for path in attempt.bounded(paths, MOST, "paths") {
        try_one(attempt, &path);
        if attempt.is_over() {
            return;
        }
    }
}

fn try_one(attempt: &mut Attempt, path: &[u8]) {
    let limit = attempt.time("timeout_ms", 1000, 10_000);
    let connected = connect(path, limit);
    attempt.step("connect", path, sys::io_outcome(&connected));
    let Ok(stream) = connected else { return };
    if let Ok(pid) = peer(&stream) {
        attempt.fact("peer", path, pid.to_string());
    }
    let (mut answer, mut outcome) =
        converse(attempt, stream, &engine::ping(attempt.bytes("token")));
    if answer.is_empty() {
        // Some servers of HTTP/2 wait for its greeting, and say nothing to anybody else.
        let limit = attempt.time("timeout_ms", 1000, 10_000);
        if let Ok(stream) = connect(path, limit) {
            (answer, outcome) = converse(attempt, stream, engine::HTTP2_GREETING);
        }
    }
    attempt.step("ask", path, outcome);
    if !answer.is_empty() {
        attempt.reply(path, &answer);
    }
    if let Some(kind) = engine::recognise(&answer) {
        attempt.fact("engine", path, kind);
    }
}

/// Connects within the time: where the other side does not accept, connecting to a Unix socket waits for ever.
fn connect(path: &[u8], limit: Duration) -> io::Result<UnixStream> {
    // SAFETY: an all-zero address is a valid value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // One byte stays zero, as the end.
    if path.contains(&0) || path.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    // SAFETY: takes numbers.
    let made = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    let socket = sys::check(i64::from(made)).map_err(io::Error::from_raw_os_error)?;
    let stream = UnixStream::from(sys::own(socket));
    stream.set_write_timeout(Some(limit))?;
    // SAFETY: the address is valid for the length that is passed with it.
    let connected = unsafe {
        libc::connect(
            stream.as_raw_fd(),
            (&raw const address).cast(),
            std::mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    sys::check(i64::from(connected)).map_err(io::Error::from_raw_os_error)?;
    Ok(stream)
}

/// The process that listens, as this process's namespace numbers it: 0 where it is outside of it.
fn peer(stream: &UnixStream) -> sys::Try<i32> {
    // SAFETY: an all-zero value is valid, and the kernel writes at most the given size to it.
    unsafe {
        let mut peer: libc::ucred = std::mem::zeroed();
        let mut size = std::mem::size_of_val(&peer) as libc::socklen_t;
        let got = libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut size,
        );
        sys::check(i64::from(got)).map(|_| peer.pid)
    }
}

/// Says one thing and hears the answer's beginning; the outcome is ok where there is one.
fn converse(attempt: &Attempt, mut stream: UnixStream, words: &[u8]) -> (Vec<u8>, Outcome) {
    let until = Instant::now() + attempt.time("timeout_ms", 1000, 10_000);
    // What hangs up on the question may have said something before.
    let said = stream.write_all(words);
    let mut answer = Vec::new();
    let mut part = [0; ANSWER];
    let outcome = loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            break Outcome::Timeout;
        }
        match stream.read(&mut part) {
            Ok(n @ 1..) => answer.extend_from_slice(&part[..n]),
            Ok(0) => match said {
                Ok(()) => break Outcome::Errno(libc::ECONNRESET),
                Err(error) => break sys::io_error(&error),
            },
            Err(error) => break sys::io_error(&error),
        }
        // A head that is whole, or settings: nobody says more that matters here.
        let is_whole = answer.windows(4).any(|w| w == b"\r\n\r\n");
        if is_whole || answer.len() >= ANSWER || engine::recognise(&answer) == Some("http2") {
            break Outcome::Ok;
        }
    };
    let outcome = if answer.is_empty() {
        outcome
    } else {
        Outcome::Ok
    };
    (answer, outcome)
}
