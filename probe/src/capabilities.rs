//! Attempts on privileges that the process holds already: its capabilities, each used in a way that changes nothing,
//! and system calls with harmless arguments.
//!
//! A capability is used through a call that asks for it before it looks at its arguments, with arguments that it then
//! refuses: EPERM tells that the capability is missing, EINVAL and the like that it is there.

use std::ffi::c_ulong;
use std::os::fd::OwnedFd;

use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::child;
use crate::sys::{self, Try};

/// Reports the sets, the user namespace's map, and which of the dangerous capabilities work.
pub fn examine(attempt: &mut Attempt) {
    let (effective, permitted) = sets().unwrap_or_default();
    let probed = |of: &dyn Fn(c_ulong) -> Try<i64>| {
        let has = |number: &u64| of(*number as c_ulong) == Ok(1);
        (0..64).filter(has).fold(0, |set, number| set | 1 << number)
    };
    let bounding = probed(&|number| sys::prctl(libc::PR_CAPBSET_READ, number, 0));
    let is_set = libc::PR_CAP_AMBIENT_IS_SET as c_ulong;
    let ambient = probed(&|number| sys::prctl(libc::PR_CAP_AMBIENT, is_set, number));
    let sets = [
        ("cap-eff", effective),
        ("cap-prm", permitted),
        ("cap-bnd", bounding),
        ("cap-amb", ambient),
    ];
    for (key, set) in sets {
        attempt.fact(key, "", format!("{set:016x}"));
    }
    if let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") {
        let map: Vec<&str> = map.split_whitespace().collect();
        attempt.fact("uid-map", "", map.join(" "));
    }
    for (name, attempted) in USES {
        attempt.step("use", name, child::apart(|| attempted(attempt.session)));
        if attempt.is_over() {
            return;
        }
    }
}

/// The effective and permitted capabilities (capget(2), version 3).
fn sets() -> Option<(u64, u64)> {
    let header: [u32; 2] = [0x2008_0522, 0];
    let mut data = [0u32; 6];
    // SAFETY: version 3 reads a header of two words and writes two records of three words.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) };
    let wide = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    (got == 0).then(|| (wide(data[0], data[3]), wide(data[1], data[4])))
}

/// A harmless use of one capability; its argument is the session's process.
type Use = fn(i32) -> Try<()>;

const USES: &[(&str, Use)] = &[
    ("CAP_SYS_ADMIN", |_| same_host_name()),
    ("CAP_SYS_MODULE", |_| {
        // An empty module image.
        refused_later(call(libc::SYS_init_module, [BAD, 0, BAD, 0, 0, 0]))
    }),
    ("CAP_SYS_BOOT", |_| {
        // Neither magic number is one.
        refused_later(call(libc::SYS_reboot, [0, 0, 0, 0, 0, 0]))
    }),
    ("CAP_SYS_TIME", |_| impossible_tick()),
    ("CAP_SYSLOG", |_| {
        // To read nothing from the log into nowhere.
        const READ: usize = 2;
        refused_later(call(libc::SYS_syslog, [READ, 0, 0, 0, 0, 0]))
    }),
    ("CAP_SYS_PTRACE", read_session),
    ("CAP_SYS_RAWIO", |_| raw_io()),
    ("CAP_BPF", |_| {
        // To load no type information from nowhere.
        const BTF_LOAD: usize = 18;
        let nothing = [0u64; 4];
        let at = nothing.as_ptr() as usize;
        refused_later(call(libc::SYS_bpf, [BTF_LOAD, at, 32, 0, 0, 0]))
    }),
    ("CAP_DAC_READ_SEARCH", |_| bogus_handle()),
    ("CAP_MKNOD", |_| device_node()),
    ("CAP_NET_RAW", |_| raw_socket()),
    ("CAP_NET_ADMIN", |_| forced_buffer()),
    ("CAP_SYS_CHROOT", |_| {
        call(libc::SYS_chroot, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]).map(drop)
    }),
    ("CAP_SETUID", |_| {
        other_id(libc::SYS_setresuid, sys::ids().1)
    }),
    ("CAP_SETGID", |_| {
        other_id(libc::SYS_setresgid, sys::ids().2)
    }),
];

/// An address that nobody can read or write: its use gives EFAULT and changes nothing.
const BAD: usize = usize::MAX & !0xfff;

/// A system call; each caller says why its arguments are harmless.
fn call(number: libc::c_long, [a, b, c, d, e, f]: [usize; 6]) -> Try<i64> {
    // SAFETY: the callers pass numbers, addresses that are not mapped, or addresses of live data of the right form.
    sys::check(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

/// Reads a use that cannot succeed: any error but a refusal shows that it was permitted.
fn refused_later(tried: Try<i64>) -> Try<()> {
    match tried {
        Err(errno @ (libc::EPERM | libc::EACCES | libc::ENOSYS)) => Err(errno),
        _ => Ok(()),
    }
}

/// Gives the host the name that it has.
fn same_host_name() -> Try<()> {
    let mut name = [0u8; 65];
    // SAFETY: the kernel writes at most the given length.
    sys::check(i64::from(unsafe {
        libc::gethostname(name.as_mut_ptr().cast(), name.len())
    }))?;
    let length = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    call(
        libc::SYS_sethostname,
        [name.as_ptr() as usize, length, 0, 0, 0, 0],
    )
    .map(drop)
}

/// Asks for a clock tick of no length, which no kernel sets.
fn impossible_tick() -> Try<()> {
    // SAFETY: all zeroes is a valid timex, and the kernel reads and writes that structure alone.
    let tried = unsafe {
        let mut request: libc::timex = std::mem::zeroed();
        request.modes = libc::ADJ_TICK;
        libc::adjtimex(&mut request)
    };
    refused_later(sys::check(i64::from(tried)))
}

/// Reads a byte of the session's memory, which is not dumpable: its own user needs the capability for that.
fn read_session(session: i32) -> Try<()> {
    static BYTE: u8 = 0;
    if session == sys::pid() {
        return Err(libc::ESRCH);
    }
    let mut copy = 0u8;
    let here = libc::iovec {
        iov_base: (&raw mut copy).cast(),
        iov_len: 1,
    };
    let there = libc::iovec {
        iov_base: (&raw const BYTE).cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY: one byte is written to a live byte; the other address is only read, in the other process.
    let got = unsafe { libc::process_vm_readv(session, &here, 1, &there, 1, 0) };
    sys::check(got as i64).map(drop)
}

/// Takes another effective user or group, and the old one back.
fn other_id(number: libc::c_long, own: u32) -> Try<()> {
    const UNCHANGED: usize = u32::MAX as usize;
    let take = |id: usize| call(number, [UNCHANGED, id, UNCHANGED, 0, 0, 0]).map(drop);
    take(if own == 0 { 65_534 } else { 0 })?;
    take(own as usize)
}

/// Allows this process, which ends now, the use of ports, and uses none.
#[cfg(target_arch = "x86_64")]
fn raw_io() -> Try<()> {
    call(libc::SYS_iopl, [3, 0, 0, 0, 0, 0]).map(drop)
}

#[cfg(not(target_arch = "x86_64"))]
fn raw_io() -> Try<()> {
    Err(libc::ENOSYS)
}

/// Opens a file by a handle that no file has.
fn bogus_handle() -> Try<()> {
    let root =
        std::fs::File::open("/").map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
    // Length, type "inode and generation", and both of them impossible.
    let handle: [u32; 4] = [8, 1, u32::MAX, u32::MAX];
    let (root, at) = (sys::raw(&root) as usize, handle.as_ptr() as usize);
    let flags = libc::O_RDONLY as usize;
    let tried = call(libc::SYS_open_by_handle_at, [root, at, flags, 0, 0, 0]);
    refused_later(tried.map(|fd| {
        drop(sys::own(fd));
        0
    }))
}

/// Makes another `/dev/null` in the first place that takes one, and removes it.
fn device_node() -> Try<()> {
    let null = libc::makedev(1, 3);
    let mut result = Err(libc::ENOENT);
    for place in ["/tmp", "/dev/shm", "/scratch", "/var/tmp", "/run", "."] {
        let path = sys::c_string(format!("{place}/escape-audit-null-{}", sys::pid()))?;
        // SAFETY: a NUL-terminated path, alive during the call.
        let made = unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR, null) };
        result = sys::check(i64::from(made)).map(drop);
        if result.is_ok() {
            // SAFETY: as above; this removes what was just made.
            unsafe { libc::unlink(path.as_ptr()) };
        }
        // Any other error is about the place, not about the capability.
        if matches!(result, Ok(()) | Err(libc::EPERM)) {
            break;
        }
    }
    result
}

fn socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> Try<OwnedFd> {
    // SAFETY: takes numbers.
    sys::check(i64::from(unsafe { libc::socket(domain, kind, protocol) })).map(sys::own)
}

fn raw_socket() -> Try<()> {
    socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP).map(drop)
}

/// Sets a buffer of a socket of our own, past the limit that others have to keep.
fn forced_buffer() -> Try<()> {
    let socket = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    let bytes: libc::c_int = 4096;
    // SAFETY: the value is a live number of the size that is passed with it.
    sys::check(i64::from(unsafe {
        libc::setsockopt(
            sys::raw(&socket),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            std::mem::size_of_val(&bytes) as libc::socklen_t,
        )
    }))
    .map(drop)
}

/// Makes one system call with arguments that the case states.
pub fn system_call(attempt: &mut Attempt) {
    let number = attempt.bytes("number");
    let arguments: Option<Vec<usize>> = attempt.all("args").into_iter().map(argument).collect();
    let parsed = attempt
        .request
        .number::<libc::c_long>("number")
        .zip(arguments);
    let harmless =
        |which: &libc::c_long, given: &[usize]| given.len() <= 6 && !hurts(*which, given);
    let Some((which, given)) = parsed.filter(|(which, given)| harmless(which, given)) else {
        return attempt.step("malformed", number, Outcome::Errno(libc::EINVAL));
    };
    let mut arguments = [0; 6];
    arguments[..given.len()].copy_from_slice(&given);
    // In a process of its own: some calls do not return.
    attempt.step(
        "syscall",
        number,
        child::apart(|| call(which, arguments).map(drop)),
    );
}

/// Whether a call would hurt if it worked: these are never made, whatever a case says.
fn hurts(number: libc::c_long, arguments: &[usize]) -> bool {
    const REBOOT_MAGIC: u32 = 0xfee1_dead;
    match number {
        libc::SYS_reboot => arguments
            .first()
            .is_some_and(|magic| *magic as u32 == REBOOT_MAGIC),
        // Attempts on other processes have a kind of their own, which sends nothing that ends one.
        libc::SYS_kill
        | libc::SYS_tkill
        | libc::SYS_tgkill
        | libc::SYS_rt_sigqueueinfo
        | libc::SYS_rt_tgsigqueueinfo
        | libc::SYS_pidfd_send_signal => true,
        _ => false,
    }
}

fn argument(text: &[u8]) -> Option<usize> {
    match std::str::from_utf8(text).ok()? {
        "bad-pointer" => Some(BAD),
        number => number.parse::<i64>().ok().map(|number| number as usize),
    }
}
