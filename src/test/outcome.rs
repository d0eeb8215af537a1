//! From the report to what each test came to, with the evidence as its message. Pure.

use std::collections::BTreeMap;

use super::selection::{Listed, Test};
use crate::record::test_name;
use crate::report::{Report, Style, human};
use crate::verdict::Verdict;

/// What each test came to, by name.
pub(super) struct Outcomes(BTreeMap<String, Result<(), String>>);

impl Outcomes {
    /// Without a report nothing was audited in this process.
    pub(super) fn of(listed: &Listed, report: Option<&Report>) -> Self {
        let outcomes = listed.tests().map(|test| {
            let outcome = match &test.case {
                Some(case) => of_case(&test.sandbox, case, report),
                None => of_gate(test, listed, report),
            };
            (test.name.clone(), outcome)
        });
        Self(outcomes.collect())
    }

    pub(super) fn get(&self, name: &str) -> Result<(), String> {
        let known = self.0.get(name).cloned();
        known.unwrap_or_else(|| Err("there is no such test".into()))
    }
}

/// The tests that pass although the sandbox did not hold, and by whose word.
pub(super) fn waived(report: Option<&Report>) -> Vec<(String, String)> {
    let trials = report.map_or(&[][..], |report| &report.trials);
    trials
        .iter()
        .filter_map(|trial| {
            let waived = trial.waived.as_ref()?;
            Some((test_name(&trial.sandbox, &trial.case), waived.to_string()))
        })
        .collect()
}

fn of_case(sandbox: &str, case: &str, report: Option<&Report>) -> Result<(), String> {
    let made = report.and_then(|report| {
        let mut trials = report.trials.iter();
        Some((
            report,
            trials.find(|trial| trial.sandbox == sandbox && trial.case == case)?,
        ))
    });
    let Some((report, trial)) = made else {
        let why = report.and_then(|report| report.incomplete.as_deref());
        return Err(why.unwrap_or("it was not audited").to_owned());
    };
    match trial.judgement.verdict {
        Verdict::Blocked | Verdict::Allowed => Ok(()),
        // The project file says so, and until when.
        _ if trial.waived.is_some() => Ok(()),
        // A runner has no word for it that is not green.
        Verdict::Skipped => Err(format!(
            "SKIPPED ({}): {}\nIt was not tried, so nothing is proven.",
            trial.judgement.reason, trial.judgement.sentence
        )),
        _ => Err(human::told(report, trial, Style::default())),
    }
}

/// Where cases of the sandbox were selected one has to have been tried; else there has to be one that could be.
fn of_gate(test: &Test, listed: &Listed, report: Option<&Report>) -> Result<(), String> {
    let sandbox = &test.sandbox;
    let trials = report.map_or(&[][..], |report| &report.trials);
    let mut made = trials
        .iter()
        .filter(|trial| trial.sandbox == *sandbox)
        .peekable();
    let tried = match made.peek() {
        Some(_) => made.any(|trial| trial.gates && trial.judgement.verdict != Verdict::Skipped),
        None => listed.tries_something(sandbox),
    };
    match tried {
        true => Ok(()),
        false => Err(format!(
            "no case that counts was tried in the sandbox `{sandbox}`, so nothing is proven"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BackendKind, Sandbox};
    use crate::plan::{Planned, Skip};
    use crate::report::sample;

    /// One sandbox, and what is planned for two cases of it: `network/a`, and `network/b`, which is skipped.
    fn listed(skip_all: bool) -> Listed {
        let cases = ["network/a", "network/b"]
            .map(|id| sample::trial("agent", id, Verdict::Blocked).source);
        let skip = || {
            Some(Skip {
                reason: "not-applicable",
                sentence: "no swap".into(),
            })
        };
        let planned = [0, 1].map(|case| Planned {
            sandbox: 0,
            case,
            skip: if case == 1 || skip_all { skip() } else { None },
            gates: true,
        });
        Listed::of(&planned, &cases, &[Sandbox::new("agent", BackendKind::Oci)])
    }

    fn report(verdicts: &[(&str, Verdict)]) -> Report {
        let mut report = sample::report();
        report.sandboxes = vec![sample::sandbox("agent")];
        report.trials = verdicts
            .iter()
            .map(|(id, verdict)| sample::trial("agent", id, *verdict))
            .collect();
        report
    }

    #[test]
    fn names_are_the_sandbox_and_the_case_and_skips_say_why() {
        let listed = listed(false);
        let names: Vec<&str> = listed.tests().map(|test| test.name.as_str()).collect();
        assert_eq!(
            names,
            ["agent::network/a", "agent::network/b", "agent::gate"]
        );
        assert_eq!(
            listed.why_ignored("agent::network/b"),
            Some("not-applicable: no swap")
        );
        assert_eq!(listed.why_ignored("agent::network/a"), None);
        let chosen = listed.trials(&["agent::gate", "agent::network/a"]);
        assert_eq!(chosen, [("agent".into(), "network/a".into())].into());
    }

    #[test]
    fn only_what_held_passes() {
        for verdict in Verdict::ALL {
            let report = report(&[("network/a", verdict)]);
            let outcomes = Outcomes::of(&listed(false), Some(&report));
            let passed = outcomes.get("agent::network/a");
            let held = matches!(verdict, Verdict::Blocked | Verdict::Allowed);
            assert_eq!(passed.is_ok(), held, "{verdict:?}");
            if let Err(message) = passed {
                assert!(message.contains(verdict.name()), "{message}");
            }
        }
    }

    #[test]
    fn what_the_project_waives_does_not_fail() {
        let mut report = sample::waived();
        report.trials.truncate(7);
        let trial = &mut report.trials[6];
        assert!(trial.waived.is_some());
        (trial.sandbox, trial.case) = ("agent".into(), "network/a".into());
        let outcome =
            |report: &Report| Outcomes::of(&listed(false), Some(report)).get("agent::network/a");
        assert!(outcome(&report).is_ok());
        report.trials[6].waived = None;
        assert!(outcome(&report).is_err());
    }

    #[test]
    fn what_was_not_audited_fails() {
        let outcomes = Outcomes::of(&listed(false), None);
        assert!(outcomes.get("agent::network/a").is_err());
        assert!(outcomes.get("agent::no/such").is_err());
        let outcomes = Outcomes::of(&listed(false), Some(&report(&[])));
        assert!(outcomes.get("agent::network/a").is_err());
    }

    #[test]
    fn the_gate_fails_where_nothing_is_tried() {
        let gate = |skip_all, report: Option<&Report>| {
            Outcomes::of(&listed(skip_all), report).get("agent::gate")
        };
        assert!(gate(false, None).is_ok());
        assert!(gate(true, None).is_err());
        assert!(
            gate(false, Some(&report(&[("network/a", Verdict::Escaped)]))).is_ok(),
            "the case's own test fails"
        );
        assert!(gate(false, Some(&report(&[("network/b", Verdict::Skipped)]))).is_err());
        let mut experimental = report(&[("network/a", Verdict::Blocked)]);
        experimental.trials[0].gates = false;
        assert!(gate(false, Some(&experimental)).is_err());
    }
}
