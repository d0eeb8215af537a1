//! Attempts to get a name out through DNS, with queries made by hand: a static program has no resolver.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use escape_audit_probe::packet;
use escape_audit_probe::target::Target;
use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::network::udp_socket;
use crate::sys;

/// How much of an answer is reported.
const ANSWER: usize = 1024;

/// Asks each server for the address of a name.
pub fn query(attempt: &mut Attempt) {
    let mut servers: Vec<String> = attempt
        .all("server")
        .into_iter()
        .map(|server| String::from_utf8_lossy(server).into_owned())
        .collect();
    if attempt.is_on("resolver") {
        let configured = attempt.bounded(configured(), 8, "name servers");
        servers.extend(configured.iter().map(|server| format!("udp://{server}")));
    }
    let name = attempt.request.text("name").unwrap_or_default();
    let Some(packet) = packet::dns_query(sys::pid() as u16, name) else {
        return attempt.step("malformed", name, Outcome::Errno(libc::EINVAL));
    };
    for server in servers {
        match Target::parse(&server) {
            Some(Target::Udp(address)) => {
                ask(attempt, &server, |limit| udp(address, &packet, limit))
            }
            Some(Target::Tcp(address)) => {
                ask(attempt, &server, |limit| tcp(address, &packet, limit))
            }
            _ => attempt.step("malformed", &server, Outcome::Errno(libc::EINVAL)),
        }
    }
}

/// Asks again while nothing answers.
fn ask(attempt: &mut Attempt, server: &str, once: impl Fn(Duration) -> io::Result<Vec<u8>>) {
    for round in 0..attempt.capped("tries", 3, 100) {
        if round > 0 {
            attempt.sleep(attempt.time("gap_ms", 100, 10_000));
        }
        let answer = once(attempt.time("timeout_ms", 1000, 30_000));
        let result = sys::io_outcome(&answer);
        attempt.step("query", server, result);
        if let Ok(answer) = answer {
            attempt.reply(server, &answer);
        }
        if result != Outcome::Timeout || attempt.is_over() {
            return;
        }
    }
}

fn udp(server: SocketAddr, packet: &[u8], limit: Duration) -> io::Result<Vec<u8>> {
    let socket = udp_socket(server)?;
    socket.set_read_timeout(Some(limit))?;
    socket.send(packet)?;
    let mut answer = [0; ANSWER];
    let got = socket.recv(&mut answer)?;
    Ok(answer[..got].to_vec())
}

/// Over TCP each message is preceded by its length (RFC 1035, 4.2.2).
fn tcp(server: SocketAddr, packet: &[u8], limit: Duration) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, limit)?;
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
