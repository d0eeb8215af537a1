//! What a trial means for the build: the one place where a verdict becomes green, red or grey, for every format alike.
//!
//! It decides nothing: the gate does, from the same report. A kind of trial that is neither red nor green is added here,
//! and the compiler then asks each format for the line that shows it.

use std::cmp::Reverse;

use super::decided::{Remark, Waived, Weight};
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
    /// It escaped, and the team lives with it for now.
    Waived(&'a Waived),
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
        _ if !trial.counts() => match &trial.waived {
            Some(waived) => Standing::Waived(waived),
            None => Standing::Silent(why_it_does_not_gate(trial).unwrap_or_default()),
        },
        Verdict::Inconclusive | Verdict::Error => Standing::Undecided,
        Verdict::Broken | Verdict::Escaped => Standing::Failed,
    }
}

impl Standing<'_> {
    /// Why something that came out badly does not fail the build. It may hold text of a user's.
    pub fn excuse(&self) -> Option<String> {
        match self {
            Self::Silent(why) => Some(format!("does not fail the build: {why}")),
            Self::Waived(waived) => Some(waived.to_string()),
            Self::Held | Self::Skipped | Self::Undecided | Self::Failed => None,
        }
    }
}

/// Where a trial stands in a list that begins with the worst: what counts, the worse verdict, the higher severity.
/// Smaller is worse.
pub fn rank(trial: &Trial) -> (bool, Reverse<Verdict>, Option<Reverse<Severity>>) {
    let silent = of(trial).excuse().is_some();
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
    /// What the gate found missing or wrong beside the verdicts, and the build fails for it.
    Gate(&'a Remark),
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
    let remarks = failing_remarks(report).map(Finding::Gate);
    let mut findings: Vec<_> = trials.chain(sandboxes).chain(remarks).collect();
    findings.sort_by_key(|finding| match finding {
        Finding::Trial(trial) => rank(trial),
        // Before the other errors: nothing at all is known of this sandbox.
        Finding::NotAudited(..) | Finding::Gate(_) => (false, Reverse(Verdict::Error), None),
    });
    findings
}

/// The gate's remarks that fail the build, but for those on a trial that fails it by itself: that is told once.
pub fn failing_remarks(report: &Report) -> impl Iterator<Item = &Remark> {
    report.gate.remarks.iter().filter(|remark| {
        let is_about = |trial: &&Trial| {
            Some(&trial.case) == remark.case.as_ref()
                && Some(&trial.sandbox) == remark.sandbox.as_ref()
        };
        let mut meant = report.trials.iter().filter(is_about);
        remark.weight == Weight::Fails && !meant.any(|trial| of(trial) == Standing::Failed)
    })
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
                Finding::Gate(remark) => remark.code.to_owned(),
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
