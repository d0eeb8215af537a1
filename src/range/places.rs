//! Which canary stands where: one table, from which the helper opens sockets and adds addresses.
//!
//! In the range's own namespace all addresses are made up. They come from the blocks reserved for documentation
//! (RFC 5737, RFC 3849) and, for the clouds' metadata services, are the real ones. Where an engine's containers come
//! out, canaries stand on the addresses that this machine has, and on no other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;

use crate::case::metadata::{METADATA, METADATA_PORT};
use crate::case::{CanaryKind, Position};

/// What a socket speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Stream,
    Datagram,
    /// A Unix stream socket with an abstract name, which belongs to the network namespace.
    Abstract,
}

/// A place where a canary is to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) canary: CanaryKind,
    pub(super) position: Position,
    pub(super) wire: Wire,
    pub(super) ip: IpAddr,
    /// 0: any free one.
    pub(super) port: u16,
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(a: u16, b: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, last))
}

/// Who plays whom, over IPv4 and IPv6.
const POSITIONS: [(Position, [IpAddr; 2]); 5] = [
    (Position::Loopback, [v4(127, 0, 0, 1), v6(0, 0, 1)]),
    (Position::Gateway, [v4(192, 0, 2, 1), v6(0x2001, 0xdb8, 1)]),
    (Position::Host, [v4(192, 0, 2, 2), v6(0x2001, 0xdb8, 2)]),
    (Position::Sibling, [v4(192, 0, 2, 3), v6(0x2001, 0xdb8, 3)]),
    (
        Position::Internet,
        [v4(203, 0, 113, 10), v6(0x2001, 0xdb8, 0x10)],
    ),
];

/// Whether this is where a metadata service is asked: there, nothing else of ours stands.
pub(super) fn is_metadata(ip: IpAddr) -> bool {
    METADATA.contains(&ip)
}

/// The address that the canary name server gives for every name.
pub(super) const INTERNET: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

/// Where a range is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ground {
    /// In a namespace of our own: every position.
    Own,
    /// On the host's loopback alone.
    Loopback,
    /// In the harness's own network, on these addresses of this machine; on those that are the internet others listen.
    Here(Vec<(Position, IpAddr)>),
}

impl Ground {
    /// As an argument of the helper.
    pub(super) fn argument(&self) -> String {
        match self {
            Self::Own => "own".into(),
            Self::Loopback => "loopback".into(),
            Self::Here(addresses) => {
                let each = addresses.iter().map(|(position, ip)| {
                    let place = POSITIONS.iter().position(|(known, _)| known == position);
                    format!("{}={ip}", place.unwrap_or_default())
                });
                each.collect::<Vec<_>>().join(",")
            }
        }
    }

    /// The other way round.
    pub(super) fn parse(argument: &str) -> Option<Self> {
        match argument {
            "own" => Some(Self::Own),
            "loopback" => Some(Self::Loopback),
            list => {
                let each = list.split(',').map(|entry| {
                    let (place, ip) = entry.split_once('=')?;
                    let (position, _) = POSITIONS.get(place.parse::<usize>().ok()?)?;
                    Some((*position, ip.parse().ok()?))
                });
                each.collect::<Option<Vec<_>>>().map(Self::Here)
            }
        }
    }

    /// Whether something may be sent to this address: nothing that could leave the machine.
    pub(super) fn holds(&self, ip: IpAddr) -> bool {
        match self {
            Self::Own => true,
            Self::Loopback => ip.is_loopback(),
            Self::Here(addresses) => addresses.iter().any(|(_, held)| *held == ip),
        }
    }
}

/// The addresses of this machine, with what they are to a container: the bridge that it hangs on, or just the host.
pub(super) fn of_this_machine() -> std::io::Result<Vec<(Position, IpAddr)>> {
    let mut found = Vec::new();
    for interface in getifaddrs()? {
        let Some(address) = interface.address else {
            continue;
        };
        let four = address
            .as_sockaddr_in()
            .map(|address| IpAddr::from(address.ip()));
        let six = address
            .as_sockaddr_in6()
            .map(|address| IpAddr::from(address.ip()));
        let Some(ip) = four.or(six) else { continue };
        // One that is valid on a single link cannot be named without it.
        if matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
            continue;
        }
        let position = of_machine(ip, &interface.interface_name);
        found.push((position, ip));
    }
    found.sort_by_key(|(position, ip)| (*ip, *position));
    found.dedup();
    Ok(found)
}

/// What an address of the machine is to a container that comes out there.
pub(super) fn of_machine(ip: IpAddr, interface: &str) -> Position {
    if ip.is_loopback() {
        Position::Loopback
    } else if is_bridge(interface) {
        Position::Gateway
    } else {
        Position::Host
    }
}

/// Container engines and hypervisors name their bridges so.
fn is_bridge(interface: &str) -> bool {
    ["docker", "br-", "cni", "podman", "virbr", "lxcbr"]
        .iter()
        .any(|known| interface.starts_with(known))
}

/// Every place on this ground.
pub(super) fn spots(ground: &Ground) -> Vec<Spot> {
    let mut spots = Vec::new();
    let mut add = |canary, position, wire, ip: IpAddr, port| {
        spots.push(Spot {
            canary,
            position,
            wire,
            ip,
            // Low ports on the host's own loopback may be taken, or not be ours to take.
            port: match ground {
                Ground::Loopback => 0,
                Ground::Here(_) if ip.is_loopback() => 0,
                _ => port,
            },
        });
    };
    let own = POSITIONS
        .iter()
        .flat_map(|(position, ips)| ips.map(|ip| (*position, ip)));
    let places: Vec<(Position, IpAddr)> = match ground {
        Ground::Own => own.collect(),
        Ground::Loopback => own.filter(|(_, ip)| ip.is_loopback()).collect(),
        Ground::Here(addresses) => {
            let near = addresses
                .iter()
                .filter(|(position, _)| *position != Position::Internet);
            near.copied().collect()
        }
    };
    for (position, ip) in places.iter().filter(|(_, ip)| !is_metadata(*ip)) {
        let (position, ip) = (*position, *ip);
        add(CanaryKind::Tcp, position, Wire::Stream, ip, 0);
        add(CanaryKind::Udp, position, Wire::Datagram, ip, 0);
        // On a machine's own addresses, name servers and web servers of its own may stand.
        let serves = match ground {
            Ground::Here(_) => !ip.is_loopback(),
            _ => !matches!(position, Position::Gateway | Position::Sibling),
        };
        if ip.is_ipv4() && serves {
            add(CanaryKind::Dns, position, Wire::Datagram, ip, 53);
            add(CanaryKind::Dns, position, Wire::Stream, ip, 53);
            if *ground == Ground::Own || *ground == Ground::Loopback {
                add(CanaryKind::Http, position, Wire::Stream, ip, 80);
            }
        }
    }
    for ip in METADATA {
        let here = places.iter().any(|(_, held)| *held == ip);
        if *ground == Ground::Own || here {
            let port = METADATA_PORT;
            add(CanaryKind::Http, Position::Host, Wire::Stream, ip, port);
        }
    }
    let nowhere = IpAddr::V4(Ipv4Addr::LOCALHOST);
    add(CanaryKind::Unix, Position::Host, Wire::Abstract, nowhere, 0);
    spots
}

/// The addresses that the namespace's loopback device has to hold, apart from its own.
pub(super) fn addresses() -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = spots(&Ground::Own).iter().map(|s| s.ip).collect();
    all.retain(|ip| !ip.is_loopback());
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_namespace_of_our_own_nothing_but_loopback() {
        let spots = spots(&Ground::Loopback);
        assert!(spots.len() > 4);
        assert!(spots.iter().all(|s| s.ip.is_loopback() && s.port == 0));
    }

    #[test]
    fn the_ground_survives_the_way_to_the_helper() {
        let here = Ground::Here(vec![
            (Position::Loopback, v4(127, 0, 0, 1)),
            (Position::Internet, v6(0x2001, 0xdb8, 0x10)),
        ]);
        for ground in [Ground::Own, Ground::Loopback, here] {
            assert_eq!(Ground::parse(&ground.argument()), Some(ground));
        }
        assert_eq!(Ground::parse("9=127.0.0.1"), None);
    }

    #[test]
    fn on_this_machine_nothing_stands_but_on_its_own_addresses() {
        let internet = v4(203, 0, 113, 10);
        let ground = Ground::Here(vec![
            (Position::Loopback, v4(127, 0, 0, 1)),
            (Position::Gateway, v4(172, 17, 0, 1)),
            (Position::Internet, internet),
        ]);
        let spots = spots(&ground);
        // The harness may send to a canary elsewhere, and listens on no address of it.
        assert!(ground.holds(internet) && !spots.iter().any(|spot| spot.ip == internet));
        assert!(spots.iter().all(|spot| ground.holds(spot.ip)));
        assert!(!spots.iter().any(|spot| spot.canary == CanaryKind::Http));
        assert!(!ground.holds(METADATA[0]) && !ground.holds(v4(203, 0, 113, 11)));
    }

    #[test]
    fn every_address_is_metadata_or_for_documentation() {
        for ip in addresses() {
            let documentation = match ip {
                IpAddr::V4(ip) => ip.is_documentation(),
                IpAddr::V6(ip) => ip.segments()[..2] == [0x2001, 0xdb8],
            };
            assert!(documentation || METADATA.contains(&ip), "{ip}");
        }
    }
}
