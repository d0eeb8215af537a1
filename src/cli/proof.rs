//! What `prove` says: for each set of protections, whether the cases that name it get through without it.

use std::io::{self, Write};

use crate::exit_code;
use crate::report::style::{Ink, Style};
use crate::report::{Report, Trial};
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// How many cases were shown to be able to fail, and how many of those that gate were not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Proof {
    proven: usize,
    skipped: usize,
    unproven: usize,
}

impl Proof {
    /// Of the report of an audit in which each sandbox lacks just what the case names.
    pub fn of(report: &Report) -> Self {
        let count = |wanted: fn(&Trial) -> bool| report.trials.iter().filter(|t| wanted(t)).count();
        Self {
            proven: count(is_proven),
            skipped: count(is_skipped),
            unproven: count(|trial| trial.gates && !is_proven(trial) && !is_skipped(trial)),
        }
    }

    /// What `prove` exits with, when it came to its end.
    pub fn exit_code(self) -> i32 {
        match self {
            Self { unproven: 1.., .. } => exit_code::ESCAPED,
            Self { proven: 0, .. } => exit_code::NOTHING_RAN,
            _ => exit_code::HELD,
        }
    }
}

/// Writes the proof.
pub fn write(report: &Report, out: &mut dyn Write, style: Style) -> io::Result<()> {
    for sandbox in &report.sandboxes {
        writeln!(out, "{}", style.paint(Ink::Bold, &sandbox.sandbox.name))?;
        for trial in report
            .trials
            .iter()
            .filter(|t| t.sandbox == sandbox.sandbox.name)
        {
            let (word, ink) = match trial.judgement.verdict {
                Verdict::Escaped => ("proven", Ink::Green),
                Verdict::Skipped => ("skipped", Ink::Yellow),
                _ => ("NOT PROVEN", Ink::Red),
            };
            write!(
                out,
                "  {} {}",
                style.paint(ink, format!("{word:<10}")),
                trial.case
            )?;
            match trial.judgement.verdict {
                Verdict::Escaped => writeln!(out)?,
                other => writeln!(
                    out,
                    ": {} ({}): {}",
                    other.name(),
                    trial.judgement.reason,
                    SafeText::line(trial.judgement.sentence.as_bytes())
                )?,
            }
        }
    }
    let proof = Proof::of(report);
    let skipped = match proof.skipped {
        0 => String::new(),
        count => format!(", {count} could not be tried here"),
    };
    writeln!(
        out,
        "\n{} of {} cases are shown to be able to fail{skipped}",
        proof.proven,
        report.trials.len()
    )?;
    if proof.unproven > 0 {
        writeln!(
            out,
            "help: where it says NOT PROVEN, the set in `[weakened]` is too small, or the case tests nothing"
        )?;
    }
    if report.trials.is_empty() {
        writeln!(
            out,
            "help: only cases that must be blocked and name a set in `[weakened]` can be proven; none was selected"
        )?;
    }
    if let Some(why) = &report.incomplete {
        writeln!(out, "{why}")?;
    }
    Ok(())
}

fn is_proven(trial: &Trial) -> bool {
    trial.judgement.verdict == Verdict::Escaped
}

/// A skip says that this machine cannot show it; it proves nothing and accuses nobody.
fn is_skipped(trial: &Trial) -> bool {
    trial.judgement.verdict == Verdict::Skipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use Verdict::{Blocked, Escaped, Inconclusive, Skipped};

    fn exit_code(verdicts: &[Verdict]) -> i32 {
        let mut report = sample::empty();
        let trials = verdicts
            .iter()
            .map(|v| sample::trial("a", "network/tcp", *v));
        report.trials = trials.collect();
        Proof::of(&report).exit_code()
    }

    #[test]
    fn what_is_not_proven_is_explained() {
        let said = |verdict: Option<Verdict>| {
            let mut report = sample::empty();
            report.sandboxes = vec![sample::sandbox("a")];
            let trials = verdict.map(|v| sample::trial("a", "network/tcp", v));
            report.trials = trials.into_iter().collect();
            let mut out = Vec::new();
            write(&report, &mut out, Style::default()).expect("a Vec takes everything");
            String::from_utf8(out).expect("UTF-8")
        };
        assert!(said(Some(Blocked)).contains("help: where it says NOT PROVEN"));
        assert!(said(None).contains("none was selected"));
        assert!(!said(Some(Escaped)).contains("help: "));
    }

    #[test]
    fn only_an_escape_proves_that_a_case_can_fail() {
        assert_eq!(exit_code(&[Escaped]), 0);
        assert_eq!(exit_code(&[Escaped, Skipped]), 0);
        assert_eq!(exit_code(&[Escaped, Blocked]), 1);
        assert_eq!(exit_code(&[Inconclusive]), 1);
        assert_eq!(exit_code(&[Skipped]), 4);
        assert_eq!(exit_code(&[]), 4);
    }
}
