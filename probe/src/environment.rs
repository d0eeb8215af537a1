//! Attempts on secrets in environments: the probe's own, and those of the processes around it.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;

use crate::attempt::Attempt;
use crate::processes;
use crate::sys;

/// No more values are reported.
const MOST: usize = 4096;

/// No more of one environment is read: what the kernel lets a program be started with.
const LARGEST: u64 = 8 << 20;

/// Of a longer name the beginning is reported.
const LONGEST_NAME: usize = 512;

/// Reports the variables that the sandbox gave to the probe.
pub fn own(attempt: &mut Attempt) {
    let variables = own_variables();
    // First, so that what comes after cannot crowd it out.
    attempt.count("env-count", "", variables.len() as u64);
    for (name, value) in attempt.bounded(variables, MOST, "variables") {
        let hash = attempt.hash(&value);
        attempt.fact("env", shortened(&name), hash);
        for part in parts(&value) {
            let hash = attempt.hash(part);
            attempt.fact("env-part", shortened(&name), hash);
        }
    }
}

/// The shortest secret that is looked for inside a longer value, and how many parts of one value are.
const SHORTEST_PART: usize = 8;
const MOST_PARTS: usize = 32;

/// A token stands in a URL, behind a prefix, in a list: what a value is made of, cut where no token goes on.
fn parts(value: &[u8]) -> Vec<&[u8]> {
    let narrow = value.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    let wide = value.split(|byte| !byte.is_ascii_alphanumeric() && !b"_-.+/=~".contains(byte));
    let mut parts: Vec<&[u8]> = narrow
        .chain(wide)
        .filter(|part| part.len() >= SHORTEST_PART && part.len() < value.len())
        .collect();
    parts.sort_unstable();
    parts.dedup();
    parts.truncate(MOST_PARTS);
    parts
}

/// Reads `/proc/PID/environ` of PID 1, of the ancestors, and of every other process that can be seen. The same value
/// is reported once.
pub fn of_processes(attempt: &mut Attempt) {
    control(attempt);
    let mut reported = BTreeSet::new();
    let mut refused = 0;
    let (near, all) = first_ones_first(attempt);
    let elsewhere = processes::elsewhere(attempt).into_iter();
    let all = all.into_iter().map(|pid| (pid, format!("/proc/{pid}")));
    let all = all.chain(elsewhere.map(|folder| (0, folder)));
    for (number, (pid, folder)) in all.enumerate() {
        if attempt.is_over() || reported.len() >= MOST {
            break;
        }
        let path = format!("{folder}/environ");
        let mut variables = read(&path);
        if variables.as_ref().is_ok_and(|(_, whole)| !whole) {
            attempt.truncated("environment", LARGEST);
        }
        let own = pid == attempt.session || pid == sys::pid();
        if own
            && variables
                .as_ref()
                .is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
        {
            // It may not look into itself, because it is not dumpable; it knows what it would find.
            variables = Ok((own_variables(), true));
        }
        // Of the many that are nobody's ancestor, those that could not be read are only counted.
        if number < near || variables.is_ok() {
            attempt.step("read", &path, sys::io_outcome(&variables));
        } else {
            refused += 1;
        }
        for (name, value) in variables.map(|(pairs, _)| pairs).unwrap_or_default() {
            let hash = attempt.hash(&value);
            if reported.len() < MOST && reported.insert(hash.clone()) {
                if reported.len() == MOST {
                    attempt.truncated("values", MOST as u64);
                }
                let who = folder.strip_prefix("/proc/").unwrap_or(&folder);
                let mut named = format!("{who}:").into_bytes();
                named.extend_from_slice(shortened(&name));
                attempt.fact("env", named, hash);
            }
        }
    }
    attempt.count("refused", "", refused);
}

/// Shows that such a file can be read at all. A process owns its files in `/proc` only while it is dumpable.
fn control(attempt: &mut Attempt) {
    const PATH: &str = "/proc/self/environ";
    sys::set_dumpable(true);
    let own = read(PATH);
    sys::set_dumpable(false);
    attempt.step("control", PATH, sys::io_outcome(&own));
}

/// PID 1, the session, its ancestors (and how many these are), then all others.
fn first_ones_first(attempt: &mut Attempt) -> (usize, Vec<i32>) {
    let mut order = vec![1];
    let mut ancestor = attempt.session;
    // A chain of parents; the bound only guards against a `/proc` that lies.
    for _ in 0..64 {
        if ancestor <= 0 {
            break;
        }
        order.push(ancestor);
        ancestor = processes::parent(ancestor).unwrap_or(0);
    }
    let mut seen = BTreeSet::new();
    order.retain(|pid| seen.insert(*pid));
    let near = order.len();
    let others = processes::visible(attempt).into_iter();
    order.extend(others.filter(|pid| seen.insert(*pid)));
    (near, order)
}

type Variables = Vec<(Vec<u8>, Vec<u8>)>;

fn own_variables() -> Variables {
    let pairs = std::env::vars_os();
    pairs.map(|(n, v)| (n.into_vec(), v.into_vec())).collect()
}

/// The variables, and whether these are all.
fn read(path: &str) -> io::Result<(Variables, bool)> {
    let mut block = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(LARGEST + 1).read_to_end(&mut block)?;
    let whole = block.len() as u64 <= LARGEST;
    let pairs = block.split(|byte| *byte == 0).filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        Some((pair[..at].to_vec(), pair[at + 1..].to_vec()))
    });
    Ok((pairs.collect(), whole))
}

fn shortened(name: &[u8]) -> &[u8] {
    &name[..name.len().min(LONGEST_NAME)]
}
