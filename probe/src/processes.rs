//! Attempts on other processes: seeing them, sending them a signal that does nothing.

use std::time::Duration;

use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::child;
use crate::sys;

/// No more processes are looked at.
const MOST: usize = 4096;

/// The processes that `/proc` shows, in its order, bounded.
pub fn visible(attempt: &mut Attempt) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    attempt.bounded(pids.collect(), MOST, "processes")
}

/// The processes that can be seen where else such a file system is mounted, as folders; the harness knows the places.
pub fn elsewhere(attempt: &mut Attempt) -> Vec<String> {
    let places = attempt.all("proc").into_iter();
    let places: Vec<String> = places
        .map(|place| String::from_utf8_lossy(place).into_owned())
        .collect();
    let mut folders = Vec::new();
    for place in places {
        let listed = std::fs::read_dir(&place);
        attempt.step("list", &place, sys::io_outcome(&listed));
        let names = listed.into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let pids = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        folders.extend(pids.map(|pid| format!("{place}/{pid}")));
    }
    attempt.bounded(folders, MOST, "processes")
}

/// The parent of a process, as `/proc` shows it.
pub fn parent(pid: i32) -> Option<i32> {
    let status = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    let mut lines = status.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(b"PPid:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Reports the thread names that can be seen, and whether given process ids exist.
pub fn list(attempt: &mut Attempt) {
    let listed = std::fs::read_dir("/proc");
    attempt.step("list", "/proc", sys::io_outcome(&listed));
    for pid in visible(attempt) {
        if attempt.is_over() {
            return;
        }
        if let Ok(name) = std::fs::read(format!("/proc/{pid}/comm")) {
            let name = name.strip_suffix(b"\n").unwrap_or(&name);
            attempt.fact("process", pid.to_string(), attempt.hash(name));
        }
    }
    for folder in elsewhere(attempt) {
        if attempt.is_over() {
            return;
        }
        if let Ok(name) = std::fs::read(format!("{folder}/comm")) {
            let name = name.strip_suffix(b"\n").unwrap_or(&name);
            attempt.fact("process", &folder, attempt.hash(name));
        }
    }
    for pid in targets(attempt) {
        attempt.step("probe", pid.to_string(), sys::outcome(&sys::kill(pid, 0)));
    }
}

/// Sends SIGURG, which does nothing unless a process waits for it, with a number to the given processes.
pub fn signal(attempt: &mut Attempt) {
    let value = attempt.request.number("value").unwrap_or(0);
    control(attempt, value);
    for pid in targets(attempt) {
        let sent = sys::queue(pid, libc::SIGURG, value);
        attempt.step("signal", pid.to_string(), sys::outcome(&sent));
    }
}

/// A signal to a process of our own has to work.
fn control(attempt: &mut Attempt, value: i32) {
    match child::offspring(10, || {
        std::thread::sleep(Duration::from_secs(5));
        0
    }) {
        Ok(pid) => {
            let sent = sys::queue(pid, libc::SIGURG, value);
            child::bury(&[pid]);
            attempt.step("control", "child", sys::outcome(&sent));
        }
        Err(_) => {
            let sent = sys::queue(sys::pid(), libc::SIGURG, value);
            attempt.step("control", "self", sys::outcome(&sent));
        }
    }
}

/// The processes to try: never a group, never "all", which 0 and negative numbers mean to kill(2).
fn targets(attempt: &mut Attempt) -> Vec<i32> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for pid in attempt.all("pid") {
        match std::str::from_utf8(pid)
            .ok()
            .and_then(|pid| pid.parse().ok())
        {
            Some(pid) if pid > 0 => good.push(pid),
            _ => bad.push(pid),
        }
    }
    for pid in bad {
        attempt.step("malformed", pid, Outcome::Errno(libc::EINVAL));
    }
    good
}
