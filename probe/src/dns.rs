//! Attempts to get a name out through DNS, with queries made by hand: a static program has no resolver.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use escape_audit_probe::packet;
use escape_audit_probe::target::Target;
use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::network::{answers, begin_all, settled, udp_socket};
use crate::sys;

/// How much of an answer is reported.
const ANSWER: usize = 1024;

/// How many servers are asked at once.
const AT_ONCE: usize = 64;

/// A name server, as it was written and where it is.
type Server = (String, Target);

/// Asks each server for the address of a name: all at once, and again those that do not answer.
pub fn query(attempt: &mut Attempt) {
    let mut servers: Vec<String> = attempt
        .all("server")
        .into_iter()
        .map(|server| String::from_utf8_lossy(server).into_owned())
        .collect();
    if attempt.is_on("resolver") {
        let configured = attempt.bounded(configured(), 8, "name servers");
        for server in &configured {
            let server = format!("udp://{server}");
            attempt.fact("resolver", &server, "");
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
    }
    let name = attempt.request.text("name").unwrap_or_default();
    let Some(packet) = packet::dns_query(sys::pid() as u16, name) else {
        return attempt.step("malformed", name, Outcome::Errno(libc::EINVAL));
    };
    let mut understood: Vec<Server> = Vec::new();
    for server in servers {
        match Target::parse(&server) {
            Some(target @ (Target::Udp(_) | Target::Tcp(_))) => understood.push((server, target)),
            _ => attempt.step("malformed", &server, Outcome::Errno(libc::EINVAL)),
        }
    }
    for some in understood.chunks(AT_ONCE) {
        ask(attempt, some, &packet);
    }
}

/// Asks again those that do not answer.
fn ask(attempt: &mut Attempt, servers: &[Server], packet: &[u8]) {
    let mut open = servers.to_vec();
    for round in 0..attempt.capped("tries", 3, 100) {
        if round > 0 {
            attempt.sleep(attempt.time("gap_ms", 100, 10_000));
        }
        let limit = attempt.time("timeout_ms", 1000, 30_000);
        let mut silent = Vec::new();
        for (server, answer) in ask_once(open, packet, limit) {
            let result = sys::io_outcome(&answer);
            attempt.step("query", &server.0, result);
            match answer {
                Ok(answer) => told(attempt, &server.0, packet, &answer),
                Err(_) if result == Outcome::Timeout => silent.push(server),
                Err(_) => {}
            }
        }
        open = silent;
        if open.is_empty() || attempt.is_over() {
            return;
        }
    }
}

fn ask_once(
    servers: Vec<Server>,
    packet: &[u8],
    limit: Duration,
) -> Vec<(Server, io::Result<Vec<u8>>)> {
    let (mut sockets, mut streams, mut done) = (Vec::new(), Vec::new(), Vec::new());
    for server in servers {
        match server.1 {
            Target::Udp(address) => {
                let socket = udp_socket(address);
                let sent = socket.and_then(|socket| socket.send(packet).map(|_| socket));
                match sent {
                    Ok(socket) => sockets.push((server, socket)),
                    Err(error) => done.push((server, Err(error))),
                }
            }
            Target::Tcp(address) => streams.push((server, address)),
            _ => {}
        }
    }
    // Both protocols wait in the same time.
    let until = Instant::now() + limit;
    let addresses: Vec<SocketAddr> = streams.iter().map(|(_, address)| *address).collect();
    let begun = begin_all(&addresses);
    done.extend(answers(sockets, limit));
    for ((server, _), connected) in streams.into_iter().zip(settled(begun, until)) {
        let answer = connected.and_then(|stream| over_tcp(stream, packet, limit));
        done.push((server, answer));
    }
    done
}

/// Over TCP each message is preceded by its length (RFC 1035, 4.2.2).
fn over_tcp(mut stream: TcpStream, packet: &[u8], limit: Duration) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let mut message = (packet.len() as u16).to_be_bytes().to_vec();
    message.extend_from_slice(packet);
    stream.write_all(&message)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; ANSWER.min(u16::from_be_bytes(length).into())];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// What was answered, and whether it is a yes: the answer's code and the number of its records, where it is an answer to
/// this query.
fn told(attempt: &mut Attempt, server: &str, packet: &[u8], answer: &[u8]) {
    attempt.reply(server, answer);
    if let Some((code, records)) = packet::dns_answer(packet, answer) {
        attempt.count("dns-code", server, code.into());
        attempt.count("dns-records", server, records.into());
    }
}

/// The name servers that the sandbox is configured with.
fn configured() -> Vec<SocketAddr> {
    let text = std::fs::read("/etc/resolv.conf").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let servers = text.lines().filter_map(|line| {
        let address: IpAddr = line.strip_prefix("nameserver")?.trim().parse().ok()?;
        Some(SocketAddr::new(address, 53))
    });
    servers.collect()
}
