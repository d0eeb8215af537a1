//! What a valid case is. Everything here has been checked; how TOML becomes this stands in `parse`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::diag::schema::Named as _;
use crate::protection::Protection;

/// One valid case: one attempt, what proves that it got through, the protections that stop it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Case {
    /// `<category>/<name>`: the path below the library's root, without `.toml`.
    pub id: String,
    /// One line that says what is tried.
    pub title: String,
    /// How bad it is when it gets through.
    pub severity: Severity,
    /// The lowest level of paranoia at which it must hold.
    pub level: Level,
    /// Whether it gates.
    pub status: Status,
    /// Whether it must be blocked or must work.
    pub expect: Expect,
    /// MITRE ATT&CK technique ids.
    pub techniques: Vec<String>,
    /// Where the technique is described.
    pub references: Vec<String>,
    /// Free labels from the closed list of the library, for `--tag`.
    pub tags: Vec<String>,
    /// Why it matters, for a person.
    pub why: String,
    /// What to do when it gets through.
    pub fix: String,
    /// What is tried.
    pub attempt: Attempt,
    /// What proves that it got through; any one suffices. Empty for a case of what must work.
    pub escaped: Vec<Proof>,
    /// Without which protections the attempt must get through.
    pub weakened: Weakened,
    /// What the machine or the policy must have for the case to mean anything (the attempt's own needs included).
    pub needs: Vec<Need>,
    /// What the attempt can do to its surroundings; from the attempt, possibly raised by the file.
    pub danger: Danger,
    /// The file it came from, for messages and reports: relative to where the program was started, or inside the library.
    pub source: PathBuf,
    /// SHA-256 of the file's bytes, in hexadecimal.
    pub digest: String,
}

impl Case {
    /// The part of the id before the first slash.
    pub fn category(&self) -> &str {
        self.id.split_once('/').map_or("", |(category, _)| category)
    }
}

/// How bad an escape is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Severity {
    Info,
    Low,
    Medium,
    High,
    Critical,
}

impl Severity {
    /// The word in case files and reports.
    pub fn name(self) -> &'static str {
        self.word()
    }
}

/// The user's level of paranoia. A case of a lower level is also part of every higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Model-written snippets on harmless data.
    Standard,
    /// Near customer data: every way out of it.
    Strict,
    /// Untrusted by definition.
    Hostile,
}

impl Level {
    /// The word in case files, project files and reports.
    pub fn name(self) -> &'static str {
        self.word()
    }
}

/// Whether a case gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Its verdict counts.
    Stable,
    /// Its `[weakened]` is not proven yet: it runs and is shown, and never gates.
    Experimental,
}

/// What a sandbox has to do with the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// Stop it.
    Blocked,
    /// Let it work.
    Allowed,
}

/// What an attempt can do to its surroundings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "u8")]
pub enum Danger {
    /// 0: it only looks.
    Looks,
    /// 1: it changes the sandbox's own state.
    Changes,
    /// 2: it loads resources.
    Loads,
    /// 3: it could hurt the host if it worked.
    Hurts,
}

impl From<Danger> for u8 {
    fn from(danger: Danger) -> Self {
        danger as Self
    }
}

/// Where a network target stands, seen from the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Position {
    /// The host's own loopback.
    Loopback,
    /// The sandbox's way out.
    Gateway,
    /// Another address of the host.
    Host,
    /// Another sandbox.
    Sibling,
    /// An address that stands for the internet.
    Internet,
}

/// What a network attempt speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Transport {
    Tcp,
    Udp,
    Tcp6,
}

/// Which Unix socket of the host is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnixTarget {
    /// A name in the abstract namespace, which belongs to the network namespace.
    Abstract,
    /// A socket file of the host.
    Path,
}

/// Where a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteInto {
    /// Every mount point and well-known folder that the policy does not call writable.
    OutsideScratch,
    /// The canary folders of the host.
    Host,
    /// The policy's writable folders.
    Scratch,
}

/// How much memory is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryDose {
    /// More than the ceiling on memory.
    Memory,
    /// More than the ceiling on memory and swap together, held where it may be swapped out.
    MemoryAndSwap,
    /// Half of the ceiling: what must work.
    Half,
}

/// What a spin is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpinUntil {
    /// The ceiling on CPU time: on every CPU, for a fixed time.
    Quota,
    /// The promised timeout: on one CPU, for longer than it.
    Timeout,
}

/// What ends the run that a survivor tries to outlive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KilledBy {
    /// The sandbox's own timeout.
    Timeout,
    /// SIGKILL to the launcher alone: what a crash or an out-of-memory kill of the launcher looks like.
    Launcher,
    /// SIGKILL to the launcher's process group: what `timeout -s KILL` and most subprocess wrappers do.
    Group,
    /// SIGTERM to the launcher: the polite end.
    Terminate,
}

/// What is tried. Each is a fixed vocabulary with typed arguments; the probe knows how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Attempt {
    /// Start, and say so.
    Run,
    /// Read the own environment.
    Environment {
        /// The planted variables that count, as globs; empty: all.
        names: Vec<String>,
    },
    /// Read the environment of PID 1, of the ancestors, and of every process that can be read.
    ProcessEnvironment,
    /// Read files.
    ReadFile {
        /// Absolute paths. `{home}` stands for each known home folder, `{planted}` for every planted host file.
        paths: Vec<String>,
    },
    /// Create files.
    WriteFile {
        /// Where.
        into: WriteInto,
    },
    /// Open a connection, or send datagrams, to a canary.
    Connect {
        /// What is spoken.
        transport: Transport,
        /// To where.
        positions: Vec<Position>,
    },
    /// Ask over HTTP.
    Http {
        /// `http://ADDRESS[:PORT]/PATH`, literal addresses only.
        urls: Vec<String>,
        /// The method.
        method: String,
        /// `Name: value` lines.
        headers: Vec<String>,
    },
    /// Ask the canary name server for a name that holds the token, over UDP and TCP.
    Dns,
    /// Connect to a Unix socket of the host.
    ConnectUnix {
        /// Which.
        to: UnixTarget,
    },
    /// Connect to the sockets of container engines, and ask whether one is there.
    EngineSocket {
        /// Where; empty: the usual places.
        paths: Vec<String>,
    },
    /// Open a raw socket and send a hand-made packet.
    RawSocket,
    /// Start more processes than the ceiling allows; they sleep.
    Spawn,
    /// Touch memory.
    Allocate {
        /// How much.
        dose: MemoryDose,
    },
    /// Burn CPU time.
    Spin {
        /// Against what.
        until: SpinUntil,
    },
    /// Write more than the ceiling into every writable place.
    Fill,
    /// Print more than the promised ceiling.
    Flood,
    /// Look for a host process.
    ListProcesses,
    /// Signal a host process.
    Signal,
    /// Leave a detached process behind that outlives the run.
    Outlive {
        /// What ends the run.
        killed_by: KilledBy,
    },
    /// Report and use dangerous capabilities.
    Capabilities,
    /// Execute a set-uid program.
    GainPrivileges,
    /// Make a user namespace and use a capability in it.
    UserNamespace,
    /// Mount a file system.
    Mount,
    /// Make one system call with harmless arguments.
    Syscall {
        /// Its name, for people and for the number's look-up.
        name: String,
        /// Its number on this architecture.
        number: i64,
        /// Up to six arguments: `0`, a number, or `bad-pointer`.
        args: Vec<String>,
    },
}

impl Attempt {
    /// The name in TOML: the table below `[attempt]`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Environment { .. } => "environment",
            Self::ProcessEnvironment => "process-environment",
            Self::ReadFile { .. } => "read-file",
            Self::WriteFile { .. } => "write-file",
            Self::Connect { .. } => "connect",
            Self::Http { .. } => "http",
            Self::Dns => "dns",
            Self::ConnectUnix { .. } => "connect-unix",
            Self::EngineSocket { .. } => "engine-socket",
            Self::RawSocket => "raw-socket",
            Self::Spawn => "spawn",
            Self::Allocate { .. } => "allocate",
            Self::Spin { .. } => "spin",
            Self::Fill => "fill",
            Self::Flood => "flood",
            Self::ListProcesses => "list-processes",
            Self::Signal => "signal",
            Self::Outlive { .. } => "outlive",
            Self::Capabilities => "capabilities",
            Self::GainPrivileges => "gain-privileges",
            Self::UserNamespace => "user-namespace",
            Self::Mount => "mount",
            Self::Syscall { .. } => "syscall",
        }
    }

    /// What the attempt can do, whatever the case file says.
    pub fn danger(&self) -> Danger {
        match self {
            Self::Run
            | Self::Environment { .. }
            | Self::ProcessEnvironment
            | Self::ReadFile { .. }
            | Self::Connect { .. }
            | Self::Http { .. }
            | Self::Dns
            | Self::ConnectUnix { .. }
            | Self::EngineSocket { .. }
            | Self::ListProcesses => Danger::Looks,
            Self::WriteFile { .. }
            | Self::RawSocket
            | Self::Signal
            | Self::Capabilities
            | Self::GainPrivileges
            | Self::UserNamespace
            | Self::Mount
            | Self::Syscall { .. } => Danger::Changes,
            Self::Spawn
            | Self::Allocate { .. }
            | Self::Spin { .. }
            | Self::Fill
            | Self::Flood
            | Self::Outlive { .. } => Danger::Loads,
        }
    }

    /// Whether its target is reached over the network.
    pub fn is_network(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. } | Self::Http { .. } | Self::Dns | Self::RawSocket
        )
    }
}

/// Which ceiling was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Ceiling {
    Pids,
    Memory,
    Swap,
    Cpu,
    Disk,
    Output,
}

/// Which kind of canary is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum CanaryKind {
    Tcp,
    Udp,
    Dns,
    Http,
    Unix,
    Engine,
}

/// What proves that an attempt got through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// `canary = "tcp"`: a canary of this kind saw the trial's token.
    Canary(CanaryKind),
    /// `secret = true`: a planted secret, or one of the user's own, was read.
    Secret,
    /// `file = "outside-scratch"`: a file was made where the policy allows none.
    FileOutsideScratch,
    /// `file = "host"`: the host sees a file with the token.
    FileOnHost,
    /// `process = "seen"`: the sentinel was found.
    ProcessSeen,
    /// `process = "signalled"`: the sentinel got the signal.
    ProcessSignalled,
    /// `ceiling = "pids"`: the host counted more than the ceiling.
    Ceiling(Ceiling),
    /// `survivor = true`: a process outlived the run.
    Survivor,
    /// `breach = true`: doing it is itself the breach.
    Breach,
}

/// Without what the attempt must get through.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Weakened {
    /// The smallest set of protections whose removal lets it through.
    pub remove: Vec<Protection>,
    /// Where a backend needs another set: `[weakened.oci]`.
    pub by_backend: Vec<(String, Vec<Protection>)>,
    /// Where no setting of a backend lets it through, and one of the project's own runners does:
    /// `[weakened.docker] fixture = "runners/…"`. The backend's set is empty then.
    pub fixtures: Vec<(String, String)>,
}

impl Weakened {
    /// The set for this backend.
    pub fn for_backend(&self, backend: &str) -> &[Protection] {
        self.by_backend
            .iter()
            .find(|(name, _)| name == backend)
            .map_or(&self.remove, |(_, set)| set)
    }
}

/// What must be there for a case to mean anything. What is missing makes it SKIPPED `not-applicable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Swap space, and a cgroup that counts it.
    Swap,
    /// IPv6 on the host.
    Ipv6,
    /// More CPUs than the ceiling on CPU time.
    SpareCpus,
    /// The sandbox's user is not root.
    NotRoot,
    /// The harness is root (it has to plant or grant something).
    HarnessRoot,
    /// A set-uid program can be planted: the harness is root, or an engine does it.
    SetUidProgram,
    /// The policy promises a timeout.
    PromisedTimeout,
    /// The policy promises a ceiling on output.
    PromisedOutput,
    /// The policy promises a ceiling on processes.
    PidsCeiling,
    /// The policy promises a ceiling on memory.
    MemoryCeiling,
    /// The policy promises a ceiling on CPU time.
    CpuCeiling,
    /// The policy promises a ceiling on scratch space.
    DiskCeiling,
    /// The policy names a writable place.
    Scratch,
    /// The canaries stand where no packet can leave the machine.
    Range,
}

/// Every need, with its name in TOML.
pub const NEEDS: &[(Need, &str)] = &[
    (Need::Swap, "swap"),
    (Need::Ipv6, "ipv6"),
    (Need::SpareCpus, "spare-cpus"),
    (Need::NotRoot, "not-root"),
    (Need::HarnessRoot, "harness-root"),
    (Need::SetUidProgram, "set-uid-program"),
    (Need::PromisedTimeout, "promised-timeout"),
    (Need::PromisedOutput, "promised-output"),
    (Need::PidsCeiling, "pids-ceiling"),
    (Need::MemoryCeiling, "memory-ceiling"),
    (Need::CpuCeiling, "cpu-ceiling"),
    (Need::DiskCeiling, "disk-ceiling"),
    (Need::Scratch, "scratch"),
    (Need::Range, "range"),
];

impl Attempt {
    /// What the attempt needs by its nature; a case file may only add to it.
    pub fn needs(&self) -> Vec<Need> {
        match self {
            Self::Connect { transport, .. } => {
                let mut needs = vec![Need::Range];
                if *transport == Transport::Tcp6 {
                    needs.push(Need::Ipv6);
                }
                needs
            }
            Self::Http { .. } | Self::Dns | Self::RawSocket => vec![Need::Range],
            Self::Spawn => vec![Need::PidsCeiling],
            Self::Allocate {
                dose: MemoryDose::MemoryAndSwap,
            } => vec![Need::MemoryCeiling, Need::Swap],
            Self::Allocate { .. } => vec![Need::MemoryCeiling],
            Self::Spin {
                until: SpinUntil::Quota,
            } => vec![Need::CpuCeiling, Need::SpareCpus],
            Self::Spin {
                until: SpinUntil::Timeout,
            }
            | Self::Outlive {
                killed_by: KilledBy::Timeout,
            } => vec![Need::PromisedTimeout],
            Self::Fill => vec![Need::DiskCeiling],
            Self::Flood => vec![Need::PromisedOutput],
            Self::GainPrivileges => vec![Need::NotRoot, Need::SetUidProgram],
            Self::WriteFile {
                into: WriteInto::Scratch,
            } => vec![Need::Scratch],
            _ => Vec::new(),
        }
    }
}
