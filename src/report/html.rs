//! The report as one page for a browser: what came of it, each sandbox, and every trial, worst first, with its evidence,
//! why it matters and what to do. It can be filtered, and printed.
//!
//! The page is one file and asks for nothing else. Its policy lets the browser run the one script and use the one style
//! sheet whose hashes it names, and load nothing: text that got past the escaping could still do nothing.

mod text;
mod trial;

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

use self::text::{Prose, Text};
use super::decided::Weight;
use super::standing::{self, Standing, worst_first};
use super::style::{Style, plural, time, word};
use super::{Report, SandboxReport, Summary, Trial};
use crate::case::Severity;
use crate::exit_code;
use crate::verdict::Verdict;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Characters of a line and of a paragraph.
const LINE: usize = 300;
const PARAGRAPH: usize = 4000;
/// So many of what failed are unfolded from the start; more would bury each other.
const UNFOLDED: usize = 8;

/// Writes the report.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let hash = |text: &str| BASE64.encode(Sha256::digest(text));
    write!(
        out,
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>escape-audit: {}</title>
<style>{STYLE}</style>
</head>
<body>
"#,
        hash(STYLE),
        hash(SCRIPT),
        Text(&report.gate.sentence, PARAGRAPH),
    )?;
    head(report, out)?;
    writeln!(out, r#"<div class="wrap">"#)?;
    filters(report, out)?;
    main(report, out)?;
    footer(report, out)?;
    writeln!(out, "</div>\n<script>{SCRIPT}</script>\n</body>\n</html>")
}

/// The class that colours a verdict.
fn tone(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allowed | Verdict::Blocked => "tone-good",
        Verdict::Skipped => "tone-mute",
        Verdict::Inconclusive => "tone-warn",
        Verdict::Error => "tone-odd",
        Verdict::Broken | Verdict::Escaped => "tone-bad",
    }
}

fn mark(verdict: Verdict) -> &'static str {
    let style = Style {
        unicode: true,
        ..Style::default()
    };
    style.mark(verdict)
}

fn head(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let tone = match report.gate.exit_code {
        exit_code::HELD => "tone-good",
        exit_code::ESCAPED => "tone-bad",
        _ => "tone-warn",
    };
    let sentence = Text(&report.gate.sentence, PARAGRAPH).to_string();
    let mut rest = sentence.chars();
    let first = rest
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect());
    let rest = rest.as_str();
    writeln!(
        out,
        r#"<header class="head {tone}"><div class="wrap"><p class="brand">escape-audit</p><h1>{}{rest}</h1>"#,
        first
    )?;
    bar(&report.summary, out)?;
    writeln!(
        out,
        r#"<p class="tally">{}</p><p class="meta"><span><b>{}</b> of a library of {}</span><span><b>{}</b> fail the build</span><span><b>{}</b></span><span>began <b>{}</b></span><span>took <b>{}</b></span><span>exit code <b>{}</b></span></p>"#,
        tally(&report.summary),
        plural(report.summary.total, "trial", "trials"),
        plural(report.tool.cases, "case", "cases"),
        failing(report),
        plural(report.sandboxes.len(), "sandbox", "sandboxes"),
        report.started.replace('T', " ").replace('Z', " UTC"),
        time(report.elapsed),
        report.exit_code,
    )?;
    if let Some(why) = &report.incomplete {
        let why = Prose(why, PARAGRAPH);
        writeln!(
            out,
            r#"<p class="notice tone-warn"><b>Not complete:</b> {why}</p>"#
        )?;
    }
    writeln!(out, "</div></header>")
}

/// How many trials fail the build.
fn failing(report: &Report) -> usize {
    let fails =
        |trial: &&Trial| matches!(standing::of(trial), Standing::Failed | Standing::Undecided);
    report.trials.iter().filter(fails).count()
}

/// How the verdicts are spread, worst on the left.
fn bar(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let total = summary.total.max(1);
    write!(
        out,
        r#"<svg class="bar" viewBox="0 0 {total} 1" preserveAspectRatio="none" aria-hidden="true">"#
    )?;
    let mut x = 0;
    for verdict in Verdict::ALL.into_iter().rev() {
        let count = summary.count(verdict);
        if count > 0 {
            let tone = tone(verdict);
            write!(
                out,
                r#"<rect class="{tone}" x="{x}" width="{count}" height="1"/>"#
            )?;
        }
        x += count;
    }
    writeln!(out, "</svg>")
}

fn sandboxes(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if report.sandboxes.is_empty() {
        return Ok(());
    }
    writeln!(out, r#"<h2>What was audited</h2><div class="cards">"#)?;
    for sandbox in &report.sandboxes {
        card(report, sandbox, out)?;
    }
    writeln!(out, "</div>")
}

fn card(report: &Report, sandbox: &SandboxReport, out: &mut dyn Write) -> io::Result<()> {
    let name = &sandbox.sandbox.name;
    let trials = report.trials.iter().filter(|trial| trial.sandbox == *name);
    let summary = Summary::of(trials);
    writeln!(
        out,
        r#"<article class="card"><h3>{}</h3><p class="what">{}</p>"#,
        Text(name, LINE),
        Prose(&super::human::heading::what(&sandbox.sandbox), PARAGRAPH),
    )?;
    bar(&summary, out)?;
    writeln!(out, r#"<p class="tally">{}</p>"#, tally(&summary))?;
    notices(sandbox, false, out)?;
    let digest = sandbox.digest.iter().map(|digest| ("digest", &**digest));
    let in_force = sandbox
        .in_force
        .iter()
        .map(|(name, value)| (&**name, &**value));
    let pairs: Vec<_> = digest.chain(in_force).collect();
    if !pairs.is_empty() {
        writeln!(
            out,
            r#"<details><summary>What was in force</summary><dl class="pairs">"#
        )?;
        for (name, value) in pairs {
            writeln!(
                out,
                "<dt>{}</dt><dd>{}</dd>",
                Text(name, LINE),
                Text(value, PARAGRAPH)
            )?;
        }
        writeln!(out, "</dl></details>")?;
    }
    writeln!(out, "</article>")
}

/// `3 escaped, 30 blocked`.
fn tally(summary: &Summary) -> String {
    let counts: Vec<String> = Verdict::ALL
        .into_iter()
        .rev()
        .map(|verdict| (verdict.name().to_lowercase(), summary.count(verdict)))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    match counts.is_empty() {
        true => "nothing was tried".into(),
        false => counts.join(", "),
    }
}

/// Shown once the script runs: without it they would do nothing.
fn filters(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        r#"<form class="filters" hidden><div class="row"><input id="search" type="search" placeholder="Filter by any text" aria-label="Filter by text" autocomplete="off"><select id="severity" aria-label="Severity"><option value="0">any severity</option>"#
    )?;
    for severity in [
        Severity::Low,
        Severity::Medium,
        Severity::High,
        Severity::Critical,
    ] {
        let rank = severity as u8;
        let more = if severity == Severity::Critical {
            ""
        } else {
            " and above"
        };
        writeln!(
            out,
            r#"<option value="{rank}">{}{more}</option>"#,
            word(severity)
        )?;
    }
    writeln!(
        out,
        r#"</select><select id="sandbox" aria-label="Sandbox"><option value="">any sandbox</option>"#
    )?;
    for (place, sandbox) in report.sandboxes.iter().enumerate() {
        let name = Text(&sandbox.sandbox.name, 60);
        writeln!(out, r#"<option value="{place}">{name}</option>"#)?;
    }
    writeln!(out, r#"</select></div><div class="row">"#)?;
    for verdict in Verdict::ALL.into_iter().rev() {
        let count = report.summary.count(verdict);
        if count > 0 {
            let (name, tone) = (verdict.name(), tone(verdict));
            writeln!(
                out,
                r#"<button type="button" class="count {tone}" data-verdict="{name}" aria-pressed="true">{} {count} {}</button>"#,
                mark(verdict),
                name.to_lowercase(),
            )?;
        }
    }
    writeln!(
        out,
        r#"<span class="shown" id="shown" role="status"></span></div></form>"#
    )
}

fn main(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let (mut wrong, mut skipped, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for trial in worst_first(report) {
        match standing::of(trial) {
            Standing::Held => held.push(trial),
            Standing::Skipped => skipped.push(trial),
            _ => wrong.push(trial),
        }
    }
    writeln!(out, "<main>")?;
    for remark in &report.gate.remarks {
        let tone = match remark.weight {
            Weight::Fails => "tone-bad",
            Weight::Warning => "tone-warn",
            Weight::Note => "tone-mute",
        };
        let sentence = Prose(&remark.sentence, PARAGRAPH);
        writeln!(
            out,
            r#"<p class="notice {tone}"><b>The gate:</b> {sentence}</p>"#
        )?;
    }
    for sandbox in &report.sandboxes {
        notices(sandbox, true, out)?;
    }
    section("wrong", "What went wrong", &wrong, report, out)?;
    sandboxes(report, out)?;
    section("held", "What held", &held, report, out)?;
    section("skipped", "What was not tried", &skipped, report, out)?;
    writeln!(
        out,
        r#"<p class="none" id="none" hidden>Nothing fits this filter.</p></main>"#
    )
}

fn section(
    id: &str,
    title: &str,
    trials: &[&Trial],
    report: &Report,
    out: &mut dyn Write,
) -> io::Result<()> {
    if trials.is_empty() {
        return Ok(());
    }
    let count = trials.len();
    writeln!(
        out,
        r#"<section class="trials" id="{id}"><h2>{title} <span class="n">{count}</span></h2><div class="list">"#
    )?;
    for (n, one) in trials.iter().enumerate() {
        let open = n < UNFOLDED && standing::of(one) == Standing::Failed;
        trial::write(one, report, open, out)?;
    }
    writeln!(out, "</div></section>")
}

/// What must not be overlooked of a sandbox; `named` where it does not stand below its name.
fn notices(sandbox: &SandboxReport, named: bool, out: &mut dyn Write) -> io::Result<()> {
    let name = match named {
        true => format!("<b>{}</b> ", Text(&sandbox.sandbox.name, LINE)),
        false => String::new(),
    };
    if let Some(why) = &sandbox.failed {
        let why = Prose(why, PARAGRAPH);
        writeln!(
            out,
            r#"<p class="notice tone-odd">{name}could not be audited: {why}</p>"#
        )?;
    }
    for note in &sandbox.notes {
        let note = Prose(note, PARAGRAPH);
        writeln!(out, r#"<p class="notice tone-warn">{name}{note}</p>"#)?;
    }
    Ok(())
}

fn footer(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        r#"<footer>{} {}, library <code>{}</code>. A held attempt is no proof against the next one.</footer>"#,
        Text(report.tool.name, LINE),
        Text(report.tool.version, LINE),
        Text(
            &report.tool.library.chars().take(12).collect::<String>(),
            LINE
        ),
    )
}

#[cfg(test)]
mod tests;
