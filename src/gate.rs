//! Report → decision → exit code: pure, and the only place that decides whether a build may go on.

use crate::exit_code;
use crate::report::{Report, Trial};
use crate::verdict::Verdict;

/// What the program exits with, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// One of [`exit_code`]'s.
    pub exit_code: i32,
    /// What it says.
    pub sentence: &'static str,
}

/// What ended the run before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// SIGHUP.
    HangUp,
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// Decides. `report.exit_code` is not read.
pub fn decide(report: &Report, interrupted: Option<Interrupted>) -> Decision {
    let exit_code = match interrupted {
        Some(Interrupted::HangUp) => exit_code::HUNG_UP,
        Some(Interrupted::Interrupt) => exit_code::INTERRUPTED,
        Some(Interrupted::Terminate) => exit_code::TERMINATED,
        None => decide_complete(report),
    };
    Decision {
        exit_code,
        sentence: exit_code::sentence(exit_code),
    }
}

fn decide_complete(report: &Report) -> i32 {
    let any =
        |wanted: &[Verdict]| gating(report).any(|trial| wanted.contains(&trial.judgement.verdict));
    let not_audited = report.sandboxes.iter().any(|s| s.failed.is_some());
    if any(&[Verdict::Escaped, Verdict::Broken]) {
        exit_code::ESCAPED
    } else if any(&[Verdict::Inconclusive, Verdict::Error])
        || not_audited
        || report.incomplete.is_some()
    {
        exit_code::UNDECIDED
    } else if nothing_ran(report) {
        exit_code::NOTHING_RAN
    } else {
        exit_code::HELD
    }
}

/// Each sandbox has to have met something: one in which every case was skipped would be the easiest false green.
fn nothing_ran(report: &Report) -> bool {
    let ran_in = |name: &str| {
        gating(report)
            .any(|trial| trial.sandbox == name && trial.judgement.verdict != Verdict::Skipped)
    };
    report.sandboxes.is_empty() || !report.sandboxes.iter().all(|s| ran_in(&s.sandbox.name))
}

fn gating(report: &Report) -> impl Iterator<Item = &Trial> {
    report.trials.iter().filter(|trial| trial.gates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use Verdict::*;

    fn code(trials: &[(&str, Verdict, bool)]) -> i32 {
        decide(&report(trials), None).exit_code
    }

    /// Two sandboxes, `a` and `b`; `b` held unless it is named.
    fn report(trials: &[(&str, Verdict, bool)]) -> Report {
        let mut report = sample::empty();
        report.sandboxes = vec![sample::sandbox("a"), sample::sandbox("b")];
        for (sandbox, verdict, gates) in trials {
            let mut trial = sample::trial(sandbox, "network/tcp", *verdict);
            trial.gates = *gates;
            report.trials.push(trial);
        }
        if !trials.iter().any(|(sandbox, ..)| *sandbox == "b") {
            report
                .trials
                .push(sample::trial("b", "network/tcp", Blocked));
        }
        report
    }

    #[test]
    fn the_worst_verdict_decides() {
        let table: &[(&[Verdict], i32)] = &[
            (&[Blocked], 0),
            (&[Allowed], 0),
            (&[Blocked, Skipped, Allowed], 0),
            (&[Escaped], 1),
            (&[Broken], 1),
            (&[Escaped, Error, Inconclusive, Skipped, Blocked], 1),
            (&[Broken, Error], 1),
            (&[Inconclusive], 3),
            (&[Error], 3),
            (&[Blocked, Inconclusive], 3),
            (&[Skipped, Error], 3),
            (&[Skipped], 4),
            (&[Skipped, Skipped], 4),
            (&[], 4),
        ];
        for (verdicts, expected) in table {
            let trials: Vec<_> = verdicts.iter().map(|v| ("a", *v, true)).collect();
            assert_eq!(code(&trials), *expected, "{verdicts:?}");
            let reversed: Vec<_> = trials.into_iter().rev().collect();
            assert_eq!(code(&reversed), *expected, "{verdicts:?}, reversed");
        }
    }

    #[test]
    fn what_does_not_gate_neither_fails_nor_counts_as_run() {
        for verdict in Verdict::ALL {
            assert_eq!(code(&[("a", Blocked, true), ("a", verdict, false)]), 0);
            assert_eq!(code(&[("a", verdict, false)]), 4);
        }
    }

    #[test]
    fn one_sandbox_does_not_hide_another() {
        assert_eq!(code(&[("a", Blocked, true), ("b", Skipped, true)]), 4);
        assert_eq!(code(&[("a", Blocked, true), ("b", Escaped, true)]), 1);
        let mut failed = report(&[("a", Blocked, true)]);
        failed.sandboxes[1].failed = Some("runsc is not registered".into());
        assert_eq!(decide(&failed, None).exit_code, 3);
        failed.trials[0].judgement.verdict = Escaped;
        assert_eq!(decide(&failed, None).exit_code, 1);
    }

    #[test]
    fn a_report_without_sandboxes_or_without_an_end_is_never_green() {
        assert_eq!(decide(&sample::empty(), None).exit_code, 4);
        let mut cut = report(&[("a", Blocked, true)]);
        cut.incomplete = Some("the daemon went away".into());
        assert_eq!(decide(&cut, None).exit_code, 3);
    }

    #[test]
    fn an_interruption_outranks_every_verdict() {
        for (interrupted, expected) in [
            (Interrupted::HangUp, 129),
            (Interrupted::Interrupt, 130),
            (Interrupted::Terminate, 143),
        ] {
            for verdict in Verdict::ALL {
                let report = report(&[("a", verdict, true)]);
                let decision = decide(&report, Some(interrupted));
                assert_eq!(decision.exit_code, expected);
                assert_eq!(decision.sentence, exit_code::sentence(expected));
            }
        }
    }
}
