//! Where metadata services are asked: there canaries of ours play them, and a case may ask over HTTP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// AWS, GCP, Azure and most others; ECS tasks; Alibaba; AWS over IPv6.
pub const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Their port.
pub const METADATA_PORT: u16 = 80;

/// Whether a case may ask there: at a metadata service's address, or within the sandbox itself. Anywhere else a container
/// with a network would ask somebody who is no part of the audit, and no canary could show that nothing came through.
pub fn may_be_asked(target: SocketAddr) -> bool {
    let service = METADATA.contains(&target.ip()) && target.port() == METADATA_PORT;
    service || target.ip().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_beyond_the_audit_is_asked() {
        let may = |target: &str| may_be_asked(target.parse().expect("an address"));
        assert!(may("169.254.169.254:80") && may("[fd00:ec2::254]:80") && may("127.0.0.1:8080"));
        for other in [
            "10.20.30.40:80",
            "169.254.169.254:8080",
            "203.0.113.10:80",
            "[fd00::1]:80",
        ] {
            assert!(!may(other), "{other}");
        }
    }
}
