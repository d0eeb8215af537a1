//! The embedded sandbox's helper: this program executed again, single-threaded, one a container.
//!
//! It creates and starts the container, says so on its control socket, waits for the end of the container's first
//! process, and deletes the container when the harness lets the socket go. It dies with the harness.

use std::collections::HashMap;
use std::ffi::CString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::net::UnixStream;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::oci_spec::runtime::Spec;
use libcontainer::syscall::syscall::SyscallType;
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use seccompiler::BpfProgram;

use super::launch::die_with_parent;
use super::oci::{Reply, Request};
use super::seccomp;

/// The helper's whole life. `socket` is the number of its control socket.
pub fn main(socket: RawFd) -> i32 {
    // SAFETY: the parent made this descriptor for this process and nobody else here owns it.
    let stream = unsafe { UnixStream::from_raw_fd(socket) };
    match run(stream) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn run(stream: UnixStream) -> io::Result<()> {
    die_with_parent()?;
    // The runtime comes back to the folder it was started from, which its user may not be able to read.
    std::env::set_current_dir("/")?;
    // The container must not inherit the way back to the harness.
    nix::fcntl::fcntl(
        std::os::fd::AsRawFd::as_raw_fd(&stream),
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC),
    )?;
    let mut answers = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let mut say = |reply: &Reply| -> io::Result<()> {
        let mut line = serde_json::to_string(reply)?;
        line.push('\n');
        answers.write_all(line.as_bytes())
    };
    let mut container = match create(&request) {
        Ok(container) => container,
        Err(why) => return say(&Reply::Failed(why)),
    };
    let Some(init) = container.pid() else {
        return say(&Reply::Failed("the runtime knows no first process".into()));
    };
    if let Err(error) = container.start() {
        let _ = container.delete(true);
        return say(&Reply::Failed(chain(&error)));
    }
    // A harness that has let go meanwhile hears nothing of this, and the container goes all the same.
    let told = say(&Reply::Started(init.as_raw()))
        .and_then(|()| ended(init))
        .and_then(|status| say(&Reply::Ended(status)));
    if told.is_ok() {
        // The harness reads the group's counters before it lets go.
        line.clear();
        let _ = lines.read_line(&mut line);
    }
    container.delete(true).map_err(io::Error::other)?;
    told
}

/// Waits for the end of the container's first process; its status as a shell gives it.
fn ended(init: Pid) -> io::Result<i32> {
    loop {
        match waitpid(init, None) {
            Ok(WaitStatus::Exited(_, status)) => return Ok(status),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(128 + signal as i32),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn create(request: &Request) -> Result<libcontainer::container::Container, String> {
    let filters = match request.seccomp {
        true => seccomp::programs().map_err(|error| error.to_string())?,
        false => Vec::new(),
    };
    let executor = Payload {
        filters,
        drop_to: request.drop_to.as_deref().map(capability_bits),
    };
    ContainerBuilder::new(request.id.clone(), SyscallType::default())
        .with_executor(executor)
        .with_root_path(&request.state)
        .map_err(|error| chain(&error))?
        .as_init(&request.bundle)
        .with_systemd(false)
        .with_detach(true)
        .build()
        .map_err(|error| chain(&error))
}

/// An error with what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What happens in the container between its set-up and the probe.
#[derive(Clone)]
struct Payload {
    filters: Vec<BpfProgram>,
    drop_to: Option<u64>,
}

impl Executor for Payload {
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        Ok(())
    }

    /// The default adds HOME and refuses an environment without PATH; here it is exactly what the settings say.
    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        Ok(())
    }

    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let fail = |error: io::Error| ExecutorError::Other(error.to_string());
        let process = spec.process().as_ref().ok_or(ExecutorError::InvalidArg)?;
        let strings = |list: &[String]| -> Vec<CString> {
            list.iter()
                .filter_map(|text| CString::new(text.as_str()).ok())
                .collect()
        };
        let arguments = strings(process.args().as_deref().unwrap_or_default());
        let environment = strings(process.env().as_deref().unwrap_or_default());
        let program = arguments.first().ok_or(ExecutorError::InvalidArg)?;
        for filter in &self.filters {
            install(filter).map_err(fail)?;
        }
        if let Some(keep) = self.drop_to {
            drop_capabilities(keep).map_err(fail)?;
        }
        match nix::unistd::execve(program, &arguments, &environment) {
            Ok(never) => match never {},
            Err(error) => Err(ExecutorError::Other(format!("execute the probe: {error}"))),
        }
    }
}

/// Installs one filter. Unlike the library's own way this does not set `no_new_privs`: whether that is in force is a
/// setting of its own.
fn install(filter: &BpfProgram) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel copies the program, which outlives the call.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The capability numbers of `linux/capability.h`, by name.
const CAPABILITIES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// The set as the kernel writes it; unknown names count for nothing.
pub fn capability_bits(names: &[String]) -> u64 {
    names
        .iter()
        .filter_map(|name| CAPABILITIES.iter().position(|known| known == name))
        .fold(0, |bits, number| bits | 1 << number)
}

/// Keeps these capabilities and no others, in every set.
fn drop_capabilities(keep: u64) -> io::Result<()> {
    for number in 0..CAPABILITIES.len() {
        if keep & (1 << number) == 0 {
            // SAFETY: prctl with these arguments touches no memory. A number that this kernel does not know fails,
            // which changes nothing.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number as libc::c_ulong) };
        }
    }
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let header = Header {
        version: 0x2008_0522,
        pid: 0,
    };
    let half = |bits: u32| Sets {
        effective: bits,
        permitted: bits,
        inheritable: 0,
    };
    let sets = [half(keep as u32), half((keep >> 32) as u32)];
    // SAFETY: both structures have the layout of version 3 of capset(2) and outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_names_become_the_kernels_bits() {
        let names = ["CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_NOPE"].map(String::from);
        assert_eq!(capability_bits(&names), 1 | 1 << 21);
    }
}
