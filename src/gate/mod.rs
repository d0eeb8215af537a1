//! Report → decision → exit code: pure, and the only place that decides whether a build may go on.
//!
//! Nothing in here lowers a verdict. A waiver and `--fail-on` excuse an escape, which stays ESCAPED in the report; neither
//! excuses what could not be decided.

pub mod baseline;
pub mod baseline_file;
pub mod diff;
mod waivers;

use self::baseline::Baseline;
use crate::case::Severity;
use crate::config::{Date, Waiver};
use crate::exit_code;
use crate::report::decided::{Decided, Remark, Weight};
use crate::report::saved::Saved;
use crate::report::{Report, SandboxReport, Trial};
use crate::verdict::Verdict;

/// What the gate is told beside the report.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Today, in UTC: the gate has no clock.
    pub today: Date,
    /// The escapes that are known of and lived with.
    pub waivers: Vec<Waiver>,
    /// What held before.
    pub baseline: Option<Baseline>,
    /// An escape of a lower severity does not fail.
    pub fail_on: Severity,
    /// What becomes of a sandbox for which no case was selected.
    pub no_tests: NoTests,
    /// The exit code is 0, whatever was found.
    pub no_fail: bool,
}

impl Rules {
    /// Nothing is excused.
    pub fn strict(today: Date) -> Self {
        Self {
            today,
            waivers: Vec::new(),
            baseline: None,
            fail_on: Severity::Info,
            no_tests: NoTests::Fail,
            no_fail: false,
        }
    }
}

/// What becomes of a sandbox for which no case was selected. One in which every case was skipped always fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTests {
    /// Exit code 4.
    Fail,
    /// A warning.
    Warn,
    /// A note.
    Pass,
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

/// Decides, and writes into the report what was decided: the exit code, what is excused and by whose word, and what the
/// gate has to say. What stood there before is not read.
pub fn settle(report: &mut Report, rules: &Rules, interrupted: Option<Interrupted>) {
    let mut remarks = waivers::apply(report, rules);
    tolerate(report, rules);
    if let Some(baseline) = &rules.baseline {
        remarks.extend(baseline.check(&Saved::of(report)));
    }
    remarks.extend(not_selected(report, rules));
    remarks.sort_by_key(|remark| remark.weight);

    let decided = match interrupted {
        Some(Interrupted::HangUp) => exit_code::HUNG_UP,
        Some(Interrupted::Interrupt) => exit_code::INTERRUPTED,
        Some(Interrupted::Terminate) => exit_code::TERMINATED,
        None => decide_complete(report, rules, &remarks),
    };
    report.exit_code = match interrupted {
        None if rules.no_fail => exit_code::HELD,
        _ => decided,
    };
    report.gate = Decided {
        today: Some(rules.today),
        fail_on: rules.fail_on,
        no_fail: rules.no_fail,
        exit_code: decided,
        sentence: sentence(report, rules, decided),
        remarks,
    };
}

/// Holds a report that was written before against a baseline: the exit code, and what is to be said. What the report itself
/// came to counts too, `--no-fail` aside.
pub fn check_saved(baseline: &Baseline, saved: &Saved) -> (i32, Vec<Remark>) {
    let mut remarks = baseline.check(saved);
    remarks.sort_by_key(|remark| remark.weight);
    let any = |wanted: &[Verdict]| {
        let mut counted = saved.trials.iter().filter(|trial| trial.counts());
        counted.any(|trial| wanted.contains(&trial.verdict))
    };
    let worse = remarks.iter().any(|remark| remark.code == baseline::WORSE);
    let fails = remarks.iter().any(|remark| remark.weight == Weight::Fails);
    let code = match saved.gate.exit_code {
        exit_code::ESCAPED => exit_code::ESCAPED,
        _ if worse || any(&[Verdict::Escaped, Verdict::Broken]) => exit_code::ESCAPED,
        _ if fails || any(&[Verdict::Inconclusive, Verdict::Error]) => exit_code::UNDECIDED,
        code @ (exit_code::HELD | exit_code::NOTHING_RAN) if saved.incomplete.is_none() => code,
        // Undecided, or interrupted.
        _ => exit_code::UNDECIDED,
    };
    (code, remarks)
}

/// Marks the escapes that are below what fails. What must work and does not always fails, and so does what held before.
fn tolerate(report: &mut Report, rules: &Rules) {
    for trial in &mut report.trials {
        trial.tolerated = trial.judgement.verdict == Verdict::Escaped
            && trial.gates
            && trial.waived.is_none()
            && trial.source.severity < rules.fail_on
            && !(rules.baseline.as_ref())
                .is_some_and(|baseline| baseline.held(&trial.sandbox, &trial.case));
    }
}

fn decide_complete(report: &Report, rules: &Rules, remarks: &[Remark]) -> i32 {
    let any = |wanted: &[Verdict]| {
        let mut counted = report.trials.iter().filter(|trial| trial.counts());
        counted.any(|trial| wanted.contains(&trial.judgement.verdict))
    };
    let not_audited = report.sandboxes.iter().any(|s| s.failed.is_some());
    if any(&[Verdict::Escaped, Verdict::Broken]) {
        exit_code::ESCAPED
    } else if any(&[Verdict::Inconclusive, Verdict::Error])
        || not_audited
        || report.incomplete.is_some()
        || remarks.iter().any(|remark| remark.weight == Weight::Fails)
    {
        exit_code::UNDECIDED
    } else if nothing_ran(report, rules) {
        exit_code::NOTHING_RAN
    } else {
        exit_code::HELD
    }
}

/// Each sandbox has to have met something: one in which every case was skipped would be the easiest false green.
fn nothing_ran(report: &Report, rules: &Rules) -> bool {
    let ran_in = |name: &str| {
        let mut gating = report.trials.iter().filter(|trial| trial.gates);
        gating.any(|trial| trial.sandbox == name && trial.judgement.verdict != Verdict::Skipped)
    };
    let passes = |sandbox: &SandboxReport| {
        ran_in(&sandbox.sandbox.name)
            || (rules.no_tests != NoTests::Fail && nothing_selected(report, sandbox))
    };
    report.sandboxes.is_empty() || !report.sandboxes.iter().all(passes)
}

fn nothing_selected(report: &Report, sandbox: &SandboxReport) -> bool {
    let is_here = |trial: &Trial| trial.sandbox == sandbox.sandbox.name;
    sandbox.failed.is_none() && !report.trials.iter().any(is_here)
}

fn not_selected(report: &Report, rules: &Rules) -> Vec<Remark> {
    let weight = match rules.no_tests {
        NoTests::Fail => return Vec::new(), // the exit code says it
        NoTests::Warn => Weight::Warning,
        NoTests::Pass => Weight::Note,
    };
    let empty = report
        .sandboxes
        .iter()
        .filter(|sandbox| nothing_selected(report, sandbox));
    empty
        .map(|sandbox| Remark {
            weight,
            code: "nothing-selected",
            sandbox: Some(sandbox.sandbox.name.clone()),
            case: None,
            sentence: "No case was selected, so nothing is proven; `--no-tests` lets that pass."
                .into(),
        })
        .collect()
}

/// What the exit code says of this audit: the table's sentence, and what it would leave unsaid.
fn sentence(report: &Report, rules: &Rules, decided: i32) -> String {
    let said = exit_code::sentence(decided);
    let count = |is: fn(&Trial) -> bool| report.trials.iter().filter(|trial| is(trial)).count();
    let waived = count(|trial| trial.waived.is_some());
    let tolerated = count(|trial| trial.tolerated);
    let mut excused = Vec::new();
    if waived > 0 {
        excused.push(format!("{waived} waived"));
    }
    if tolerated > 0 {
        let least = rules.fail_on.name();
        excused.push(format!("{tolerated} escaped below `--fail-on {least}`"));
    }
    let nothing = report.trials.iter().all(|trial| !trial.gates);
    let said = match decided {
        exit_code::HELD if nothing => "no case was selected, so nothing is proven".to_owned(),
        exit_code::HELD if !excused.is_empty() => {
            format!("{said}, but for {}", excused.join(" and "))
        }
        _ => said.to_owned(),
    };
    match rules.no_fail && decided != report.exit_code {
        true => format!("nothing fails under `--no-fail`; without it exit {decided}: {said}"),
        false => said,
    }
}

#[cfg(test)]
mod tests;
