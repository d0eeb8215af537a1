//! The two requests that a bare network namespace needs: bring the loopback device up, give it an address.
//!
//! Spoken by hand (rtnetlink(7)), so that a machine without `ip` can be audited.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};

/// The loopback device is the first one of every network namespace.
const LOOPBACK: u32 = 1;

/// A socket to the kernel's routing tables, in the namespace of the thread that opened it.
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(socket::socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?))
    }

    /// Brings the loopback device up.
    pub(super) fn loopback_up(&self) -> io::Result<()> {
        let up = libc::IFF_UP as u32;
        let mut body = vec![0; 4]; // family, padding, device type: any
        body.extend(LOOPBACK.to_ne_bytes());
        body.extend(up.to_ne_bytes());
        body.extend(up.to_ne_bytes()); // which flags to change
        self.request(libc::RTM_NEWLINK, 0, &body)
    }

    /// Gives the loopback device this one address. One that it has already is no error.
    pub(super) fn add_address(&self, ip: IpAddr) -> io::Result<()> {
        let (family, octets) = match ip {
            IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
            IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
        };
        let bytes = octets.len() as u8;
        // Without this an IPv6 address cannot be bound until the kernel has looked for another owner of it.
        let flags = libc::IFA_F_NODAD as u8;
        let mut body = vec![family as u8, bytes * 8, flags, libc::RT_SCOPE_UNIVERSE];
        body.extend(LOOPBACK.to_ne_bytes());
        for attribute in [libc::IFA_LOCAL, libc::IFA_ADDRESS] {
            body.extend((4 + u16::from(bytes)).to_ne_bytes());
            body.extend(attribute.to_ne_bytes());
            body.extend(&octets);
        }
        let create = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        self.request(libc::RTM_NEWADDR, create, &body)
    }

    fn request(&self, kind: u16, flags: i32, body: &[u8]) -> io::Result<()> {
        const HEADER: usize = 16;
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend([0; 8]); // sequence number and sender: one request at a time
        message.extend(body);
        socket::send(self.0.as_raw_fd(), &message, MsgFlags::empty())?;

        let mut answer = [0; 1024];
        let length = socket::recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        // An acknowledgement is an error message with the number 0.
        let error = answer
            .get(HEADER..HEADER + 4)
            .filter(|_| {
                length >= HEADER + 4 && answer[4..6] == (libc::NLMSG_ERROR as u16).to_ne_bytes()
            })
            .and_then(|bytes| <[u8; 4]>::try_from(bytes).ok())
            .map(i32::from_ne_bytes)
            .ok_or_else(|| io::Error::other("the kernel's answer is no acknowledgement"))?;
        if error == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(-error))
        }
    }
}
