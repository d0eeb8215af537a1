//! What must work: whether it did, and what the sandbox refused of it.

use escape_audit_probe::wire::Outcome;

use crate::case::{Attempt, WriteInto};
use crate::evidence::{End, Step, outcome_name};

use super::reading::View;
use super::{lines, reading_files};

/// What the sandbox refused of what must work.
pub fn refusal(view: &View<'_>) -> Option<String> {
    let inside = &view.evidence.inside;
    let refused = inside.steps.iter().find(|step| {
        matches!(step.outcome, Outcome::Errno(_) | Outcome::Signal(_)) && counts(view, step)
    });
    if let Some(step) = refused {
        return Some(lines::of_step(step));
    }
    match (inside.done, &view.evidence.end) {
        (Some(done @ Outcome::Signal(_)), _) => {
            Some(format!("the attempt was ended by {}", outcome_name(done)))
        }
        (None, End::BySandbox { cause, .. }) => {
            let cause = format!("{cause:?}").to_lowercase();
            Some(format!("the sandbox ended it ({cause})"))
        }
        _ => None,
    }
}

/// Everything that must work did, and the probe came to its end.
pub fn worked(view: &View<'_>) -> bool {
    let inside = &view.evidence.inside;
    let mut steps = inside.steps.iter().filter(|step| counts(view, step));
    inside.done == Some(Outcome::Ok)
        && inside.ended
        && steps.clone().count() > 0
        && steps.all(|step| step.outcome == Outcome::Ok)
}

/// Every container may have `/dev/shm` and `/dev/mqueue`, and none has to: nobody promised that they work.
fn counts(view: &View<'_>, step: &Step) -> bool {
    let into_scratch = view.case.attempt
        == Attempt::WriteFile {
            into: WriteInto::Scratch,
        };
    !into_scratch || reading_files::is_promised(view.policy, &step.target)
}
