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

/// The grain at the end, where no more of the other can be had.
const SMALLEST: usize = 1 << 20;

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
    share: usize,
    held: usize,
    result: Option<Outcome>,
}

/// So many are started in all, where each may take less than its share.
const MOST_TAKERS: usize = 16;

/// What a taker tells: its number, whether it can have no more (1), and the bytes that it took since, big end first.
/// A pipe passes so few on at once.
const NEWS: usize = 8;

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
        match start_taker(&mut takers, share, &report) {
            Ok(()) => {}
            Err(errno) if number == 0 => {
                attempt.step("fork", "0", Outcome::Errno(errno));
                return allocate_here(attempt, share);
            }
            Err(errno) => attempt.step("fork", number.to_string(), Outcome::Errno(errno)),
        }
    }
    watch(attempt, &mut takers, share * processes, &news, &report);
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

/// Starts another one.
fn start_taker(takers: &mut Vec<Taker>, share: usize, report: &OwnedFd) -> sys::Try<()> {
    let number = takers.len() as u8;
    let pid = child::offspring(LIFE, || take(share, number, report))?;
    takers.push(Taker {
        pid,
        share,
        held: 0,
        result: None,
    });
    Ok(())
}

/// In a process of its own: tells its creator of every chunk, and then waits to be killed. One that can have no more
/// says so and holds what it has. Its exit status is the error number.
fn take(share: usize, number: u8, report: &OwnedFd) -> i32 {
    volunteer("1000");
    let tell = |full: bool, bytes: usize| {
        let mut news = [0; NEWS];
        (news[0], news[1]) = (number, u8::from(full));
        news[4..].copy_from_slice(&(bytes as u32).to_be_bytes());
        let _ = sys::write_all(sys::raw(report), &news);
    };
    let mut taken = 0;
    let mut most = CHUNK;
    while taken < share {
        let chunk = most.min(share - taken);
        match sys::take_memory(chunk) {
            Ok(()) => {
                taken += chunk;
                tell(false, chunk);
            }
            // Smaller pieces may fit still.
            Err(libc::ENOMEM) if most > SMALLEST => most /= 2,
            Err(libc::ENOMEM) => {
                tell(true, 0);
                break;
            }
            Err(errno) => return errno,
        }
    }
    std::thread::sleep(Duration::from_secs(LIFE.into()));
    0
}

/// Reports what the takers tell and how they end, until each has its share or has ended. While one that may have no
/// more has left something over, another one goes on with that: a bound on each process is none on all of them.
fn watch(
    attempt: &mut Attempt,
    takers: &mut Vec<Taker>,
    bytes: usize,
    news: &OwnedFd,
    report: &OwnedFd,
) {
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
        let mut full = [false; MOST_TAKERS];
        let mut buffer = [0; NEWS * 64];
        while let Ok(n @ 1..) = sys::read(sys::raw(news), &mut buffer) {
            for news in buffer[..n].chunks_exact(NEWS) {
                let chunk = u32::from_be_bytes([news[4], news[5], news[6], news[7]]) as usize;
                let number = usize::from(news[0]);
                let Some(taker) = takers.get_mut(number) else {
                    continue;
                };
                if news[1] == 1 {
                    full[number] = true;
                    continue;
                }
                taker.held += chunk;
                touched += chunk;
                attempt.count("touched", "", touched as u64);
            }
        }
        let mut go_on = false;
        for (number, (taker, end)) in takers.iter_mut().zip(ends).enumerate() {
            let result = match end {
                _ if taker.result.is_some() => continue,
                Some((_, Outcome::Exit(errno))) => Outcome::Errno(errno),
                Some((_, ended)) => ended,
                None if full[number] => Outcome::Errno(libc::ENOMEM),
                None if taker.held >= taker.share => Outcome::Ok,
                None if attempt.is_over() => Outcome::Timeout,
                None => continue,
            };
            if end.is_some() {
                (taker.pid, taker.held) = (0, 0);
            }
            taker.result = Some(result);
            attempt.step("allocate", number.to_string(), result);
            // Of a fresh process that got nothing at all the others would get no more.
            go_on |= full[number] && taker.held > 0;
        }
        if go_on && takers.len() < MOST_TAKERS && !attempt.is_over() {
            let expected = |taker: &Taker| match taker.result {
                None => taker.share,
                Some(_) => taker.held,
            };
            let missing = bytes.saturating_sub(takers.iter().map(expected).sum());
            if missing > 0
                && let Err(errno) = start_taker(takers, missing, report)
            {
                attempt.step("fork", takers.len().to_string(), Outcome::Errno(errno));
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
