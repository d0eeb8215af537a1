//! What a valid sandbox configuration is: settings under Docker Compose's names, and the policy that it promises.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::case::Level;
use crate::protection::Protection;

/// A named, configured place to run code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sandbox {
    /// Its name in the project file, or `oci`, `unsandboxed`, `command` for the built-in ones.
    pub name: String,
    /// The kind of sandbox.
    pub backend: BackendKind,
    /// How it is set up; only what the backend can express may differ from the default.
    pub settings: Settings,
    /// What it promises.
    pub policy: Policy,
    /// Protections taken away on purpose (`without = […]`, `--without`).
    pub without: BTreeSet<Protection>,
    /// `command`: the launcher's argument vector; the probe's own command is appended.
    pub command: Vec<String>,
    /// Where network attempts may go.
    pub range: RangeMode,
}

/// A kind of sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendKind {
    /// The embedded OCI runtime.
    Oci,
    /// Any launcher.
    Command,
    /// No sandbox at all.
    Unsandboxed,
}

impl BackendKind {
    /// The name in project files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Oci => "oci",
            Self::Command => "command",
            Self::Unsandboxed => "unsandboxed",
        }
    }
}

/// Where the sandbox's network attempts may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RangeMode {
    /// Into a network namespace of the harness's own, with no uplink.
    Own,
    /// `range = "host"`: the launcher needs the real network; network cases are then skipped.
    Host,
}

/// Settings under Docker Compose's names, resolved. `None` and `false` mean that the protection is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// A folder that becomes the root file system; without one it holds the probe alone.
    pub rootfs: Option<PathBuf>,
    /// `none`, or `host` (here: the range's own namespace).
    pub network_mode: NetworkMode,
    /// The root file system cannot be written.
    pub read_only: bool,
    /// Bytes of memory.
    pub mem_limit: Option<u64>,
    /// Bytes of memory and swap together.
    pub memswap_limit: Option<u64>,
    /// CPUs' worth of time.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids_limit: Option<u64>,
    /// Scratch mounts.
    pub tmpfs: Vec<Tmpfs>,
    /// Capabilities that are kept, as `CAP_…` names. Empty: none.
    pub capabilities: Vec<String>,
    /// `no-new-privileges`.
    pub no_new_privileges: bool,
    /// The embedded system call filter.
    pub seccomp: bool,
    /// uid and gid.
    pub user: (u32, u32),
    /// `pid: host`.
    pub pid_host: bool,
    /// `ipc: host`.
    pub ipc_host: bool,
    /// Hide the kernel's sensitive files.
    pub masked_paths: bool,
    /// `NAME=VALUE` pairs. A report holds the names alone: a value may be a secret.
    #[serde(serialize_with = "names")]
    pub environment: Vec<(String, String)>,
    /// The harness's whole environment is passed on.
    pub inherit_environment: bool,
    /// Bind mounts.
    pub volumes: Vec<Volume>,
    /// The canary folders of the host are mounted at their own paths (what `without = ["host-files"]` does).
    pub expose_host_files: bool,
    /// The backend ends what runs longer than the policy's timeout.
    pub enforce_timeout: bool,
    /// The backend cuts off what prints more than the policy's output.
    pub enforce_output: bool,
    /// The end of the sandbox ends every process in it.
    pub cleanup: bool,
}

/// Compose's `network_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum NetworkMode {
    None,
    Host,
}

/// One `tmpfs` entry: `/scratch:size=64m`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tmpfs {
    /// Where.
    pub path: String,
    /// Bytes; `None`: as much as the kernel gives (half of the memory).
    pub size: Option<u64>,
}

/// One `volumes` entry: `/host:/inside:ro`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// The host's folder or file.
    pub host: PathBuf,
    /// Where it appears.
    pub inside: String,
    /// Not writable.
    pub read_only: bool,
}

/// What a sandbox promises. A case is judged by this, never by the settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Policy {
    /// The level of paranoia.
    pub level: Level,
    /// Places that may be written, as absolute paths; what lies below them may be written too.
    pub writable: Vec<String>,
    /// At most so many processes and threads.
    pub pids: Option<u64>,
    /// At most so many bytes of memory.
    pub memory: Option<u64>,
    /// At most so many bytes of memory and swap together.
    pub memory_and_swap: Option<u64>,
    /// At most so much CPU time a second.
    pub cpus: Option<f64>,
    /// At most so many bytes in all writable places together.
    pub scratch: Option<u64>,
    /// Ended after this.
    #[serde(serialize_with = "seconds")]
    pub timeout: Option<Duration>,
    /// At most so many bytes on standard output and error together.
    pub output: Option<u64>,
}

fn seconds<S: serde::Serializer>(value: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => out.serialize_some(&value.as_secs_f64()),
        None => out.serialize_none(),
    }
}

fn names<S: serde::Serializer>(pairs: &[(String, String)], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(pairs.iter().map(|(name, _)| name))
}

const MIB: u64 = 1024 * 1024;

impl Default for Settings {
    /// The embedded sandbox, hardened.
    fn default() -> Self {
        Self {
            rootfs: None,
            network_mode: NetworkMode::None,
            read_only: true,
            mem_limit: Some(64 * MIB),
            memswap_limit: Some(64 * MIB),
            cpus: Some(0.5),
            pids_limit: Some(64),
            tmpfs: vec![Tmpfs {
                path: "/scratch".into(),
                size: Some(16 * MIB),
            }],
            capabilities: Vec::new(),
            no_new_privileges: true,
            seccomp: true,
            user: (65534, 65534),
            pid_host: false,
            ipc_host: false,
            masked_paths: true,
            environment: Vec::new(),
            inherit_environment: false,
            volumes: Vec::new(),
            expose_host_files: false,
            enforce_timeout: true,
            enforce_output: true,
            cleanup: true,
        }
    }
}

impl Settings {
    /// The same settings without one protection and nothing else changed.
    pub fn remove(&mut self, protection: Protection) {
        match protection {
            Protection::Network => self.network_mode = NetworkMode::Host,
            Protection::ReadOnly => self.read_only = false,
            // A ceiling on memory and swap together stands on the one on memory.
            Protection::Memory => {
                self.mem_limit = None;
                self.memswap_limit = None;
            }
            Protection::Swap => self.memswap_limit = None,
            Protection::Pids => self.pids_limit = None,
            Protection::Cpu => self.cpus = None,
            Protection::Capabilities => self.capabilities = default_capabilities(),
            Protection::NoNewPrivileges => self.no_new_privileges = false,
            Protection::Seccomp => self.seccomp = false,
            Protection::User => self.user = (0, 0),
            Protection::PidNamespace => self.pid_host = true,
            Protection::IpcNamespace => self.ipc_host = true,
            Protection::MaskedPaths => self.masked_paths = false,
            Protection::Environment => self.inherit_environment = true,
            Protection::HostFiles => self.expose_host_files = true,
            Protection::ScratchSize => self.tmpfs.iter_mut().for_each(|mount| mount.size = None),
            Protection::Timeout => self.enforce_timeout = false,
            Protection::Output => self.enforce_output = false,
            Protection::Cleanup => self.cleanup = false,
        }
    }
}

/// What an ordinary container keeps when nothing is dropped (Docker's default set), and what makes root in it
/// worth having for an attacker: `CAP_SYS_ADMIN`.
fn default_capabilities() -> Vec<String> {
    [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
        "CAP_FSETID",
        "CAP_KILL",
        "CAP_MKNOD",
        "CAP_NET_BIND_SERVICE",
        "CAP_NET_RAW",
        "CAP_SETFCAP",
        "CAP_SETGID",
        "CAP_SETPCAP",
        "CAP_SETUID",
        "CAP_SYS_ADMIN",
        "CAP_SYS_CHROOT",
    ]
    .map(String::from)
    .to_vec()
}

impl Default for Policy {
    /// What level `standard` promises: the policy of the embedded sandbox, by which `unsandboxed` is judged too.
    fn default() -> Self {
        Self::from_settings(&Settings::default(), Level::Standard)
    }
}

/// Scratch space without a size is a mistake that an audit is to find, and no promise of nothing.
fn promised_scratch(tmpfs: &[Tmpfs]) -> Option<u64> {
    let sized = tmpfs.iter().map(|mount| mount.size).sum::<Option<u64>>();
    match tmpfs {
        [] => None,
        _ => sized.or(Some(16 * MIB)),
    }
}

impl Policy {
    /// Ceilings default to the settings; `/dev/shm` and `/dev/mqueue` are writable in every container.
    pub fn from_settings(settings: &Settings, level: Level) -> Self {
        let mut writable: Vec<String> = settings.tmpfs.iter().map(|t| t.path.clone()).collect();
        writable.extend(
            settings
                .volumes
                .iter()
                .filter(|v| !v.read_only)
                .map(|v| v.inside.clone()),
        );
        writable.extend(["/dev/shm".into(), "/dev/mqueue".into()]);
        Self {
            level,
            writable,
            pids: settings.pids_limit,
            memory: settings.mem_limit,
            memory_and_swap: settings.memswap_limit,
            cpus: settings.cpus,
            scratch: promised_scratch(&settings.tmpfs),
            timeout: Some(Duration::from_secs(3)),
            output: Some(MIB),
        }
    }

    /// Whether the policy lets `path` be written.
    pub fn may_write(&self, path: &str) -> bool {
        self.writable.iter().any(|place| {
            path.strip_prefix(place.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_writable_by_component_not_by_prefix() {
        let policy = Policy {
            writable: vec!["/scratch".into(), "/tmp/".into()],
            ..Policy::default()
        };
        assert!(policy.may_write("/scratch/x") && policy.may_write("/tmp/x"));
        assert!(!policy.may_write("/scratchy/x") && !policy.may_write("/"));
    }
}
