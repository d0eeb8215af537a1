//! A launcher as a child process: into the limiter and the range before it executes, ended by its own id, swept.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Gid, Pid, Uid, setgroups, setresgid, setresuid};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::{BackendError, Launch, Pending};
use crate::host::cgroup::{self, Cgroup};

/// What the probe reads from.
pub type Writer = Box<dyn AsyncWrite + Unpin>;
/// What the probe writes to.
pub type Reader = Box<dyn AsyncRead + Unpin>;

/// A started sandbox.
pub struct Running {
    /// To the probe.
    pub stdin: Option<Writer>,
    /// From the probe.
    pub stdout: Option<Reader>,
    /// From the launcher and the probe.
    pub stderr: Option<Reader>,
    /// The probe's process id on the host, where the backend knows it.
    pub init: Option<i32>,
    /// The group whose counters count the payload and nothing else.
    pub payload: Option<Cgroup>,
    /// Who holds the sandbox: tells of its end, and ends it.
    pub life: Box<dyn Life>,
}

/// Who holds a started sandbox. Dropped, it leaves nothing that was not there before.
pub trait Life {
    /// The process that the harness itself started for it, while it runs.
    fn launcher(&self) -> Option<i32>;

    /// Waits for the end of the sandbox's first process, or of the launcher where nothing better is known; its status
    /// as a shell gives it. A wait may be given up and begun again.
    fn ended(&mut self) -> Pending<'_, i32>;

    /// Ends the run this way. What outlives it is not touched: that is what the trial wants to see.
    fn stop(&mut self, how: Stop) -> Pending<'_, ()>;

    /// The run has ended: who owns the sandbox's group ends what is still in it.
    fn after_end(&mut self) {}

    /// Ends and removes all that is left. What could not be removed is named.
    fn end(&mut self) -> Pending<'_, Vec<String>>;

    /// What was seen to be wrong with the sandbox so far: what is in force is weaker than it was asked for, who holds it
    /// was lost.
    fn trouble(&mut self) -> Vec<BackendError> {
        Vec::new()
    }
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

/// How long a process may take to be gone after SIGKILL.
const GONE: Duration = Duration::from_secs(5);

/// A launcher, held by its own id and process group, and by the limiter's group around it.
pub struct Launched {
    /// It leads its own process group.
    pub child: Child,
    /// The limiter's group.
    pub group: Option<Cgroup>,
}

impl Launched {
    /// Its process id, until its end was seen.
    pub fn pid(&self) -> Option<i32> {
        self.child.id().and_then(|id| i32::try_from(id).ok())
    }

    /// Signals it alone.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Kills its process group.
    pub fn kill_group(&self) {
        if let Some(pid) = self.pid() {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Waits for its end; its status as a shell gives it.
    pub async fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        match self.child.wait().await {
            Ok(status) => status
                .code()
                .or_else(|| status.signal().map(|signal| 128 + signal))
                .unwrap_or(-1),
            Err(_) => -1,
        }
    }

    /// Waits for its end, but not for long.
    pub async fn gone(&mut self) {
        let _ = tokio::time::timeout(GONE, self.child.wait()).await;
    }

    /// Ends whatever is still there of it: its group, and its process group.
    pub async fn end_all(&mut self) {
        if let Some(group) = &self.group {
            group.kill();
        }
        self.kill_group();
        self.gone().await;
    }
}

impl Life for Launched {
    fn launcher(&self) -> Option<i32> {
        self.pid()
    }

    fn ended(&mut self) -> Pending<'_, i32> {
        Box::pin(self.wait())
    }

    fn stop(&mut self, how: Stop) -> Pending<'_, ()> {
        match how {
            Stop::Sandbox | Stop::Launcher => self.signal(Signal::SIGKILL),
            Stop::Terminate => self.signal(Signal::SIGTERM),
            Stop::Group => self.kill_group(),
        }
        Box::pin(std::future::ready(()))
    }

    fn end(&mut self) -> Pending<'_, Vec<String>> {
        Box::pin(async {
            self.end_all().await;
            Vec::new()
        })
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

/// The pipes of a child.
pub struct Pipes {
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl Pipes {
    /// Takes them out of the child.
    pub fn of(child: &mut Child) -> Self {
        Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
        }
    }

    /// A sandbox whose probe talks through these pipes.
    pub fn running(self, payload: Option<Cgroup>, life: Box<dyn Life>) -> Running {
        Running {
            stdin: self.stdin.map(|pipe| Box::new(pipe) as Writer),
            stdout: self.stdout.map(|pipe| Box::new(pipe) as Reader),
            stderr: self.stderr.map(|pipe| Box::new(pipe) as Reader),
            init: None,
            payload,
            life,
        }
    }
}

/// A launcher with the probe behind it, in the limiter's group.
pub fn launched(mut child: Child, launch: &Launch<'_>) -> Running {
    let pipes = Pipes::of(&mut child);
    let group = launch.limiter.cloned();
    pipes.running(group.clone(), Box::new(Launched { child, group }))
}
