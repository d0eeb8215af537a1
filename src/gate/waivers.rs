//! Which escapes are waived, and what is to be said of the waivers.
//!
//! A waiver excuses ESCAPED and BROKEN, and nothing else: what could not be decided is not known, and nobody can agree to
//! live with it.

use super::Rules;
use crate::config::{Date, Waiver};
use crate::report::decided::{Remark, Waived, Weight};
use crate::report::{Report, Trial};
use crate::verdict::Verdict;

/// A waiver that ends within so many days is spoken of.
const SOON: i64 = 14;

/// Marks the trials that are waived. Waivers for sandboxes that this audit is not about are left alone.
pub(super) fn apply(report: &mut Report, rules: &Rules) -> Vec<Remark> {
    for trial in &mut report.trials {
        trial.waived = None;
    }
    let mut remarks = Vec::new();
    for waiver in &rules.waivers {
        let here = report
            .sandboxes
            .iter()
            .find(|s| s.sandbox.name == waiver.sandbox);
        if let Some(sandbox) = here {
            let not_audited = sandbox.failed.is_some();
            remarks.extend(apply_one(report, waiver, rules.today, not_audited));
        }
    }
    remarks
}

fn apply_one(
    report: &mut Report,
    waiver: &Waiver,
    today: Date,
    not_audited: bool,
) -> Option<Remark> {
    let whole = report.selection.is_empty() && report.incomplete.is_none() && !not_audited;
    let is_meant =
        |trial: &&mut Trial| trial.case == waiver.case && trial.sandbox == waiver.sandbox;
    let meant: Vec<&mut Trial> = report.trials.iter_mut().filter(is_meant).collect();
    let worst = meant.iter().map(|trial| trial.judgement.verdict).max();
    let (case, sandbox, until) = (&waiver.case, &waiver.sandbox, waiver.until);
    let remark = |weight, code, sentence| {
        Some(Remark {
            weight,
            code,
            sandbox: Some(sandbox.clone()),
            case: Some(case.clone()),
            sentence,
        })
    };
    if today > until {
        let sentence = format!(
            "The waiver for `{case}` in `{sandbox}` ended on {until} and no longer counts. Remove it, or agree on \
             another day."
        );
        return remark(Weight::Fails, "waiver-expired", sentence);
    }
    let unused = |why: String| {
        let sentence =
            format!("The waiver for `{case}` in `{sandbox}` is not used: {why}. Remove it.");
        remark(Weight::Warning, "waiver-unused", sentence)
    };
    match worst {
        Some(Verdict::Escaped | Verdict::Broken) if meant.iter().all(|trial| !trial.gates) => {
            unused("the case does not gate".into())
        }
        Some(Verdict::Escaped | Verdict::Broken) => {
            for trial in meant {
                let excusable = [Verdict::Escaped, Verdict::Broken];
                trial.waived =
                    (trial.gates && excusable.contains(&trial.judgement.verdict)).then(|| Waived {
                        until,
                        reason: waiver.reason.clone(),
                        ticket: waiver.ticket.clone(),
                    });
            }
            let left = until.days() - today.days();
            let when = match left {
                0 => "today".to_owned(),
                1 => "tomorrow".to_owned(),
                days if days <= SOON => format!("in {days} days"),
                _ => return None,
            };
            let sentence = format!(
                "The waiver for `{case}` in `{sandbox}` ends {when}, on {until}. Then the build fails."
            );
            remark(Weight::Warning, "waiver-ends-soon", sentence)
        }
        Some(verdict @ (Verdict::Inconclusive | Verdict::Error)) => {
            let sentence = format!(
                "The waiver for `{case}` in `{sandbox}` does not help: it came to {}, and a waiver excuses ESCAPED and \
                 BROKEN alone.",
                verdict.name()
            );
            remark(Weight::Warning, "waiver-no-help", sentence)
        }
        Some(verdict @ (Verdict::Blocked | Verdict::Allowed)) => {
            unused(format!("the case came to {}", verdict.name()))
        }
        Some(Verdict::Skipped) => None,
        None if whole => unused("no such case is tried at this level".into()),
        None => None,
    }
}
