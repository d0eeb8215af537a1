//! Attempts on ceilings: processes, memory, processor, output. Each is a fixed dose that ends by itself.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::child;
use crate::sys;

/// Seconds after which everything started here ends, whatever happens.
const LIFE: u32 = 60;

/// The grain in which memory is taken and reported.
const CHUNK: usize = 16 << 20;

/// Starts processes that sleep.
pub fn spawn(attempt: &mut Attempt) {
    let count = attempt.capped("count", 1, 4096);
    let mut pids = Vec::new();
    let mut result = Outcome::Ok;
    while (pids.len() as u64) < count {
        if attempt.is_over() {
            result = Outcome::Timeout;
            break;
        }
        match child::offspring(LIFE, || {
            std::thread::sleep(Duration::from_secs(LIFE.into()));
            0
        }) {
            Ok(pid) => pids.push(pid),
            Err(errno) => {
                result = Outcome::Errno(errno);
                break;
            }
        }
    }
    attempt.step("fork", "", result);
    attempt.count("made", "", pids.len() as u64);
    attempt.hold();
    child::bury(&pids);
}

/// Offers this process to the kernel's out-of-memory killer before the session that has to tell of it.
fn volunteer(score: &str) {
    sys::set_dumpable(true);
    let _ = std::fs::write("/proc/self/oom_score_adj", score);
    sys::set_dumpable(false);
}

/// One process that takes memory, as its creator sees it.
struct Taker {
    pid: i32,
    held: usize,
    result: Option<Outcome>,
}

/// Takes memory in several processes, touches every page of it, and holds it.
pub fn allocate(attempt: &mut Attempt) {
    let bytes = attempt.capped("bytes", 0, 2 << 30) as usize;
    let processes = attempt.capped("processes", 1, 8).max(1) as usize;
    let share = bytes / processes;
    volunteer("500");
    let Ok((news, report)) = sys::pipe() else {
        return attempt.step("allocate", "", Outcome::Errno(sys::last_error()));
    };
    let mut takers = Vec::new();
    for number in 0..processes {
        match child::offspring(LIFE, || take(share, number as u8, &report)) {
            Ok(pid) => takers.push(Taker {
                pid,
                held: 0,
                result: None,
            }),
            Err(errno) if number == 0 => {
                attempt.step("fork", "0", Outcome::Errno(errno));
                return allocate_here(attempt, share);
            }
            Err(errno) => attempt.step("fork", number.to_string(), Outcome::Errno(errno)),
        }
    }
    watch(attempt, &mut takers, share, &news);
    let held: usize = takers.iter().map(|taker| taker.held).sum();
    attempt.count("held", "", held as u64);
    attempt.hold();
    // One that told of its share may have been ended for what another took after it.
    for (number, taker) in takers
        .iter_mut()
        .enumerate()
        .filter(|(_, taker)| taker.pid > 0)
    {
        if let Some((_, ended)) = sys::reap(taker.pid, false) {
            taker.pid = 0;
            attempt.step("allocate", number.to_string(), ended);
        }
    }
    let living = takers.iter().filter(|taker| taker.pid > 0);
    child::bury(&living.map(|taker| taker.pid).collect::<Vec<_>>());
}

/// In a process of its own: tells its creator of every chunk with one byte, the taker's number; then waits to be
/// killed. Its exit status is the error number.
fn take(share: usize, number: u8, report: &OwnedFd) -> i32 {
    volunteer("1000");
    let mut taken = 0;
    while taken < share {
        let chunk = CHUNK.min(share - taken);
        if let Err(errno) = sys::take_memory(chunk) {
            return errno;
        }
        taken += chunk;
        let _ = sys::write_all(sys::raw(report), &[number]);
    }
    std::thread::sleep(Duration::from_secs(LIFE.into()));
    0
}

/// Reports what the takers tell and how they end, until each has its share or has ended.
fn watch(attempt: &mut Attempt, takers: &mut [Taker], share: usize, news: &OwnedFd) {
    let mut touched = 0;
    while takers.iter().any(|taker| taker.result.is_none()) {
        // The ends first, then the news: what a process told before it ended is counted.
        let ends: Vec<_> = takers
            .iter()
            .map(|taker| {
                (taker.result.is_none())
                    .then(|| sys::reap(taker.pid, false))
                    .flatten()
            })
            .collect();
        let mut chunks = [0; 64];
        while let Ok(n @ 1..) = sys::read(sys::raw(news), &mut chunks) {
            for number in &chunks[..n] {
                if let Some(taker) = takers.get_mut(usize::from(*number)) {
                    let chunk = CHUNK.min(share - taker.held);
                    taker.held += chunk;
                    touched += chunk;
                    attempt.count("touched", "", touched as u64);
                }
            }
        }
        for (number, (taker, end)) in takers.iter_mut().zip(ends).enumerate() {
            taker.result = match end {
                Some((_, Outcome::Exit(errno))) => Some(Outcome::Errno(errno)),
                Some((_, ended)) => Some(ended),
                None if taker.result.is_none() && taker.held >= share => Some(Outcome::Ok),
                None if attempt.is_over() => Some(Outcome::Timeout),
                None => continue,
            };
            if end.is_some() {
                (taker.pid, taker.held) = (0, 0);
            }
            if let Some(result) = taker.result {
                attempt.step("allocate", number.to_string(), result);
            }
        }
        sys::wait_readable([Some(sys::raw(news)), None], Duration::from_millis(20));
    }
}

/// Where no second process can be had, this one takes a share itself.
fn allocate_here(attempt: &mut Attempt, share: usize) {
    let mut touched = 0;
    while touched < share && !attempt.is_over() {
        let chunk = CHUNK.min(share - touched);
        if let Err(errno) = sys::take_memory(chunk) {
            attempt.step("allocate", "0", Outcome::Errno(errno));
            break;
        }
        touched += chunk;
        attempt.count("touched", "", touched as u64);
    }
    if touched >= share {
        attempt.step("allocate", "0", Outcome::Ok);
    }
    attempt.count("held", "", touched as u64);
    attempt.hold();
}

/// Keeps processors busy for a time.
pub fn spin(attempt: &mut Attempt) {
    let processes = attempt.capped("processes", 1, 64);
    let begun = Instant::now();
    let asked = Duration::from_millis(attempt.capped("ms", 0, 60_000));
    let end = begun + asked.min(attempt.remaining());
    let spin = || {
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        0
    };
    let mut pids = Vec::new();
    // This process is one of them.
    for number in 1..processes {
        match child::offspring(LIFE + 5, spin) {
            Ok(pid) => pids.push(pid),
            Err(errno) => {
                attempt.step("fork", number.to_string(), Outcome::Errno(errno));
                break;
            }
        }
    }
    spin();
    let ended: Vec<Outcome> = pids.iter().map(|pid| child::end_of(*pid)).collect();
    let first_bad = ended.into_iter().find(|ended| *ended != Outcome::Ok);
    attempt.count("spun", "", begun.elapsed().as_millis() as u64);
    attempt.count("cpu-ms", "", sys::cpu_ms());
    let cut = if begun.elapsed() < asked {
        Outcome::Timeout
    } else {
        Outcome::Ok
    };
    attempt.step("spin", "", first_bad.unwrap_or(cut));
}

/// Writes noise to standard output. Each piece is a whole number of lines and small enough for a pipe to take it at
/// once, so that the record after it stands on a line of its own.
pub fn flood(attempt: &mut Attempt) {
    let bytes = attempt.capped("bytes", 0, 256 << 20) as usize;
    let line = b"noise noise noise noise noise noise noise noise noise noise nois\n";
    let piece: Vec<u8> = line.iter().copied().cycle().take(line.len() * 62).collect();
    let mut sent = 0;
    let mut result = Outcome::Ok;
    while sent < bytes && result == Outcome::Ok {
        let next = piece.len().min(bytes - sent);
        let mut piece = piece[..next].to_vec();
        if let Some(last) = piece.last_mut() {
            *last = b'\n';
        }
        result = match sys::write_all(sys::STDOUT, &piece) {
            Err(errno) => Outcome::Errno(errno),
            Ok(()) if attempt.is_over() => Outcome::Timeout,
            Ok(()) => Outcome::Ok,
        };
        sent += next;
    }
    attempt.step("flood", "", result);
    attempt.count("sent", "", sent as u64);
}
