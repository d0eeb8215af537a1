//! Other processes: seeing one of the host's, signalling it, outliving the run.

use std::time::Duration;

use escape_audit_probe::wire::Outcome;
use nix::libc;

use crate::case::KilledBy;
use crate::evidence::{Cause, End};

use super::reading::{Finding, Technique, Through, View};
use super::{lines, reasons, refusal};

/// So long the host looks for survivors: ten beacons' time.
const GRACE: Duration = Duration::from_secs(2);

/// A sentinel is absent if nothing of its name can be seen and nothing has its number. In a process namespace of the
/// sandbox's own the numbers may coincide.
pub fn list(view: &View<'_>) -> Technique {
    let listed = view.steps("list").first().map(|step| step.outcome);
    let own_visible = view.evidence.inside.facts_of("process").next().is_some();
    let probes = view.steps("probe");
    let numbers_absent = !probes.is_empty()
        && probes
            .iter()
            .all(|step| step.outcome == Outcome::Errno(libc::ESRCH));
    let mut evidence = lines::of_steps(view.steps("list"));
    evidence.extend(lines::of_steps(probes));
    let finding = match listed {
        Some(Outcome::Ok) if !own_visible => Finding::undecided(
            "not-refused",
            "/proc was listed, and not even the probe is in it.",
        ),
        Some(Outcome::Ok) if view.has_own("pid") || numbers_absent => {
            Finding::held("absent", evidence)
        }
        // No /proc to look at.
        Some(Outcome::Errno(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::EPERM))
            if numbers_absent =>
        {
            Finding::held("absent", evidence)
        }
        None => Finding::undecided("not-tried", reasons::sentence("not-tried")),
        _ => Finding::undecided(
            "not-refused",
            "The host's process was not seen by name, and something has its number.",
        ),
    };
    Technique {
        through: Through::No,
        control: None,
        finding,
    }
}

/// ESRCH: not there; EPERM: there, but not for this user. A signal that went to a process of the same number in the
/// sandbox's own namespace did no harm.
pub fn signal(view: &View<'_>) -> Technique {
    let failed = view
        .steps("control")
        .into_iter()
        .find(|step| step.outcome != Outcome::Ok && refusal::of_call(step.outcome).is_none());
    let own = |outcome| match outcome {
        Outcome::Ok => Some("private"),
        other => refusal::of_lookup(other),
    };
    let names: refusal::Names = if view.has_own("pid") {
        own
    } else {
        refusal::of_lookup
    };
    Technique {
        through: Through::No,
        control: failed.map(|step| format!("The control failed: {}.", lines::of_step(step))),
        finding: refusal::all(view.steps("signal"), names),
    }
}

/// The run was ended in the way the case names, the host watched, and nothing was left.
pub fn outlive(view: &View<'_>, killed_by: KilledBy) -> Technique {
    let evidence = view.evidence;
    let detach = view.steps("detach");
    let detached = detach.iter().any(|step| step.outcome == Outcome::Ok);
    let cannot_fork = |outcome| match outcome {
        Outcome::Errno(libc::EAGAIN | libc::ENOMEM) => Some("refused"),
        other => refusal::of_call(other),
    };
    let ended = match killed_by {
        KilledBy::Timeout => matches!(
            evidence.end,
            End::BySandbox {
                cause: Cause::Timeout,
                ..
            }
        ),
        KilledBy::Launcher | KilledBy::Group | KilledBy::Terminate => evidence.end == End::ByTrial,
    };
    let finding = if detach.is_empty() {
        Finding::undecided(
            "not-tried",
            "No process was left behind that could survive.",
        )
    } else if !detached {
        refusal::all(detach, cannot_fork)
    } else if !ended {
        Finding::undecided("not-ended", reasons::sentence("not-ended"))
    } else if evidence.watched < GRACE {
        Finding::undecided("watched-too-short", reasons::sentence("watched-too-short"))
    } else {
        let mut lines = lines::of_steps(detach);
        lines.push(format!(
            "no process and no beacon in {:.1} s after the end",
            evidence.watched.as_secs_f64()
        ));
        Finding::held("killed", lines)
    };
    Technique {
        through: Through::No,
        control: None,
        finding,
    }
}
