//! The system calls that `std` does not offer, as safe functions: every `unsafe` that is not a probe of a particular
//! kernel interface is here.

use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use escape_audit_probe::wire::Outcome;

/// What a system call gave, or its error number.
pub type Try<T> = Result<T, i32>;

/// The error number of the call that just failed.
pub fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Reads a system call's return value.
pub fn check(returned: i64) -> Try<i64> {
    if returned < 0 {
        Err(last_error())
    } else {
        Ok(returned)
    }
}

/// The outcome of a step that is one system call.
pub fn outcome<T>(tried: &Try<T>) -> Outcome {
    match tried {
        Ok(_) => Outcome::Ok,
        Err(errno) => Outcome::Errno(*errno),
    }
}

/// The outcome of a step that `std` made: its time limits are told from the kernel's refusals.
pub fn io_outcome<T>(tried: &std::io::Result<T>) -> Outcome {
    match tried {
        Ok(_) => Outcome::Ok,
        Err(error) => io_error(error),
    }
}

/// As [`io_outcome`], of an error alone.
pub fn io_error(error: &std::io::Error) -> Outcome {
    use std::io::ErrorKind::{InvalidInput, TimedOut, WouldBlock};
    match (error.kind(), error.raw_os_error()) {
        (TimedOut | WouldBlock, _) => Outcome::Timeout,
        (_, Some(errno)) => Outcome::Errno(errno),
        (InvalidInput, None) => Outcome::Errno(libc::EINVAL),
        (_, None) => Outcome::Errno(libc::EIO),
    }
}

/// A path or name as the kernel takes it; one that holds a NUL byte does not exist.
pub fn c_string(text: impl Into<Vec<u8>>) -> Try<CString> {
    CString::new(text).map_err(|_| libc::ENOENT)
}

/// Whether `fd` is open.
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: F_GETFD takes no pointer and changes nothing.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Makes `copy` another name of `fd`.
pub fn duplicate(fd: RawFd, copy: RawFd) {
    // SAFETY: no pointer is passed; the callers give numbers that no Rust object owns.
    unsafe { libc::dup2(fd, copy) };
}

/// Closes everything: for a process that must not keep its creator's pipes open.
pub fn close_all() {
    // The range holds more than this program ever opens; close_range(2) may be missing or denied.
    for fd in 0..1024 {
        // SAFETY: the caller is about to use none of its descriptors again, and never drops their owners.
        unsafe { libc::close(fd) };
    }
}

/// A pipe (read end, write end), closed on exec; its read end does not block.
pub fn pipe() -> Try<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors that the kernel stores.
    check(i64::from(unsafe {
        libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC)
    }))?;
    // SAFETY: F_SETFL takes no pointer; the descriptor is ours.
    unsafe { libc::fcntl(ends[0], libc::F_SETFL, libc::O_NONBLOCK) };
    // SAFETY: both were just made and belong to nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Reads once; 0 is the end.
pub fn read(fd: RawFd, buffer: &mut [u8]) -> Try<usize> {
    // SAFETY: the kernel writes at most `len` bytes to a buffer of that length.
    let got = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
    check(got as i64).map(|n| n as usize)
}

/// Writes all of `data`, in one call where the kernel takes it whole.
pub fn write_all(fd: RawFd, mut data: &[u8]) -> Try<()> {
    while !data.is_empty() {
        // SAFETY: the kernel reads at most `len` bytes of a buffer of that length.
        let sent = unsafe { libc::write(fd, data.as_ptr().cast(), data.len()) };
        match check(sent as i64) {
            Ok(n) => data = &data[n as usize..],
            Err(libc::EINTR) => {}
            // Somebody else's end of the same terminal or pipe was made non-blocking: wait for room.
            Err(libc::EAGAIN) => {
                let mut wanted = libc::pollfd {
                    fd,
                    events: libc::POLLOUT,
                    revents: 0,
                };
                // SAFETY: one valid pollfd is passed with the count 1.
                unsafe { libc::poll(&mut wanted, 1, 1000) };
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Waits until one of the two descriptors can be read, a child ended, or the time is over; says which can be read.
/// A descriptor of `None` is not waited for. SIGCHLD has to be blocked, so that no end of a child is missed.
pub fn wait_readable(fds: [Option<RawFd>; 2], at_most: Duration) -> [bool; 2] {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd: fd.unwrap_or(-1),
        events: libc::POLLIN,
        revents: 0,
    });
    let limit = libc::timespec {
        tv_sec: at_most.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(at_most.subsec_nanos() as i32),
    };
    let none_blocked = empty_set();
    // SAFETY: two valid pollfds with the count 2; the time and the signal set outlive the call.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &limit, &none_blocked) };
    if ready < 0 && last_error() != libc::EINTR {
        // A filter that denies ppoll: ask often instead.
        let pause = at_most.min(Duration::from_millis(10)).as_millis() as libc::c_int;
        // SAFETY: as above.
        if unsafe { libc::poll(polled.as_mut_ptr(), 2, pause) } < 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    } else if ready < 0 {
        return [false; 2];
    }
    [polled[0].revents != 0, polled[1].revents != 0]
}

/// Waits until one of the descriptors can be read, or written to, or has failed, or the time is over. Which one it is,
/// its owner finds out by trying; it may also be none.
pub fn wait_for_any(fds: &[RawFd], events: libc::c_short, at_most: Duration) {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: *fd,
            events,
            revents: 0,
        })
        .collect();
    let limit = libc::c_int::try_from(at_most.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: valid pollfds with their count.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit) };
    if ready < 0 {
        // A filter that denies poll: ask often instead.
        std::thread::sleep(at_most.min(Duration::from_millis(10)));
    }
}

/// Begins to connect, and does not wait for the end of it.
pub fn begin_to_connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let failed = std::io::Error::from_raw_os_error;
    let domain = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers.
    let socket = check(i64::from(unsafe { libc::socket(domain, kind, 0) }));
    let socket = own(socket.map_err(failed)?);
    let connected = match address {
        SocketAddr::V4(address) => connect(
            &socket,
            &libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            },
        ),
        SocketAddr::V6(address) => connect(
            &socket,
            &libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            },
        ),
    };
    match connected {
        Ok(()) | Err(libc::EINPROGRESS) => Ok(TcpStream::from(socket)),
        Err(errno) => Err(failed(errno)),
    }
}

/// `address` is one of the `sockaddr_*` structures.
fn connect<T>(socket: &OwnedFd, address: &T) -> Try<()> {
    let length = std::mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the address is valid for its length, which is passed with it.
    let begun = unsafe { libc::connect(raw(socket), (&raw const *address).cast(), length) };
    check(i64::from(begun)).map(drop)
}

/// The addresses of this network namespace, each with the name of its interface.
pub fn addresses() -> Try<Vec<(String, IpAddr)>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the library stores a list there, which is given back below.
    check(i64::from(unsafe { libc::getifaddrs(&mut first) }))?;
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: an entry of the list is valid until it is given back, and the last one's `ifa_next` is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the name is a string of C; the address, where there is one, is a structure of its own family.
        let known = unsafe {
            let name = std::ffi::CStr::from_ptr(entry.ifa_name);
            address(entry.ifa_addr).map(|ip| (name.to_string_lossy().into_owned(), ip))
        };
        found.extend(known);
    }
    // SAFETY: it is the list from above, and nothing of it is used again.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The address in one of the `sockaddr_*` structures.
///
/// # Safety
///
/// It is null, or valid for the family that it names.
unsafe fn address(from: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's word; an unaligned structure is read as one.
    unsafe {
        match i32::from(from.as_ref()?.sa_family) {
            libc::AF_INET => {
                let four = from.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let six = from.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(six.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: an all-zero signal set is a valid value, and sigemptyset only writes to it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    }
}

/// Replaces the mask of blocked signals by exactly these.
pub fn block_only(signals: &[i32]) {
    let mut set = empty_set();
    // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
    unsafe {
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}

/// What a process does with a signal.
pub enum Reaction {
    /// What the kernel does by default.
    Default,
    /// Nothing at all.
    Ignore,
    /// A call in progress is interrupted, nothing more.
    Interrupt,
    /// The process ends with status 4: also where it is PID 1, which default actions do not end.
    Exit,
}

extern "C" fn interrupt(_signal: libc::c_int) {}

extern "C" fn give_up(_signal: libc::c_int) {
    exit(4)
}

/// Sets the reaction to a signal.
pub fn react(signal: i32, reaction: Reaction) {
    let handler = match reaction {
        Reaction::Default => libc::SIG_DFL,
        Reaction::Ignore => libc::SIG_IGN,
        Reaction::Interrupt => interrupt as extern "C" fn(libc::c_int) as libc::sighandler_t,
        Reaction::Exit => give_up as extern "C" fn(libc::c_int) as libc::sighandler_t,
    };
    // SAFETY: both handlers are async-signal-safe: one is empty, the other calls _exit. No flag asks for more.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// Asks for SIGALRM in so many seconds; 0 takes the wish back.
pub fn alarm(seconds: u32) {
    // SAFETY: takes a number.
    unsafe { libc::alarm(seconds) };
}

/// Which side of a fork this is.
pub enum Side {
    /// The old process, with the new one's id.
    Parent(i32),
    /// The new process.
    Child,
}

/// Forks.
pub fn fork() -> Try<Side> {
    // SAFETY: the program has one thread, so the child may use everything that it inherits.
    match check(i64::from(unsafe { libc::fork() }))? {
        0 => Ok(Side::Child),
        pid => Ok(Side::Parent(pid as i32)),
    }
}

/// Ends the process at once: nothing buffered, no destructor.
pub fn exit(status: i32) -> ! {
    // SAFETY: never returns and touches no memory of ours.
    unsafe { libc::_exit(status) }
}

/// The process's own id.
pub fn pid() -> i32 {
    // SAFETY: cannot fail.
    unsafe { libc::getpid() }
}

/// The id of the parent; 0 where it is outside this process's namespace.
pub fn parent_pid() -> i32 {
    // SAFETY: cannot fail.
    unsafe { libc::getppid() }
}

/// The real user, effective user, real group.
pub fn ids() -> (u32, u32, u32) {
    // SAFETY: none of these can fail.
    unsafe { (libc::getuid(), libc::geteuid(), libc::getgid()) }
}

/// `prctl` with whole numbers only; the callers name options that take no pointer.
pub fn prctl(option: libc::c_int, first: libc::c_ulong, second: libc::c_ulong) -> Try<i64> {
    // SAFETY: see above; the unused arguments are 0, as newer options demand.
    check(i64::from(unsafe {
        libc::prctl(
            option,
            first,
            second,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
        )
    }))
}

/// Names the thread; the kernel keeps 15 bytes.
pub fn set_name(name: &str) {
    if let Ok(name) = c_string(name) {
        // SAFETY: a NUL-terminated string that outlives the call.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// Whether others of this user may look into the process (`/proc/PID/mem`, `environ`, ptrace). A process that may not
/// be looked into does not own its files in `/proc` either.
pub fn set_dumpable(on: bool) {
    let _ = prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(on), 0);
}

/// Makes the process die with `parent`; it dies now if the parent is already gone.
pub fn die_with(parent: i32) {
    let _ = prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0);
    if parent_pid() != parent {
        exit(0);
    }
}

/// Makes `pid` (0: itself) the leader of a process group of its own.
pub fn lead_group(pid: i32) {
    // SAFETY: takes numbers.
    unsafe { libc::setpgid(pid, pid) };
}

/// Leaves group, session and terminal.
pub fn new_session() {
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
}

/// Sends a signal; 0 only asks whether it could be sent.
pub fn kill(pid: i32, signal: i32) -> Try<()> {
    // SAFETY: takes numbers.
    check(i64::from(unsafe { libc::kill(pid, signal) })).map(drop)
}

/// Kills the group that `leader`, a child of this process that was not waited for yet, leads.
pub fn kill_group(leader: i32) {
    // -1 and 0 mean other things to kill(2).
    if leader > 1 {
        let _ = kill(-leader, libc::SIGKILL);
    }
}

/// Sends a signal that carries a number.
pub fn queue(pid: i32, signal: i32, value: i32) -> Try<()> {
    let value = libc::sigval {
        sival_ptr: value as usize as *mut libc::c_void,
    };
    // SAFETY: the value is a number to both sides; nobody follows it.
    check(i64::from(unsafe { libc::sigqueue(pid, signal, value) })).map(drop)
}

/// Whether the child has ended, without waiting for it: its id stays its own until [`reap`].
pub fn has_ended(pid: i32) -> Try<bool> {
    // SAFETY: an all-zero siginfo is a valid value, and the kernel writes to it alone.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        check(i64::from(libc::waitid(
            libc::P_PID,
            pid as libc::id_t,
            &mut info,
            flags,
        )))?;
        Ok(info.si_pid() == pid)
    }
}

/// Waits for a child (-1: any) and says which one ended, and how; `None` if there is none that has.
pub fn reap(pid: i32, block: bool) -> Option<(i32, Outcome)> {
    let flags = if block { 0 } else { libc::WNOHANG };
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes the status to a valid place.
        match check(i64::from(unsafe { libc::waitpid(pid, &mut status, flags) })) {
            Ok(0) => return None,
            Ok(which) if libc::WIFSIGNALED(status) => {
                return Some((which as i32, Outcome::Signal(libc::WTERMSIG(status))));
            }
            Ok(which) => {
                let ended = match libc::WEXITSTATUS(status) {
                    0 => Outcome::Ok,
                    status => Outcome::Exit(status),
                };
                return Some((which as i32, ended));
            }
            Err(libc::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// The number of CPUs that this process may use; 0 if the kernel does not say.
pub fn cpus() -> u32 {
    let mut mask = [0u64; 128];
    // SAFETY: the kernel writes at most the given size into the mask.
    let got = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            std::mem::size_of_val(&mask),
            mask.as_mut_ptr(),
        )
    };
    if got < 0 {
        return 0;
    }
    mask.iter().map(|word| word.count_ones()).sum()
}

/// The kernel's release, as it calls itself.
pub fn kernel_release() -> Vec<u8> {
    // SAFETY: an all-zero utsname is valid, and the kernel terminates each of its strings.
    let name = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        name
    };
    let release = name.release.iter().take_while(|byte| **byte != 0);
    release.map(|byte| *byte as u8).collect()
}

/// Processor time of this process and of its children that were waited for, in milliseconds.
pub fn cpu_ms() -> u64 {
    let of = |who| {
        // SAFETY: an all-zero rusage is valid, and the kernel writes to it alone.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
            usage
        };
        let ms = |time: libc::timeval| time.tv_sec as u64 * 1000 + time.tv_usec as u64 / 1000;
        ms(usage.ru_utime) + ms(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

/// Takes `bytes` of memory and writes to every page of it. It stays taken until the process ends.
pub fn take_memory(bytes: usize) -> Try<()> {
    const PAGE: usize = 4096;
    // SAFETY: a new private mapping, wherever the kernel likes, touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(last_error());
    }
    for offset in (0..bytes).step_by(PAGE) {
        // The address makes each page different, so that the kernel cannot merge them.
        // SAFETY: inside the mapping made above, aligned to a page, of a type without invalid values.
        unsafe {
            let page = start.cast::<u8>().add(offset);
            page.cast::<usize>().write_volatile(page as usize);
        }
    }
    Ok(())
}

/// Asks for so many open files, as far as that is allowed.
pub fn raise_open_files(wanted: u64) {
    // SAFETY: a live structure, which the first call fills and the second reads.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < wanted {
            limit.rlim_cur = limit.rlim_max.min(wanted);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// The raw descriptor, for the calls above.
pub fn raw(fd: &impl AsRawFd) -> RawFd {
    fd.as_raw_fd()
}

/// A descriptor that a raw system call returned.
pub fn own(fd: i64) -> OwnedFd {
    // SAFETY: the callers pass what the kernel has just returned as a new descriptor.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// Standard input and output, which this program never closes.
pub const STDIN: RawFd = libc::STDIN_FILENO;
/// See [`STDIN`].
pub const STDOUT: RawFd = libc::STDOUT_FILENO;
/// See [`STDIN`].
pub const STDERR: RawFd = libc::STDERR_FILENO;

/// Another descriptor of the same, so that the given one stays as it is; `None` if it is not open.
pub fn copy(fd: RawFd) -> Option<std::fs::File> {
    // SAFETY: no pointer is passed, and a number that is not open is refused.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    (copy >= 0).then(|| own(copy.into()).into())
}

/// Opens a path to be read, beginning at a folder. A pipe without a writer is not waited for.
pub fn open_at(folder: &impl AsRawFd, path: &std::path::Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the path is a string with its end, and outlives the call.
    let fd = unsafe { libc::openat(folder.as_raw_fd(), path.as_ptr(), flags) };
    match fd < 0 {
        true => Err(std::io::Error::last_os_error()),
        false => Ok(own(fd.into()).into()),
    }
}

/// Whether this user may make files in a folder.
pub fn may_write(folder: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path is a string with its end, and outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}
