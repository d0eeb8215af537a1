//! What the host's `/proc` says of a process: the witness's eyes. Nothing here can be forged from inside a sandbox.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
        no_route: no_route(pid),
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

/// Whether the namespace has no interface but loopback: an ordinary user may read this of a root-run container too.
pub fn no_route(pid: i32) -> Option<bool> {
    let devices = fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    let names: Vec<&str> = devices
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':').map(|(name, _)| name.trim()))
        .collect();
    Some(names.iter().all(|name| *name == "lo") && !has_public_address(pid)?)
}

/// Whether every way out of the process's network ends in the network that these addresses are of: each gateway is one
/// of them, and so is a neighbour in each network that is reached directly. `None` where it cannot be read.
pub fn leads_to(pid: i32, addresses: &[IpAddr]) -> Option<bool> {
    let four = fs::read_to_string(format!("/proc/{pid}/net/route")).ok()?;
    let six = fs::read_to_string(format!("/proc/{pid}/net/ipv6_route")).unwrap_or_default();
    let ways: Option<Vec<Way>> = four
        .lines()
        .skip(1)
        .map(Way::of_ipv4)
        .chain(six.lines().map(Way::of_ipv6))
        .collect();
    Some(ways?.iter().all(|way| way.ends_in(addresses)))
}

/// One route.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// It goes nowhere: loopback, what is refused, what is valid on a single link.
    Nowhere,
    /// By a gateway.
    By(IpAddr),
    /// Directly into a network: its address and the length of its prefix.
    Into(IpAddr, u8),
}

/// Flags of routes that lead nowhere: what is refused, the process's own addresses (`linux/route.h`,
/// `linux/ipv6_route.h`).
const NOWHERE: u32 = REJECT | ANYCAST | LOCAL;
const REJECT: u32 = 0x0200;
const ANYCAST: u32 = 0x0010_0000;
const LOCAL: u32 = 0x8000_0000;

impl Way {
    /// A line of `/proc/PID/net/route`; the addresses stand there as the processor holds them.
    fn of_ipv4(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [device, to, by, flags, _, _, _, mask, ..] = fields.as_slice() else {
            return None;
        };
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        let address = |text: &str| Some(IpAddr::from(Ipv4Addr::from(number(text)?.to_ne_bytes())));
        if *device == "lo" || number(flags)? & NOWHERE != 0 {
            return Some(Self::Nowhere);
        }
        if number(by)? != 0 {
            return Some(Self::By(address(by)?));
        }
        let length = number(mask)?.count_ones();
        Some(Self::Into(address(to)?, u8::try_from(length).ok()?))
    }

    /// A line of `/proc/PID/net/ipv6_route`.
    fn of_ipv6(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [to, length, _, _, by, _, _, _, flags, device] = fields.as_slice() else {
            return None;
        };
        let number = |text: &str| u128::from_str_radix(text, 16).ok();
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let to = Ipv6Addr::from(number(to)?);
        let single_link = to.is_multicast() || to.is_unicast_link_local();
        if *device == "lo" || flags & NOWHERE != 0 || single_link {
            return Some(Self::Nowhere);
        }
        if number(by)? != 0 {
            return Some(Self::By(Ipv6Addr::from(number(by)?).into()));
        }
        Some(Self::Into(to.into(), u8::from_str_radix(length, 16).ok()?))
    }

    fn ends_in(&self, addresses: &[IpAddr]) -> bool {
        match self {
            Self::Nowhere => true,
            Self::By(gateway) => addresses.contains(gateway),
            // Everything at once is no network that anybody could be a neighbour in.
            Self::Into(_, 0) => false,
            Self::Into(network, length) => addresses
                .iter()
                .any(|address| shares(*network, *address, *length)),
        }
    }
}

/// Whether the first so many bits are the same.
fn shares(one: IpAddr, other: IpAddr, length: u8) -> bool {
    let length = u32::from(length);
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let differ = u32::from(one) ^ u32::from(other);
            differ.leading_zeros() >= length.min(32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let differ = u128::from(one) ^ u128::from(other);
            differ.leading_zeros() >= length.min(128)
        }
        _ => false,
    }
}

/// Loopback may carry addresses of ours: in the range it stands for the host and the internet.
fn has_public_address(pid: i32) -> Option<bool> {
    let trie = fs::read_to_string(format!("/proc/{pid}/net/fib_trie")).ok()?;
    let v4 = trie
        .lines()
        .filter_map(|line| line.trim().strip_prefix("|-- "))
        .any(|address| !address.starts_with("127.") && address != "0.0.0.0");
    let v6 = fs::read_to_string(format!("/proc/{pid}/net/if_inet6")).unwrap_or_default();
    let v6 = v6
        .lines()
        .any(|line| !line.starts_with("00000000000000000000000000000001 "));
    Some(v4 || v6)
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
    fn a_route_is_read_and_followed() {
        let ours: Vec<IpAddr> = vec![
            "172.17.0.1".parse().expect("one"),
            "2001:db8:1::1".parse().expect("one"),
        ];
        let four = |line| Way::of_ipv4(line).expect("a route");
        let by_bridge = four("eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0");
        assert_eq!(by_bridge, Way::By(ours[0]));
        let neighbours = four("eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0");
        assert!(by_bridge.ends_in(&ours) && neighbours.ends_in(&ours));
        for elsewhere in [
            "eth0 00000000 010010AC 0003 0 0 0 00000000 0 0 0",
            "eth0 00000000 00000000 0001 0 0 0 00000000 0 0 0",
            "eth0 000012AC 00000000 0001 0 0 0 0000FFFF 0 0 0",
        ] {
            assert!(!four(elsewhere).ends_in(&ours), "{elsewhere}");
        }
        let default = format!(
            "{:032} 00 {:032} 00 20010db8000100000000000000000001 00000400 1 0 00000003 eth0",
            0, 0
        );
        let six = Way::of_ipv6(&default).expect("a route");
        assert_eq!(six, Way::By(ours[1]));
        let refused = format!(
            "{:032} 00 {:032} 00 {:032} ffffffff 1 0 00200200 lo",
            0, 0, 0
        );
        assert_eq!(Way::of_ipv6(&refused), Some(Way::Nowhere));
        let own = format!(
            "20010db8000100000000000000000002 80 {:032} 00 {:032} 00000000 3 0 80200001 eth0",
            0, 0
        );
        assert_eq!(Way::of_ipv6(&own), Some(Way::Nowhere));
        assert_eq!(Way::of_ipv4("nonsense"), None);
    }

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
