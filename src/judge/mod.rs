//! The only place that decides: from the case and the evidence alone, one verdict.
//!
//! `MUST_HOLD` is the table of the design, row by row and in its order; `MUST_WORK` is the same for a case of what
//! must work. The first row that speaks wins. What the records of each technique mean is read in `reading_*`: the
//! rows say which fact outranks which, the readings say what is a fact.
//!
//! BLOCKED is never a remainder: it takes an attempt that was made and completed, a target that was alive, a case that
//! is able, and a `Finding::Held` that names the refusal. Whatever no row can prove is INCONCLUSIVE.

mod escape;
mod lines;
mod precondition;
mod reading;
mod reading_credentials;
mod reading_engine;
mod reading_files;
mod reading_network;
mod reading_privileges;
mod reading_processes;
mod reading_resources;
mod reading_works;
pub mod reasons;
mod refusal;
#[cfg(test)]
mod tests;

use crate::case::{Attempt, Case, Expect};
use crate::config::Sandbox;
use crate::evidence::Evidence;
use crate::verdict::{Judgement, Verdict};

use reading::{Aim, Finding, Reading, Through, View};

/// Decides.
pub fn judge(case: &Case, sandbox: &Sandbox, evidence: &Evidence) -> Judgement {
    let view = View {
        case,
        policy: &sandbox.policy,
        evidence,
    };
    let reading = reading::read(&view);
    let table = match case.expect {
        Expect::Blocked => MUST_HOLD,
        Expect::Allowed => MUST_WORK,
    };
    table
        .iter()
        .find_map(|(_, row)| row(&view, &reading))
        .unwrap_or_else(|| neither(&view, &reading))
}

/// One row: what it says if the evidence is of its kind.
type Row = fn(&View<'_>, &Reading) -> Option<Judgement>;

/// A case of what must not get through.
const MUST_HOLD: &[(&str, Row)] = &[
    (
        "a canary shows this trial's token, or the host counted more than the ceiling, or state or a process outlived the run",
        escape::seen_from_outside,
    ),
    (
        "the probe did what is itself the breach, on the host's own kernel and over its initial user namespace",
        escape::breach,
    ),
    (
        "our outer limiter, not the sandbox, had to stop it",
        escape::stopped_by_harness,
    ),
    (
        "backend or harness failed; in force differs from configured; two records that contradict each other",
        precondition::failed,
    ),
    (
        "not able; no start record; the target not alive; a control that failed",
        precondition::unproven,
    ),
    (
        "it succeeded against a kernel that is not the host's",
        own_kernel,
    ),
    (
        "it succeeded over a user namespace of its own alone",
        confined,
    ),
    (
        "a target of ours: tried, alive throughout, and silent",
        silent_target,
    ),
    (
        "no target of ours: a refusal, or an absence",
        refused_or_absent,
    ),
    (
        "ended by the sandbox itself, nothing left",
        ended_by_sandbox,
    ),
];

/// A case of what must work.
const MUST_WORK: &[(&str, Row)] = &[
    (
        "it worked, and something got out beside it",
        escape::seen_from_outside,
    ),
    (
        "our outer limiter, not the sandbox, had to stop it",
        escape::stopped_by_harness,
    ),
    ("backend or harness failed", precondition::failed),
    ("the probe did not run", precondition::unproven),
    ("the sandbox refused it", broken),
    ("it worked", allowed),
];

fn own_kernel(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    let kernel = view.evidence.own_kernel.as_ref()?;
    // Memory, time and disk are the host's own, whatever kernel stands between.
    let of_the_host = matches!(
        view.case.attempt,
        Attempt::Allocate { .. } | Attempt::Spin { .. } | Attempt::Fill | Attempt::Flood
    );
    // Processes are the other kernel's own as far as the host counted few.
    let uncounted = matches!(view.case.attempt, Attempt::Spawn)
        && !view.evidence.counts.iter().any(|count| count.by_host);
    if of_the_host || uncounted {
        return None;
    }
    let lines = reading.through.lines()?;
    let sentence = format!("It worked inside, on a kernel that is not the host's: {kernel}.");
    Some(view.conclude(Verdict::Blocked, "own-kernel", sentence, lines.to_vec()))
}

fn confined(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    let Through::Breach {
        lines,
        confinable: true,
    } = &reading.through
    else {
        return None;
    };
    let witness = view.evidence.probe();
    witness.filter(|witness| witness.own_user_namespace)?;
    let sentence = "It worked inside, over a user namespace that is not the host's first one: it gives no power over the host.";
    Some(view.conclude(Verdict::Blocked, "confined", sentence, lines.clone()))
}

fn silent_target(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    held(view, reading, Aim::Target)
}

fn refused_or_absent(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    held(view, reading, Aim::Refusal)
}

fn ended_by_sandbox(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    held(view, reading, Aim::End)
}

fn held(view: &View<'_>, reading: &Reading, aim: Aim) -> Option<Judgement> {
    let Finding::Held { reason, lines } = &reading.finding else {
        return None;
    };
    // What got through and is no ESCAPED (a claim that the host did not see) is no proof that it held either.
    if reading.aim != aim || reading.through != Through::No {
        return None;
    }
    let sentence = reasons::sentence(reason);
    Some(view.conclude(Verdict::Blocked, reason, sentence, lines.clone()))
}

/// The remainder: neither a refusal nor a proven absence; of what must work, no end.
fn neither(view: &View<'_>, reading: &Reading) -> Judgement {
    if view.case.expect == Expect::Allowed {
        let reason = "not-finished";
        let lines = lines::of_steps(&view.evidence.inside.steps);
        return view.conclude(
            Verdict::Inconclusive,
            reason,
            reasons::sentence(reason),
            lines,
        );
    }
    let (reason, sentence, lines) = match (&reading.through, &reading.finding) {
        (through, _) if *through != Through::No => (
            "not-refused",
            "The probe says that it worked, and the host saw nothing of it.".to_owned(),
            through.lines().unwrap_or_default().to_vec(),
        ),
        (_, Finding::Undecided { reason, sentence }) => (
            *reason,
            sentence.clone(),
            lines::of_steps(&view.evidence.inside.steps),
        ),
        (_, Finding::Held { lines, .. }) => (
            "not-refused",
            reasons::sentence("not-refused").to_owned(),
            lines.clone(),
        ),
    };
    view.conclude(Verdict::Inconclusive, reason, sentence, lines)
}

fn broken(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    let what = reading.refusal.as_ref()?;
    let sentence = format!("What must work was refused: {what}.");
    Some(view.conclude(Verdict::Broken, "refused", sentence, vec![what.clone()]))
}

fn allowed(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    reading.worked.then(|| {
        let lines = lines::of_steps(&view.evidence.inside.steps);
        view.conclude(
            Verdict::Allowed,
            "worked",
            reasons::sentence("worked"),
            lines,
        )
    })
}
