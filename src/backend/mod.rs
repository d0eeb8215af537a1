//! Kinds of sandbox: each runs one program in a fresh sandbox and reports what it saw. A backend never knows what the
//! case expects.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use crate::config::{BackendKind, Sandbox, Settings};
use crate::host::cgroup::Cgroup;
use crate::range::posts::Posts;
use crate::range::{Entry, Range};

pub mod command;
pub mod docker;
pub mod launch;
pub mod oci;
pub mod oci_helper;
pub mod oci_spec;
pub mod seccomp;
pub mod unsandboxed;

pub use launch::{Life, Running, Stop};

/// A future that stays on the harness's one thread.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A kind of sandbox.
pub trait Backend {
    /// Starts the probe in a fresh sandbox. The probe waits for its first line on standard input.
    fn start<'a>(&'a self, launch: &'a Launch<'a>) -> Pending<'a, Result<Running, BackendError>>;

    /// What the backend does itself when a run is too long or prints too much.
    fn enforces(&self, settings: &Settings) -> Enforces;

    /// Whether cases that only look may be tried in one sandbox, one after the other.
    fn shares(&self) -> bool {
        false
    }

    /// What stands behind the sandbox, as a digest: the root file system's, the launcher's.
    fn digest(&self, sandbox: &Sandbox) -> Option<String>;

    /// Canaries of ours take their posts on the backend's side, where it has such a side: beside the sandbox, in a network
    /// that this range's canaries cannot stand in. What they hear, the range hears. They stay until the run is over, and
    /// who asks again finds them there.
    fn stand_by<'a>(&'a self, _range: &'a Range) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The canaries that took their posts.
    fn posts(&self) -> Option<&Posts> {
        None
    }

    /// Whether what leaves the sandbox comes out in a network of its engine's machine, and not on a wire beside it; and that
    /// machine's is this one's, as far as the canaries that took their posts there know.
    fn comes_out_here(&self) -> bool {
        true
    }

    /// What the backend says of a kernel that is not the host's, if it says so of this sandbox.
    fn own_kernel(&self, _sandbox: &Sandbox) -> Option<String> {
        None
    }

    /// What is known of the sandbox from the backend itself, as name and value.
    fn facts(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The run is over, however it ended: what is left of its sandboxes is removed. What could not be removed is named.
    fn close(&self) -> Pending<'_, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// What a backend needs once a run.
pub struct Opening<'a> {
    /// The run's name: its owner is in it.
    pub run: &'a str,
    /// The probe's file on the host.
    pub probe: &'a Path,
    /// Hears what takes long: a pull.
    pub progress: &'a dyn Fn(&str),
}

/// Which promises the backend keeps by ending the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enforces {
    /// The policy's timeout.
    pub timeout: bool,
    /// The policy's ceiling on output.
    pub output: bool,
}

/// The backend of this sandbox, opened once a run. An error stands for every trial that would have been made.
pub async fn open(
    sandbox: &Sandbox,
    opening: &Opening<'_>,
) -> Result<Box<dyn Backend>, BackendError> {
    Ok(match sandbox.backend {
        BackendKind::Oci => Box::new(oci::Oci),
        BackendKind::Docker => Box::new(docker::Docker::open(sandbox, opening).await?),
        BackendKind::Command => Box::new(command::Command),
        BackendKind::Unsandboxed => Box::new(unsandboxed::Unsandboxed),
    })
}

/// An opening was given up halfway: what it had made by then is removed. What could not be removed is named.
pub async fn abandon(sandbox: &Sandbox, opening: &Opening<'_>) -> Vec<String> {
    match sandbox.backend {
        BackendKind::Docker => docker::sandbox::abandon(sandbox, opening.run).await,
        BackendKind::Oci | BackendKind::Command | BackendKind::Unsandboxed => Vec::new(),
    }
}

/// A folder or file of the host that a sandbox without `host-files` shows, under the path that it has there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    /// Where it stands.
    pub path: std::path::PathBuf,
    /// Nothing may be written to it from inside.
    pub read_only: bool,
}

/// Everything that one start needs.
pub struct Launch<'a> {
    /// A word that names the trial: for folders, container ids.
    pub trial: &'a str,
    /// What is audited.
    pub sandbox: &'a Sandbox,
    /// Its settings without what was taken away.
    pub settings: &'a Settings,
    /// The probe's file on the host.
    pub probe: &'a Path,
    /// The trial's own folder, for who needs one: not made yet, and removed after the trial.
    pub folder: &'a Path,
    /// The namespaces that the launcher enters first.
    pub entry: Option<Arc<Entry>>,
    /// The limiter's group; `None` where none can be made.
    pub limiter: Option<&'a Cgroup>,
    /// Planted secrets: what the launcher's environment holds beside the harness's own.
    pub environment: &'a [(String, String)],
    /// A home folder of ours.
    pub home: &'a Path,
    /// What of the host is shown where `host-files` was taken away.
    pub exposed: &'a [Exposed],
    /// The attempt asks for a set-uid copy of the probe.
    pub gains: bool,
    /// It, where root could make one: to stand in the sandbox at [`oci_spec::SET_UID_HELPER`].
    pub set_uid: Option<&'a Path>,
    /// Run as this user where the backend has no setting for it: an attempt that means nothing to root.
    pub as_user: Option<(u32, u32)>,
    /// The attempt could mount something: where there is no sandbox, that has to end with the trial.
    pub may_mount: bool,
}

/// Why a sandbox could not be started.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct BackendError {
    /// A stable kebab-case code for the verdict.
    pub code: &'static str,
    /// What was being done, and why it failed.
    pub text: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl BackendError {
    /// An error without advice.
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            help: None,
        }
    }

    /// Adds advice.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
