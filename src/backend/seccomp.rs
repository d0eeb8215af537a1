//! The embedded sandbox's system call filter.
//!
//! Everything that the kernels of today offer is allowed except a list of doors that untrusted code has no business
//! with; whatever has a higher number, and every other calling convention, is refused. So a system call that a
//! later kernel adds is closed until somebody looked at it.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The highest number that was looked at: `file_setattr` of Linux 6.17.
const HIGHEST_KNOWN: i64 = 469;

/// Flags of `clone(2)` that make a namespace.
const NEW_NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Refused with EPERM, grouped by what they open.
const REFUSED: &[i64] = &[
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    467, // open_tree_attr
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // The kernel itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    // Large and young attack surface.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_move_pages,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_set_mempolicy,
];

/// The two programs, in the order in which they are installed. The kernel takes the stricter answer.
pub fn programs() -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> = (0..=HIGHEST_KNOWN)
        .filter(|number| !REFUSED.contains(number))
        .map(|number| (number, Vec::new()))
        .collect();
    let without_namespaces = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(NEW_NAMESPACES),
        0,
    )?;
    allowed.insert(
        libc::SYS_clone,
        vec![SeccompRule::new(vec![without_namespaces])?],
    );
    let main = SeccompFilter::new(
        allowed,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        arch,
    )?;
    // clone3 hides its flags behind a pointer. "Not there" makes libraries fall back to clone.
    let clone3 = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        arch,
    )?;
    Ok(vec![main.try_into()?, clone3.try_into()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_well_formed_and_short_enough() {
        let programs = programs().expect("compiles");
        assert_eq!(programs.len(), 2);
        assert!(programs.iter().all(|program| program.len() < 4096));
    }

    #[test]
    fn every_refused_call_is_a_known_one() {
        assert!(REFUSED.iter().all(|number| *number <= HIGHEST_KNOWN));
    }
}
