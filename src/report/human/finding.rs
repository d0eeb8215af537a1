//! What went wrong, worst first: what happened, the evidence, why it matters, what to do.

use std::cmp::Reverse;
use std::io;

use super::page::Page;
use crate::case::Severity;
use crate::protection::{PROTECTIONS, Protection};
use crate::report::line::why_it_does_not_gate;
use crate::report::style::{Ink, ink};
use crate::report::{Report, SandboxReport, Trial};
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// Pieces of evidence that are told; the others stand in the JSON report.
const EVIDENCE: usize = 5;
/// Characters of one piece of evidence, and of what was printed.
const PIECE: usize = 300;

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
                !trial.counts(),
                Reverse(trial.judgement.verdict),
                Some(Reverse(trial.source.severity)),
            ),
            // Before the other errors: nothing at all is known of this sandbox.
            Self::NotAudited(..) => (false, Reverse(Verdict::Error), None),
        }
    }
}

pub(super) fn write_all(page: &mut Page<'_>, report: &Report) -> io::Result<()> {
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
    findings.sort_by_key(Finding::rank);
    for finding in findings {
        match finding {
            Finding::Trial(trial) => write_trial(page, trial, report)?,
            Finding::NotAudited(sandbox, why) => {
                let name = SafeText::line(&sandbox.sandbox.name);
                head(page, Verdict::Error, name.as_str(), "could not be audited")?;
                page.row("what", why, Ink::Plain)?;
            }
        }
        page.line("")?;
    }
    Ok(())
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
        Verdict::Escaped => advice(page, trial, report),
        Verdict::Broken => printed(page, trial).and_then(|()| advice(page, trial, report)),
        _ => printed(page, trial),
    }
}

fn advice(page: &mut Page<'_>, trial: &Trial, report: &Report) -> io::Result<()> {
    page.row("why", &trial.source.why, Ink::Plain)?;
    let sandbox = report
        .sandboxes
        .iter()
        .find(|s| s.sandbox.name == trial.sandbox);
    let backend = sandbox.map_or("", |s| s.sandbox.backend.name());
    let holding = trial.source.weakened.for_backend(backend);
    if trial.judgement.verdict == Verdict::Escaped && !holding.is_empty() {
        page.row("missing", &protections(holding), Ink::Plain)?;
    }
    page.row("fix", &trial.source.fix, Ink::Plain)
}

/// The protections that would have held it: `network (a network namespace with nothing but loopback)`.
fn protections(set: &[Protection]) -> String {
    let meant = PROTECTIONS
        .iter()
        .filter(|(protection, ..)| set.contains(protection));
    let told: Vec<_> = meant
        .map(|(_, name, meaning)| format!("{name} ({meaning})"))
        .collect();
    match told.len() {
        0 | 1 => told.concat(),
        // Which of them suffices depends on the kernel and on the user.
        _ => format!("any one of {}", told.join(", ")),
    }
}

/// Where something went wrong, the reason is often to be found in what the launcher printed.
fn printed(page: &mut Page<'_>, trial: &Trial) -> io::Result<()> {
    let inside = &trial.observed.inside;
    for (label, bytes) in [
        ("stderr", &inside.error_head),
        ("stdout", &inside.output_head),
    ] {
        let text = SafeText::line_within(bytes.trim_ascii(), PIECE);
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
