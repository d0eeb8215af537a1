//! The embedded default: a real OCI container without a daemon.
//!
//! The runtime library changes its process's working directory and clones it raw, so every container has a
//! single-threaded helper of ours, this program executed again (see [`super::oci_helper`]).

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Child;

use super::launch::{Launched, Pipes};
use super::{
    Backend, BackendError, Enforces, Launch, Life, Pending, Running, Stop, launch, oci_spec,
};
use crate::config::{Sandbox, Settings};
use crate::host::cgroup::Cgroup;

/// The hidden subcommand that makes this program a helper.
pub const HELPER: &str = "__oci";

/// How long a container may take to be created before that is an error.
const CREATE_DEADLINE: Duration = Duration::from_secs(20);

/// How long a helper that is let go may take to delete its container, before it is killed.
const LET_GO: Duration = Duration::from_secs(5);

/// What the helper is asked to do: the first line on its control socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// The container's id.
    pub id: String,
    /// The folder that holds `config.json`.
    pub bundle: PathBuf,
    /// Where the runtime keeps its state.
    pub state: PathBuf,
    /// Install the system call filter.
    pub seccomp: bool,
    /// Capabilities to keep once the filter is in place, where the configuration holds more than these for its sake.
    pub drop_to: Option<Vec<String>>,
}

/// What the helper answers, a line each.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The container runs; the id of its first process on the host.
    Started(i32),
    /// The container's first process ended with this status.
    Ended(i32),
    /// It could not be created.
    Failed(String),
}

/// The harness's end of the control socket. Dropped, it tells the helper to delete the container and to leave.
pub struct Control {
    lines: BufReader<UnixStream>,
    /// What was read of the next line: a wait may be given up halfway.
    part: Vec<u8>,
}

impl Control {
    fn new(socket: UnixStream) -> Self {
        Self {
            lines: BufReader::new(socket),
            part: Vec::new(),
        }
    }

    async fn request(&mut self, request: &Request) -> io::Result<()> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.lines.get_mut().write_all(line.as_bytes()).await
    }

    async fn reply(&mut self) -> io::Result<Reply> {
        self.lines.read_until(b'\n', &mut self.part).await?;
        if !self.part.ends_with(b"\n") {
            return Err(io::Error::other("the helper ended without a word"));
        }
        serde_json::from_slice(&std::mem::take(&mut self.part)).map_err(io::Error::from)
    }

    /// Waits until the container's first process has ended. Its group still exists then.
    pub async fn ended(&mut self) -> Option<i32> {
        match self.reply().await {
            Ok(Reply::Ended(status)) => Some(status),
            _ => None,
        }
    }
}

/// A container that its helper is making. Given up halfway, by a deadline or an interruption, the helper is let go and
/// waited for, so that it deletes what it has made by then: killed, it would leave a process that is in no group yet.
struct Creation(Option<(Child, Control)>);

impl Creation {
    async fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        let Some((_, control)) = &mut self.0 else {
            return Err(io::Error::other("the helper was let go"));
        };
        control.request(request).await?;
        control.reply().await
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        let Some((mut child, control)) = self.0.take() else {
            return;
        };
        drop(control);
        let until = Instant::now() + LET_GO;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A container, held by its helper.
struct Container {
    helper: Launched,
    /// Let go, the helper deletes the container.
    control: Option<Control>,
    has_ended: bool,
    init: i32,
    payload: Cgroup,
    /// The end of the sandbox ends all of it.
    cleanup: bool,
}

impl Life for Container {
    fn launcher(&self) -> Option<i32> {
        self.helper.pid()
    }

    fn ended(&mut self) -> Pending<'_, i32> {
        Box::pin(async {
            let told = match &mut self.control {
                Some(control) => control.ended().await,
                None => None,
            };
            let status = match told {
                Some(status) => status,
                None => self.helper.wait().await,
            };
            self.has_ended = true;
            status
        })
    }

    fn stop(&mut self, how: Stop) -> Pending<'_, ()> {
        Box::pin(async move {
            match how {
                Stop::Sandbox => {
                    let _ = kill(Pid::from_raw(self.init), Signal::SIGKILL);
                }
                other => self.helper.stop(other).await,
            }
            // Whoever died first.
            self.after_end();
        })
    }

    fn after_end(&mut self) {
        if self.cleanup {
            self.payload.kill();
        }
    }

    fn end(&mut self) -> Pending<'_, Vec<String>> {
        Box::pin(async {
            // The helper deletes its container first, where it still lives.
            self.control = None;
            if self.has_ended {
                self.helper.gone().await;
            }
            self.helper.end().await
        })
    }
}

/// The `oci` backend.
pub struct Oci;

impl Backend for Oci {
    fn start<'a>(&'a self, start: &'a Launch<'a>) -> Pending<'a, Result<Running, BackendError>> {
        Box::pin(async move {
            let limiter = start.limiter.ok_or_else(|| {
                BackendError::new(
                    "backend-failed",
                    "the embedded sandbox needs a cgroup of its own",
                )
            })?;
            let payload = limiter.below("sandbox");
            let request = prepare(start, &payload).map_err(|error| {
                BackendError::new("backend-failed", format!("make the bundle: {error}"))
            })?;
            let (ours, theirs) = socket_pair().map_err(|error| {
                BackendError::new("harness-failed", format!("socket pair: {error}"))
            })?;

            let mut command = helper_command(&theirs);
            command.env_clear();
            let mut child = launch::spawn(command, start, None, false)?;
            drop(theirs);
            let pipes = Pipes::of(&mut child);
            let mut creation = Creation(Some((child, Control::new(ours))));
            let answer = tokio::time::timeout(CREATE_DEADLINE, creation.ask(&request)).await;
            match answer {
                Ok(Ok(Reply::Started(init))) => {
                    let Some((child, control)) = creation.0.take() else {
                        return Err(BackendError::new("harness-failed", "the helper was let go"));
                    };
                    let helper = Launched {
                        child,
                        group: Some(limiter.clone()),
                    };
                    let container = Container {
                        helper,
                        control: Some(control),
                        has_ended: false,
                        init,
                        payload: payload.clone(),
                        cleanup: start.settings.cleanup,
                    };
                    let mut running = pipes.running(Some(payload), Box::new(container));
                    running.init = Some(init);
                    Ok(running)
                }
                Ok(Ok(Reply::Failed(why))) => Err(BackendError::new(
                    "backend-failed",
                    format!("create the container: {why}"),
                )),
                Ok(Ok(other)) => Err(BackendError::new(
                    "backend-failed",
                    format!("create the container: unexpected answer {other:?}"),
                )),
                Ok(Err(error)) => Err(BackendError::new(
                    "backend-failed",
                    format!("create the container: {error}"),
                )),
                Err(_) => Err(BackendError::new(
                    "backend-failed",
                    format!("create the container: no answer after {CREATE_DEADLINE:?}"),
                )),
            }
        })
    }

    fn enforces(&self, settings: &Settings) -> Enforces {
        Enforces {
            timeout: settings.enforce_timeout,
            output: settings.enforce_output,
        }
    }

    fn shares(&self) -> bool {
        true
    }

    fn digest(&self, sandbox: &Sandbox) -> Option<String> {
        match &sandbox.settings.rootfs {
            Some(folder) => Some(format!("{} (a folder, not pinned)", folder.display())),
            None => Some(format!(
                "probe sha256:{:x}",
                Sha256::digest(crate::host::probe::BYTES)
            )),
        }
    }
}

/// This program again, with the control socket as its one inherited descriptor.
fn helper_command(socket: &OwnedFd) -> std::process::Command {
    let descriptor = socket.as_raw_fd();
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .arg0("escape-audit")
        .arg(HELPER)
        .arg(descriptor.to_string());
    // SAFETY: fcntl on a descriptor that stays open until the child was started; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        });
    }
    command
}

fn socket_pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}

/// Writes bundle and root file system into the trial's folder.
fn prepare(start: &Launch<'_>, payload: &Cgroup) -> io::Result<Request> {
    let settings = start.settings;
    let bundle = start.folder.join("bundle");
    let state = start.folder.join("state");
    for folder in [&bundle, &state] {
        fs::DirBuilder::new()
            .mode(0o755)
            .recursive(true)
            .create(folder)?;
    }
    let rootfs = match &settings.rootfs {
        Some(folder) => folder.clone(),
        None => bare_rootfs(start)?,
    };
    let mut environment = settings.environment.clone();
    if settings.inherit_environment {
        environment.extend(std::env::vars());
        environment.extend(start.environment.iter().cloned());
    }
    let root = nix::unistd::geteuid().is_root();
    let ids = (
        nix::unistd::geteuid().as_raw(),
        nix::unistd::getegid().as_raw(),
    );
    let config = oci_spec::config(
        settings,
        &oci_spec::Context {
            rootfs: &rootfs,
            probe: settings.rootfs.is_some().then_some(start.probe),
            cgroup: &payload.absolute(),
            environment,
            exposed: start.exposed,
            user_namespace: (!root).then_some(ids),
        },
    );
    fs::write(bundle.join("config.json"), config.to_string())?;
    Ok(Request {
        id: start.trial.to_owned(),
        bundle,
        state,
        seccomp: settings.seccomp,
        drop_to: (settings.seccomp && !settings.no_new_privileges)
            .then(|| settings.capabilities.clone()),
    })
}

/// A root file system that holds the probe and nothing else. A copy of its own for each trial, so that what one
/// writes into it no other one finds.
fn bare_rootfs(start: &Launch<'_>) -> io::Result<PathBuf> {
    let root = start.folder.join("rootfs");
    let make = |path: &str, mode: u32| {
        let path = root.join(path.trim_start_matches('/'));
        fs::DirBuilder::new()
            .mode(mode)
            .recursive(true)
            .create(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
    };
    make("", 0o755)?;
    for folder in ["/proc", "/dev", "/sys", "/etc", "/root"] {
        make(folder, 0o755)?;
    }
    // What programs expect to be able to write where the root can be written: a world-writable folder of the image.
    make("/var/tmp", 0o1777)?;
    for tmpfs in &start.settings.tmpfs {
        make(&tmpfs.path, 0o1777)?;
    }
    place(start, &root.join(oci_spec::PROBE.trim_start_matches('/')))?;
    if nix::unistd::geteuid().is_root() {
        let helper = root.join(oci_spec::SET_UID_HELPER.trim_start_matches('/'));
        fs::copy(start.probe, &helper)?;
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o4755))?;
    }
    Ok(root)
}

/// A hard link where nobody inside can write to it and the file system allows one, else a copy.
fn place(start: &Launch<'_>, to: &Path) -> io::Result<()> {
    if !start.settings.read_only || fs::hard_link(start.probe, to).is_err() {
        fs::copy(start.probe, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
