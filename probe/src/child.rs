//! Processes that make attempts: how they are started, watched, and ended together with all that they started.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use escape_audit_probe::wire::{Message, Outcome, PROTOCOL};

use crate::attempt::Link;
use crate::input::Input;
use crate::session::{Output, UNATTENDED_HOLD, hears_next};
use crate::sys::{self, Reaction, Side, Try};

/// What an attempt may still do after its deadline: remove its files, unmount.
const GRACE: Duration = Duration::from_millis(500);

/// How long a killed process may take to disappear.
const BURIAL: Duration = Duration::from_secs(2);

/// How often a process that closed its pipe is looked at, where the signal of its end does not come.
const LEAVES: Duration = Duration::from_millis(20);

/// A process that makes an attempt.
pub struct Running {
    pid: i32,
    records: OwnedFd,
    release: Option<OwnedFd>,
    unread: Vec<u8>,
    /// Nobody can write to the pipe any more.
    closed: bool,
}

/// Starts `body` in a process of its own, which leads its own group and dies with this one. Records may `gather` before
/// they are passed on: where nothing that the attempt does could end it halfway.
pub fn start(gather: bool, body: impl FnOnce(&mut dyn Link)) -> Try<Running> {
    let (records, out) = sys::pipe()?;
    let (word, release) = sys::pipe()?;
    let session = sys::pid();
    match sys::fork()? {
        Side::Child => {
            drop((records, release));
            sys::lead_group(0);
            sys::die_with(session);
            plain_signals();
            let gathered = gather.then(Vec::new);
            body(&mut Pipes {
                out,
                word,
                gathered,
            });
            sys::exit(0)
        }
        Side::Parent(pid) => {
            // Both sides do it, for either may come first.
            sys::lead_group(pid);
            Ok(Running {
                pid,
                records,
                release: Some(release),
                unread: Vec::new(),
                closed: false,
            })
        }
    }
}

fn plain_signals() {
    sys::react(libc::SIGCHLD, Reaction::Default);
    sys::react(libc::SIGALRM, Reaction::Default);
    sys::block_only(&[]);
}

/// Starts a process below the one that makes an attempt. It dies with its creator, and after so many seconds whatever
/// happens; `body` gives its exit status.
pub fn offspring(seconds: u32, body: impl FnOnce() -> i32) -> Try<i32> {
    let creator = sys::pid();
    match sys::fork()? {
        Side::Child => {
            sys::die_with(creator);
            plain_signals();
            sys::alarm(seconds);
            sys::exit(body())
        }
        Side::Parent(pid) => Ok(pid),
    }
}

/// Waits for an offspring and says how it ended.
pub fn end_of(pid: i32) -> Outcome {
    sys::reap(pid, true).map_or(Outcome::Errno(libc::ECHILD), |(_, ended)| ended)
}

/// Makes a trial in a process of its own, which a filter may kill, or in place where there can be none.
pub fn apart(trial: impl Fn() -> Try<()>) -> Outcome {
    let status = || trial().err().unwrap_or(0);
    match offspring(10, status) {
        Ok(pid) => match end_of(pid) {
            Outcome::Exit(errno) => Outcome::Errno(errno),
            ended => ended,
        },
        Err(_) => sys::outcome(&trial()),
    }
}

/// Kills offspring and waits for them.
pub fn bury(pids: &[i32]) {
    // Where a filter denies even that, they end with this process.
    let killed: Vec<i32> = pids
        .iter()
        .copied()
        .filter(|pid| sys::kill(*pid, libc::SIGKILL).is_ok())
        .collect();
    for pid in killed {
        sys::reap(pid, true);
    }
}

impl Running {
    /// Passes records on and words back until the attempt has ended, at the latest shortly after the deadline.
    pub fn attend(
        mut self,
        id: &[u8],
        deadline: Instant,
        input: &mut Input,
        output: &mut Output,
    ) -> Outcome {
        let mut holding = false;
        let mut unattended_until = None;
        let mut kill_at = None;
        let ended = loop {
            holding |= self.forward(output);
            if let Some(ended) = self.ended() {
                break ended;
            }
            let now = Instant::now();
            if hears_next(input, id) && holding {
                holding = false;
                self.say_next();
            }
            if holding && input.has_ended() {
                let until = *unattended_until.get_or_insert(now + UNATTENDED_HOLD);
                if now >= until {
                    holding = false;
                    unattended_until = None;
                    self.say_next();
                }
            }
            if kill_at.is_none() && (now >= deadline || output.is_broken()) {
                // The end of this pipe releases a hold too.
                self.release = None;
                kill_at = Some(now + GRACE);
            }
            if kill_at.is_some_and(|kill_at| now >= kill_at) {
                self.kill();
                break Outcome::Timeout;
            }
            let next = [unattended_until.filter(|_| holding), kill_at];
            let wake = next
                .into_iter()
                .flatten()
                .fold(kill_at.unwrap_or(deadline), Instant::min);
            let stdin = Some(sys::STDIN).filter(|_| !input.has_ended());
            // A closed pipe is always readable: to look at it would be to spin until the process is gone.
            let records = Some(sys::raw(&self.records)).filter(|_| !self.closed);
            let left = wake.saturating_duration_since(now);
            let left = if self.closed { left.min(LEAVES) } else { left };
            if sys::wait_readable([records, stdin], left)[1] {
                input.read();
            }
        };
        self.forward(output);
        // Where this process is PID 1, orphans are its own.
        while sys::reap(-1, false).is_some() {}
        // An attempt stops by itself at its deadline, often before this process sees that it has passed.
        if kill_at.is_some() || Instant::now() >= deadline {
            Outcome::Timeout
        } else {
            ended
        }
    }

    /// Passes on the records that have arrived; whether the last one was a hold.
    fn forward(&mut self, output: &mut Output) -> bool {
        let mut piece = [0; 8192];
        loop {
            match sys::read(sys::raw(&self.records), &mut piece) {
                Ok(0) => self.closed = true,
                Ok(n) => {
                    self.unread.extend_from_slice(&piece[..n]);
                    continue;
                }
                Err(_) => {}
            }
            break;
        }
        let Some(end) = self.unread.iter().rposition(|byte| *byte == b'\n') else {
            return false;
        };
        let lines: Vec<u8> = self.unread.drain(..=end).collect();
        let lines = String::from_utf8_lossy(&lines);
        output.numbered(&lines);
        lines
            .lines()
            .last()
            .is_some_and(|line| line.starts_with("hold "))
    }

    fn say_next(&self) {
        if let Some(release) = &self.release {
            let _ = sys::write_all(sys::raw(release), b"n");
        }
    }

    /// How the process ended, if it has; then the rest of its group ends too, while its id is still its own.
    fn ended(&self) -> Option<Outcome> {
        match sys::has_ended(self.pid) {
            Ok(false) => return None,
            Ok(true) => sys::kill_group(self.pid),
            // A filter that denies waitid: the older call tells at least about the process itself.
            Err(_) => {}
        }
        sys::reap(self.pid, false).map(|(_, ended)| ended)
    }

    fn kill(&self) {
        sys::kill_group(self.pid);
        let _ = sys::kill(self.pid, libc::SIGKILL);
        let until = Instant::now() + BURIAL;
        while sys::reap(self.pid, false).is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The link of an attempt in a process of its own.
struct Pipes {
    out: OwnedFd,
    word: OwnedFd,
    gathered: Option<Vec<u8>>,
}

/// How much is gathered at most: each wake-up of the session and of the harness costs more than the record.
const GATHERED: usize = 4096;

impl Pipes {
    fn pass_on(&mut self) {
        if let Some(gathered) = &mut self.gathered {
            let _ = sys::write_all(sys::raw(&self.out), gathered);
            gathered.clear();
        }
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        self.pass_on();
    }
}

impl Link for Pipes {
    fn record(&mut self, record: &Message) {
        let mut line = record.encode();
        line.push('\n');
        let line = &line.as_bytes()[PROTOCOL.len() + 1..];
        match &mut self.gathered {
            Some(gathered) => {
                gathered.extend_from_slice(line);
                if gathered.len() > GATHERED {
                    self.pass_on();
                }
            }
            None => {
                let _ = sys::write_all(sys::raw(&self.out), line);
            }
        }
    }

    fn hold(&mut self, record: &Message, until: Instant) {
        self.record(record);
        self.pass_on();
        let word = sys::raw(&self.word);
        while Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            // Its end releases too: the session has gone, or the deadline has passed.
            if sys::wait_readable([Some(word), None], left)[0]
                && !matches!(sys::read(word, &mut [0]), Err(libc::EAGAIN | libc::EINTR))
            {
                return;
            }
        }
    }
}
