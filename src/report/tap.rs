//! The report as TAP, version 14: a line a trial, worst first, with a YAML block where something has to be said.
//!
//! What does not count is `not ok` and `# TODO`, which a harness shows and does not fail. A sandbox that could not be
//! audited is `not ok`, and so is an audit in which nothing ran. One that did not come to its end bails out.

use std::io::{self, Write};

use serde_json::ser::CompactFormatter;

use super::json::visible;
use super::standing::{self, Standing, failing_remarks, worst_first};
use super::style::word;
use super::{Report, Trial, advice, repeat};
use crate::exit_code;
use crate::safe_text::SafeText;

/// Characters of a text.
const TEXT: usize = 2000;

/// Writes the report.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let lost: Vec<(&str, &str)> = report
        .sandboxes
        .iter()
        .filter_map(|sandbox| Some((&*sandbox.sandbox.name, sandbox.failed.as_deref()?)))
        .collect();
    let remarks: Vec<_> = failing_remarks(report).collect();
    let nothing_ran = report.found() == exit_code::NOTHING_RAN;
    let points = report.trials.len() + lost.len() + remarks.len() + usize::from(nothing_ran);
    writeln!(out, "TAP version 14\n1..{points}")?;
    let mut tap = Tap { out, number: 0 };
    for trial in worst_first(report) {
        of_trial(trial, report, &mut tap)?;
    }
    for (sandbox, why) in lost {
        tap.point(false, &format!("{sandbox}: could be audited"), "")?;
        tap.block(&[("message", why.to_owned())], &[])?;
    }
    for remark in remarks {
        tap.point(false, &format!("gate: {}", remark.code), "")?;
        tap.block(&[("message", remark.sentence.clone())], &[])?;
    }
    if nothing_ran {
        tap.point(false, "escape-audit: something ran", "")?;
    }
    match &report.incomplete {
        Some(why) => writeln!(tap.out, "Bail out! {}", SafeText::line_within(why, TEXT)),
        None => Ok(()),
    }
}

fn of_trial(trial: &Trial, report: &Report, tap: &mut Tap<'_>) -> io::Result<()> {
    let judgement = &trial.judgement;
    let name = format!("{}: {}", trial.sandbox, trial.case);
    match standing::of(trial) {
        Standing::Held => return tap.point(true, &name, ""),
        Standing::Skipped => {
            let why = format!("SKIP {}: {}", judgement.reason, judgement.sentence);
            return tap.point(true, &name, &why);
        }
        Standing::Silent(why) => tap.point(
            false,
            &name,
            &format!("TODO does not fail the build: {why}"),
        )?,
        Standing::Waived(waived) => tap.point(false, &name, &format!("TODO {waived}"))?,
        Standing::Undecided | Standing::Failed => tap.point(false, &name, "")?,
    }
    let case = &trial.source;
    let mut pairs = vec![
        ("verdict", judgement.verdict.name().to_owned()),
        ("reason", judgement.reason.to_owned()),
        ("severity", word(case.severity)),
        ("title", case.title.clone()),
        ("message", judgement.sentence.clone()),
        ("file", case.source.to_string_lossy().into_owned()),
    ];
    if judgement.verdict.escapes() {
        pairs.push(("missing", advice::told(&advice::holding(trial, report))));
        pairs.push(("fix", case.fix.clone()));
    }
    let sandbox = report.sandbox_of(trial);
    pairs.extend(sandbox.map(|sandbox| ("repeat", repeat::command(trial, sandbox))));
    tap.block(&pairs, &judgement.evidence)
}

struct Tap<'a> {
    out: &'a mut dyn Write,
    number: usize,
}

impl Tap<'_> {
    /// A test point; a directive or nothing.
    fn point(&mut self, ok: bool, name: &str, directive: &str) -> io::Result<()> {
        self.number += 1;
        let ok = if ok { "ok" } else { "not ok" };
        write!(self.out, "{ok} {} - {}", self.number, escaped(name))?;
        match directive {
            "" => writeln!(self.out),
            directive => writeln!(self.out, " # {}", escaped(directive)),
        }
    }

    /// What is said of the point before it. Every text is a string of JSON, which is one of YAML too.
    fn block(&mut self, pairs: &[(&str, String)], evidence: &[String]) -> io::Result<()> {
        writeln!(self.out, "  ---")?;
        for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
            write!(self.out, "  {name}: ")?;
            self.string(value)?;
        }
        if !evidence.is_empty() {
            writeln!(self.out, "  evidence:")?;
        }
        for piece in evidence {
            write!(self.out, "    - ")?;
            self.string(piece)?;
        }
        writeln!(self.out, "  ...")
    }

    fn string(&mut self, text: &str) -> io::Result<()> {
        let text = SafeText::line_within(text.trim(), TEXT);
        visible(&text, CompactFormatter, self.out)?;
        writeln!(self.out)
    }
}

/// In a description, `#` would begin a directive, and not every reader knows it behind a back-slash.
fn escaped(text: &str) -> String {
    SafeText::line_within(text, TEXT)
        .as_str()
        .replace('#', r"\x23")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{outside, sample};

    fn written(report: &Report) -> String {
        let mut out = Vec::new();
        write(report, &mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn each_trial_is_a_point_the_worst_is_first_and_nothing_bad_is_ok() {
        let text = written(&sample::report());
        let points: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("ok "))
            .take(11)
            .collect();
        assert!(
            text.starts_with("TAP version 14\n1..11\nnot ok 1 - oci: network/escaped\n  ---\n")
        );
        let wanted = [
            "not ok 1 - oci: network/escaped",
            "not ok 2 - runner: processes/nasty",
            "not ok 3 - oci: network/broken",
            "not ok 4 - oci: network/error",
            "not ok 5 - oci: network/inconclusive",
            "ok 6 - oci: network/skipped # SKIP not-applicable: This machine has no swap.",
            "ok 7 - oci: network/blocked",
            "ok 8 - runner: network/tcp",
            "ok 9 - oci: network/allowed",
            "not ok 10 - runner: kernel/new # TODO does not fail the build: experimental",
            "not ok 11 - lost: could be audited",
        ];
        assert_eq!(points, wanted);
        for said in [
            "\n  missing: \"network (",
            "\n  fix: \"Run without",
            "\n  repeat: \"escape-audit run --sandbox oci --case network/escaped\"\n",
            "\n  evidence:\n    - \"tcp 10.0.0.1:80 saw",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
    }

    #[test]
    fn what_is_missing_is_not_ok() {
        let mut report = sample::empty();
        let text = written(&report);
        assert_eq!(
            text,
            "TAP version 14\n1..1\nnot ok 1 - escape-audit: something ran\n"
        );
        report.exit_code = 130;
        report.incomplete = Some("interrupted\nok 1".into());
        assert!(written(&report).ends_with("\nBail out! interrupted\\nok 1\n"));
    }

    /// A reader in Python finds the points and no other, and every block is YAML.
    #[test]
    fn another_reader_counts_the_same_whatever_a_payload_prints() {
        const COUNT: &str = "import sys\n\
            from tap.parser import Parser\n\
            lines = list(Parser().parse_text(sys.stdin.buffer.read().decode()))\n\
            points = [line for line in lines if line.category == 'test']\n\
            blocks = [point.yaml_block for point in points if point.yaml_block is not None]\n\
            assert all(block['verdict'] for block in blocks if 'verdict' in block)\n\
            unknown = [line for line in lines if line.category == 'unknown']\n\
            print(len(points), sum(not p.ok and not p.todo for p in points), sum(p.skip for p in points),\n\
            \x20 sum(p.todo for p in points), len(blocks), len(unknown))\n";
        let Some(python) = outside::python("tap.py") else {
            return;
        };
        let mut hostile = sample::hostile_report();
        hostile.trials[6].gates = false;
        for (report, counts) in [(sample::report(), "11 6 1 1 7 0"), (hostile, "8 4 1 1 5 0")] {
            let text = written(&report);
            let said = outside::filter(&python, &["-c", COUNT], &text).expect("it was there");
            assert!(said.ok, "{}", said.err);
            assert_eq!(said.out.trim(), counts);
        }
    }
}
