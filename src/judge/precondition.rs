//! What has to be true before a refusal means anything: nothing failed, the probe ran, the target lived, the case is
//! able, the attempt came to its end.

use escape_audit_probe::wire::Outcome;

use crate::case::{Attempt, Expect};
use crate::evidence::{Able, Start};
use crate::verdict::{Judgement, Verdict};

use super::reading::{Aim, Reading, View};
use super::{lines, reading_network, reasons};

/// Backend or harness failed, something was in force otherwise than configured, or two records contradict each other.
pub fn failed(view: &View<'_>, _: &Reading) -> Option<Judgement> {
    let evidence = view.evidence;
    let inside = &evidence.inside;
    if let Some(fault) = evidence.faults.first() {
        let reason = if reasons::is_known(fault.code) {
            fault.code
        } else {
            "harness-failed"
        };
        let lines = evidence.faults.iter().map(|f| f.text.clone()).collect();
        return Some(view.conclude(Verdict::Error, reason, fault.text.clone(), lines));
    }
    let mut contradictions = evidence.contradictions.clone();
    if !inside.begun && (inside.done.is_some() || !inside.steps.is_empty()) {
        contradictions.push("records of an attempt that was never begun".into());
    }
    if let Some(first) = contradictions.first() {
        let sentence = format!("Two records contradict each other: {first}.");
        return Some(view.conclude(Verdict::Error, "contradiction", sentence, contradictions));
    }
    let malformed = view.steps("malformed");
    (!malformed.is_empty()).then(|| {
        let sentence = "The harness asked the probe for something that it does not understand.";
        let lines = lines::of_steps(malformed);
        view.conclude(Verdict::Error, "harness-failed", sentence, lines)
    })
}

/// Something without which neither a refusal nor a success is proven is missing.
pub fn unproven(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    let must_hold = view.case.expect == Expect::Blocked;
    let (reason, sentence) = not_running(view)
        .or_else(|| must_hold.then(|| not_able(view)).flatten())
        .or_else(|| must_hold.then(|| not_alive(view)).flatten())
        .or_else(|| must_hold.then(|| not_finished(view, reading)).flatten())
        .or_else(|| must_hold.then(|| truncated(view)).flatten())
        .or_else(|| {
            let why = reading.control.clone().filter(|_| must_hold)?;
            Some(("control-failed", why))
        })?;
    let lines = lines::of_steps(&view.evidence.inside.steps);
    Some(view.conclude(Verdict::Inconclusive, reason, sentence, lines))
}

type Missing = Option<(&'static str, String)>;

fn because(reason: &'static str) -> Missing {
    Some((reason, reasons::sentence(reason).to_owned()))
}

fn not_running(view: &View<'_>) -> Missing {
    match &view.evidence.start {
        Start::Missing => because("no-start-record"),
        Start::NoInput => Some((
            "no-input",
            "The probe ran and found its standard input empty. help: let the launcher pass standard input on \
             (`docker run -i`)."
                .into(),
        )),
        Start::Foreign(what) => Some((
            "foreign-record",
            format!("Something answered that is not this trial's probe: {what}."),
        )),
        Start::Seen { .. } if !view.evidence.inside.begun => because("not-begun"),
        Start::Seen { .. } => None,
    }
}

/// The probe came to one of its own bounds: what lies beyond is not known.
fn truncated(view: &View<'_>) -> Missing {
    let what = view.evidence.inside.facts_of("truncated").next()?;
    Some((
        "truncated",
        format!(
            "There was more to look at than the probe looks at ({}, {} at most): the rest is not known.",
            what.name,
            String::from_utf8_lossy(&what.value)
        ),
    ))
}

fn not_able(view: &View<'_>) -> Missing {
    match &view.evidence.able {
        Able::Proven { .. } => None,
        Able::NotTried => because("not-able"),
        Able::NotProven { why } => Some((
            "not-able",
            format!(
                "The attempt did not get through where nothing should stop it: {}.",
                why.trim_end_matches('.')
            ),
        )),
    }
}

fn not_alive(view: &View<'_>) -> Missing {
    let evidence = view.evidence;
    if let Some(dead) = evidence.targets.iter().find(|target| !target.alive) {
        let sentence = format!("{}: its silence proves nothing.", lines::of_target(dead));
        return Some(("target-not-alive", sentence));
    }
    let alive = match view.case.attempt {
        Attempt::ListProcesses | Attempt::Signal => evidence.sentinel.alive,
        _ if super::reading::aim(&view.case.attempt) == Aim::Target => {
            !evidence.targets.is_empty() || reading_network::needs_no_target(view)
        }
        _ => true,
    };
    if alive {
        None
    } else {
        because("target-not-alive")
    }
}

/// A missing end is the very evidence of a ceiling or a timeout; of everything else it is a lost record.
fn not_finished(view: &View<'_>, reading: &Reading) -> Missing {
    let single_call =
        reading.aim == Aim::Target || matches!(view.case.attempt, Attempt::Syscall { .. });
    if reading.aim == Aim::End || (single_call && view.killed_by_filter()) {
        return None;
    }
    match view.evidence.inside.done {
        Some(Outcome::Ok) => None,
        Some(Outcome::Timeout) => Some((
            "not-finished",
            "The attempt did not come to its end before its deadline.".into(),
        )),
        Some(other) => Some((
            "not-finished",
            format!(
                "The attempt's process ended early: {}.",
                crate::evidence::outcome_name(other)
            ),
        )),
        None => because("not-finished"),
    }
}
