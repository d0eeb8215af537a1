//! The program's other faces: helpers that are this program executed again, each in a process without threads.

use crate::backend::{oci, oci_helper};
use crate::range::{netns, sentinel};

/// What this process was started as, carried out to its exit code; `None` if it is no helper. Call it before anything
/// starts a thread.
pub fn dispatch() -> Option<i32> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    match first.to_str()? {
        oci::HELPER => Some(
            match arguments.next().and_then(|fd| fd.to_str()?.parse().ok()) {
                Some(socket) => oci_helper::main(socket),
                None => crate::exit_code::USAGE,
            },
        ),
        netns::HELPER => Some(netns::helper_main()),
        sentinel::HELPER => Some(sentinel::sentinel_main()),
        _ => None,
    }
}
