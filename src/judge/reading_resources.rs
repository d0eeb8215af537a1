//! Ceilings: the host's count decides. Low use proves nothing; a ceiling has to be seen at work.

use std::time::Duration;

use escape_audit_probe::wire::Outcome;
use nix::libc;

use crate::case::{Ceiling, MemoryDose, SpinUntil};
use crate::evidence::{Cause, Count, End, Step};

use super::reading::{Finding, Technique, Through, View};
use super::{lines, reasons, refusal};

/// A busy machine needs this long to end what should have ended.
const GRACE: Duration = Duration::from_secs(5);

/// The counts of one ceiling.
pub fn counts<'a>(view: &View<'a>, what: Ceiling) -> impl Iterator<Item = &'a Count> + 'a {
    let evidence = view.evidence;
    evidence
        .counts
        .iter()
        .filter(move |count| count.what == what)
}

fn undecided(reason: &'static str) -> Finding {
    Finding::undecided(reason, reasons::sentence(reason))
}

/// A ceiling that the host saw kept (`Some(true)`: at work) and nobody saw passed.
fn kept(view: &View<'_>, what: Ceiling) -> Option<bool> {
    let passed = counts(view, what).any(Count::passed);
    // A value that is no number is neither above nor below anything.
    let is_number = |count: &&Count| count.value.is_finite() && count.passed_above.is_finite();
    let mut by_host = counts(view, what)
        .filter(|count| count.by_host)
        .filter(is_number)
        .peekable();
    if passed || by_host.peek().is_none() {
        return None;
    }
    Some(by_host.any(|count| count.held))
}

fn count_lines(view: &View<'_>, what: Ceiling) -> Vec<String> {
    counts(view, what).map(lines::of_count).collect()
}

fn ended_for(view: &View<'_>, wanted: Cause) -> Option<u64> {
    match view.evidence.end {
        End::BySandbox { cause, after_ms } if cause == wanted => Some(after_ms),
        _ => None,
    }
}

/// What ended it: a count that was kept, or the sandbox's own hand.
fn ceiling(view: &View<'_>, what: Ceiling, cause: Option<Cause>, stopped: Vec<String>) -> Finding {
    let ended = cause.is_some_and(|cause| ended_for(view, cause).is_some());
    let kept = kept(view, what);
    if counts(view, what).any(Count::passed) {
        return Finding::undecided("not-refused", "A count says that the ceiling was passed.");
    }
    // A limit of one process (`RLIMIT_AS`) or of one user (`RLIMIT_NPROC`) stops it in the same way; of the total only
    // the host can tell.
    let of_one = match what {
        Ceiling::Memory | Ceiling::Swap => Some("per-process"),
        Ceiling::Pids => Some("per-user"),
        _ => None,
    };
    if let Some(reason) = of_one
        && kept == Some(false)
        && !ended
        && !stopped.is_empty()
    {
        return undecided(reason);
    }
    if !(ended || kept == Some(true) || (kept == Some(false) && !stopped.is_empty())) {
        return undecided(if kept.is_none() {
            "no-count"
        } else {
            "not-refused"
        });
    }
    let mut evidence = count_lines(view, what);
    if ended {
        evidence.insert(0, "the sandbox ended it for this ceiling".into());
    }
    evidence.extend(stopped);
    Finding::held("ceiling", evidence)
}

/// Processes: the kernel stopped the spawning, and the host counted no more than the ceiling.
pub fn spawn(view: &View<'_>) -> Technique {
    let forks = view.steps("fork");
    let stopped_by = |errnos: &'static [i32]| {
        let stopped =
            |step: &&Step| matches!(step.outcome, Outcome::Errno(n) if errnos.contains(&n));
        lines::of_steps(forks.iter().copied().filter(stopped))
    };
    let at_ceiling = stopped_by(&[libc::EAGAIN, libc::ENOMEM]);
    let made = view.evidence.inside.number("made").unwrap_or(0);
    let forbidden = made == 0
        && forks
            .iter()
            .any(|step| refusal::of_call(step.outcome).is_some());
    let whole_dose = forks.iter().any(|step| step.outcome == Outcome::Ok);
    Technique {
        through: Through::claim(match whole_dose {
            true => vec![format!("{made} processes were made inside")],
            false => Vec::new(),
        }),
        control: None,
        finding: if forbidden && !counts(view, Ceiling::Pids).any(Count::passed) {
            Finding::held("refused", lines::of_steps(forks))
        } else {
            ceiling(view, Ceiling::Pids, Some(Cause::Pids), at_ceiling)
        },
    }
}

/// Memory: only pages that were touched count, over all processes.
pub fn allocate(view: &View<'_>, dose: MemoryDose) -> Technique {
    let what = match dose {
        MemoryDose::MemoryAndSwap => Ceiling::Swap,
        MemoryDose::Memory | MemoryDose::Half => Ceiling::Memory,
    };
    let takers = view.steps("allocate");
    let refused = |step: &&Step| step.outcome == Outcome::Errno(libc::ENOMEM);
    let stopped = lines::of_steps(takers.iter().copied().filter(refused));
    let all_ok = !takers.is_empty() && takers.iter().all(|step| step.outcome == Outcome::Ok);
    let held = view.evidence.inside.number("held").unwrap_or(0);
    // Pages that were never touched leave the count far below.
    let full = counts(view, what).any(|count| count.by_host && count.value >= 0.9 * count.ceiling);
    let elsewhere = all_ok && full && what == Ceiling::Memory && kept(view, what) == Some(false);
    Technique {
        through: Through::claim(match all_ok {
            // With a ceiling at work the pages were there and taken back: swapped out, and counted.
            true if kept(view, what) != Some(true) || what == Ceiling::Swap => {
                vec![format!("{held} bytes were held inside")]
            }
            _ => Vec::new(),
        }),
        control: None,
        finding: match elsewhere {
            true => undecided("swapped-out"),
            false => ceiling(view, what, Some(Cause::Memory), stopped),
        },
    }
}

/// Processor time, against the quota or against the promised timeout.
pub fn spin(view: &View<'_>, until: SpinUntil) -> Technique {
    match until {
        SpinUntil::Quota => Technique {
            through: Through::No,
            control: None,
            finding: match (kept(view, Ceiling::Cpu), counts(view, Ceiling::Cpu).next()) {
                (Some(false), _) => undecided("not-throttled"),
                (None, None) => undecided("no-count"),
                _ => ceiling(view, Ceiling::Cpu, None, Vec::new()),
            },
        },
        SpinUntil::Timeout => past_timeout(view),
    }
}

/// A spin for longer than the promise: that its end is missing is the evidence.
fn past_timeout(view: &View<'_>) -> Technique {
    let inside = &view.evidence.inside;
    let promise = view.policy.timeout;
    let spun = inside
        .facts_of("spun")
        .filter_map(|fact| std::str::from_utf8(&fact.value).ok()?.parse().ok())
        .max()
        .map(Duration::from_millis);
    let mut late = Vec::new();
    if let (Some(promise), Some(spun)) = (promise, spun)
        && spun > promise + GRACE / 2
    {
        late.push(format!(
            "it spun for {:.1} s and was not ended; {:.1} s are promised",
            spun.as_secs_f64(),
            promise.as_secs_f64()
        ));
    }
    let ended = ended_for(view, Cause::Timeout).map(Duration::from_millis);
    if let (Some(promise), Some(ended)) = (promise, ended)
        && ended > promise + GRACE
    {
        late.push(format!(
            "it was ended after {:.1} s; {:.1} s are promised",
            ended.as_secs_f64(),
            promise.as_secs_f64()
        ));
    }
    let finding = match ended {
        None => Finding::undecided("not-ended", "The sandbox was not seen to end it."),
        // The host's sight is what tells a run that was ended from one that died by itself.
        Some(_) if view.evidence.witness.is_none() => undecided("no-witness"),
        Some(_) if inside.done.is_some() => Finding::undecided(
            "not-ended",
            "The spin came to its own end before the timeout.",
        ),
        Some(after) => Finding::held(
            "killed",
            vec![
                format!("the sandbox ended it after {:.1} s", after.as_secs_f64()),
                format!(
                    "nothing was left in {:.1} s of watching",
                    view.evidence.watched.as_secs_f64()
                ),
            ],
        ),
    };
    Technique {
        through: Through::promise("timeout-passed", late),
        control: None,
        finding,
    }
}

/// Output: what was stored, or what arrived here if nobody stored it.
pub fn flood(view: &View<'_>) -> Technique {
    let cut = ended_for(view, Cause::Output).is_some();
    let arrived = view.evidence.inside.output_bytes;
    let mut passed = Vec::new();
    if let Some(promise) = view.policy.output
        && !cut
        && arrived > promise + promise / 4 + PIPE
    {
        passed.push(format!(
            "{arrived} bytes arrived, {promise} are promised at most"
        ));
    }
    Technique {
        through: Through::promise("ceiling-passed", passed),
        control: None,
        finding: ceiling(view, Ceiling::Output, Some(Cause::Output), Vec::new()),
    }
}

/// What may still stand in a pipe when it is cut.
const PIPE: u64 = 256 * 1024;
