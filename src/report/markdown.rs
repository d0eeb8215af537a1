//! The report as Markdown, for a job's summary or a comment: what came of it, what went wrong, worst first, and the rest
//! folded away.
//!
//! GitHub refuses a summary of more than a mebibyte whole, so that this one ends before; it begins with the worst, and
//! says how much it leaves out.

mod text;

use std::collections::BTreeMap;
use std::io::{self, Write};

use self::text::{Code, Html, Md};
use super::decided::Weight;
use super::standing::{self, Finding, Standing, findings};
use super::style::{plural, time, word};
use super::{Report, SandboxReport, Trial, advice, printed, repeat};
use crate::exit_code;
use crate::verdict::Verdict;

/// Bytes of the whole.
const LIMIT: usize = 900 * 1024;
/// Bytes that are kept for the last words.
const LAST_WORDS: usize = 1024;
/// Characters of a cell, and of a paragraph.
const CELL: usize = 300;
const PARAGRAPH: usize = 2000;
/// Characters of what was printed.
const PRINTED: usize = 2000;
/// Pieces of evidence.
const EVIDENCE: usize = 20;

/// Writes the report.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(page(report, LIMIT).as_bytes())
}

fn page(report: &Report, limit: usize) -> String {
    let mut page = Page {
        text: head(report),
        room: limit - LAST_WORDS,
        left_out: BTreeMap::new(),
    };
    let findings = findings(report);
    if !findings.is_empty() {
        page.text.push_str(
            "\n### What went wrong\n\n| verdict | sandbox | case | severity | what |\n|---|---|---|---|---|\n",
        );
    }
    for finding in &findings {
        page.add("lines of what went wrong", || row(finding));
    }
    page.text.push('\n');
    for finding in &findings {
        if let Finding::Trial(trial) = finding {
            page.add("details of what went wrong", || details(trial, report));
        }
    }
    for sandbox in &report.sandboxes {
        page.add("sandboxes", || of_sandbox(report, sandbox));
    }
    page.ended(report)
}

/// What came of it, and what is to be known before anything else.
fn head(report: &Report) -> String {
    let mark = match report.gate.exit_code {
        exit_code::HELD => "✅",
        exit_code::ESCAPED => "❌",
        _ => "⚠️",
    };
    let sentence = Md(&report.gate.sentence, PARAGRAPH);
    let counts: Vec<String> = Verdict::ALL
        .into_iter()
        .rev()
        .map(|verdict| (verdict, report.summary.count(verdict)))
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| match verdict.escapes() {
            true => format!("**{count} {}**", verdict.name().to_lowercase()),
            false => format!("{count} {}", verdict.name().to_lowercase()),
        })
        .collect();
    let mut text = format!("## {mark} escape-audit: {sentence}\n\n");
    if !counts.is_empty() {
        text.push_str(&format!("{}: ", counts.join(" · ")));
    }
    text.push_str(&format!(
        "{} of a library of {}, in {}, {}.\n",
        plural(report.summary.total, "trial", "trials"),
        plural(report.tool.cases, "case", "cases"),
        time(report.elapsed),
        report.started,
    ));
    if let Some(why) = &report.incomplete {
        text.push_str(&format!("\n**⚠️ Incomplete:** {}\n", Md(why, PARAGRAPH)));
    }
    for remark in &report.gate.remarks {
        if remark.weight != Weight::Fails {
            text.push_str(&format!(
                "\n**Note:** {}\n",
                Md(&remark.sentence, PARAGRAPH)
            ));
        }
    }
    text
}

/// A page that ends before it is too long.
struct Page {
    text: String,
    room: usize,
    /// Of what, and how many.
    left_out: BTreeMap<&'static str, usize>,
}

impl Page {
    /// Adds a block that stands for itself, if there is room for it, and for none after one that had none.
    fn add(&mut self, what: &'static str, block: impl FnOnce() -> String) {
        if !self.left_out.contains_key(what) {
            let block = block();
            if self.text.len() + block.len() <= self.room {
                self.text.push_str(&block);
                return;
            }
        }
        *self.left_out.entry(what).or_default() += 1;
    }

    fn ended(mut self, report: &Report) -> String {
        if !self.left_out.is_empty() {
            let left_out: Vec<String> = self
                .left_out
                .iter()
                .map(|(what, count)| format!("{count} {what}"))
                .collect();
            self.text.push_str(&format!(
                "\n**Left out here, for want of room:** {}. The other reports have them.\n",
                left_out.join(", ")
            ));
        }
        self.text.push_str(&format!(
            "\n<sub>{} {}, library {}</sub>\n",
            report.tool.name,
            report.tool.version,
            Html(&report.tool.library, 12),
        ));
        self.text
    }
}

fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allowed | Verdict::Blocked => "✅",
        Verdict::Skipped => "⏭️",
        Verdict::Inconclusive => "❔",
        Verdict::Error => "⚠️",
        Verdict::Broken | Verdict::Escaped => "❌",
    }
}

fn row(finding: &Finding<'_>) -> String {
    match finding {
        Finding::NotAudited(sandbox, why) => format!(
            "| {} ERROR | {} | | | could not be audited: {} |\n",
            mark(Verdict::Error),
            Md(&sandbox.sandbox.name, CELL),
            Md(why, CELL),
        ),
        Finding::Gate(remark) => format!(
            "| {} {} | {} | {} | | {} |\n",
            mark(Verdict::Error),
            remark.code,
            Md(remark.sandbox.as_deref().unwrap_or_default(), CELL),
            remark
                .case
                .as_deref()
                .map_or_else(String::new, |case| Code(case, CELL).to_string()),
            Md(&remark.sentence, PARAGRAPH),
        ),
        Finding::Trial(trial) => {
            let (case, judgement) = (&trial.source, &trial.judgement);
            let note = standing::of(trial)
                .excuse()
                .map_or_else(String::new, |why| format!(" ({})", Md(&why, CELL)));
            format!(
                "| {} {}{note} | {} | {} | {} | {} |\n",
                mark(judgement.verdict),
                judgement.verdict.name(),
                Md(&trial.sandbox, CELL),
                Code(&trial.case, CELL),
                word(case.severity),
                Md(&judgement.sentence, CELL),
            )
        }
    }
}

/// All that a person needs to act, folded.
fn details(trial: &Trial, report: &Report) -> String {
    let (case, judgement) = (&trial.source, &trial.judgement);
    let mut text = format!(
        "<details><summary>{} <b>{}</b> {} · {} ({}, {})</summary>\n\n",
        mark(judgement.verdict),
        judgement.verdict.name(),
        Html(&trial.sandbox, CELL),
        Html(&trial.case, CELL),
        word(case.severity),
        judgement.reason,
    );
    let mut row = |label: &str, value: &str| {
        text.push_str(&format!("**{label}** {}\n\n", Md(value, PARAGRAPH)));
    };
    row("Tried:", &case.title);
    row("What happened:", &judgement.sentence);
    if judgement.verdict.escapes() {
        row("Why it matters:", &case.why);
        let holding = advice::holding(trial, report);
        if !holding.is_empty() {
            row("What would have held it:", &advice::told(&holding));
        }
        row("Fix:", &case.fix);
    }
    if !judgement.evidence.is_empty() {
        text.push_str("**Evidence:**\n\n");
    }
    for piece in judgement.evidence.iter().take(EVIDENCE) {
        text.push_str(&format!("- {}\n", Md(piece, PARAGRAPH)));
    }
    let more = judgement.evidence.len().saturating_sub(EVIDENCE);
    if more > 0 {
        text.push_str(&format!("- and {more} more\n"));
    }
    text.push('\n');
    let inside = &trial.observed.inside;
    for (label, said) in [
        ("It printed", &inside.output),
        ("On standard error", &inside.error),
    ] {
        if !said.is_empty() {
            text.push_str(&format!(
                "**{label}:**\n\n{}\n\n",
                text::pre(&printed::block(said), PRINTED)
            ));
        }
    }
    if let Some(sandbox) = report.sandbox_of(trial) {
        let command = repeat::command(trial, sandbox);
        text.push_str(&format!(
            "**To repeat it:** {}\n\n",
            Code(&command, PARAGRAPH)
        ));
    }
    text.push_str("</details>\n\n");
    text
}

/// A sandbox, folded: what was in force, and every trial in it on a line.
fn of_sandbox(report: &Report, sandbox: &SandboxReport) -> String {
    let trials: Vec<&Trial> = report
        .trials
        .iter()
        .filter(|trial| trial.sandbox == sandbox.sandbox.name)
        .collect();
    let held = |trial: &&&Trial| matches!(standing::of(trial), Standing::Held);
    let mut text = format!(
        "<details><summary>Sandbox <b>{}</b> ({}): {} of {} held</summary>\n\n",
        Html(&sandbox.sandbox.name, CELL),
        sandbox.sandbox.backend.name(),
        trials.iter().filter(held).count(),
        trials.len(),
    );
    if let Some(digest) = &sandbox.digest {
        text.push_str(&format!("**Digest:** {}\n\n", Code(digest, CELL)));
    }
    for note in &sandbox.notes {
        text.push_str(&format!("**⚠️ Note:** {}\n\n", Md(note, PARAGRAPH)));
    }
    if !sandbox.in_force.is_empty() {
        text.push_str("| in force | |\n|---|---|\n");
    }
    for (name, value) in &sandbox.in_force {
        text.push_str(&format!("| {} | {} |\n", Md(name, CELL), Md(value, CELL)));
    }
    if !trials.is_empty() {
        text.push_str("\n| verdict | case | reason | time |\n|---|---|---|---|\n");
    }
    for trial in trials {
        let judgement = &trial.judgement;
        let reason = match judgement.verdict {
            Verdict::Skipped => format!("{}: {}", judgement.reason, Md(&judgement.sentence, CELL)),
            _ => super::line::reason(trial),
        };
        text.push_str(&format!(
            "| {} {} | {} | {reason} | {} |\n",
            mark(judgement.verdict),
            judgement.verdict.name(),
            Code(&trial.case, CELL),
            time(trial.duration),
        ));
    }
    text.push_str("\n</details>\n\n");
    text
}

#[cfg(test)]
mod tests;
