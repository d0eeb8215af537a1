//! Cases × sandboxes × machine → trials, and skips with their reasons. Pure.
//!
//! What this machine or this policy does not have is known before anything runs: such a trial is SKIPPED with the
//! reason, never INCONCLUSIVE.

use crate::case::{Attempt, Case, MemoryDose, Need, Position, SpinUntil, Status, UnixTarget};
use crate::config::{BackendKind, Policy, RangeMode, Sandbox, Settings};
use crate::protection::Protection;

/// What was measured of this machine before the plan was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// The harness runs as root.
    pub root: bool,
    /// Cgroups of our own can be made, so that a load can be bounded and counted.
    pub limiter: bool,
    /// Free swap space, in bytes.
    pub swap: u64,
    /// IPv6 is there.
    pub ipv6: bool,
    /// The CPUs that this process may use.
    pub cpus: u64,
    /// The canaries stand in a namespace of our own, from which no packet leaves.
    pub own_range: bool,
}

/// One trial to be made, or skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The index of the sandbox.
    pub sandbox: usize,
    /// The index of the case.
    pub case: usize,
    /// Why it is not tried.
    pub skip: Option<Skip>,
    /// Whether its verdict counts.
    pub gates: bool,
}

/// Why a trial is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// A stable kebab-case code.
    pub reason: &'static str,
    /// One sentence.
    pub sentence: String,
}

impl Skip {
    fn not_applicable(sentence: &str) -> Self {
        Self {
            reason: "not-applicable",
            sentence: sentence.into(),
        }
    }
}

/// The trials of these cases in these sandboxes, sandbox by sandbox, in the library's order. Cases above a sandbox's
/// level are left out.
pub fn plan(cases: &[Case], sandboxes: &[Sandbox], machine: &Machine) -> Vec<Planned> {
    let mut trials = Vec::new();
    for (s, sandbox) in sandboxes.iter().enumerate() {
        for (c, case) in cases.iter().enumerate() {
            if case.level > sandbox.policy.level {
                continue;
            }
            trials.push(Planned {
                sandbox: s,
                case: c,
                skip: skip(case, sandbox, machine),
                gates: case.status == Status::Stable,
            });
        }
    }
    trials
}

/// Why this case is not tried in this sandbox, if it is not.
pub fn skip(case: &Case, sandbox: &Sandbox, machine: &Machine) -> Option<Skip> {
    let mut needs = case.needs.clone();
    if case.attempt
        == (Attempt::ConnectUnix {
            to: UnixTarget::Abstract,
        })
    {
        // Such a name belongs to a network namespace.
        needs.push(Need::Range);
    }
    needs.sort();
    needs
        .into_iter()
        .find_map(|need| unmet(need, case, sandbox, machine))
        .or_else(|| without_root(case, sandbox, machine))
        .or_else(|| without_limiter(case, sandbox, machine))
}

fn unmet(need: Need, case: &Case, sandbox: &Sandbox, machine: &Machine) -> Option<Skip> {
    let policy = &sandbox.policy;
    let promised = |there: bool, sentence: &str| (!there).then(|| Skip::not_applicable(sentence));
    match need {
        Need::Swap => promised(
            machine.swap > policy.memory.unwrap_or(0),
            "this machine has less free swap space than the attempt would use",
        ),
        Need::Ipv6 => promised(machine.ipv6, "this machine has no IPv6"),
        Need::SpareCpus => promised(
            policy
                .cpus
                .is_none_or(|quota| (machine.cpus as f64) > quota * 1.25),
            "the ceiling on CPU time is no lower than what this machine has",
        ),
        Need::NotRoot => promised(
            !runs_as_root(sandbox),
            "the sandbox's user is root already: nothing can be gained",
        ),
        Need::HarnessRoot => promised(
            machine.root,
            "only root can plant or do what the attempt needs (run the audit with sudo)",
        ),
        Need::SetUidProgram => promised(
            machine.root || sandbox.backend == BackendKind::Docker,
            "only root can plant a set-uid program (run the audit with sudo)",
        ),
        Need::PromisedTimeout => promised(
            policy.timeout.is_some(),
            "the policy promises no timeout (say so with `timeout`, or `--timeout`)",
        ),
        Need::PromisedOutput => promised(
            policy.output.is_some(),
            "the policy promises no ceiling on output (say so with `output`)",
        ),
        Need::PidsCeiling => promised(
            policy.pids.is_some(),
            "the policy promises no ceiling on processes",
        ),
        Need::MemoryCeiling => promised(
            policy.memory.is_some(),
            "the policy promises no ceiling on memory",
        ),
        Need::CpuCeiling => promised(
            policy.cpus.is_some(),
            "the policy promises no ceiling on CPU time",
        ),
        Need::DiskCeiling => promised(
            policy.scratch.is_some(),
            "the policy promises no ceiling on scratch space",
        ),
        Need::Scratch => promised(
            policy
                .writable
                .iter()
                .any(|path| !path.starts_with("/dev/")),
            "the policy names no writable place",
        ),
        Need::Range => out_of_range(case, sandbox, machine),
    }
}

/// Network attempts go only where no packet can leave the machine.
fn out_of_range(case: &Case, sandbox: &Sandbox, machine: &Machine) -> Option<Skip> {
    if sandbox.backend == BackendKind::Docker {
        // The engine gave it the network that it has, and that is what is audited.
        return None;
    }
    let loopback_only = matches!(
        &case.attempt,
        Attempt::Connect { positions, .. } if positions.iter().all(|p| *p == Position::Loopback)
    ) || matches!(case.attempt, Attempt::ConnectUnix { .. });
    if sandbox.range == RangeMode::Host {
        return Some(Skip {
            reason: "needs-range",
            sentence: "this sandbox is started in the host's own network (`range = \"host\"`), where nothing is tried"
                .into(),
        });
    }
    (!machine.own_range && !loopback_only).then(|| Skip {
        reason: "needs-range",
        sentence: "no network namespace of our own could be made here, and from the host's network nothing is sent"
            .into(),
    })
}

fn runs_as_root(sandbox: &Sandbox) -> bool {
    // An unsandboxed probe is started as another user for such a case; what a launcher does, and whom an image names, is
    // seen when it runs.
    matches!(sandbox.backend, BackendKind::Oci | BackendKind::Docker)
        && sandbox.settings.user.is_root()
}

/// What the kernel refuses every ordinary user cannot show whether the sandbox would have refused it. An engine runs as
/// root, whoever asks it.
fn without_root(case: &Case, sandbox: &Sandbox, machine: &Machine) -> Option<Skip> {
    let ordinary = !machine.root && sandbox.backend != BackendKind::Docker;
    (means_nothing_without_root(case) && ordinary).then(|| {
        Skip::not_applicable(
            "the kernel refuses this to every ordinary user, sandbox or not (run the audit with sudo to try it)",
        )
    })
}

fn means_nothing_without_root(case: &Case) -> bool {
    matches!(
        case.attempt,
        Attempt::RawSocket | Attempt::Capabilities | Attempt::Mount
    )
}

/// A load that can be neither bounded nor counted from outside is not tried. An engine gives every container a group of
/// its own.
fn without_limiter(case: &Case, sandbox: &Sandbox, machine: &Machine) -> Option<Skip> {
    let uncounted = !machine.limiter && sandbox.backend != BackendKind::Docker;
    (is_counted(case) && uncounted).then(|| Skip {
        reason: "needs-limiter",
        sentence:
            "no cgroup can be made here to bound and count the load (run with sudo, or inside \
                   `systemd-run --user --scope -p Delegate=yes`)"
                .into(),
    })
}

fn is_counted(case: &Case) -> bool {
    matches!(
        case.attempt,
        Attempt::Spawn
            | Attempt::Allocate {
                dose: MemoryDose::Memory | MemoryDose::MemoryAndSwap
            }
            | Attempt::Spin {
                until: SpinUntil::Quota
            }
    )
}

/// Where a case is shown to be able.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// Without any sandbox.
    Unsandboxed,
    /// In a container of the same engine that nothing restricts: where the canaries stand in the engine's network, and
    /// where an ordinary user can do no more than ask the engine.
    Unrestricted,
}

/// Where this case is shown to be able before this sandbox is judged by it.
pub fn control(case: &Case, sandbox: &Sandbox, machine: &Machine) -> Control {
    let in_network = case.attempt.is_network()
        || case.attempt
            == Attempt::ConnectUnix {
                to: UnixTarget::Abstract,
            };
    let takes_root = means_nothing_without_root(case) || case.needs.contains(&Need::SetUidProgram);
    let by_engine_alone = (!machine.root && takes_root) || (!machine.limiter && is_counted(case));
    match sandbox.backend {
        BackendKind::Docker if in_network || by_engine_alone => Control::Unrestricted,
        _ => Control::Unsandboxed,
    }
}

/// A container of the same engine and image that nothing restricts, judged by the same policy.
pub fn unrestricted(sandbox: &Sandbox) -> Sandbox {
    let mut settings = Settings::docker();
    settings.image.clone_from(&sandbox.settings.image);
    settings.engine.clone_from(&sandbox.settings.engine);
    for protection in [
        Protection::Network,
        Protection::Capabilities,
        Protection::Seccomp,
        Protection::User,
        Protection::Timeout,
        Protection::Output,
    ] {
        settings.remove(protection);
    }
    Sandbox {
        name: "unrestricted container".into(),
        settings,
        without: std::collections::BTreeSet::new(),
        ..sandbox.clone()
    }
}

/// The sandbox in which a case is shown to be able: no sandbox at all, judged by the same policy.
pub fn able_sandbox(policy: &Policy, range: RangeMode) -> Sandbox {
    Sandbox {
        name: "unsandboxed".into(),
        backend: BackendKind::Unsandboxed,
        settings: crate::config::Settings::default(),
        policy: policy.clone(),
        without: std::collections::BTreeSet::new(),
        command: Vec::new(),
        range,
        notes: Vec::new(),
    }
}
