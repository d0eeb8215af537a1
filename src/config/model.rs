//! What a valid sandbox configuration is: settings under Docker Compose's names, and the policy that it promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
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
    /// What a reader of the report must know of where this comes from.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// A kind of sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendKind {
    /// The embedded OCI runtime.
    Oci,
    /// Docker Engine, or another engine that speaks its interface.
    Docker,
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
            Self::Docker => "docker",
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

/// The port on which a canary on another machine answers audits, unless the user says otherwise.
pub const CANARY_PORT: u16 = 7443;

/// `[range]`: what of the network beyond this machine the audit may touch, because the user said so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RangeConfig {
    /// Canaries on other machines of the user's, where they answer audits (`escape-audit canary`): they play the internet
    /// for a sandbox that has a way out.
    pub internet: Vec<SocketAddr>,
    /// `metadata = "real"`: the machine's own metadata service counts as a target, once it has answered the host.
    pub metadata_real: bool,
}

/// Settings under Docker Compose's names, resolved. `None` and `false` mean that the protection is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// `docker`: what the container is made of. A valid sandbox of that backend has one.
    pub image: Option<Image>,
    /// `docker`: what whoever deploys the sandbox calls its image, where a Compose file says so.
    #[serde(skip)]
    pub deployed: Option<Deployed>,
    /// `docker`: the engine's runtime by its name; `None`: the engine's default.
    pub runtime: Option<String>,
    /// `docker`: where the engine listens, `unix:///…` or `tcp://…` (`docker_host`); `None`: as the environment or the
    /// current context says.
    pub engine: Option<String>,
    /// A folder that becomes the root file system; without one it holds the probe alone.
    pub rootfs: Option<PathBuf>,
    /// Which network it stands in; `host` is here the range's own namespace.
    pub network_mode: NetworkMode,
    /// The root file system cannot be written.
    pub read_only: bool,
    /// Bytes of memory.
    pub mem_limit: Option<u64>,
    /// Bytes of memory and swap together; [`UNLIMITED`] where the user wrote `-1`, and then `-1` in a report. `None` means
    /// that nothing is said: on `docker` the engine then gives as much swap as there is memory.
    #[serde(serialize_with = "swap")]
    pub memswap_limit: Option<u64>,
    /// CPUs' worth of time.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids_limit: Option<u64>,
    /// Scratch mounts.
    pub tmpfs: Vec<Tmpfs>,
    /// `docker`: bytes of `/dev/shm`; `None`: the engine's default, [`ENGINE_SHM`].
    pub shm_size: Option<u64>,
    /// Capabilities that are kept, as `CAP_…` names. Empty: none.
    pub capabilities: Vec<String>,
    /// `docker`: `privileged`. What it takes away is taken away in the other settings too; devices come on top.
    pub privileged: bool,
    /// `no-new-privileges`.
    pub no_new_privileges: bool,
    /// A system call filter: the embedded one, on `docker` the engine's default or `seccomp_profile`.
    pub seccomp: bool,
    /// `docker`: the filter's own file on this machine, in place of the engine's default.
    pub seccomp_profile: Option<PathBuf>,
    /// `docker`: the name of the AppArmor profile; `None`: the engine's default.
    pub apparmor: Option<String>,
    /// Who runs in it.
    pub user: User,
    /// `docker`: groups besides the user's own, by name or number.
    pub group_add: Vec<String>,
    /// `docker`: `userns_mode: host`, the host's own user namespace where the engine remaps users.
    pub userns_host: bool,
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
    /// Mounts besides scratch.
    pub volumes: Vec<Volume>,
    /// `docker`: the addresses of the name servers that it is told of.
    pub dns: Vec<String>,
    /// `docker`: names it is told of, as `NAME:ADDRESS`; the address may be `host-gateway`.
    pub extra_hosts: Vec<String>,
    /// `docker`: the cgroup below which the container's is made.
    pub cgroup_parent: Option<String>,
    /// `docker`: the engine's small init is the first process.
    pub init: bool,
    /// `docker`: what only a Compose file says of a container.
    pub options: EngineOptions,
    /// The canary folders of the host are mounted at their own paths (what `without = ["host-files"]` does).
    pub expose_host_files: bool,
    /// The backend ends what runs longer than the policy's timeout.
    pub enforce_timeout: bool,
    /// The backend cuts off what prints more than the policy's output.
    pub enforce_output: bool,
    /// The end of the sandbox ends every process in it.
    pub cleanup: bool,
}

/// What an engine can be told of a container, and only a Compose file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EngineOptions {
    /// The CPUs that it may use, such as `0-2`.
    pub cpuset: Option<String>,
    /// Bounds of each process or user: name, soft, hard.
    pub ulimits: Vec<(String, i64, i64)>,
    /// Devices: the path here, the path inside, and what may be done with it, of `rwm`.
    pub devices: Vec<(String, String, String)>,
    /// Kinds of devices, such as `c 1:3 mr`.
    pub device_rules: Vec<String>,
    /// Parameters of the kernel.
    pub sysctls: BTreeMap<String, String>,
    /// Options of the storage driver, such as `size`.
    pub storage: BTreeMap<String, String>,
}

/// Compose's `network_mode`. A report holds it as the user writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NetworkMode {
    /// Loopback alone.
    None,
    /// The harness's own network, which is the range's namespace.
    Host,
    /// `docker`: the engine's default network.
    Bridge,
    /// `docker`: another network of the engine's, by name.
    Named(String),
}

impl fmt::Display for NetworkMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::None => "none",
            Self::Host => "host",
            Self::Bridge => "bridge",
            Self::Named(name) => name,
        })
    }
}

/// uid and gid of nobody: who runs in the embedded sandbox.
pub const NOBODY: (u32, u32) = (65534, 65534);

/// Compose's `user`. A report holds it as the user writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum User {
    /// uid and gid.
    Ids(u32, u32),
    /// `docker`: what the engine looks up in the image's own database: `name`, `name:group`, a uid without a group.
    Named(String),
    /// `docker`: nothing was said, so whom the image names; root, where it names nobody.
    OfTheImage,
}

impl User {
    /// Whether it is root for certain. Whom an image names is known when it runs.
    pub fn is_root(&self) -> bool {
        match self {
            Self::Named(name) => self.uid() == Some(0) || name.split(':').next() == Some("root"),
            _ => self.uid() == Some(0),
        }
    }

    /// uid and gid, where both are said in numbers.
    pub fn ids(&self) -> Option<(u32, u32)> {
        match self {
            Self::Ids(uid, gid) => Some((*uid, *gid)),
            _ => None,
        }
    }

    /// The uid, where it is said as a number.
    pub fn uid(&self) -> Option<u32> {
        match self {
            Self::Ids(uid, _) => Some(*uid),
            Self::Named(name) => name.split(':').next()?.parse().ok(),
            Self::OfTheImage => None,
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ids(uid, gid) => write!(out, "{uid}:{gid}"),
            Self::Named(name) => out.write_str(name),
            Self::OfTheImage => out.write_str("image"),
        }
    }
}

/// The image of a Compose service by its own name, which may mean another image than the one that is pinned beside it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Deployed {
    /// `python:3.12-slim`, or the name that Compose gives to what it builds.
    pub name: String,
    /// Compose builds it: a registry's image of that name is a stranger's.
    pub built: bool,
}

/// What a container is made of. A report holds it as the user writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Image {
    /// An image of a registry, pinned: `python:3.12-slim@sha256:…`.
    Digest {
        /// The whole text.
        reference: String,
        /// `sha256:` and 64 hexadecimal digits.
        digest: String,
    },
    /// An image that the engine holds, by its id: `sha256:` and 64 hexadecimal digits.
    Id(String),
    /// `allow_tag = true`: whatever the tag means on the day, `latest` where there is none.
    Tag(String),
}

impl fmt::Display for Image {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest { reference, .. } => out.write_str(reference),
            Self::Id(id) => out.write_str(id),
            Self::Tag(reference) => out.write_str(reference),
        }
    }
}

/// Writes what a user wrote as the one text that it was.
macro_rules! written_as_text {
    ($($type:ty),+) => {
        $(impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        })+
    };
}
written_as_text!(NetworkMode, User, Image);

/// One `tmpfs` entry: `/scratch:size=64m`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tmpfs {
    /// Where.
    pub path: String,
    /// Bytes; `None`: as much as the kernel gives (half of the memory).
    pub size: Option<u64>,
    /// `docker`: the other mount options, in the order of the file: `noexec`, `mode=1777`.
    pub options: Vec<String>,
}

/// One `volumes` entry: `/host:/inside:ro`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// What is mounted.
    pub source: VolumeSource,
    /// Where it appears.
    pub inside: String,
    /// Not writable.
    pub read_only: bool,
}

/// What a volume shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeSource {
    /// A folder or file of the host's.
    Host(PathBuf),
    /// `docker`: a volume of the engine's, by name. It outlives the container.
    Named(String),
    /// `docker`: a volume that the engine makes for the container alone.
    Anonymous,
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

fn swap<S: serde::Serializer>(value: &Option<u64>, out: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(UNLIMITED) => out.serialize_some(&-1),
        value => value.serialize(out),
    }
}

fn names<S: serde::Serializer>(pairs: &[(String, String)], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(pairs.iter().map(|(name, _)| name))
}

const MIB: u64 = 1024 * 1024;

/// `memswap_limit = -1`: as much swap as the machine has.
pub const UNLIMITED: u64 = u64::MAX;

/// Bytes that an engine gives to `/dev/shm` where nothing is said.
pub const ENGINE_SHM: u64 = 64 * MIB;

/// Bytes of scratch space that are promised where the settings set no ceiling on it.
const SCRATCH: u64 = 16 * MIB;

impl Default for Settings {
    /// The embedded sandbox, hardened.
    fn default() -> Self {
        Self {
            image: None,
            deployed: None,
            runtime: None,
            engine: None,
            rootfs: None,
            network_mode: NetworkMode::None,
            read_only: true,
            mem_limit: Some(64 * MIB),
            memswap_limit: Some(64 * MIB),
            cpus: Some(0.5),
            pids_limit: Some(64),
            tmpfs: vec![Tmpfs {
                path: "/scratch".into(),
                size: Some(SCRATCH),
                options: Vec::new(),
            }],
            shm_size: None,
            capabilities: Vec::new(),
            privileged: false,
            no_new_privileges: true,
            seccomp: true,
            seccomp_profile: None,
            apparmor: None,
            user: User::Ids(NOBODY.0, NOBODY.1),
            group_add: Vec::new(),
            userns_host: false,
            pid_host: false,
            ipc_host: false,
            masked_paths: true,
            environment: Vec::new(),
            inherit_environment: false,
            volumes: Vec::new(),
            dns: Vec::new(),
            extra_hosts: Vec::new(),
            cgroup_parent: None,
            init: false,
            options: EngineOptions::default(),
            expose_host_files: false,
            enforce_timeout: true,
            enforce_output: true,
            cleanup: true,
        }
    }
}

impl Settings {
    /// A container with nothing configured: Docker's own defaults, and none of ours.
    pub fn docker() -> Self {
        Self {
            network_mode: NetworkMode::Bridge,
            read_only: false,
            mem_limit: None,
            memswap_limit: None,
            cpus: None,
            pids_limit: None,
            tmpfs: Vec::new(),
            capabilities: named_capabilities(&ENGINE_CAPABILITIES),
            no_new_privileges: false,
            user: User::OfTheImage,
            ..Self::default()
        }
    }

    /// The same settings without one protection and nothing else changed. What is absent already stays as it is.
    pub fn remove(&mut self, protection: Protection) {
        match protection {
            Protection::Network => self.network_mode = NetworkMode::Host,
            Protection::ReadOnly => self.read_only = false,
            // A ceiling on memory and swap together stands on the one on memory.
            Protection::Memory => {
                self.mem_limit = None;
                self.memswap_limit = None;
            }
            // The line is left out: then the embedded sandbox has no ceiling on swap, and an engine gives twice the
            // memory, which is what people overlook and more than the attempt takes.
            Protection::Swap => self.memswap_limit = None,
            Protection::Pids => self.pids_limit = None,
            Protection::Cpu => self.cpus = None,
            Protection::Capabilities => self.keep_capabilities(),
            Protection::NoNewPrivileges => self.no_new_privileges = false,
            Protection::Seccomp => {
                self.seccomp = false;
                self.seccomp_profile = None;
            }
            Protection::User => self.user = User::Ids(0, 0),
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

    /// What an ordinary container keeps when nothing is dropped, and what makes root in it worth having for an
    /// attacker: `CAP_SYS_ADMIN`.
    fn keep_capabilities(&mut self) {
        let mut more = named_capabilities(&ENGINE_CAPABILITIES);
        more.push("CAP_SYS_ADMIN".into());
        more.retain(|name| !self.capabilities.contains(name));
        self.capabilities.append(&mut more);
    }
}

/// What a container keeps by default, in the kernel's order and without `CAP_`:
/// <https://docs.docker.com/engine/containers/run/#runtime-privilege-and-linux-capabilities>.
pub(super) const ENGINE_CAPABILITIES: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SYS_CHROOT",
    "MKNOD",
    "AUDIT_WRITE",
    "SETFCAP",
];

/// The kernel's names for these.
pub(super) fn named_capabilities(short: &[&str]) -> Vec<String> {
    short.iter().map(|name| format!("CAP_{name}")).collect()
}

impl Default for Policy {
    /// What level `standard` promises: the policy of the embedded sandbox, by which `unsandboxed` is judged too.
    fn default() -> Self {
        Self::from_settings(&Settings::default(), BackendKind::Oci, Level::Standard)
    }
}

/// Scratch space without a size is a mistake that an audit is to find, and no promise of nothing.
fn promised_scratch(settings: &Settings, backend: BackendKind) -> Option<u64> {
    if backend == BackendKind::Docker {
        return Some(promised_by_an_engine(settings));
    }
    let tmpfs = &settings.tmpfs;
    let sized = tmpfs.iter().map(|mount| mount.size).sum::<Option<u64>>();
    match &tmpfs[..] {
        [] => None,
        _ => sized.or(Some(SCRATCH)),
    }
}

/// Every container can write `/dev/shm`, which is 64 MiB unless it is told otherwise: its size counts, or the tightest of
/// configurations would break its promise. A root file system that can be written has no size at all.
fn promised_by_an_engine(settings: &Settings) -> u64 {
    let tmpfs = &settings.tmpfs;
    let scratch = match &tmpfs[..] {
        [] if !settings.read_only => SCRATCH,
        mounts => mounts.iter().fold(0, |sum: u64, mount| {
            sum.saturating_add(mount.size.unwrap_or(SCRATCH))
        }),
    };
    let is_shm = |path: &str| path.trim_end_matches('/') == "/dev/shm";
    let replaced = tmpfs.iter().any(|mount| is_shm(&mount.path))
        || settings.volumes.iter().any(|volume| is_shm(&volume.inside));
    let shm = match replaced {
        true => 0,
        false => settings.shm_size.unwrap_or(ENGINE_SHM),
    };
    scratch.saturating_add(shm)
}

impl Policy {
    /// Ceilings default to the settings. One that the settings lack is promised all the same, as the embedded sandbox
    /// promises it: that it is missing is what an audit is to find. `/dev/shm` and `/dev/mqueue` are writable in every
    /// container.
    pub fn from_settings(settings: &Settings, backend: BackendKind, level: Level) -> Self {
        let mut writable: Vec<String> = settings.tmpfs.iter().map(|t| t.path.clone()).collect();
        writable.extend(
            settings
                .volumes
                .iter()
                .filter(|v| !v.read_only)
                .map(|v| v.inside.clone()),
        );
        for place in ["/dev/shm", "/dev/mqueue"] {
            if !writable.iter().any(|there| there == place) {
                writable.push(place.into());
            }
        }
        let embedded = Settings::default();
        let memory = settings.mem_limit.or(embedded.mem_limit);
        let both = settings.memswap_limit.filter(|both| *both != UNLIMITED);
        Self {
            level,
            writable,
            pids: settings.pids_limit.or(embedded.pids_limit),
            memory,
            memory_and_swap: both.or(memory),
            cpus: settings.cpus.or(embedded.cpus),
            scratch: promised_scratch(settings, backend),
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
