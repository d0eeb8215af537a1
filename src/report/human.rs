//! The report for people: one line a case, then what went wrong, worst first, with its evidence, why and fix.

mod finding;
mod heading;

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::line::{self, Columns};
use super::style::{Ink, Style, ink, time};
use super::{Report, SandboxReport, Trial};
use crate::exit_code;
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// Columns of the words on the left.
const LABEL: usize = 10;
/// Characters of one paragraph: what is longer stands in the JSON report.
const PARAGRAPH: usize = 600;

/// Writes the report.
pub fn write(report: &Report, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let columns = Columns::of(report);
    for sandbox in &report.sandboxes {
        heading::write(sandbox, out, style)?;
        trials(report, sandbox, columns, out, style)?;
        writeln!(out)?;
    }
    finding::write_all(report, out, style)?;
    summary(report, out, style)
}

fn trials(
    report: &Report,
    sandbox: &SandboxReport,
    columns: Columns,
    out: &mut dyn Write,
    style: Style,
) -> io::Result<()> {
    let mut skipped: BTreeMap<&str, Vec<&Trial>> = BTreeMap::new();
    for trial in report
        .trials
        .iter()
        .filter(|t| t.sandbox == sandbox.sandbox.name)
    {
        if trial.judgement.verdict == Verdict::Skipped {
            skipped
                .entry(&trial.judgement.sentence)
                .or_default()
                .push(trial);
        } else {
            writeln!(out, "  {}", line::trial(trial, columns, style).trim_end())?;
        }
    }
    for (sentence, trials) in skipped {
        skips(sentence, &trials, out, style)?;
    }
    Ok(())
}

/// All that was skipped for one reason: `o SKIPPED  2 not-applicable: This machine has no swap. (a/b, a/c)`.
fn skips(sentence: &str, trials: &[&Trial], out: &mut dyn Write, style: Style) -> io::Result<()> {
    let ids: Vec<&str> = trials.iter().map(|trial| trial.case.as_str()).collect();
    let reason = trials.first().map_or("", |trial| trial.judgement.reason);
    let text = SafeText::line(format!(
        "SKIPPED {} {reason}: {sentence} ({})",
        trials.len(),
        ids.join(", ")
    ));
    for (n, line) in text.wrapped(style.columns() - 4).into_iter().enumerate() {
        let mark = if n == 0 {
            style.mark(Verdict::Skipped)
        } else {
            " "
        };
        writeln!(out, "  {}", style.paint(Ink::Dim, format!("{mark} {line}")))?;
    }
    Ok(())
}

/// `3 escaped, 30 blocked, 2 skipped: 35 trials in 4.21 s`, and what the exit code says.
fn summary(report: &Report, out: &mut dyn Write, style: Style) -> io::Result<()> {
    if let Some(why) = &report.incomplete {
        let text = SafeText::line(format!("incomplete: {why}"));
        writeln!(out, "{}", style.paint(Ink::Yellow, text))?;
    }
    let counts: Vec<String> = Verdict::ALL
        .into_iter()
        .rev()
        .map(|verdict| (verdict, report.summary.count(verdict)))
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| {
            style.paint(
                ink(verdict),
                format!("{count} {}", verdict.name().to_lowercase()),
            )
        })
        .collect();
    let lost = report
        .sandboxes
        .iter()
        .filter(|s| s.failed.is_some())
        .count();
    let lost = match lost {
        0 => String::new(),
        1 => "; 1 sandbox could not be audited".into(),
        n => format!("; {n} sandboxes could not be audited"),
    };
    let counts = if counts.is_empty() {
        "nothing".into()
    } else {
        counts.join(", ")
    };
    writeln!(
        out,
        "{counts} {}{lost}",
        style.paint(
            Ink::Dim,
            format!(
                "({} in {})",
                trials_word(report.summary.total),
                time(report.elapsed)
            )
        ),
    )?;
    let color = if report.exit_code == exit_code::HELD {
        Ink::Green
    } else {
        Ink::Red
    };
    let verdict = format!(
        "exit {}: {}",
        report.exit_code,
        exit_code::sentence(report.exit_code)
    );
    writeln!(out, "{}", style.paint(color, verdict))
}

/// A word on the left, and a paragraph beside it.
fn row(label: &str, text: &str, ink: Ink, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let text = SafeText::line_within(text.trim(), PARAGRAPH);
    for (n, line) in text.wrapped(style.columns() - LABEL - 2).iter().enumerate() {
        let label = if n == 0 { label } else { "" };
        let label = style.paint(Ink::Dim, format!("{label:LABEL$}"));
        writeln!(out, "  {label}{}", style.paint(ink, line))?;
    }
    Ok(())
}

fn trials_word(n: usize) -> String {
    if n == 1 {
        "1 trial".into()
    } else {
        format!("{n} trials")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::safe_text::must_escape;

    fn written(report: &Report, style: Style) -> String {
        let mut out = Vec::new();
        write(report, &mut out, style).expect("a Vec takes everything");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn the_worst_is_told_in_full_and_first() {
        let text = written(&sample::report(), Style::default());
        let at = |needle: &str| {
            text.rfind(needle)
                .unwrap_or_else(|| panic!("{needle} in:\n{text}"))
        };
        assert!(at("ESCAPED  oci") < at("BROKEN  oci"));
        assert!(at("BROKEN  oci") < at("ERROR  lost"));
        assert!(at("ERROR  oci") < at("INCONCLUSIVE  oci"));
        assert!(at("INCONCLUSIVE  oci") < at("ESCAPED  runner, kernel/new"));
        at("sandbox not engaged: the launcher adds no isolation");
        at("A script that can reach the network");
        at("Run without a network");
        at("no-route inside-only");
        at("SKIPPED 1 not-applicable: This machine has no swap. (network/skipped)");
        at("1 sandbox could not be audited");
        at("exit 1: something escaped");
    }

    #[test]
    fn nothing_of_a_stranger_reaches_the_terminal_raw() {
        let text = written(&sample::report(), Style::default());
        for c in text.chars().filter(|c| *c != '\n') {
            assert!(!must_escape(c), "{c:?}");
        }
        for line in text.lines() {
            assert!(!line.trim_start().starts_with("::"), "{line}");
            for mark in ["##[", "##vso[", "##teamcity[", "[[ATTACHMENT|"] {
                assert!(!line.contains(mark), "{line}");
            }
        }
    }

    #[test]
    fn ascii_and_width_are_kept_when_asked_for() {
        let mut report = sample::report();
        report
            .trials
            .retain(|trial| trial.case != "processes/nasty");
        for width in [40, 80, 120] {
            let style = Style {
                width,
                ..Style::default()
            };
            let text = written(&report, style);
            assert!(text.is_ascii());
            let paragraphs = text.split_once("ESCAPED  oci").expect("a finding").1;
            for line in paragraphs.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.len() <= width, "{} columns: {line}", line.len());
            }
        }
    }

    #[test]
    fn nothing_to_tell_is_told_too() {
        let text = written(&sample::empty(), Style::default());
        assert_eq!(
            text,
            "nothing (0 trials in 4.21 s)\nexit 4: nothing ran, so nothing is proven\n"
        );
    }
}
