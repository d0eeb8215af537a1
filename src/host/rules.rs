//! Whether this machine routes by the destination alone: where rules send some senders another way (rtnetlink(7),
//! ip-rule(8)), what one of them reaches says nothing about the others.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::libc;
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};

/// Bytes of a message's header, and of a rule's own (`linux/fib_rules.h`).
const HEADER: usize = 16;
const RULE: usize = 12;

/// The rules that every machine has: local, main and default.
const USUAL: [u32; 3] = [0, 32766, 32767];

/// What such a rule may say: its number, its table, and what restricts no sender.
const FRA_PRIORITY: u16 = 6;
const HARMLESS: [u16; 6] = [0, FRA_PRIORITY, 14, 15, 18, 21];

/// Whether nothing but the destination decides a packet's way, over IPv4 and IPv6, in the network of the calling thread.
/// `None` where the kernel does not tell.
pub fn by_destination_alone() -> Option<bool> {
    let both = [libc::AF_INET, libc::AF_INET6].map(of_family);
    let mut all = true;
    for rules in both {
        match rules {
            Ok(usual) => all &= usual,
            Err(error) if has_none(&error) => {}
            Err(_) => return None,
        }
    }
    Some(all)
}

/// A kernel without the family, or without rules, has none.
fn has_none(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT)
    )
}

fn of_family(family: i32) -> io::Result<bool> {
    let socket = socket::socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut message = ((HEADER + RULE) as u32).to_ne_bytes().to_vec();
    message.extend(libc::RTM_GETRULE.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.push(family as u8);
    message.extend([0; RULE - 1]);
    socket::send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
    let mut usual = true;
    while next(&socket, &mut usual)? {}
    Ok(usual)
}

/// Reads the next part of the answer, and says whether another one follows. `usual` is false once a rule was no usual one.
fn next(socket: &OwnedFd, usual: &mut bool) -> io::Result<bool> {
    let mut answer = vec![0; 32 * 1024];
    let length = socket::recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let mut rest = &answer[..length];
    loop {
        let strange = || io::Error::other("the kernel's answer is cut off");
        let Some((size, kind)) = head(rest) else {
            return if rest.is_empty() {
                Ok(true)
            } else {
                Err(strange())
            };
        };
        let body = rest.get(HEADER..size).ok_or_else(strange)?;
        match i32::from(kind) {
            libc::NLMSG_DONE => return Ok(false),
            libc::NLMSG_ERROR => {
                let code = body
                    .first_chunk()
                    .map_or(0, |code| i32::from_ne_bytes(*code));
                return Err(io::Error::from_raw_os_error(-code));
            }
            _ => *usual &= is_usual(body),
        }
        rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn head(message: &[u8]) -> Option<(usize, u16)> {
    let size = u32::from_ne_bytes(*message.first_chunk()?);
    let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    let size = usize::try_from(size).ok()?;
    (size >= HEADER).then_some((size, kind))
}

/// Whether a rule is one of those that every machine has, and restricts nothing.
fn is_usual(rule: &[u8]) -> bool {
    let Some((own, mut attributes)) = rule.split_at_checked(RULE) else {
        return false;
    };
    // Lengths of the prefixes that it is about, and the type of service.
    if own[1..4] != [0; 3] {
        return false;
    }
    let mut priority = 0;
    while let Some((size, kind)) = attribute(attributes) {
        if !HARMLESS.contains(&kind) {
            return false;
        }
        if kind == FRA_PRIORITY
            && let Some(value) = attributes.get(4..).and_then(|value| value.first_chunk())
        {
            priority = u32::from_ne_bytes(*value);
        }
        attributes = attributes
            .get(size.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    USUAL.contains(&priority)
}

fn attribute(bytes: &[u8]) -> Option<(usize, u16)> {
    let size = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?);
    (size >= 4).then_some((size, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(source: u8, attributes: &[(u16, u32)]) -> Vec<u8> {
        let mut rule = vec![libc::AF_INET as u8, 0, source, 0];
        rule.extend([0; 8]);
        for (kind, value) in attributes {
            rule.extend(8u16.to_ne_bytes());
            rule.extend(kind.to_ne_bytes());
            rule.extend(value.to_ne_bytes());
        }
        rule
    }

    #[test]
    fn what_every_machine_has_is_told_from_what_sends_some_another_way() {
        assert!(is_usual(&rule(0, &[(15, 255)])), "local");
        assert!(is_usual(&rule(0, &[(6, 32766), (15, 254)])), "main");
        assert!(
            !is_usual(&rule(24, &[(6, 32765), (1, 7), (15, 191)])),
            "from a network"
        );
        assert!(
            !is_usual(&rule(0, &[(6, 100), (15, 191)])),
            "from everywhere, before main"
        );
        assert!(
            !is_usual(&rule(0, &[(6, 32766), (10, 1), (15, 254)])),
            "by a mark"
        );
        assert!(!is_usual(&[0; 3]), "cut off");
    }

    #[test]
    fn this_machine_tells_and_one_without_the_family_has_no_rule_of_it() {
        assert!(by_destination_alone().is_some());
        let is_none = |code| has_none(&io::Error::from_raw_os_error(code));
        assert!(is_none(libc::EAFNOSUPPORT) && is_none(libc::EOPNOTSUPP) && !is_none(libc::EPERM));
    }
}
