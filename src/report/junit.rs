//! The report as JUnit: a display for those who read it; the exit code is the gate.
//!
//! One `<testsuite>` a sandbox, one `<testcase>` a trial, each with at most one result element, because readers take
//! the mildest of several. What is no trial and must not be overlooked is an erring testcase too: a sandbox that could
//! not be audited, an audit that did not come to its end, one in which nothing ran.

mod polish;

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use junit_report::{Duration, TestCase, TestCaseBuilder, TestSuite};

use super::decided::{Remark, Weight};
use super::line::why_it_does_not_gate;
use super::{Report, SandboxReport, Trial};
use crate::case::Level;
use crate::config::{BackendKind, QUICK_COMMAND};
use crate::exit_code;
use crate::safe_text::{Cap, SafeText};
use crate::verdict::Verdict;

/// Characters of a message: it is shown in lists.
const MESSAGE: usize = 1000;

/// Writes the report.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut document = junit_report::Report::new();
    for sandbox in &report.sandboxes {
        document.add_testsuite(suite(report, sandbox));
    }
    let of_the_audit = of_the_audit(report);
    if !of_the_audit.is_empty() {
        document.add_testsuite(new_suite("escape-audit", of_the_audit));
    }
    let mut raw = Vec::new();
    document.write_xml(&mut raw).map_err(io::Error::other)?;
    polish::write(&raw, &document, &report.started, out)
}

fn suite(report: &Report, sandbox: &SandboxReport) -> TestSuite {
    let name = &sandbox.sandbox.name;
    let mut cases: Vec<TestCase> = report
        .trials
        .iter()
        .filter(|trial| trial.sandbox == *name)
        .map(|trial| testcase(trial, sandbox))
        .collect();
    if let Some(why) = &sandbox.failed {
        cases.push(erring(name, "sandbox", "not-audited", why));
    }
    make_names_unique(&mut cases);
    new_suite(name, cases)
}

fn new_suite(name: &str, cases: Vec<TestCase>) -> TestSuite {
    let mut suite = TestSuite::new(SafeText::line(name).as_str());
    // The crate's own default repeats the name, and Jenkins then shows it twice.
    suite.package = "escape-audit".into();
    suite.add_testcases(cases);
    suite
}

/// What is to be said of the audit as a whole.
fn of_the_audit(report: &Report) -> Vec<TestCase> {
    let mut cases = Vec::new();
    if let Some(why) = &report.incomplete {
        cases.push(erring("escape-audit", "complete", "incomplete", why));
    }
    let of_a_failure = |remark: &&Remark| {
        let is_about = |trial: &&Trial| {
            Some(&trial.case) == remark.case.as_ref()
                && Some(&trial.sandbox) == remark.sandbox.as_ref()
        };
        let mut meant = report.trials.iter().filter(is_about);
        meant.any(|trial| trial.counts() && trial.judgement.verdict.escapes())
    };
    let fails = report
        .gate
        .remarks
        .iter()
        .filter(|r| r.weight == Weight::Fails);
    // What fails as a testcase of its own is not told twice.
    for remark in fails.filter(|remark| !of_a_failure(remark)) {
        let about = [&remark.sandbox, &remark.case].into_iter().flatten();
        let words: Vec<&str> = about.map(String::as_str).collect();
        let name = SafeText::line(format!("gate {}", words.join(" ")));
        let code = remark.code;
        cases.push(erring(
            "escape-audit",
            name.as_str().trim(),
            code,
            &remark.sentence,
        ));
    }
    make_names_unique(&mut cases);
    let code = match report.gate.no_fail {
        true => report.gate.exit_code,
        false => report.exit_code,
    };
    if code == exit_code::NOTHING_RAN {
        let why = exit_code::sentence(exit_code::NOTHING_RAN);
        cases.push(erring("escape-audit", "ran", "nothing-ran", why));
    }
    cases
}

fn erring(classname: &str, name: &str, reason: &str, why: &str) -> TestCase {
    let message = SafeText::line_within(why, MESSAGE);
    let mut case = TestCase::error(name, Duration::ZERO, reason, message.as_str());
    case.set_classname(SafeText::line(classname).as_str());
    case
}

fn testcase(trial: &Trial, sandbox: &SandboxReport) -> TestCase {
    let judgement = &trial.judgement;
    let name = SafeText::line(&trial.case);
    let time =
        Duration::milliseconds(i64::try_from(trial.duration.as_millis()).unwrap_or(i64::MAX));
    // A list shows the message alone: the first of the evidence says most.
    let message = match (judgement.verdict, judgement.evidence.first()) {
        (Verdict::Escaped, Some(first)) => {
            format!("{} First of the evidence: {first}.", judgement.sentence)
        }
        _ => judgement.sentence.clone(),
    };
    let message = SafeText::line_within(message, MESSAGE);
    let (name, reason, message) = (name.as_str(), judgement.reason, message.as_str());

    let mut builder = match judgement.verdict {
        Verdict::Allowed | Verdict::Blocked => TestCaseBuilder::success(name, time),
        Verdict::Skipped => {
            TestCaseBuilder::skipped_with_cause(name, reason, &format!("{reason}: {message}"))
        }
        // What does not gate must not turn a build red.
        verdict if !trial.counts() => {
            let why = match &trial.waived {
                Some(waived) => SafeText::line_within(waived.to_string(), MESSAGE).to_string(),
                None => {
                    let why = why_it_does_not_gate(trial).unwrap_or_default();
                    format!("does not gate ({why})")
                }
            };
            let message = format!("{why}: {} {reason}: {message}", verdict.name());
            TestCaseBuilder::skipped_with_cause(name, reason, &message)
        }
        Verdict::Escaped | Verdict::Broken => TestCaseBuilder::failure(
            name,
            time,
            reason,
            &format!("{}: {message}", judgement.verdict.name()),
        ),
        Verdict::Inconclusive | Verdict::Error => TestCaseBuilder::error(
            name,
            time,
            reason,
            &format!("{}: {message}", judgement.verdict.name()),
        ),
    };
    builder
        .set_classname(
            SafeText::line(format!("{}.{}", trial.sandbox, trial.source.category())).as_str(),
        )
        .set_trace(&details(trial, sandbox));
    let inside = &trial.observed.inside;
    if !inside.output_head.is_empty() {
        builder.set_system_out(&SafeText::capped(&inside.output_head, Cap::STREAM).cdata());
    }
    if !inside.error_head.is_empty() {
        builder.set_system_err(&SafeText::capped(&inside.error_head, Cap::STREAM).cdata());
    }
    builder.build()
}

/// The text below a message: everything that a person needs to act.
fn details(trial: &Trial, sandbox: &SandboxReport) -> String {
    let (case, judgement) = (&trial.source, &trial.judgement);
    let mut text = format!("{}\n\n{}\n", case.title, judgement.sentence);
    if !judgement.evidence.is_empty() {
        text.push_str("\nEvidence:\n");
    }
    for evidence in &judgement.evidence {
        text.push_str(&format!("- {evidence}\n"));
    }
    if matches!(judgement.verdict, Verdict::Escaped | Verdict::Broken) {
        text.push_str(&format!(
            "\nSeverity: {}\nWhy it matters: {}\n",
            format!("{:?}", case.severity).to_lowercase(),
            case.why.trim()
        ));
        let holding = case
            .weakened
            .for_backend(sandbox.sandbox.backend.name())
            .iter()
            .map(|protection| protection.name())
            .collect::<Vec<_>>();
        if judgement.verdict == Verdict::Escaped && !holding.is_empty() {
            text.push_str(&format!(
                "What would have held it: {}\n",
                holding.join(" or ")
            ));
        }
        text.push_str(&format!("Fix: {}\n", case.fix.trim()));
    }
    if judgement.verdict > Verdict::Skipped {
        text.push_str(&format!("\nTo repeat it: {}\n", again(trial, sandbox)));
    }
    SafeText::capped(text, Cap::STREAM).cdata()
}

/// The command that makes this trial once more.
fn again(trial: &Trial, sandbox: &SandboxReport) -> String {
    let (case, sandbox) = (&trial.source, &sandbox.sandbox);
    let mut words = vec!["escape-audit".to_owned(), "run".to_owned()];
    let mut option = |name: &str, value: &str| words.extend([name.to_owned(), quoted(value)]);
    // What the command line named, in place of a project file.
    let launcher = sandbox.backend == BackendKind::Command && sandbox.name == QUICK_COMMAND;
    if !launcher {
        option("--sandbox", &sandbox.name);
    }
    if sandbox.policy.level != Level::Standard {
        let level = format!("{:?}", sandbox.policy.level).to_lowercase();
        option("--level", &level);
    }
    if !sandbox.without.is_empty() {
        let names: Vec<&str> = sandbox.without.iter().map(|p| p.name()).collect();
        option("--without", &names.join(","));
    }
    let embedded = Path::new("escapes").join(format!("{}.toml", case.id));
    if case.source != embedded
        && let Some(folder) = case.source.parent().and_then(Path::parent)
    {
        option("--cases", &folder.to_string_lossy());
    }
    option("--case", &case.id);
    if launcher {
        words.push("--".into());
        words.extend(sandbox.command.iter().map(|word| quoted(word)));
    }
    words.join(" ")
}

/// As a shell reads it as one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:=@%{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Readers take the second of two testcases with one name for a retry, and forget the first.
fn make_names_unique(cases: &mut [TestCase]) {
    let mut seen = HashMap::new();
    for case in cases {
        let times = seen
            .entry((case.classname.clone(), case.name.clone()))
            .or_insert(0);
        *times += 1;
        if *times > 1 {
            case.name.push_str(&format!(" #{times}"));
        }
    }
}

#[cfg(test)]
mod tests;
