//! The report as JUnit: a display for those who read it; the exit code is the gate.
//!
//! One `<testsuite>` a sandbox, one `<testcase>` a trial, each with at most one result element, because readers take
//! the mildest of several. What is no trial and must not be overlooked is an erring testcase too: a sandbox that could
//! not be audited, an audit that did not come to its end, one in which nothing ran.

mod polish;

use std::collections::HashMap;
use std::io::{self, Write};

use junit_report::{Duration, TestCase, TestCaseBuilder, TestSuite};

use self::polish::{Extras, OfSuite, Properties};
use super::standing::{self, Standing, failing_remarks};
use super::style::word;
use super::{Report, SandboxReport, Trial, printed, repeat};
use crate::exit_code;
use crate::safe_text::{Cap, SafeText};
use crate::verdict::Verdict;

/// Characters of a message: it is shown in lists.
const MESSAGE: usize = 1000;

/// How much is said beyond the published schemas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Profile {
    /// Nothing: `junit-10.xsd` and `jenkins-junit.xsd` accept it.
    Strict,
    /// `file`, `line` and properties of each testcase too, which most readers show and both schemas refuse.
    #[default]
    Rich,
}

/// Writes the report.
pub fn write(report: &Report, profile: Profile, out: &mut dyn Write) -> io::Result<()> {
    let sandboxes = report.sandboxes.iter();
    let suites = sandboxes
        .map(|sandbox| of_sandbox(report, sandbox))
        .chain(of_the_audit(report));
    let mut document = junit_report::Report::new();
    let mut extras = Extras {
        started: match profile {
            // Readers that go by a schema know no zone; those that do not read RFC 3339.
            Profile::Strict => report.started.trim_end_matches('Z').into(),
            Profile::Rich => report.started.clone(),
        },
        ..Extras::default()
    };
    for mut suite in suites {
        make_names_unique(&mut suite.cases);
        let mut written = TestSuite::new(SafeText::line(&suite.name).as_str());
        // The crate's own default repeats the name, and Jenkins then shows it twice.
        written.package = "escape-audit".into();
        for (mut case, properties) in suite.cases {
            match profile {
                Profile::Strict => case.filepath = None,
                Profile::Rich => extras.cases.push(properties),
            }
            written.add_testcase(case);
        }
        extras.suites.push(OfSuite {
            skipped: written.skipped(),
            properties: suite.properties,
        });
        document.add_testsuite(written);
    }
    let mut raw = Vec::new();
    document.write_xml(&mut raw).map_err(io::Error::other)?;
    polish::write(&raw, extras, out)
}

/// A suite before it is written, with what the crate has no place for.
struct Suite {
    name: String,
    properties: Properties,
    cases: Vec<(TestCase, Properties)>,
}

fn of_sandbox(report: &Report, sandbox: &SandboxReport) -> Suite {
    let name = &sandbox.sandbox.name;
    let mut cases: Vec<_> = report
        .trials
        .iter()
        .filter(|trial| trial.sandbox == *name)
        .map(|trial| (testcase(trial, sandbox), properties(trial)))
        .collect();
    if let Some(why) = &sandbox.failed {
        cases.push(erring(name, "sandbox", "not-audited", why));
    }
    let tool = format!("{} {}", report.tool.name, report.tool.version);
    let mut properties = vec![
        ("tool", SafeText::line(tool)),
        ("library", SafeText::line(&report.tool.library)),
        ("backend", SafeText::line(sandbox.sandbox.backend.name())),
    ];
    let digest = sandbox.digest.iter();
    properties.extend(digest.map(|digest| ("digest", SafeText::line(digest))));
    let notes = sandbox.notes.iter();
    properties.extend(notes.map(|note| ("note", SafeText::line_within(note, MESSAGE))));
    Suite {
        name: name.clone(),
        properties,
        cases,
    }
}

/// What is to be said of the audit as a whole.
fn of_the_audit(report: &Report) -> Option<Suite> {
    let mut cases = Vec::new();
    if let Some(why) = &report.incomplete {
        cases.push(erring("escape-audit", "complete", "incomplete", why));
    }
    for remark in failing_remarks(report) {
        let about = [&remark.sandbox, &remark.case].into_iter().flatten();
        let words: Vec<&str> = about.map(String::as_str).collect();
        let name = SafeText::line(format!("gate {}", words.join(" ")));
        let (name, code) = (name.as_str().trim(), remark.code);
        cases.push(erring("escape-audit", name, code, &remark.sentence));
    }
    if report.found() == exit_code::NOTHING_RAN {
        let why = exit_code::sentence(exit_code::NOTHING_RAN);
        cases.push(erring("escape-audit", "ran", "nothing-ran", why));
    }
    (!cases.is_empty()).then(|| Suite {
        name: "escape-audit".into(),
        properties: Properties::new(),
        cases,
    })
}

fn erring(classname: &str, name: &str, reason: &str, why: &str) -> (TestCase, Properties) {
    let message = SafeText::line_within(why, MESSAGE);
    let mut case = TestCase::error(name, Duration::ZERO, reason, message.as_str());
    case.set_classname(SafeText::line(classname).as_str());
    (case, Properties::new())
}

/// What a reader may filter by.
fn properties(trial: &Trial) -> Properties {
    let (case, judgement) = (&trial.source, &trial.judgement);
    let mut properties = vec![
        ("verdict", judgement.verdict.name().to_owned()),
        ("reason", judgement.reason.to_owned()),
        ("severity", word(case.severity)),
        ("level", word(case.level)),
        ("gates", trial.gates.to_string()),
        ("inside-only", judgement.inside_only.to_string()),
    ];
    let techniques = case.techniques.iter();
    properties.extend(techniques.map(|technique| ("technique", technique.clone())));
    properties
        .into_iter()
        .map(|(name, value)| (name, SafeText::line(value)))
        .collect()
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

    let verdict = judgement.verdict.name();
    let told = format!("{verdict}: {message}");
    let skipped = |message: &str| TestCaseBuilder::skipped_with_cause(name, reason, message);
    let mut builder = match standing::of(trial) {
        Standing::Held => TestCaseBuilder::success(name, time),
        Standing::Skipped => skipped(&format!("{reason}: {message}")),
        // What does not count must not turn a build red.
        Standing::Silent(why) => skipped(&format!(
            "does not gate ({why}): {verdict} {reason}: {message}"
        )),
        Standing::Waived(waived) => {
            let waived = SafeText::line_within(waived.to_string(), MESSAGE);
            skipped(&format!("{waived}: {verdict} {reason}: {message}"))
        }
        Standing::Failed => TestCaseBuilder::failure(name, time, reason, &told),
        Standing::Undecided => TestCaseBuilder::error(name, time, reason, &told),
    };
    let file = trial.source.source.to_string_lossy();
    builder
        .set_classname(
            SafeText::line(format!("{}.{}", trial.sandbox, trial.source.category())).as_str(),
        )
        .set_filepath(SafeText::line(file.as_bytes()).as_str())
        .set_trace(&details(trial, sandbox));
    let inside = &trial.observed.inside;
    if !inside.output.is_empty() {
        builder.set_system_out(&printed::block(&inside.output).cdata());
    }
    if !inside.error.is_empty() {
        builder.set_system_err(&printed::block(&inside.error).cdata());
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
            word(case.severity),
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
        text.push_str(&format!(
            "\nTo repeat it: {}\n",
            repeat::command(trial, sandbox)
        ));
    }
    SafeText::capped(text, Cap::STREAM).cdata()
}

/// Readers take the second of two testcases with one name for a retry, and forget the first.
fn make_names_unique(cases: &mut [(TestCase, Properties)]) {
    let mut seen = HashMap::new();
    for (case, _) in cases {
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
