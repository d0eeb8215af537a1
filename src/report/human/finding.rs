//! What went wrong, worst first: what happened, the evidence, why it matters, what to do.

use std::cmp::Reverse;
use std::io::{self, Write};

use super::row;
use crate::case::Severity;
use crate::report::line::why_it_does_not_gate;
use crate::report::style::{Ink, Style, ink};
use crate::report::{Report, SandboxReport, Trial};
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// Pieces of evidence that are told; the others stand in the JSON report.
const EVIDENCE: usize = 5;
/// Characters of what was printed.
const PRINTED: usize = 300;

/// A trial, or a sandbox that could not be audited.
enum Finding<'a> {
    Trial(&'a Trial),
    NotAudited(&'a SandboxReport, &'a str),
}

impl Finding<'_> {
    /// Smallest first: what gates, the worse verdict, the higher severity.
    fn rank(&self) -> (bool, Reverse<Verdict>, Option<Reverse<Severity>>) {
        match self {
            Self::Trial(trial) => (
                !trial.gates,
                Reverse(trial.judgement.verdict),
                Some(Reverse(trial.source.severity)),
            ),
            // Before the other errors: nothing at all is known of this sandbox.
            Self::NotAudited(..) => (false, Reverse(Verdict::Error), None),
        }
    }
}

pub(super) fn write_all(report: &Report, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let trials = report
        .trials
        .iter()
        .filter(|trial| trial.judgement.verdict > Verdict::Skipped)
        .map(Finding::Trial);
    let sandboxes = report
        .sandboxes
        .iter()
        .filter_map(|sandbox| Some(Finding::NotAudited(sandbox, sandbox.failed.as_deref()?)));
    let mut findings: Vec<_> = trials.chain(sandboxes).collect();
    findings.sort_by_cached_key(Finding::rank);
    for finding in findings {
        match finding {
            Finding::Trial(trial) => write_trial(trial, out, style)?,
            Finding::NotAudited(sandbox, why) => {
                let name = SafeText::line(&sandbox.sandbox.name);
                head(
                    Verdict::Error,
                    name.as_str(),
                    "could not be audited",
                    out,
                    style,
                )?;
                row("what", why, Ink::Plain, out, style)?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_trial(trial: &Trial, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let (case, judgement) = (&trial.source, &trial.judgement);
    let verdict = judgement.verdict;
    let place = format!(
        "{}{}{}",
        SafeText::line(&trial.sandbox),
        style.dot(),
        SafeText::line(&trial.case)
    );
    let mut tags = format!("{:?}, {}", case.severity, judgement.reason).to_lowercase();
    if let Some(why) = why_it_does_not_gate(trial) {
        tags.push_str(&format!(", does not gate: {why}"));
    }
    head(verdict, &place, &tags, out, style)?;
    row("tried", &case.title, Ink::Plain, out, style)?;
    row("what", &judgement.sentence, Ink::Plain, out, style)?;
    for (n, evidence) in judgement.evidence.iter().take(EVIDENCE).enumerate() {
        row(
            if n == 0 { "evidence" } else { "" },
            evidence,
            Ink::Plain,
            out,
            style,
        )?;
    }
    if let Some(more) = judgement
        .evidence
        .len()
        .checked_sub(EVIDENCE)
        .filter(|n| *n > 0)
    {
        row(
            "",
            &format!("and {more} more in the JSON report"),
            Ink::Plain,
            out,
            style,
        )?;
    }
    // Who cannot tell why it was not decided finds it in what was printed.
    if verdict != Verdict::Escaped {
        printed("stderr", &trial.observed.inside.error_head, out, style)?;
        printed("stdout", &trial.observed.inside.output_head, out, style)?;
    }
    if matches!(verdict, Verdict::Escaped | Verdict::Broken) {
        row("why", &case.why, Ink::Plain, out, style)?;
        row("fix", &case.fix, Ink::Plain, out, style)?;
    }
    Ok(())
}

fn head(
    verdict: Verdict,
    place: &str,
    tags: &str,
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    writeln!(
        out,
        "{} {}  {} {}",
        style.paint(ink(verdict), style.mark(verdict)),
        style.paint(ink(verdict), verdict.name()),
        style.paint(Ink::Bold, place),
        style.paint(Ink::Dim, format!("({tags})")),
    )
}

fn printed(label: &str, bytes: &[u8], out: &mut dyn Write, style: Style) -> io::Result<()> {
    let text = SafeText::line_within(bytes.trim_ascii(), PRINTED);
    if text.is_empty() {
        return Ok(());
    }
    row(label, text.as_str(), Ink::Plain, out, style)
}
