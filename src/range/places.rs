//! Which canary stands where: one table, from which the helper opens sockets and adds addresses.
//!
//! All addresses but loopback exist only in the range's own namespace. They come from the blocks reserved for
//! documentation (RFC 5737, RFC 3849) and, for the clouds' metadata services, are the real ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// Where metadata services are asked: AWS, GCP, Azure and most others; ECS tasks; Alibaba; AWS over IPv6.
const METADATA: [IpAddr; 4] = [
    v4(169, 254, 169, 254),
    v4(169, 254, 170, 2),
    v4(100, 100, 100, 200),
    v6(0xfd00, 0xec2, 0x254),
];

/// The address that the canary name server gives for every name.
pub(super) const INTERNET: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

/// Every place, in a namespace of our own or on the host's loopback alone.
pub(super) fn spots(own: bool) -> Vec<Spot> {
    let mut spots = Vec::new();
    let mut add = |canary, position, wire, ip: IpAddr, port| {
        if own || ip.is_loopback() {
            spots.push(Spot {
                canary,
                position,
                wire,
                ip,
                // Low ports on the host's own loopback may be taken, or not be ours to take.
                port: if own { port } else { 0 },
            });
        }
    };
    for (position, addresses) in POSITIONS {
        for ip in addresses {
            add(CanaryKind::Tcp, position, Wire::Stream, ip, 0);
            add(CanaryKind::Udp, position, Wire::Datagram, ip, 0);
        }
        let [four, _] = addresses;
        if !matches!(position, Position::Gateway | Position::Sibling) {
            add(CanaryKind::Dns, position, Wire::Datagram, four, 53);
            add(CanaryKind::Dns, position, Wire::Stream, four, 53);
            add(CanaryKind::Http, position, Wire::Stream, four, 80);
        }
    }
    for ip in METADATA {
        add(CanaryKind::Http, Position::Host, Wire::Stream, ip, 80);
    }
    let nowhere = IpAddr::V4(Ipv4Addr::LOCALHOST);
    add(CanaryKind::Unix, Position::Host, Wire::Abstract, nowhere, 0);
    spots
}

/// The addresses that the namespace's loopback device has to hold, apart from its own.
pub(super) fn addresses() -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = spots(true).iter().map(|s| s.ip).collect();
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
        let spots = spots(false);
        assert!(spots.len() > 4);
        assert!(spots.iter().all(|s| s.ip.is_loopback() && s.port == 0));
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
