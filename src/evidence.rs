//! What was observed in one trial, inside the sandbox and on the host. Data only: `judge` decides what it means.
//!
//! Evidence is added up and never overwritten: each list keeps everything that was seen.

use std::time::Duration;

use escape_audit_probe::wire::Outcome;
use serde::{Serialize, Serializer};

use crate::case::{CanaryKind, Ceiling, Position};

/// Everything observed in one trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// Whether the probe said that it runs.
    pub start: Start,
    /// What the probe told of the attempt.
    pub inside: Inside,
    /// Records that contradict each other or were forged: a repeated or missing number, a second `begin`.
    pub contradictions: Vec<String>,
    /// The host's own sight of the probe.
    pub witness: Option<Witness>,
    /// The network that the sandbox has a way out to is the one that the canaries stand in: its gateways are theirs, and
    /// an unrestricted sandbox of the same engine reached them.
    pub leads_to_range: bool,
    /// The sandbox's own resolver is configured to ask name servers of ours, which lived, and nobody else.
    pub resolver_asks_us: bool,
    /// The targets of ours that the attempt aimed at.
    pub targets: Vec<Target>,
    /// Canaries that saw this trial's token.
    pub touches: Vec<Touch>,
    /// Planted or real secrets that were read.
    pub secrets: Vec<SecretFound>,
    /// Files that were read inside, while the host has one at the same path that could not be compared.
    pub uncompared: Vec<String>,
    /// Files with this trial's token that the host found in folders of its own.
    pub host_files: Vec<String>,
    /// What the host counted while the cgroup still existed.
    pub counts: Vec<Count>,
    /// What was seen of the sentinel processes.
    pub sentinel: Sentinel,
    /// Processes of this trial that were still there after the run's end and the grace.
    pub survivors: Vec<String>,
    /// How the run ended.
    pub end: End,
    /// Whether the same attempt got through where nothing should stop it.
    pub able: Able,
    /// What failed in the backend or in the harness, or was in force otherwise than configured.
    pub faults: Vec<Fault>,
    /// The sandbox runs on a kernel that is proven not to be the host's.
    pub own_kernel: Option<String>,
    /// How long watching went on after the payload's end.
    #[serde(serialize_with = "seconds")]
    pub watched: Duration,
    /// From start to the last look.
    #[serde(serialize_with = "seconds")]
    pub elapsed: Duration,
}

impl Evidence {
    /// The probe itself, where the host sees it, and not a process of the runtime that stands in for it.
    pub fn probe(&self) -> Option<&Witness> {
        self.witness.as_ref().filter(|witness| !witness.stands_in)
    }
}

/// Whether the probe said that it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// Nothing came.
    #[default]
    Missing,
    /// The probe ran and found its standard input empty: the launcher does not pass it on.
    NoInput,
    /// Something came that is no start record of this trial.
    Foreign(String),
    /// It runs.
    Seen {
        /// The probe's uid, as it sees it.
        uid: u32,
        /// The kernel's boot id, as it sees it; empty where it cannot be read.
        boot: String,
    },
}

/// What the probe told of the attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Inside {
    /// The attempt was begun.
    pub begun: bool,
    /// Each elementary try, in order.
    pub steps: Vec<Step>,
    /// Each observed value, in order.
    pub facts: Vec<Fact>,
    /// How the attempt ended, if the probe said so.
    #[serde(serialize_with = "outcome_option")]
    pub done: Option<Outcome>,
    /// The probe's last record was there: it ended as it should.
    pub ended: bool,
    /// Lines on standard output that were no records.
    pub noise_lines: u64,
    /// Bytes on standard output and error together, whether kept or not.
    pub output_bytes: u64,
    /// What was printed that was no record.
    pub output: Printed,
    /// Standard error: where a launcher complains.
    pub error: Printed,
}

/// What was printed on one stream: all of it, or both of its ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Printed {
    /// All of it, or its beginning.
    #[serde(serialize_with = "lossy")]
    pub head: Vec<u8>,
    /// Its end, where not all of it is kept.
    #[serde(serialize_with = "lossy")]
    pub tail: Vec<u8>,
    /// How many bytes there were.
    pub bytes: u64,
    /// The SHA-256 of all of it, where not all of it is kept.
    pub sha256: Option<String>,
}

impl Printed {
    /// Nothing was printed.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

/// All of it.
impl From<Vec<u8>> for Printed {
    fn from(head: Vec<u8>) -> Self {
        Self {
            bytes: head.len() as u64,
            head,
            ..Self::default()
        }
    }
}

impl Inside {
    /// The steps of this kind.
    pub fn steps_of<'a>(&'a self, what: &'a str) -> impl Iterator<Item = &'a Step> + 'a {
        self.steps.iter().filter(move |step| step.what == what)
    }

    /// The facts under this key.
    pub fn facts_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Fact> + 'a {
        self.facts.iter().filter(move |fact| fact.key == key)
    }

    /// The last number under this key.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.facts_of(key)
            .filter_map(|fact| std::str::from_utf8(&fact.value).ok()?.parse().ok())
            .last()
    }
}

/// One elementary try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What was tried: `connect`, `read`, `fork`.
    pub what: String,
    /// On what.
    pub target: String,
    /// How it ended.
    #[serde(serialize_with = "outcome")]
    pub outcome: Outcome,
}

/// One observed value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What kind of value.
    pub key: String,
    /// Of what.
    pub name: String,
    /// The value.
    #[serde(serialize_with = "lossy")]
    pub value: Vec<u8>,
}

/// The host's own sight of the probe, read from its `/proc`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Witness {
    /// The probe's process id on the host.
    pub pid: i32,
    /// Names of the namespaces (`net`, `pid`, …) in which it differs from the harness's own launcher environment.
    pub own_namespaces: Vec<String>,
    /// The effective, permitted and bounding capability sets.
    pub cap_eff: u64,
    /// See `cap_eff`.
    pub cap_prm: u64,
    /// See `cap_eff`.
    pub cap_bnd: u64,
    /// The effective uid, as the host sees it.
    pub uid: u32,
    /// `no_new_privs` is set.
    pub no_new_privs: bool,
    /// The mode of its system call filter: 0 none, 1 strict, 2 filter.
    pub seccomp: u32,
    /// It lives in a user namespace other than the host's first one.
    pub own_user_namespace: bool,
    /// There is no way out of its network namespace but loopback, read from `/proc/PID/net`.
    pub no_route: Option<bool>,
    /// Its network namespace holds no IPv6 address at all, loopback included, read from `/proc/PID/net`.
    pub no_ipv6: Option<bool>,
    /// No route of its network goes by a gateway: nobody passes on what it sends.
    pub no_gateway: Option<bool>,
    /// Its cgroup, as the host names it.
    pub cgroup: String,
    /// Its root folder is not the launcher's.
    pub own_root: Option<bool>,
    /// It is a process of the runtime, which stands in for a probe that the host does not see: what is said of its
    /// network holds for the probe, what is said of its rights does not.
    pub stands_in: bool,
}

/// A target of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// What listens there.
    pub canary: CanaryKind,
    /// Where it stands.
    pub position: Position,
    /// Its address, as the probe was given it.
    pub address: String,
    /// It stands on another machine: this one has to pass on what is to reach it.
    pub beyond: bool,
    /// The harness reached it itself before, and again after, the attempt.
    pub alive: bool,
}

/// A canary that saw this trial's token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Touch {
    /// What listened.
    pub canary: CanaryKind,
    /// Where.
    pub address: String,
    /// When, in milliseconds from the trial's start.
    pub at_ms: u64,
    /// After the run had ended.
    pub late: bool,
    /// What it saw, capped.
    #[serde(serialize_with = "lossy")]
    pub saw: Vec<u8>,
}

/// A secret that was read inside, known by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretFound {
    /// Which: the planted variable's name, the file's path on the host.
    pub name: String,
    /// Where the probe found it.
    pub found_in: String,
    /// One of the user's own, not one of ours.
    pub real: bool,
}

/// What the host counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Count {
    /// Of what.
    pub what: Ceiling,
    /// The highest value seen. Processes; bytes; for `Cpu`, CPUs' worth of time.
    pub value: f64,
    /// The ceiling, in the same unit.
    pub ceiling: f64,
    /// Beyond what it counts as passed (ceiling plus slack, in the same unit).
    pub passed_above: f64,
    /// Whether a ceiling was seen at work: throttling, an event of the cgroup, `ENOSPC`.
    pub held: bool,
    /// Whether the host itself counted this; false: the probe said so.
    pub by_host: bool,
    /// How it was read, for a person.
    pub source: String,
}

impl Count {
    /// Whether the ceiling was passed.
    pub fn passed(&self) -> bool {
        self.value > self.passed_above
    }
}

/// What was seen of the sentinel processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sentinel {
    /// A sentinel was planted and was alive at the end of the attempt.
    pub alive: bool,
    /// Its secret name was reported from inside.
    pub seen: bool,
    /// It got this trial's signal.
    pub signalled: bool,
}

/// How the run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Not known: it was never started, or the backend lost it.
    #[default]
    Unknown,
    /// By itself, with this status of the launcher (or of the container's first process).
    ByItself {
        /// 0 to 255; 128 + n for signal n.
        status: i32,
    },
    /// The sandbox ended it: its timeout, its output ceiling, its memory ceiling.
    BySandbox {
        /// What for.
        cause: Cause,
        /// Milliseconds from the attempt's begin.
        after_ms: u64,
    },
    /// Our outer limiter had to.
    ByLimiter {
        /// What for.
        cause: Cause,
    },
    /// The harness ended it as the case asks (a survivor's trial).
    ByTrial,
}

/// Why a run was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Cause {
    Timeout,
    Output,
    Memory,
    Pids,
}

/// Whether the same attempt got through where nothing should stop it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Able {
    /// Not tried.
    #[default]
    NotTried,
    /// It got through.
    Proven {
        /// In which sandbox: `unsandboxed`.
        by: String,
    },
    /// It did not get through there either, or the trial failed.
    NotProven {
        /// Why.
        why: String,
    },
}

/// What failed, or was in force otherwise than configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// A stable kebab-case code: `backend-failed`, `launcher-missing`, `limit-not-applied`, `harness-failed`.
    pub code: &'static str,
    /// One sentence.
    pub text: String,
}

/// The host's error number by name: `EPERM`; the number where it has none.
pub fn errno_name(errno: i32) -> String {
    let name = format!("{:?}", nix::errno::Errno::from_raw(errno));
    if name == "UnknownErrno" {
        format!("errno {errno}")
    } else {
        name
    }
}

/// An outcome for a person: `ok`, `EPERM`, `SIGKILL`.
pub fn outcome_name(outcome: Outcome) -> String {
    match outcome {
        Outcome::Ok => "ok".into(),
        Outcome::Timeout => "timed out".into(),
        Outcome::Errno(n) => errno_name(n),
        Outcome::Signal(n) => nix::sys::signal::Signal::try_from(n)
            .map_or_else(|_| format!("signal {n}"), |s| s.as_str().to_owned()),
        Outcome::Exit(n) => format!("exit {n}"),
    }
}

fn seconds<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_f64((value.as_secs_f64() * 1000.0).round() / 1000.0)
}

fn outcome<S: Serializer>(value: &Outcome, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&outcome_name(*value))
}

fn outcome_option<S: Serializer>(value: &Option<Outcome>, out: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => outcome(value, out),
        None => out.serialize_none(),
    }
}

fn lossy<S: Serializer>(value: &[u8], out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&String::from_utf8_lossy(value))
}
