//! What an outcome says as an answer to an attempt: the errno names the reason, and some errnos say nothing.

use escape_audit_probe::wire::Outcome;
use nix::libc;

use crate::evidence::Step;

use super::lines;
use super::reading::Finding;

/// The reason that an outcome gives for BLOCKED; `None` if it is neither a refusal nor an absence.
pub type Names = fn(Outcome) -> Option<&'static str>;

/// Reasons from the one that proves least to the one that proves most: where several apply, the weakest is named.
const WEAKEST_FIRST: &[&str] = &[
    "private",
    "permission",
    "intercepted",
    "dropped",
    "rejected",
    "refused",
    "killed",
    "no-route",
    "family-absent",
    "absent",
];

/// The weakest of these.
pub fn weakest(reasons: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    let rank = |reason: &&str| WEAKEST_FIRST.iter().position(|known| known == reason);
    reasons.into_iter().min_by_key(rank)
}

/// The system call itself is refused: privileges, kernel interfaces.
pub fn of_call(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Errno(libc::EPERM | libc::EACCES | libc::ENOSYS) => Some("refused"),
        Outcome::Signal(libc::SIGSYS) => Some("killed"),
        _ => None,
    }
}

/// Something that has a name is looked for: a file, a process, a socket.
pub fn of_lookup(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Errno(libc::EPERM | libc::EACCES) => Some("permission"),
        Outcome::Errno(libc::ENOENT | libc::ENOTDIR | libc::ESRCH | libc::ENXIO | libc::ENODEV) => {
            Some("absent")
        }
        Outcome::Errno(libc::ELOOP | libc::ENOSYS) => Some("refused"),
        Outcome::Signal(libc::SIGSYS) => Some("killed"),
        _ => None,
    }
}

/// A file is made. Whatever the kernel says, there is none; but some errors are the client's, and a full disk is no
/// refusal.
pub fn of_creation(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Errno(
            libc::EMFILE
            | libc::ENFILE
            | libc::ENOMEM
            | libc::EBADF
            | libc::EFAULT
            | libc::EINTR
            | libc::EAGAIN
            | libc::EEXIST
            | libc::ENAMETOOLONG
            | libc::EIO
            | libc::ENOSPC
            | libc::EDQUOT
            | libc::EFBIG,
        ) => None,
        Outcome::Errno(libc::EROFS | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL) => {
            Some("refused")
        }
        other => of_lookup(other).or(matches!(other, Outcome::Errno(_)).then_some("refused")),
    }
}

/// A socket is made, bound, connected or sent through. Of a time-out only its number counts (`reading_network`).
pub fn of_socket(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Errno(libc::ECONNREFUSED | libc::ECONNRESET | libc::ECONNABORTED) => {
            Some("rejected")
        }
        Outcome::Errno(libc::EPERM | libc::EACCES | libc::ENOSYS) => Some("refused"),
        // EINVAL is what a blackhole route gives.
        Outcome::Errno(
            libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::EHOSTDOWN
            | libc::EINVAL,
        ) => Some("no-route"),
        Outcome::Errno(
            libc::EAFNOSUPPORT
            | libc::EADDRNOTAVAIL
            | libc::EPROTONOSUPPORT
            | libc::ESOCKTNOSUPPORT,
        ) => Some("family-absent"),
        Outcome::Signal(libc::SIGSYS) => Some("killed"),
        _ => None,
    }
}

/// Held if every step is a refusal or an absence and there is at least one.
pub fn all<'a>(steps: impl IntoIterator<Item = &'a Step>, names: Names) -> Finding {
    let steps: Vec<&Step> = steps.into_iter().collect();
    if let Some(unclear) = steps.iter().find(|step| names(step.outcome).is_none()) {
        let sentence = format!(
            "{} is neither a refusal nor a proven absence.",
            lines::of_step(unclear)
        );
        return Finding::undecided("not-refused", sentence);
    }
    match weakest(steps.iter().filter_map(|step| names(step.outcome))) {
        Some(reason) => Finding::held(reason, lines::of_steps(steps)),
        None => Finding::undecided("not-tried", super::reasons::sentence("not-tried")),
    }
}
