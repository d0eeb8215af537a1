//! A launcher as a child process: into the limiter and the range before it executes, ended by its own id, swept.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Gid, Pid, Uid, setgroups, setresgid, setresuid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::oci::Control;
use super::{BackendError, Launch};
use crate::host::cgroup::{self, Cgroup};

/// A started sandbox.
pub struct Running {
    /// The launcher, or the embedded backend's helper. It leads its own process group.
    pub child: Child,
    /// To the probe.
    pub stdin: Option<ChildStdin>,
    /// From the probe.
    pub stdout: Option<ChildStdout>,
    /// From the launcher and the probe.
    pub stderr: Option<ChildStderr>,
    /// The probe's process id on the host, where the backend knows it.
    pub init: Option<i32>,
    /// The group whose counters count the payload and nothing else.
    pub payload: Option<Cgroup>,
    /// The end of the sandbox ends all of it.
    pub cleanup: bool,
    /// The embedded backend's line to its helper.
    pub control: Option<Control>,
}

/// Who ends a run, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The sandbox itself, as its settings say.
    Sandbox,
    /// SIGKILL to the launcher alone.
    Launcher,
    /// SIGKILL to the launcher's group.
    Group,
    /// SIGTERM to the launcher.
    Terminate,
}

impl Running {
    /// Ends the run this way. What outlives it is not touched: that is what the trial wants to see.
    pub fn stop(&mut self, how: Stop) {
        let launcher = self.child.id().and_then(|id| i32::try_from(id).ok());
        let signal_launcher = |signal| {
            if let Some(pid) = launcher {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        };
        match how {
            Stop::Sandbox => match self.init {
                Some(init) => {
                    let _ = kill(Pid::from_raw(init), Signal::SIGKILL);
                }
                None => signal_launcher(Signal::SIGKILL),
            },
            Stop::Launcher => signal_launcher(Signal::SIGKILL),
            Stop::Terminate => signal_launcher(Signal::SIGTERM),
            Stop::Group => {
                if let Some(pid) = launcher {
                    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
                }
            }
        }
        // Whoever died first.
        self.after_end();
    }

    /// The run has ended: a backend that owns its sandbox's group ends what is still in it.
    pub fn after_end(&self) {
        if self.control.is_some()
            && self.cleanup
            && let Some(payload) = &self.payload
        {
            payload.kill();
        }
    }

    /// Ends whatever is still there of the launcher, by its own process group.
    pub async fn end(&mut self) {
        if let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        self.wait(Duration::from_secs(5)).await;
    }

    /// Waits for the launcher's end; its status as a shell would give it, `None` when the time is over.
    pub async fn wait(&mut self, at_most: Duration) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        let status = tokio::time::timeout(at_most, self.child.wait())
            .await
            .ok()?
            .ok()?;
        status
            .code()
            .or_else(|| status.signal().map(|signal| 128 + signal))
    }
}

/// Starts `command` with pipes, in its own process group, in the limiter's group `payload` and inside the range.
pub fn spawn(
    mut command: std::process::Command,
    launch: &Launch<'_>,
    group: Option<&Cgroup>,
    own_mounts: bool,
) -> Result<Child, BackendError> {
    let doors = match group {
        Some(group) => group
            .doors()
            .map_err(|error| BackendError::new("harness-failed", error.to_string()))?,
        None => Vec::new(),
    };
    let entry = launch.entry.clone();
    let user = launch.as_user;
    // A mount that gets through stays in a namespace that ends with the trial.
    let own_mounts = own_mounts
        && (nix::unistd::geteuid().is_root()
            || entry.as_ref().is_some_and(|entry| entry.user.is_some()));
    command.process_group(0);
    // SAFETY: between fork and exec only system calls are made; nothing is allocated and no lock is taken.
    unsafe {
        command.pre_exec(move || {
            cgroup::enter(&doors)?;
            if let Some(entry) = &entry {
                entry.enter()?;
            }
            if own_mounts {
                unshare(CloneFlags::CLONE_NEWNS)?;
                let flags = MsFlags::MS_SLAVE | MsFlags::MS_REC;
                mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?;
            }
            if let Some((uid, gid)) = user {
                let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                setgroups(&[])?;
                setresgid(gid, gid, gid)?;
                setresuid(uid, uid, uid)?;
            }
            die_with_parent()
        });
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let mut command = Command::from(command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            BackendError::new(
                "launcher-missing",
                format!("the launcher `{program}` was not found"),
            )
            .help("install it, or correct the command; nothing was run")
        } else {
            BackendError::new("backend-failed", format!("start `{program}`: {error}"))
        }
    })
}

/// Asks the kernel to end this process with the thread that started it.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: prctl with these arguments touches no memory.
    match unsafe { nix::libc::prctl(nix::libc::PR_SET_PDEATHSIG, nix::libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes the pipes out of a child.
pub fn running(mut child: Child, payload: Option<Cgroup>) -> Running {
    Running {
        stdin: child.stdin.take(),
        stdout: child.stdout.take(),
        stderr: child.stderr.take(),
        child,
        init: None,
        payload,
        cleanup: false,
        control: None,
    }
}
