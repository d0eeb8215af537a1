//! What went wrong, worst first: what happened, the evidence, why it matters, what to do.

use std::collections::BTreeMap;
use std::io;

use super::page::Page;
use crate::report::line::why_it_does_not_gate;
use crate::report::standing::{Finding, findings};
use crate::report::style::{Ink, ink, plural};
use crate::report::{Report, Trial, advice, repeat};
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// Pieces of evidence that are told; the others stand in the JSON report.
const EVIDENCE: usize = 5;
/// Characters of one piece of evidence, and of what was printed.
const PIECE: usize = 300;

pub(super) fn write_all(page: &mut Page<'_>, report: &Report) -> io::Result<()> {
    let mut told = BTreeMap::new();
    for trial in report.trials.iter().filter(|trial| broke_down(trial)) {
        *told.entry(breakdown(trial)).or_insert(0_usize) += 1;
    }
    for finding in findings(report) {
        match finding {
            // What broke down in the same way for all of them is told once: an engine that is gone, a mount that is not there.
            Finding::Trial(trial) if broke_down(trial) => match told.remove(&breakdown(trial)) {
                Some(count) => {
                    write_trial(page, trial, report)?;
                    if count > 1 {
                        let others = plural(count - 1, "other case", "other cases");
                        page.row(
                            "also",
                            &format!("{others} of this sandbox, in the same words"),
                            Ink::Plain,
                        )?;
                    }
                }
                None => continue,
            },
            Finding::Trial(trial) => write_trial(page, trial, report)?,
            Finding::NotAudited(sandbox, why) => {
                let name = SafeText::line(&sandbox.sandbox.name);
                head(page, Verdict::Error, name.as_str(), "could not be audited")?;
                page.row("what", why, Ink::Plain)?;
            }
            // All of the gate's remarks are told together.
            Finding::Gate(_) => continue,
        }
        page.line("")?;
    }
    Ok(())
}

/// The harness, the engine or the launcher failed, and nothing was printed that tells one case from another.
fn broke_down(trial: &Trial) -> bool {
    let inside = &trial.observed.inside;
    trial.judgement.verdict == Verdict::Error && inside.output.is_empty() && inside.error.is_empty()
}

fn breakdown(trial: &Trial) -> (&str, &str, &str) {
    let judgement = &trial.judgement;
    (&trial.sandbox, judgement.reason, &judgement.sentence)
}

pub(super) fn write_trial(page: &mut Page<'_>, trial: &Trial, report: &Report) -> io::Result<()> {
    let (case, judgement) = (&trial.source, &trial.judgement);
    let sandbox = SafeText::line(&trial.sandbox);
    let place = format!(
        "{sandbox}{}{}",
        page.style.dot(),
        SafeText::line(&trial.case)
    );
    let mut tags = format!("{:?}, {}", case.severity, judgement.reason).to_lowercase();
    if let Some(why) = why_it_does_not_gate(trial) {
        tags.push_str(&format!(", does not fail the build: {why}"));
    }
    head(page, judgement.verdict, &place, &tags)?;
    if let Some(waived) = &trial.waived {
        let text = waived.to_string();
        let text = text.strip_prefix("waived ").unwrap_or(&text);
        page.row("waived", text, Ink::Yellow)?;
    }
    page.row("tried", &case.title, Ink::Plain)?;
    page.row("what", &judgement.sentence, Ink::Plain)?;
    for (n, evidence) in judgement.evidence.iter().take(EVIDENCE).enumerate() {
        let label = if n == 0 { "evidence" } else { "" };
        let evidence = SafeText::line_within(evidence, PIECE);
        page.row(label, evidence.as_str(), Ink::Plain)?;
    }
    if judgement.evidence.len() > EVIDENCE {
        let more = judgement.evidence.len() - EVIDENCE;
        page.row("", &format!("and {more} more in the JSON report"), Ink::Dim)?;
    }
    match judgement.verdict {
        Verdict::Escaped => advice(page, trial, report)?,
        Verdict::Broken => {
            printed(page, trial)?;
            advice(page, trial, report)?;
        }
        _ => printed(page, trial)?,
    }
    match report.sandbox_of(trial) {
        Some(sandbox) => page.row("repeat", &repeat::command(trial, sandbox), Ink::Plain),
        None => Ok(()),
    }
}

fn advice(page: &mut Page<'_>, trial: &Trial, report: &Report) -> io::Result<()> {
    page.row("why", &trial.source.why, Ink::Plain)?;
    let holding = advice::holding(trial, report);
    if !holding.is_empty() {
        page.row("missing", &advice::told(&holding), Ink::Plain)?;
    }
    page.row("fix", &trial.source.fix, Ink::Plain)
}

/// Where something went wrong, the reason is often to be found in what the launcher printed.
fn printed(page: &mut Page<'_>, trial: &Trial) -> io::Result<()> {
    let inside = &trial.observed.inside;
    for (label, printed) in [("stderr", &inside.error), ("stdout", &inside.output)] {
        let text = SafeText::line_within(printed.head.trim_ascii(), PIECE);
        if !text.is_empty() {
            page.row(label, text.as_str(), Ink::Plain)?;
        }
    }
    Ok(())
}

fn head(page: &mut Page<'_>, verdict: Verdict, place: &str, tags: &str) -> io::Result<()> {
    let style = page.style;
    page.line(format_args!(
        "{} {}  {} {}",
        style.paint(ink(verdict), style.mark(verdict)),
        style.paint(ink(verdict), verdict.name()),
        style.paint(Ink::Bold, place),
        style.paint(Ink::Dim, format_args!("({tags})")),
    ))
}
