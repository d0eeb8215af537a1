//! The report as workflow commands of GitHub Actions, which become annotations. The worst comes first, for about ten of a
//! kind are shown of one step; the last of a kind says what is not.
//!
//! A command is a line, so that each text of a stranger is one line, and cannot end its command or begin another.

use std::io::{self, Write};

use super::decided::Weight;
use super::standing::{self, Finding, Standing, findings};
use super::style::{plural, time, word};
use super::{Report, Trial, advice, repeat};
use crate::exit_code;
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// Annotations of one kind that a step shows.
const SHOWN: usize = 10;
/// Characters of a message: it is cut at 4,096, and `%0A` is one of them.
const MESSAGE: usize = 4000;
/// Characters of one line of a message, and of a title.
const LINE: usize = 600;
const TITLE: usize = 200;

/// Writes the report.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let (mut errors, mut warnings, mut notices) = (Vec::new(), Vec::new(), Vec::new());
    for finding in findings(report) {
        match finding {
            Finding::NotAudited(sandbox, why) => {
                let title = format!("{} could not be audited", sandbox.sandbox.name);
                errors.push(Annotation::new(Verdict::Error, title, why));
            }
            Finding::Gate(remark) => {
                let title = format!("The gate: {}", remark.code);
                errors.push(Annotation::new(Verdict::Error, title, &remark.sentence));
            }
            Finding::Trial(trial) => match standing::of(trial) {
                Standing::Failed | Standing::Undecided => errors.push(of_trial(trial, report)),
                _ => warnings.push(of_trial(trial, report)),
            },
        }
    }
    for remark in &report.gate.remarks {
        if remark.weight == Weight::Warning {
            let title = format!("The gate: {}", remark.code);
            warnings.push(Annotation::new(Verdict::Skipped, title, &remark.sentence));
        }
    }
    for sandbox in &report.sandboxes {
        for note in &sandbox.notes {
            let title = format!("Note on {}", sandbox.sandbox.name);
            notices.push(Annotation::new(Verdict::Skipped, title, note));
        }
    }
    write_kind("error", errors, of_the_audit(report), out)?;
    write_kind("warning", warnings, None, out)?;
    write_kind("notice", notices, Some(summary(report)), out)
}

/// The audit as a whole, in numbers.
fn summary(report: &Report) -> Annotation {
    let counts: Vec<String> = Verdict::ALL
        .into_iter()
        .rev()
        .map(|verdict| (verdict.name().to_lowercase(), report.summary.count(verdict)))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let trials = plural(report.summary.total, "trial", "trials");
    let summary = format!(
        "{trials} in {}: {}",
        time(report.elapsed),
        counts.join(", ")
    );
    let title = format!("escape-audit: {}", report.gate.sentence);
    Annotation::new(Verdict::Allowed, title, &summary)
}

/// What is said of the audit as a whole, whatever else there is to say.
fn of_the_audit(report: &Report) -> Option<Annotation> {
    let (title, why) = match &report.incomplete {
        Some(why) => ("The audit is not complete", &**why),
        None if report.found() == exit_code::NOTHING_RAN => {
            ("Nothing ran", exit_code::sentence(exit_code::NOTHING_RAN))
        }
        None => return None,
    };
    Some(Annotation::new(Verdict::Error, title.into(), why))
}

/// At most as many as are shown; the one before the last counts those that are not.
fn write_kind(
    kind: &str,
    mut all: Vec<Annotation>,
    last: Option<Annotation>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let room = SHOWN - usize::from(last.is_some());
    if all.len() > room {
        let rest = all.split_off(room - 1);
        let counts: Vec<String> = Verdict::ALL
            .into_iter()
            .rev()
            .map(|verdict| {
                (
                    verdict,
                    rest.iter().filter(|a| a.verdict == verdict).count(),
                )
            })
            .filter(|(_, count)| *count > 0)
            .map(|(verdict, count)| match verdict {
                Verdict::Skipped => plural(count, "note", "notes"),
                verdict => format!("{count} {}", verdict.name()),
            })
            .collect();
        let title = format!("and {} more", rest.len());
        let text = format!("{}. The other reports have them all.", counts.join(", "));
        all.push(Annotation::new(Verdict::Error, title, &text));
    }
    all.iter()
        .chain(&last)
        .try_for_each(|annotation| annotation.write(kind, out))
}

/// One annotation.
struct Annotation {
    verdict: Verdict,
    file: Option<String>,
    title: String,
    lines: Vec<String>,
}

impl Annotation {
    fn new(verdict: Verdict, title: String, text: &str) -> Self {
        Self {
            verdict,
            file: None,
            title,
            lines: vec![text.to_owned()],
        }
    }

    fn write(&self, kind: &str, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "::{kind} ")?;
        if let Some(file) = &self.file {
            write!(out, "file={},line=1,", property(file, LINE))?;
        }
        writeln!(
            out,
            "title={}::{}",
            property(&self.title, TITLE),
            message(&self.lines)
        )
    }
}

fn of_trial(trial: &Trial, report: &Report) -> Annotation {
    let (case, judgement) = (&trial.source, &trial.judgement);
    let mut lines = vec![
        format!(
            "{} ({}, {})",
            case.title,
            word(case.severity),
            judgement.reason
        ),
        judgement.sentence.clone(),
    ];
    lines.extend(
        judgement
            .evidence
            .first()
            .map(|first| format!("Evidence: {first}")),
    );
    lines.extend(standing::of(trial).excuse());
    if judgement.verdict.escapes() {
        let holding = advice::holding(trial, report);
        if !holding.is_empty() {
            lines.push(format!(
                "What would have held it: {}",
                advice::told(&holding)
            ));
        }
        lines.push(format!("Fix: {}", case.fix.trim()));
    }
    let sandbox = report.sandbox_of(trial);
    lines.extend(
        sandbox.map(|sandbox| format!("To repeat it: {}", repeat::command(trial, sandbox))),
    );
    Annotation {
        verdict: judgement.verdict,
        file: Some(case.source.to_string_lossy().into_owned()),
        title: format!(
            "{} {} in {}",
            judgement.verdict.name(),
            trial.case,
            trial.sandbox
        ),
        lines,
    }
}

fn message(lines: &[String]) -> String {
    let lines: Vec<String> = lines
        .iter()
        .map(|line| SafeText::line_within(line, LINE).to_string())
        .collect();
    let whole: String = lines.join("\n").chars().take(MESSAGE).collect();
    whole
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(text: &str, most: usize) -> String {
    let text = SafeText::line_within(text, most).to_string();
    let text = text
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A");
    text.replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn written(report: &Report) -> Vec<String> {
        let mut out = Vec::new();
        write(report, &mut out).expect("a Vec takes everything");
        let text = String::from_utf8(out).expect("UTF-8");
        text.lines().map(str::to_owned).collect()
    }

    /// As the runner reads a line: kind, properties, message.
    fn read(line: &str) -> (String, Vec<(String, String)>, String) {
        let unescape = |text: &str| {
            let text = text.replace("%0D", "\r").replace("%0A", "\n");
            let text = text.replace("%3A", ":").replace("%2C", ",");
            text.replace("%25", "%")
        };
        let rest = line.strip_prefix("::").expect("a command");
        let (head, message) = rest.split_once("::").expect("a message");
        let (kind, properties) = head.split_once(' ').expect("properties");
        let properties = properties
            .split(',')
            .map(|pair| pair.split_once('=').expect("a pair"))
            .map(|(name, value)| (name.to_owned(), unescape(value)));
        (kind.to_owned(), properties.collect(), unescape(message))
    }

    #[test]
    fn an_escape_says_what_to_do_and_where() {
        let lines = written(&sample::report());
        let (kind, properties, message) = read(&lines[0]);
        assert_eq!(kind, "error");
        let wanted = [
            ("file", "escapes/network/escaped.toml"),
            ("line", "1"),
            ("title", "ESCAPED network/escaped in oci"),
        ];
        assert_eq!(
            properties,
            wanted.map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
        for said in [
            "(critical, canary)\nThe canary at 10.0.0.1:80 saw",
            "\nEvidence: tcp 10.0.0.1:80",
            "\nFix: Run without a network",
            "\nTo repeat it: escape-audit run --sandbox oci --case network/escaped",
        ] {
            assert!(message.contains(said), "{said}\n{message}");
        }
        let kinds: Vec<String> = lines.iter().map(|line| read(line).0).collect();
        let wanted: Vec<&str> = [vec!["error"; 6], vec!["warning"], vec!["notice"; 2]].concat();
        assert_eq!(kinds, wanted);
    }

    #[test]
    fn a_full_quota_keeps_the_worst_counts_the_rest_and_still_says_that_it_is_partial() {
        let mut report = sample::empty();
        report.sandboxes = vec![sample::sandbox("a")];
        for n in 0..20 {
            for verdict in [Verdict::Inconclusive, Verdict::Error, Verdict::Escaped] {
                let id = format!("network/{}-{n}", verdict.name().to_lowercase());
                report.trials.push(sample::trial("a", &id, verdict));
            }
        }
        for (incomplete, escapes) in [(None, 9), (Some("interrupted".to_owned()), 8)] {
            report.exit_code = 1;
            report.incomplete = incomplete.clone();
            let lines = written(&report);
            let errors: Vec<_> = lines
                .iter()
                .map(|line| read(line))
                .filter(|a| a.0 == "error")
                .collect();
            assert_eq!(errors.len(), SHOWN);
            for error in &errors[..escapes] {
                assert!(error.1[2].1.starts_with("ESCAPED"), "{error:?}");
            }
            let (_, more, counts) = &errors[escapes];
            assert_eq!(more[0].1, format!("and {} more", 60 - escapes));
            let wanted = format!("{} ESCAPED, 20 ERROR, 20 INCONCLUSIVE.", 20 - escapes);
            assert!(counts.starts_with(&wanted), "{counts}");
            let last = &errors[SHOWN - 1];
            assert_eq!(last.2 == "interrupted", incomplete.is_some(), "{last:?}");
        }
    }

    #[test]
    fn a_stranger_neither_ends_a_command_nor_begins_one() {
        let report = sample::hostile_report();
        let lines = written(&report);
        // Four bad verdicts, the lost sandbox, the interruption; two notes; the summary.
        assert_eq!(lines.len(), 6 + 2 + 1);
        for line in &lines {
            let (kind, properties, message) = read(line);
            assert!(["error", "warning", "notice"].contains(&&*kind));
            for (name, _) in &properties {
                assert!(
                    ["file", "line", "title"].contains(&&**name),
                    "{name} in {line}"
                );
            }
            assert!(message.chars().count() <= 4096);
            for mark in ["##[", "##vso[", "##teamcity[", "[[ATTACHMENT|"] {
                assert!(!line.contains(mark), "{line}");
            }
        }
    }
}
