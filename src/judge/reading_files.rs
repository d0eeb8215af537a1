//! Files: reading the host's, making them outside scratch, filling scratch.

use std::collections::BTreeMap;

use escape_audit_probe::wire::Outcome;
use nix::libc;

use crate::case::{Ceiling, WriteInto};
use crate::config::Policy;
use crate::evidence::{Cause, End, Step};

use super::reading::{Finding, Technique, Through, View};
use super::{lines, reading_resources, reasons, refusal};

/// A file that was read and whose hash is no host file's is the image's own: it is neither here nor there.
pub fn read(view: &View<'_>, paths: &[String]) -> Technique {
    let names = |outcome| match outcome {
        Outcome::Ok | Outcome::Errno(libc::EISDIR) => Some("absent"),
        other => refusal::of_lookup(other),
    };
    let steps = view.steps("read");
    let literal = |path: &&String| !path.contains(['{', '~']);
    let untried = paths
        .iter()
        .filter(literal)
        .find(|path| !steps.iter().any(|step| step.target == **path));
    Technique {
        through: Through::No,
        control: None,
        finding: match untried {
            _ if !view.evidence.uncompared.is_empty() => Finding::undecided(
                "not-compared",
                format!(
                    "{} was read, and the host's own file there could not be: whether it is the same is not known.",
                    view.evidence.uncompared.join(", ")
                ),
            ),
            Some(path) => Finding::undecided("not-tried", format!("{path} was not tried.")),
            None => refusal::all(steps, names),
        },
    }
}

/// Whether somebody promised that this place works: not `/dev/shm` and `/dev/mqueue`, which may merely be there.
pub fn is_promised(policy: &Policy, path: &str) -> bool {
    let implied = ["/dev/shm", "/dev/mqueue"];
    policy.may_write(path)
        && !implied
            .iter()
            .any(|place| path == *place || path.starts_with(&format!("{place}/")))
}

/// Making a file.
pub fn write(view: &View<'_>, into: WriteInto) -> Technique {
    match into {
        WriteInto::OutsideScratch => write_outside(view),
        WriteInto::Host => write_to_host(view),
        WriteInto::Scratch => Technique {
            through: Through::No,
            control: None,
            finding: Finding::undecided("not-refused", "Writing to scratch is allowed."),
        },
    }
}

/// Outside scratch no file may be made, on whatever layer. That nothing can be written anywhere, scratch included, is
/// an accident and no protection.
fn write_outside(view: &View<'_>) -> Technique {
    let outside = |step: &&Step| !view.policy.may_write(&step.target);
    let steps = view.steps("write");
    let made = made(view).into_iter().filter(outside);
    Technique {
        through: Through::promise("written-outside-scratch", lines::of_steps(made)),
        control: scratch_works(view, &steps, true),
        finding: refusal::all(
            kernel_last(steps.iter().copied().filter(outside)),
            refusal::of_creation,
        ),
    }
}

/// The host looks into its own folders. What was made and is not there is the sandbox's own copy.
fn write_to_host(view: &View<'_>) -> Technique {
    let steps = view.steps("write");
    // A file right in a promised place is the control; the host's folders lie elsewhere, or deeper.
    let is_control = |step: &Step| {
        step.target.rsplit_once('/').is_some_and(|(place, _)| {
            is_promised(view.policy, &step.target)
                && view.policy.writable.iter().any(|w| w == place)
        })
    };
    let (control, steps): (Vec<&Step>, Vec<&Step>) =
        steps.into_iter().partition(|step| is_control(step));
    let made: Vec<&Step> = made(view).into_iter().filter(|s| !is_control(s)).collect();
    let is_made = |step: &&Step| made.iter().any(|file| file.target == step.target);
    let refused: Vec<&Step> = steps.iter().copied().filter(|s| !is_made(s)).collect();
    let finding = if refused.is_empty() && !made.is_empty() {
        Finding::held("private", lines::of_steps(made.iter().copied()))
    } else {
        match refusal::all(refused, refusal::of_creation) {
            Finding::Held { .. } if !made.is_empty() => {
                Finding::held("private", lines::of_steps(steps.iter().copied()))
            }
            finding => finding,
        }
    };
    Technique {
        through: Through::No,
        control: scratch_works(view, &control, false),
        finding,
    }
}

/// The files that were made. One that takes no bytes (a message queue, a full disk) was made all the same.
fn made<'a>(view: &View<'a>) -> Vec<&'a Step> {
    let steps = view.evidence.inside.steps.iter();
    steps
        .filter(|step| {
            matches!(step.what.as_str(), "create" | "write") && step.outcome == Outcome::Ok
        })
        .collect()
}

/// The kernel's own file systems refuse everybody a new file: where others refuse as well, those name the reason.
fn kernel_last<'a>(steps: impl Iterator<Item = &'a Step>) -> Vec<&'a Step> {
    let of_kernel = |step: &&Step| {
        ["/proc", "/sys"]
            .iter()
            .any(|place| step.target.starts_with(place))
            && refusal::of_creation(step.outcome).is_some()
    };
    let (kernel, others): (Vec<&Step>, Vec<&Step>) = steps.partition(of_kernel);
    if others.is_empty() { kernel } else { others }
}

fn scratch_works(view: &View<'_>, steps: &[&Step], must_be_tried: bool) -> Option<String> {
    let policy = view.policy;
    if !policy
        .writable
        .iter()
        .any(|place| is_promised(policy, place))
    {
        return None;
    }
    let mut scratch = steps
        .iter()
        .filter(|step| is_promised(policy, &step.target))
        .peekable();
    let Some(first) = scratch.peek().map(|step| lines::of_step(step)) else {
        return must_be_tried
            .then(|| "The control is missing: no promised place was written to.".to_owned());
    };
    if scratch.any(|step| step.outcome == Outcome::Ok) {
        return None;
    }
    Some(format!(
        "The control failed: not even a promised place could be written ({first})."
    ))
}

/// Filling: every writable place has to end at its ceiling, and all together below the promise.
pub fn fill(view: &View<'_>) -> Technique {
    let evidence = view.evidence;
    let steps = view.steps("write");
    let written = written(view);
    let total: u64 = written.values().sum();
    let counts: Vec<_> = reading_resources::counts(view, Ceiling::Disk).collect();
    let mut passed: Vec<String> = counts
        .iter()
        .filter(|count| count.passed())
        .map(|count| lines::of_count(count))
        .collect();
    let promise = view.policy.scratch;
    if let Some(promise) = promise.filter(|promise| total > promise + promise / 10 + SLACK) {
        passed.push(format!(
            "the probe wrote {total} bytes, {promise} are promised at most"
        ));
    }
    let known = !counts.is_empty() || (promise.is_some() && !written.is_empty());
    let full = |step: &&&Step| is_full(step.outcome);
    let by_memory = matches!(
        evidence.end,
        End::BySandbox {
            cause: Cause::Memory,
            ..
        }
    ) || evidence.inside.done == Some(Outcome::Signal(libc::SIGKILL));
    let finding = if by_memory {
        Finding::undecided("masked-by-memory", reasons::sentence("masked-by-memory"))
    } else if evidence.inside.done != Some(Outcome::Ok) {
        Finding::undecided("not-finished", reasons::sentence("not-finished"))
    } else if !known {
        Finding::undecided("no-count", reasons::sentence("no-count"))
    } else if steps.iter().any(|step| step.outcome == Outcome::Ok) {
        let sentence = "A place took the whole dose, and no ceiling was seen at work.";
        Finding::undecided("not-refused", sentence)
    } else if steps
        .iter()
        .any(|step| step.outcome == Outcome::Errno(libc::EFBIG))
    {
        Finding::undecided("per-file", reasons::sentence("per-file"))
    } else if let Some(unclear) = steps
        .iter()
        .find(|step| !full(step) && refusal::of_creation(step.outcome).is_none())
    {
        let sentence = format!("{} is no ceiling.", lines::of_step(unclear));
        Finding::undecided("not-refused", sentence)
    } else if steps.iter().any(|step| full(&step)) {
        let mut evidence: Vec<String> = counts.iter().map(|count| lines::of_count(count)).collect();
        evidence.extend(lines::of_steps(steps.iter().filter(full).copied()));
        Finding::held("ceiling", evidence)
    } else {
        Finding::undecided("not-refused", "No place came to a ceiling.")
    };
    let control = (total == 0 && !steps.is_empty()).then(|| {
        "The control failed: not one byte could be written, not even to scratch.".to_owned()
    });
    Technique {
        through: Through::promise("ceiling-passed", passed),
        control,
        finding,
    }
}

/// What a file system may give beyond its size.
const SLACK: u64 = 4 * 1024 * 1024;

/// EFBIG is the end of one file (`RLIMIT_FSIZE`), and of nothing else.
fn is_full(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Errno(libc::ENOSPC | libc::EDQUOT))
}

/// Bytes a place took, the most that was ever told.
fn written<'a>(view: &View<'a>) -> BTreeMap<&'a str, u64> {
    let evidence = view.evidence;
    let mut places = BTreeMap::new();
    for fact in evidence.inside.facts.iter().filter(|f| f.key == "written") {
        let bytes = std::str::from_utf8(&fact.value)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let most = places.entry(fact.name.as_str()).or_insert(0u64);
        *most = bytes.max(*most);
    }
    places
}
