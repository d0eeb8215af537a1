//! The attempt to outlive the sandbox: a detached process that tells from time to time that it is there.

use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::{Duration, Instant};

use escape_audit_probe::target::Target;
use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::network::send_unix;
use crate::sys::{self, Reaction, Side};

/// The longest life of a survivor.
const LIFE_MS: u64 = 60_000;

/// The time between two beacons.
const BEAT: Duration = Duration::from_millis(200);

/// Detaches a process, and stays for a while, so that both can be seen.
pub fn outlive(attempt: &mut Attempt) {
    let life = attempt.capped("ms", 1000, LIFE_MS);
    let beacons: Vec<Target> = attempt
        .all("beacon")
        .into_iter()
        .filter_map(|text| Target::parse(std::str::from_utf8(text).ok()?))
        .collect();
    let Ok((news, report)) = sys::pipe() else {
        return attempt.step("detach", "", Outcome::Errno(sys::last_error()));
    };
    match sys::fork() {
        // The one between ends at once, so that the survivor belongs to nobody here.
        Ok(Side::Child) => {
            sys::new_session();
            match sys::fork() {
                Ok(Side::Child) => survive(attempt, life, &beacons),
                Ok(Side::Parent(pid)) => {
                    let _ = sys::write_all(sys::raw(&report), pid.to_string().as_bytes());
                    sys::exit(0)
                }
                Err(errno) => sys::exit(errno),
            }
        }
        Ok(Side::Parent(pid)) => {
            let result = match crate::child::end_of(pid) {
                Outcome::Exit(errno) => Outcome::Errno(errno),
                ended => ended,
            };
            attempt.step("detach", "", result);
            let mut pid = [0; 16];
            if let Ok(n) = sys::read(sys::raw(&news), &mut pid) {
                attempt.fact("survivor", "", &pid[..n]);
            }
        }
        Err(errno) => attempt.step("detach", "", Outcome::Errno(errno)),
    }
    attempt.sleep(attempt.time("linger_ms", 0, LIFE_MS));
    attempt.hold();
}

/// The survivor: no parent, no group, no session, no terminal, no descriptor of anybody's, deaf to polite signals. It
/// ends by its own clock, and by an alarm if that stands still.
fn survive(attempt: &Attempt, life: u64, beacons: &[Target]) -> ! {
    sys::close_all();
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE] {
        sys::react(signal, Reaction::Ignore);
    }
    sys::react(libc::SIGALRM, Reaction::Exit);
    sys::alarm((life / 1000 + 1) as u32);
    if let Some(name) = attempt.request.text("name") {
        sys::set_name(name);
    }
    let until = Instant::now() + Duration::from_millis(life);
    while Instant::now() < until {
        for beacon in beacons {
            tell(beacon, attempt.bytes("payload"));
        }
        std::thread::sleep(BEAT.min(until.saturating_duration_since(Instant::now())));
    }
    sys::exit(0)
}

/// One beacon; whether it arrives is for the other side to say.
fn tell(beacon: &Target, payload: &[u8]) {
    match beacon {
        Target::Tcp(address) => {
            if let Ok(mut stream) = TcpStream::connect_timeout(address, BEAT) {
                let _ = stream.set_write_timeout(Some(BEAT));
                let _ = std::io::Write::write_all(&mut stream, payload);
            }
        }
        Target::Udp(address) => {
            if let Ok(socket) = crate::network::udp_socket(*address) {
                let _ = socket.send(payload);
            }
        }
        Target::Abstract(name) => {
            if let Ok(address) = SocketAddr::from_abstract_name(name) {
                let _ = send_unix(&address, payload);
            }
        }
        Target::Path(path) => {
            if let Ok(address) = SocketAddr::from_pathname(path) {
                let _ = send_unix(&address, payload);
            }
        }
    }
}
