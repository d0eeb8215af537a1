//! A canary on another machine of the user's own: it plays the internet for containers that have a way out.
//!
//! What a firewall lets go beyond a machine it decides elsewhere than what it lets in: canaries on the machine's own
//! addresses hear nothing of it. So the user runs `escape-audit canary` on a host out there ([`far`]) and names it in
//! `[range] internet`; the audit keeps a connection to it open (`near`), on which it tells of every touch.
//!
//! Lines of text go one way, from the canary to whoever connected:
//!
//! ```text
//! escape-audit-canary 1
//! listens tcp 4 443             what it listens for, the version of IP, the port
//! ready
//! touch tcp 4 443 9f86d081…     SHA-256 of the token: who reads along cannot touch in another's name
//! ```

pub mod far;
pub(super) mod near;

use sha2::{Digest, Sha256};

use super::Token;
use crate::case::CanaryKind;

/// The first line: what this is, and the version of what follows.
const HELLO: &str = "escape-audit-canary 1";

/// No line is longer, in bytes.
const LONGEST_LINE: usize = 256;

/// A socket of the canary's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ear {
    pub(super) canary: CanaryKind,
    pub(super) datagrams: bool,
    pub(super) six: bool,
    pub(super) port: u16,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Hello,
    Listens(Ear),
    Ready,
    Touch(Ear, Hash),
}

/// SHA-256 of a token, in hexadecimal.
pub(super) type Hash = String;

/// By this a canary elsewhere names the token that it heard.
pub(super) fn hash(token: &Token) -> Hash {
    let digest = Sha256::digest(token.as_ref());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a socket listens for, in the words of the lines.
const KINDS: [(CanaryKind, bool, &str); 4] = [
    (CanaryKind::Tcp, false, "tcp"),
    (CanaryKind::Udp, true, "udp"),
    (CanaryKind::Dns, false, "dns-tcp"),
    (CanaryKind::Dns, true, "dns-udp"),
];

impl Ear {
    fn text(self) -> String {
        let kind = KINDS
            .iter()
            .find(|(canary, datagrams, _)| (*canary, *datagrams) == (self.canary, self.datagrams));
        let kind = kind.map_or("other", |(_, _, word)| word);
        let family = if self.six { 6 } else { 4 };
        format!("{kind} {family} {}", self.port)
    }

    fn parse(kind: &str, family: &str, port: &str) -> Option<Self> {
        let (canary, datagrams, _) = KINDS.iter().find(|(_, _, word)| *word == kind)?;
        let six = match family {
            "4" => false,
            "6" => true,
            _ => return None,
        };
        let port = port.parse().ok().filter(|port| *port != 0)?;
        Some(Self {
            canary: *canary,
            datagrams: *datagrams,
            six,
            port,
        })
    }
}

impl Line {
    fn text(&self) -> String {
        match self {
            Self::Hello => HELLO.into(),
            Self::Listens(ear) => format!("listens {}", ear.text()),
            Self::Ready => "ready".into(),
            Self::Touch(ear, hash) => format!("touch {} {hash}", ear.text()),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        if line == HELLO {
            return Some(Self::Hello);
        }
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["ready"] => Some(Self::Ready),
            ["listens", kind, family, port] => Ear::parse(kind, family, port).map(Self::Listens),
            ["touch", kind, family, port, hash] => {
                let ear = Ear::parse(kind, family, port)?;
                let is_hash = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
                is_hash.then(|| Self::Touch(ear, hash.to_ascii_lowercase()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_as_it_was_written() {
        for (canary, datagrams, _) in KINDS {
            let ear = Ear {
                canary,
                datagrams,
                six: datagrams,
                port: 443,
            };
            let touch = Line::Touch(ear, hash(&Token::random()));
            for line in [Line::Hello, Line::Ready, Line::Listens(ear), touch] {
                assert!(line.text().len() < LONGEST_LINE);
                assert_eq!(Line::parse(&line.text()), Some(line));
            }
        }
    }

    #[test]
    fn what_is_no_such_line_is_none() {
        for line in [
            "",
            "HTTP/1.1 400 Bad Request",
            "escape-audit-canary 2",
            "listens tcp 4 0",
            "listens tcp 5 443",
            "listens http 4 80",
            "touch tcp 4 443 beef",
            "ready now",
        ] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
    }
}
