//! What a trial means for the build: the one place where a verdict becomes green, red or grey, for every format alike.
//!
//! It decides nothing: the gate does, from the same report. A kind of trial that is neither red nor green is added here,
//! and the compiler then asks each format for the line that shows it.

use std::cmp::Reverse;

use super::line::why_it_does_not_gate;
use super::{Report, SandboxReport, Trial};
use crate::case::Severity;
use crate::verdict::Verdict;

/// What a trial means for the build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing<'a> {
    /// It held, or it works.
    Held,
    /// It was not tried, for a reason that is known beforehand.
    Skipped,
    /// It came out badly and does not count: this is why.
    Silent(&'a str),
    /// Nothing is proven. The build fails.
    Undecided,
    /// It escaped, or what must work is broken. The build fails.
    Failed,
}

/// What this trial means.
pub fn of(trial: &Trial) -> Standing<'_> {
    match trial.judgement.verdict {
        Verdict::Allowed | Verdict::Blocked => Standing::Held,
        Verdict::Skipped => Standing::Skipped,
        _ if !trial.gates => Standing::Silent(why_it_does_not_gate(trial).unwrap_or_default()),
        Verdict::Inconclusive | Verdict::Error => Standing::Undecided,
        Verdict::Broken | Verdict::Escaped => Standing::Failed,
    }
}

/// Where a trial stands in a list that begins with the worst: what counts, the worse verdict, the higher severity.
/// Smaller is worse.
pub fn rank(trial: &Trial) -> (bool, Reverse<Verdict>, Option<Reverse<Severity>>) {
    let silent = matches!(of(trial), Standing::Silent(_));
    let verdict = trial.judgement.verdict;
    (
        silent,
        Reverse(verdict),
        Some(Reverse(trial.source.severity)),
    )
}

/// Something that a reader has to act on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finding<'a> {
    /// A trial that is neither held nor skipped, with its sandbox.
    Trial(&'a Trial),
    /// A sandbox that could not be audited, and why.
    NotAudited(&'a SandboxReport, &'a str),
}

/// Everything that a reader has to act on, worst first: what fails the build before what does not.
pub fn findings(report: &Report) -> Vec<Finding<'_>> {
    let trials = report
        .trials
        .iter()
        .filter(|trial| !matches!(of(trial), Standing::Held | Standing::Skipped))
        .map(Finding::Trial);
    let sandboxes = report
        .sandboxes
        .iter()
        .filter_map(|sandbox| Some(Finding::NotAudited(sandbox, sandbox.failed.as_deref()?)));
    let mut findings: Vec<_> = trials.chain(sandboxes).collect();
    findings.sort_by_key(|finding| match finding {
        Finding::Trial(trial) => rank(trial),
        // Before the other errors: nothing at all is known of this sandbox.
        Finding::NotAudited(..) => (false, Reverse(Verdict::Error), None),
    });
    findings
}

/// Every trial, worst first; then by severity, and as the report has them.
pub fn worst_first(report: &Report) -> Vec<&Trial> {
    let mut trials: Vec<&Trial> = report.trials.iter().collect();
    trials.sort_by_key(|trial| rank(trial));
    trials
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_worst_comes_first_whatever_does_not_count_last() {
        let report = sample::report();
        let told: Vec<String> = findings(&report)
            .iter()
            .map(|finding| match finding {
                Finding::Trial(trial) => {
                    format!("{} {}", trial.judgement.verdict.name(), trial.case)
                }
                Finding::NotAudited(sandbox, _) => sandbox.sandbox.name.clone(),
            })
            .collect();
        let wanted = [
            "ESCAPED network/escaped",
            "ESCAPED processes/nasty",
            "BROKEN network/broken",
            "lost",
            "ERROR network/error",
            "INCONCLUSIVE network/inconclusive",
            "ESCAPED kernel/new",
        ];
        assert_eq!(told, wanted);
    }

    /// `Option` puts None first, which is how a sandbox comes before the trials of its verdict.
    #[test]
    fn the_higher_severity_comes_first() {
        let mut report = sample::empty();
        for severity in [Severity::Low, Severity::Critical, Severity::High] {
            let mut trial = sample::trial("a", "network/tcp", Verdict::Escaped);
            trial.source.severity = severity;
            report.trials.push(trial);
        }
        let told: Vec<Severity> = worst_first(&report)
            .iter()
            .map(|trial| trial.source.severity)
            .collect();
        assert_eq!(told, [Severity::Critical, Severity::High, Severity::Low]);
    }
}
