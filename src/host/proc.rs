//! What the host's `/proc` says of a process: the witness's eyes. Nothing here can be forged from inside a sandbox.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::routes;
use crate::evidence::Witness;

/// The namespaces that are compared.
pub const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// The kernel's boot id; empty where it cannot be read.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// When the process started, in clock ticks since boot: with the id it names a process for good.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so count from its end.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

/// The thread name.
pub fn comm(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .ok()
        .map(|name| name.trim_end_matches('\n').to_owned())
}

/// Every process that the host sees.
pub fn processes() -> Vec<i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The processes with this thread name, zombies left out.
pub fn named(name: &str) -> Vec<i32> {
    processes()
        .into_iter()
        .filter(|pid| comm(*pid).as_deref() == Some(name) && state(*pid) != Some('Z'))
        .collect()
}

/// Whether the process was started by `ancestor`, by however many steps; a process that was orphaned on the way no
/// longer tells.
pub fn descends(pid: i32, ancestor: i32) -> bool {
    let parent = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let mut line = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|pid| *pid > 1));
    line.by_ref().take(64).any(|pid| pid == ancestor)
}

/// A process and everything that it started, as far as that is still told.
pub fn tree(root: i32) -> Vec<i32> {
    processes()
        .into_iter()
        .filter(|pid| descends(*pid, root))
        .collect()
}

/// What a process takes: its threads, and its memory in bytes, present and swapped out, without what it shares with
/// the file it was started from.
pub fn taken(pid: i32) -> Option<Taken> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    let bytes = |key| number(key).unwrap_or(0) * 1024;
    Some(Taken {
        threads: number("Threads:")?,
        memory: bytes("RssAnon:"),
        shared: bytes("RssShmem:"),
        swap: bytes("VmSwap:"),
    })
}

/// See [`taken`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Its threads.
    pub threads: u64,
    /// Bytes that are present and its own.
    pub memory: u64,
    /// Bytes that are present and may be shared.
    pub shared: u64,
    /// Bytes that are swapped out.
    pub swap: u64,
}

/// Memory without a name that a process holds open (`memfd_create(2)`), by inode and in bytes: a runtime that is a
/// kernel of its own keeps what runs in it there, and maps no more of it than it needs.
pub fn open_memory(pid: i32) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:"))
        })
        .filter_map(|path| fs::metadata(path).ok())
        .map(|memory| (memory.ino(), memory.blocks() * 512))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The state letter: `R`, `S`, `Z`.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// CPU time of a process and its reaped children, in microseconds.
pub fn cpu_usec(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks: u64 = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    // The kernel shows ticks of 1/100 s to user space on every architecture.
    Some(ticks * 10_000)
}

/// The container that the process lives in, by the id in its cgroup's path: 64 hexadecimal digits, as engines write it.
pub fn container(pid: i32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    container_in(&groups).map(str::to_owned)
}

fn container_in(groups: &str) -> Option<&str> {
    groups
        .split(|letter: char| !letter.is_ascii_hexdigit())
        .find(|word| word.len() == 64)
}

/// The namespace's identity.
pub fn namespace(pid: &str, name: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/ns/{name}"))
        .ok()
        .map(|meta| meta.ino())
}

/// The namespaces in which a launcher starts: what a sandbox's own ones differ from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baseline {
    identities: Vec<(&'static str, Option<u64>)>,
}

impl Baseline {
    /// The identity of the namespace of this name.
    pub fn namespace(&self, name: &str) -> Option<u64> {
        self.identities
            .iter()
            .find(|(known, _)| *known == name)
            .and_then(|(_, identity)| *identity)
    }

    /// The harness's own, but for those that a launcher enters first.
    pub fn new(net: Option<u64>, user: Option<u64>) -> Self {
        let identities = NAMESPACES
            .iter()
            .map(|name| {
                let entered = match *name {
                    "net" => net,
                    "user" => user,
                    _ => None,
                };
                (*name, entered.or_else(|| namespace("self", name)))
            })
            .collect();
        Self { identities }
    }
}

/// Looks at the probe. `None` when it is gone.
pub fn witness(pid: i32, baseline: &Baseline) -> Option<Witness> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = |key: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::trim))
    };
    let bits = |key| line(key).and_then(|text| u64::from_str_radix(text, 16).ok());
    let own_namespaces = baseline
        .identities
        .iter()
        .filter(|(name, start)| {
            let theirs = namespace(&pid.to_string(), name);
            theirs.is_some() && theirs != *start
        })
        .map(|(name, _)| (*name).to_owned())
        .collect();
    Some(Witness {
        pid,
        own_namespaces,
        cap_eff: bits("CapEff").unwrap_or_default(),
        cap_prm: bits("CapPrm").unwrap_or_default(),
        cap_bnd: bits("CapBnd").unwrap_or_default(),
        uid: line("Uid")
            .and_then(|uids| uids.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or_default(),
        no_new_privs: line("NoNewPrivs") == Some("1"),
        seccomp: line("Seccomp")
            .and_then(|mode| mode.parse().ok())
            .unwrap_or_default(),
        own_user_namespace: own_user_namespace(pid),
        no_route: routes::no_route(pid),
        no_ipv6: routes::no_ipv6(pid),
        no_gateway: routes::no_gateway(pid),
        cgroup: fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .map(|text| text.trim_end().replace('\n', " "))
            .unwrap_or_default(),
        own_root: root(pid),
        stands_in: false,
    })
}

/// The initial user namespace maps every id to itself.
fn own_user_namespace(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/uid_map"))
        .map(|map| {
            let fields: Vec<&str> = map.split_whitespace().collect();
            fields != ["0", "0", "4294967295"]
        })
        .unwrap_or(false)
}

fn root(pid: i32) -> Option<bool> {
    let identity = |path: PathBuf| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let theirs = identity(Path::new(&format!("/proc/{pid}/root/.")).to_owned())?;
    Some(Some(theirs) != identity(PathBuf::from("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_the_id_in_its_group() {
        let id = "c306e78b10f71d4414f2cf3c852381c92df5241b73f5f501a8884fd7f14c5544";
        for path in [
            format!("9:pids:/docker/{id}\n0::/"),
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("0::/user.slice/libpod-{id}.scope/container\n"),
        ] {
            assert_eq!(container_in(&path), Some(id));
        }
        assert_eq!(container_in("0::/escape-audit/run-1-2-3f/trial-8\n"), None);
    }

    #[test]
    fn the_harness_is_its_own_witness() {
        let me = i32::try_from(std::process::id()).expect("fits");
        let seen = witness(me, &Baseline::new(None, None)).expect("alive");
        assert!(seen.own_namespaces.is_empty());
        assert_eq!(seen.own_root, Some(false));
        assert!(start_time(me).is_some());
        assert!(witness(i32::MAX, &Baseline::default()).is_none());
    }
}
