//! What a reader can do about a trial: what would have held it.

use super::{Report, Trial};
use crate::protection::PROTECTIONS;
use crate::verdict::Verdict;

/// A protection: its name, and what the embedded sandbox means by it.
pub type Holding = (&'static str, &'static str);

/// The protections any one of which would have held an escape, in this sandbox's backend. None is known of what did not
/// escape, or where no setting can hold it.
pub fn holding(trial: &Trial, report: &Report) -> Vec<Holding> {
    if trial.judgement.verdict != Verdict::Escaped {
        return Vec::new();
    }
    let sandbox = report.sandbox_of(trial);
    let backend = sandbox.map_or("", |sandbox| sandbox.sandbox.backend.name());
    let set = trial.source.weakened.for_backend(backend);
    PROTECTIONS
        .iter()
        .filter(|(protection, ..)| set.contains(protection))
        .map(|(_, name, meaning)| (*name, *meaning))
        .collect()
}

/// `network (a network namespace with nothing but loopback)`; of several, any one.
pub fn told(holding: &[Holding]) -> String {
    let told: Vec<_> = holding
        .iter()
        .map(|(name, meaning)| format!("{name} ({meaning})"))
        .collect();
    match told.len() {
        0 | 1 => told.concat(),
        // Which of them suffices depends on the kernel and on the user.
        _ => format!("any one of {}", told.join(", ")),
    }
}
