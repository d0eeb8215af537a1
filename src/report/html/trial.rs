//! One trial on the page: a line that says what came of it, and folded below it all that is known.

use std::io::{self, Write};

use super::text::{Block, Link, Prose, Text};
use super::{LINE, PARAGRAPH, mark, tone};
use crate::evidence::outcome_name;
use crate::report::standing::{self, Standing};
use crate::report::style::{time, word};
use crate::report::{Report, Trial, advice, printed, repeat};

/// Pieces of evidence, and of steps inside.
const PIECES: usize = 100;

pub(super) fn write(
    trial: &Trial,
    report: &Report,
    open: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (case, judgement) = (&trial.source, &trial.judgement);
    let verdict = judgement.verdict;
    let place = report
        .sandboxes
        .iter()
        .position(|sandbox| sandbox.sandbox.name == trial.sandbox);
    writeln!(
        out,
        r#"<details class="trial {}" data-verdict="{}" data-severity="{}" data-sandbox="{}"{}><summary><span class="badge">{} {}</span>"#,
        tone(verdict),
        verdict.name(),
        case.severity as u8,
        place.map_or_else(String::new, |place| place.to_string()),
        if open { " open" } else { "" },
        mark(verdict),
        verdict.name(),
    )?;
    // Verdict and title say what came of it; where nothing did, the sentence says why.
    let line = match line_is_title(trial) {
        true => &case.title,
        false => &judgement.sentence,
    };
    let hot = if verdict.escapes() && trial.counts() {
        " hot"
    } else {
        ""
    };
    writeln!(
        out,
        r#"<span><span class="case">{}</span><br><span class="line">{}</span></span><span class="tags"><span class="tag{hot}">{}</span><span class="tag">{}</span>{}<span>{}</span></span></summary>"#,
        Text(&trial.case, LINE),
        Text(line, LINE),
        word(case.severity),
        Text(&trial.sandbox, 40),
        standing::of(trial)
            .excuse()
            .map_or_else(String::new, |why| format!(
                r#"<span class="tag">{}</span>"#,
                Text(&why, LINE)
            )),
        time(trial.duration),
    )?;
    writeln!(out, r#"<div class="body"><div class="tell">"#)?;
    tell(trial, report, out)?;
    writeln!(out, r#"</div><dl class="pairs">"#)?;
    facts(trial, out)?;
    writeln!(out, "</dl>")?;
    steps(trial, out)?;
    printed(trial, out)?;
    if let Some(sandbox) = report.sandbox_of(trial) {
        let command = repeat::command(trial, sandbox);
        let command = Text(&command, PARAGRAPH);
        writeln!(
            out,
            r#"<div class="wide tell"><h3>To repeat it</h3><pre class="repeat">{command}</pre></div>"#
        )?;
    }
    writeln!(out, "</div></details>")
}

fn line_is_title(trial: &Trial) -> bool {
    matches!(standing::of(trial), Standing::Held) || trial.judgement.verdict.escapes()
}

/// What happened, on what that rests, why it matters, what to do.
fn tell(trial: &Trial, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let (case, judgement) = (&trial.source, &trial.judgement);
    let mut paragraph = |title: &str, text: &str| {
        writeln!(out, "<h3>{title}</h3><p>{}</p>", Prose(text, PARAGRAPH))
    };
    if !line_is_title(trial) {
        paragraph("Tried", &case.title)?;
    }
    paragraph("What happened", &judgement.sentence)?;
    if !judgement.evidence.is_empty() {
        writeln!(out, "<h3>Evidence</h3><ul>")?;
        for piece in judgement.evidence.iter().take(PIECES) {
            writeln!(out, "<li>{}</li>", Text(piece, PARAGRAPH))?;
        }
        writeln!(out, "</ul>")?;
    }
    writeln!(
        out,
        "<h3>Why it matters</h3><p>{}</p>",
        Prose(&case.why, PARAGRAPH)
    )?;
    if judgement.verdict.escapes() {
        writeln!(
            out,
            r#"<div class="fix"><h3>What to do</h3><p>{}</p>"#,
            Prose(&case.fix, PARAGRAPH)
        )?;
        let holding = advice::holding(trial, report);
        if !holding.is_empty() {
            let holding = advice::told(&holding);
            writeln!(
                out,
                "<p>What would have held it: {}</p>",
                Text(&holding, PARAGRAPH)
            )?;
        }
        writeln!(out, "</div>")?;
    }
    Ok(())
}

fn facts(trial: &Trial, out: &mut dyn Write) -> io::Result<()> {
    let (case, judgement) = (&trial.source, &trial.judgement);
    let mut pair = |name: &str, value: String| writeln!(out, "<dt>{name}</dt><dd>{value}</dd>");
    let text = |value: &str| Text(value, LINE).to_string();
    pair("reason", format!("<code>{}</code>", text(judgement.reason)))?;
    if judgement.inside_only {
        pair("witness", "none: it rests on what was said inside".into())?;
    }
    pair("sandbox", text(&trial.sandbox))?;
    pair("severity", word(case.severity))?;
    pair("level", word(case.level))?;
    for technique in &case.techniques {
        pair("technique", link_of(technique))?;
    }
    pair("took", time(trial.duration))?;
    pair(
        "case file",
        format!("<code>{}</code>", text(&case.source.to_string_lossy())),
    )?;
    for reference in &case.references {
        pair("see", Link(reference).to_string())?;
    }
    Ok(())
}

/// A technique of MITRE ATT&CK, where it is written as one.
fn link_of(technique: &str) -> String {
    let number = technique.strip_prefix('T').unwrap_or_default();
    let digits = |text: &str, n: usize| text.len() == n && text.bytes().all(|b| b.is_ascii_digit());
    let path = match number.split_once('.') {
        Some((main, sub)) if digits(main, 4) && digits(sub, 3) => format!("T{main}/{sub}"),
        None if digits(number, 4) => format!("T{number}"),
        _ => return Text(technique, LINE).to_string(),
    };
    format!(
        r#"<a href="https://attack.mitre.org/techniques/{path}/" rel="noopener noreferrer">{}</a>"#,
        Text(technique, LINE)
    )
}

/// What the probe tried, step by step.
fn steps(trial: &Trial, out: &mut dyn Write) -> io::Result<()> {
    let steps = &trial.observed.inside.steps;
    if steps.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        r#"<details class="wide more"><summary>What was tried inside, step by step ({})</summary><table><tr><th>step</th><th>on</th><th>came to</th></tr>"#,
        steps.len()
    )?;
    for step in steps.iter().take(PIECES) {
        writeln!(
            out,
            "<tr><td>{}</td><td><code>{}</code></td><td>{}</td></tr>",
            Text(&step.what, LINE),
            Text(&step.target, LINE),
            outcome_name(step.outcome),
        )?;
    }
    let more = steps.len().saturating_sub(PIECES);
    if more > 0 {
        writeln!(out, "<tr><td>and {more} more in the JSON report</td></tr>")?;
    }
    writeln!(out, "</table></details>")
}

fn printed(trial: &Trial, out: &mut dyn Write) -> io::Result<()> {
    let inside = &trial.observed.inside;
    for (label, printed) in [
        ("What it printed", &inside.output),
        ("What it printed on standard error", &inside.error),
    ] {
        if !printed.is_empty() {
            let text = Block(printed::block(printed));
            writeln!(
                out,
                r#"<details class="wide more"><summary>{label}</summary><pre>{text}</pre></details>"#
            )?;
        }
    }
    Ok(())
}
