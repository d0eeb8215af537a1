//! The line between the harness and its helper: messages of the probe's protocol, each with at most one descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use escape_audit_probe::wire::{MAX_LINE, Message};
use nix::sys::socket::{self, ControlMessage, ControlMessageOwned, MsgFlags};

/// One message, with at most one descriptor.
pub(super) fn send(
    line: BorrowedFd<'_>,
    message: &Message,
    descriptor: Option<BorrowedFd<'_>>,
    flags: MsgFlags,
) -> io::Result<()> {
    let text = message.encode();
    let descriptors: Vec<RawFd> = descriptor.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let control = if descriptors.is_empty() {
        &rights[..0]
    } else {
        &rights
    };
    let flags = flags | MsgFlags::MSG_NOSIGNAL;
    let parts = [IoSlice::new(text.as_bytes())];
    socket::sendmsg::<()>(line.as_raw_fd(), &parts, control, flags, None)?;
    Ok(())
}

/// The next message, with its descriptor; nothing at the end.
pub(super) fn receive(line: BorrowedFd<'_>) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut text = vec![0; MAX_LINE];
    let mut control = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut text)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let (length, descriptor) = loop {
        let received =
            socket::recvmsg::<()>(line.as_raw_fd(), &mut parts, Some(&mut control), flags);
        let received = match received {
            Err(nix::Error::EINTR) => continue,
            received => received?,
        };
        let mut descriptor = None;
        for part in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(descriptors) = part {
                for fd in descriptors {
                    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
                    descriptor = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
        break (received.bytes, descriptor);
    };
    if length == 0 {
        return Ok(None);
    }
    let message = Message::decode(&text[..length])
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no message"))?;
    Ok(Some((message, descriptor)))
}
