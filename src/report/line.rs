//! One trial on one line: what the live progress and the report for people share.

use super::style::{Ink, Style, ink, time};
use super::{Report, Trial};
use crate::case::Status;
use crate::safe_text::SafeText;

/// The longest verdict's name.
const VERDICT: usize = "INCONCLUSIVE".len();

/// How wide the columns are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    case: usize,
    reason: usize,
}

impl Columns {
    /// Where not all trials are known yet.
    pub const LIVE: Self = Self {
        case: 34,
        reason: 22,
    };

    /// As wide as the report's trials need.
    pub fn of(report: &Report) -> Self {
        let widest = |length: &dyn Fn(&Trial) -> usize, most: usize| {
            report
                .trials
                .iter()
                .map(length)
                .max()
                .unwrap_or(0)
                .min(most)
        };
        Self {
            case: widest(&|trial| trial.case.chars().count(), 44),
            reason: widest(&|trial| reason(trial).chars().count(), 30),
        }
    }
}

/// Mark, verdict, case, reason, time.
pub fn trial(trial: &Trial, columns: Columns, style: Style) -> String {
    let verdict = trial.judgement.verdict;
    format!(
        "{} {}  {:case$}  {:reason$}  {}",
        style.paint(ink(verdict), style.mark(verdict)),
        style.paint(ink(verdict), format!("{:VERDICT$}", verdict.name())),
        SafeText::line_within(&trial.case, 60),
        reason(trial),
        style.paint(Ink::Dim, format!("{:>7}", time(trial.duration))),
        case = columns.case,
        reason = columns.reason,
    )
}

/// The reason code, with what restricts the verdict.
pub fn reason(trial: &Trial) -> String {
    let mut reason = trial.judgement.reason.to_owned();
    if trial.judgement.inside_only {
        reason.push_str(" inside-only");
    }
    if let Some(why) = why_it_does_not_gate(trial) {
        reason.push_str(&format!(" ({why})"));
    }
    reason
}

/// Why the verdict does not count, if it does not, in a word or two.
pub fn why_it_does_not_gate(trial: &Trial) -> Option<&'static str> {
    match trial.source.status {
        _ if trial.waived.is_some() => Some("waived"),
        _ if trial.tolerated => Some("below --fail-on"),
        _ if trial.gates => None,
        Status::Experimental => Some("experimental"),
        Status::Stable => Some("above the level"),
    }
}
