//! The system calls that `[attempt.syscall]` may name, with their numbers on the architecture this was built for.

use nix::libc;

macro_rules! syscalls {
    ($($name:ident = $number:ident),+ $(,)?) => {
        /// Name and number.
        const SYSCALLS: &[(&str, i64)] = &[$((stringify!($name), libc::$number as i64)),+];
    };
}

// None of these does anything to the machine when its pointers are bad or its flags are unknown: the answer alone
// (EFAULT or EINVAL from the kernel's own code, EPERM or ENOSYS from a filter) tells whether it is within reach.
syscalls!(
    add_key = SYS_add_key,
    bpf = SYS_bpf,
    clone3 = SYS_clone3,
    fanotify_init = SYS_fanotify_init,
    fsopen = SYS_fsopen,
    init_module = SYS_init_module,
    io_uring_setup = SYS_io_uring_setup,
    kcmp = SYS_kcmp,
    keyctl = SYS_keyctl,
    memfd_secret = SYS_memfd_secret,
    mount = SYS_mount,
    mount_setattr = SYS_mount_setattr,
    move_mount = SYS_move_mount,
    name_to_handle_at = SYS_name_to_handle_at,
    open_by_handle_at = SYS_open_by_handle_at,
    open_tree = SYS_open_tree,
    perf_event_open = SYS_perf_event_open,
    personality = SYS_personality,
    process_vm_readv = SYS_process_vm_readv,
    ptrace = SYS_ptrace,
    quotactl = SYS_quotactl,
    request_key = SYS_request_key,
    setns = SYS_setns,
    syslog = SYS_syslog,
    unshare = SYS_unshare,
    userfaultfd = SYS_userfaultfd,
);

/// Every name.
pub fn names() -> Vec<&'static str> {
    SYSCALLS.iter().map(|(name, _)| *name).collect()
}

/// The number of this system call.
pub fn number(name: &str) -> Option<i64> {
    SYSCALLS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_numbers_are_their_own() {
        let mut numbers: Vec<i64> = SYSCALLS.iter().map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), SYSCALLS.len());
        assert!(SYSCALLS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(number("nope"), None);
    }
}
