//! The report for people: one line a case, then what went wrong, worst first, with its evidence, why and fix.

mod finding;
mod gate;
pub(super) mod heading;
mod page;

use std::collections::BTreeMap;
use std::io::{self, Write};

use self::page::Page;
use super::decided::Remark;
use super::line::{self, Columns};
use super::style::{Ink, Style, ink, plural, time};
use super::{Report, SandboxReport, Trial};
use crate::exit_code;
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// Writes the report.
pub fn write(report: &Report, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let page = &mut Page { out, style };
    for sandbox in &report.sandboxes {
        heading::write(page, sandbox)?;
        trials(page, report, sandbox)?;
        page.line("")?;
    }
    finding::write_all(page, report)?;
    gate::write(page, &report.gate.remarks)?;
    summary(page, report)
}

/// What is told of one trial that went wrong: what happened, the evidence, why it matters, what to do.
pub fn told(report: &Report, trial: &Trial, style: Style) -> String {
    let mut out = Vec::new();
    let page = &mut Page {
        out: &mut out,
        style,
    };
    // Writing to a Vec cannot fail.
    let _ = finding::write_trial(page, trial, report);
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes what the gate has to say, for a command that has nothing else to tell.
pub fn remarks(remarks: &[Remark], out: &mut dyn Write, style: Style) -> io::Result<()> {
    gate::write(&mut Page { out, style }, remarks)
}

fn trials(page: &mut Page<'_>, report: &Report, sandbox: &SandboxReport) -> io::Result<()> {
    let columns = Columns::of(report);
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
            let line = line::trial(trial, columns, page.style);
            page.line(format_args!("  {line}"))?;
        }
    }
    for (sentence, trials) in skipped {
        skips(page, sentence, &trials)?;
    }
    Ok(())
}

/// All that was skipped for one reason: `o SKIPPED 2 not-applicable: This machine has no swap. (a/b, a/c)`.
fn skips(page: &mut Page<'_>, sentence: &str, trials: &[&Trial]) -> io::Result<()> {
    let style = page.style;
    let ids: Vec<&str> = trials.iter().map(|trial| trial.case.as_str()).collect();
    let reason = trials.first().map_or("", |trial| trial.judgement.reason);
    let text = format!(
        "SKIPPED {} {reason}: {sentence} ({})",
        ids.len(),
        ids.join(", ")
    );
    let lines = SafeText::line(text).wrapped(style.columns() - 4);
    for (n, line) in lines.iter().enumerate() {
        let mark = if n == 0 {
            style.mark(Verdict::Skipped)
        } else {
            " "
        };
        page.line(style.paint(Ink::Dim, format_args!("  {mark} {line}")))?;
    }
    Ok(())
}

/// `3 escaped, 30 blocked, 2 skipped (35 trials of a library of 57 cases, in 4.21 s)`, and what the exit code says.
fn summary(page: &mut Page<'_>, report: &Report) -> io::Result<()> {
    let style = page.style;
    if let Some(why) = &report.incomplete {
        let text = SafeText::line(format!("incomplete: {why}"));
        page.line(style.paint(Ink::Yellow, text))?;
    }
    let mut counts: Vec<String> = Verdict::ALL
        .into_iter()
        .rev()
        .map(|verdict| (verdict, report.summary.count(verdict)))
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| {
            let name = verdict.name().to_lowercase();
            style.paint(ink(verdict), format_args!("{count} {name}"))
        })
        .collect();
    counts.extend(gate::of_them(report, style));
    let lost = report
        .sandboxes
        .iter()
        .filter(|s| s.failed.is_some())
        .count();
    if lost > 0 {
        counts.push(format!(
            "{} not audited",
            plural(lost, "sandbox", "sandboxes")
        ));
    }
    if counts.is_empty() {
        counts.push("nothing".into());
    }
    let trials = plural(report.summary.total, "trial", "trials");
    let total = format!(
        "({trials} of a library of {}, in {})",
        plural(report.tool.cases, "case", "cases"),
        time(report.elapsed)
    );
    page.line(format_args!(
        "{} {}",
        counts.join(", "),
        style.paint(Ink::Dim, total)
    ))?;

    let code = report.exit_code;
    let ink = if report.gate.exit_code == exit_code::HELD {
        Ink::Green
    } else {
        Ink::Red
    };
    let sentence = SafeText::line(&report.gate.sentence);
    page.line(style.paint(ink, format_args!("exit {code}: {sentence}")))
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
    fn what_broke_down_for_all_in_the_same_way_is_told_once() {
        let mut report = sample::empty();
        for n in 0..5 {
            let mut trial = sample::trial("agent", &format!("network/case-{n}"), Verdict::Error);
            trial.judgement.sentence = "The engine is gone.".into();
            (trial.observed.inside.output, trial.observed.inside.error) = Default::default();
            report.trials.push(trial);
        }
        report.trials[4].judgement.sentence = "The disk is full.".into();
        let page = written(&report, Style::default());
        assert_eq!(page.matches("The engine is gone.").count(), 1, "{page}");
        assert!(page.contains("3 other cases of this sandbox"), "{page}");
        assert!(page.contains("The disk is full."), "{page}");
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
        at("network (a network namespace with nothing but loopback)");
        at("Run without a network");
        at("no-route inside-only");
        at("SKIPPED 1 not-applicable: This machine has no swap. (network/skipped)");
        at("1 of them not gating, 1 sandbox not audited (10 trials");
        at("exit 1: something escaped");
    }

    #[test]
    fn what_is_excused_is_said_and_told_after_what_fails() {
        let text = written(&sample::waived(), Style::default());
        let at = |needle: &str| {
            text.rfind(needle)
                .unwrap_or_else(|| panic!("{needle} in:\n{text}"))
        };
        assert!(at("INCONCLUSIVE  oci") < at("ESCAPED  oci"));
        at("(critical, canary, does not fail the build: waived)");
        at("waived    until 2027-02-28 (SEC-7): a hardened kernel");
        at("fails     The waiver for `network/tcp` in `oci` ended on 2026-11-28.");
        at("1 of them waived, 1 of them below --fail-on critical, 1 needed a second try");
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
    #[ignore = "shows the report to the one who changes it"]
    fn show() {
        let style = Style {
            color: true,
            unicode: true,
            width: 100,
        };
        println!("{}", written(&sample::report(), style));
    }

    #[test]
    fn nothing_to_tell_is_told_too() {
        let text = written(&sample::empty(), Style::default());
        assert_eq!(
            text,
            "nothing (0 trials of a library of 57 cases, in 4.21 s)\nexit 4: nothing ran, so nothing is proven\n"
        );
    }
}
