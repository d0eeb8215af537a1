//! Where a process's network leads, read from its `/proc/PID/net`: an ordinary user may read this of a root-run container
//! too.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// Whether the namespace has no IPv6 address, not even its loopback's: an engine switches the family off so in every
/// network that was made without it. `None` where it cannot be read.
pub fn no_ipv6(pid: i32) -> Option<bool> {
    match fs::read_to_string(format!("/proc/{pid}/net/if_inet6")) {
        Ok(addresses) => Some(addresses.trim().is_empty()),
        // A kernel without the family has no such file, and a process that is gone no such folder.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::metadata(format!("/proc/{pid}/net/dev"))
                .ok()
                .map(|_| true)
        }
        Err(_) => None,
    }
}

/// Whether every way out of the process's network ends in the network that these addresses are of: each gateway is one
/// of them, and so is a neighbour in each network that is reached directly. `None` where it cannot be read.
pub fn leads_to(pid: i32, addresses: &[IpAddr]) -> Option<bool> {
    Some(ways(pid)?.iter().all(|way| way.ends_in(addresses)))
}

/// Whether no route goes by a gateway: what is sent reaches neighbours, and nobody passes it on. `None` where it cannot be
/// read.
pub fn no_gateway(pid: i32) -> Option<bool> {
    Some(
        ways(pid)?
            .iter()
            .all(|way| matches!(way, Way::Nowhere | Way::Into(_, 1..))),
    )
}

/// The routes of both families.
fn ways(pid: i32) -> Option<Vec<Way>> {
    let four = fs::read_to_string(format!("/proc/{pid}/net/route")).ok()?;
    let six = fs::read_to_string(format!("/proc/{pid}/net/ipv6_route")).unwrap_or_default();
    four.lines()
        .skip(1)
        .map(Way::of_ipv4)
        .chain(six.lines().map(Way::of_ipv6))
        .collect()
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
}
