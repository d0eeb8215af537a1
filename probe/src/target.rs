//! Where an attempt connects to, as the protocol writes it.

use std::net::SocketAddr;

/// A place to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `tcp://ADDRESS:PORT`; an IPv6 address stands in brackets.
    Tcp(SocketAddr),
    /// `udp://ADDRESS:PORT`.
    Udp(SocketAddr),
    /// `path:/PATH`, a Unix socket in the file system.
    Path(String),
    /// `abstract:NAME`, a Unix socket in the network namespace.
    Abstract(String),
}

impl Target {
    /// Reads a target; addresses are numeric, for a sandbox may have no resolver.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(address) = text.strip_prefix("tcp://") {
            address.parse().ok().map(Self::Tcp)
        } else if let Some(address) = text.strip_prefix("udp://") {
            address.parse().ok().map(Self::Udp)
        } else if let Some(path) = text.strip_prefix("path:") {
            path.starts_with('/').then(|| Self::Path(path.to_owned()))
        } else {
            let name = text.strip_prefix("abstract:")?;
            (!name.is_empty()).then(|| Self::Abstract(name.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        let v4 = Target::parse("tcp://203.0.113.10:80");
        assert_eq!(v4, "203.0.113.10:80".parse().ok().map(Target::Tcp));
        let v6 = Target::parse("udp://[2001:db8::10]:53");
        assert_eq!(v6, "[2001:db8::10]:53".parse().ok().map(Target::Udp));
        assert_eq!(
            Target::parse("path:/run/x"),
            Some(Target::Path("/run/x".into()))
        );
        assert_eq!(
            Target::parse("abstract:x y"),
            Some(Target::Abstract("x y".into()))
        );
    }

    #[test]
    fn what_is_not_a_target() {
        for text in [
            "",
            "tcp://",
            "tcp://name:80",
            "tcp://::1:80",
            "tcp://127.0.0.1",
            "path:x",
            "abstract:",
            "http://127.0.0.1:80",
        ] {
            assert_eq!(Target::parse(text), None, "{text}");
        }
    }
}
