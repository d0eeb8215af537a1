//! The system calls that `[attempt.syscall]` may name, with their numbers on the architecture this was built for.
//!
//! None of them can do anything to the machine. Most get an address that is never mapped in place of what they read
//! first, so that they fail where they are reached: EFAULT from the kernel's own code, EPERM or ENOSYS from a filter.
//! The others change nothing but the process that calls them, which ends at once.

use nix::libc;

/// One system call.
struct Syscall {
    name: &'static str,
    number: i64,
    /// Which argument, counted from 0, has to be `bad-pointer`.
    bad_pointer: Option<usize>,
}

macro_rules! syscalls {
    ($($name:ident = $number:ident $(, fails by $at:literal)?;)+) => {
        const SYSCALLS: &[Syscall] = &[$(Syscall {
            name: stringify!($name),
            number: libc::$number as i64,
            bad_pointer: syscalls!(@at $($at)?),
        }),+];
    };
    (@at $at:literal) => { Some($at) };
    (@at) => { None };
}

syscalls!(
    add_key = SYS_add_key, fails by 0;
    bpf = SYS_bpf, fails by 1;
    clone3 = SYS_clone3, fails by 0;
    fanotify_init = SYS_fanotify_init;
    fsopen = SYS_fsopen, fails by 0;
    init_module = SYS_init_module, fails by 0;
    io_uring_setup = SYS_io_uring_setup, fails by 1;
    kcmp = SYS_kcmp;
    keyctl = SYS_keyctl, fails by 1;
    memfd_secret = SYS_memfd_secret;
    mount_setattr = SYS_mount_setattr, fails by 1;
    move_mount = SYS_move_mount, fails by 1;
    name_to_handle_at = SYS_name_to_handle_at, fails by 1;
    open_by_handle_at = SYS_open_by_handle_at, fails by 1;
    open_tree = SYS_open_tree, fails by 1;
    perf_event_open = SYS_perf_event_open, fails by 0;
    process_vm_readv = SYS_process_vm_readv, fails by 1;
    request_key = SYS_request_key, fails by 0;
    setns = SYS_setns;
    unshare = SYS_unshare;
    userfaultfd = SYS_userfaultfd;
);

/// Every name.
pub fn names() -> Vec<&'static str> {
    SYSCALLS.iter().map(|call| call.name).collect()
}

/// The number of this system call.
pub fn number(name: &str) -> Option<i64> {
    find(name).map(|call| call.number)
}

/// Which argument of this system call, counted from 0, has to be `bad-pointer`.
pub fn bad_pointer(name: &str) -> Option<usize> {
    find(name)?.bad_pointer
}

fn find(name: &str) -> Option<&'static Syscall> {
    SYSCALLS.iter().find(|call| call.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_numbers_are_their_own() {
        let mut numbers: Vec<i64> = SYSCALLS.iter().map(|call| call.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), SYSCALLS.len());
        assert!(SYSCALLS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert_eq!(number("nope"), None);
    }
}
