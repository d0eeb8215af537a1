//! Attempts to make namespaces and to mount: what a process that may do so can do to the sandbox around it.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::child;
use crate::files;
use crate::sys::{self, Side, Try};

/// Makes a user namespace in each of three ways, and uses the power that it gives: a mount inside.
pub fn user_namespace(attempt: &mut Attempt) {
    let ids = sys::ids();
    let in_place = attempt.session == sys::pid();
    let ways: [(&str, Way); 2] = [("clone", clone), ("clone3", clone3)];
    let mut works = None;
    for (name, way) in ways {
        let born = child::apart(|| visit(way));
        attempt.step(name, "user", born);
        if born == Outcome::Ok {
            works = works.or(Some(way));
        }
    }
    let enter = || unshare(libc::CLONE_NEWUSER);
    let entered = if in_place {
        sys::outcome(&enter())
    } else {
        child::apart(enter)
    };
    attempt.step("unshare", "user", entered);
    if entered == Outcome::Ok && (in_place || enter().is_ok()) {
        let alone = unshare(libc::CLONE_NEWNS);
        return use_namespace(attempt, ids, alone);
    }
    // Where unshare is refused, the power is tried in a child that was born in namespaces of its own.
    let Some(way) = works else {
        return;
    };
    let creator = sys::pid();
    match way(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) {
        Ok(Side::Child) => {
            sys::die_with(creator);
            use_namespace(attempt, ids, Ok(()));
            sys::exit(0)
        }
        Ok(Side::Parent(pid)) => {
            if let ended @ Outcome::Signal(_) = child::end_of(pid) {
                attempt.step("use", "mount", ended);
            }
        }
        Err(errno) => attempt.step("use", "mount", Outcome::Errno(errno)),
    }
}

/// A way to get a child in new namespaces.
type Way = fn(libc::c_int) -> Try<Side>;

/// Tries a way with a child that ends at once.
fn visit(way: Way) -> Try<()> {
    match way(libc::CLONE_NEWUSER)? {
        Side::Child => sys::exit(0),
        Side::Parent(pid) => {
            child::end_of(pid);
            Ok(())
        }
    }
}

fn clone(namespaces: libc::c_int) -> Try<Side> {
    let flags = (namespaces | libc::SIGCHLD) as usize;
    // SAFETY: without a stack and without shared memory this is fork(2) with more flags; there is one thread.
    side(unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) })
}

fn clone3(namespaces: libc::c_int) -> Try<Side> {
    // struct clone_args of its first version: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls.
    let signal = libc::SIGCHLD as u64;
    let arguments: [u64; 8] = [namespaces as u64, 0, 0, 0, signal, 0, 0, 0];
    let size = std::mem::size_of_val(&arguments);
    // SAFETY: as above; the kernel reads `size` bytes of a live array.
    side(unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size) })
}

fn side(returned: i64) -> Try<Side> {
    Ok(match sys::check(returned)? {
        0 => Side::Child,
        pid => Side::Parent(pid as i32),
    })
}

fn unshare(flags: libc::c_int) -> Try<()> {
    // SAFETY: takes a number; this program has one thread.
    sys::check(i64::from(unsafe { libc::unshare(flags) })).map(drop)
}

/// Inside the new namespace: becomes its root, mounts where it is alone, holds.
fn use_namespace(attempt: &mut Attempt, (user, _, group): (u32, u32, u32), alone: Try<()>) {
    // Only a dumpable process owns its files in /proc.
    sys::set_dumpable(true);
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ];
    for (file, text) in maps {
        let written = std::fs::write(format!("/proc/self/{file}"), text);
        attempt.step("map", file, sys::io_outcome(&written));
    }
    sys::set_dumpable(false);
    // Without a mount namespace of its own, the new root may not mount.
    if alone.is_err() {
        return attempt.step("use", "mount", sys::outcome(&alone));
    }
    let _ = keep_mounts_private();
    let mut result = Err(libc::ENOENT);
    let places = ["/tmp", "/run", "/dev/shm", "/scratch", "/"].map(PathBuf::from);
    let mounted = places.into_iter().find(|place| {
        result = mount_tmpfs(b"escape-audit", place.as_os_str().as_bytes());
        result.is_ok()
    });
    attempt.step("use", "mount", sys::outcome(&result));
    attempt.hold();
    if let Some(place) = mounted {
        unmount(place.as_os_str().as_bytes());
    }
}

/// Mounts a small tmpfs on each directory, and asks for one through the newer interface too.
///
/// If it can, it does so in a mount namespace of its own, which takes the same privilege and leaves nothing behind
/// even if this process is killed.
pub fn mount(attempt: &mut Attempt) {
    let alone = unshare(libc::CLONE_NEWNS).and_then(|()| keep_mounts_private());
    attempt.step("unshare", "mount", sys::outcome(&alone));
    let source = attempt.bytes("source");
    let mut mounted = Vec::new();
    for directory in attempt.all("dir") {
        let result = mount_tmpfs(source, directory);
        attempt.step("mount", directory, sys::outcome(&result));
        if result.is_ok() {
            mounted.push(directory);
        }
    }
    let context = fsopen();
    attempt.step("fsopen", "tmpfs", sys::outcome(&context));
    drop(context);
    attempt.hold();
    for directory in mounted.into_iter().rev() {
        unmount(directory);
    }
}

fn fsopen() -> Try<std::os::fd::OwnedFd> {
    const CLOEXEC: usize = 1;
    // SAFETY: a NUL-terminated string that outlives the call, and a number.
    sys::check(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), CLOEXEC) }).map(sys::own)
}

fn mount_tmpfs(source: &[u8], directory: &[u8]) -> Try<()> {
    let source = sys::c_string(source)?;
    let directory = sys::c_string(files::path(directory).into_os_string().as_bytes())?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: four NUL-terminated strings that outlive the call.
    sys::check(i64::from(unsafe {
        libc::mount(
            source.as_ptr(),
            directory.as_ptr(),
            c"tmpfs".as_ptr(),
            flags,
            c"size=64k,mode=0755".as_ptr().cast(),
        )
    }))
    .map(drop)
}

/// Without this, a mount in here could appear in the namespace that this one was copied from.
fn keep_mounts_private() -> Try<()> {
    let none = std::ptr::null();
    // SAFETY: only the target is read when propagation is changed.
    sys::check(i64::from(unsafe {
        libc::mount(
            none,
            c"/".as_ptr(),
            none,
            libc::MS_REC | libc::MS_PRIVATE,
            none.cast(),
        )
    }))
    .map(drop)
}

fn unmount(directory: &[u8]) {
    if let Ok(directory) = sys::c_string(directory) {
        // SAFETY: a NUL-terminated string that outlives the call.
        unsafe { libc::umount2(directory.as_ptr(), libc::MNT_DETACH) };
    }
}
