//! What every format promises, held against one report that holds everything.

use std::collections::BTreeSet;

use super::*;
use crate::report::decided::{Remark, Waived, Weight};
use crate::report::sample;
use crate::safe_text::must_escape;

#[test]
fn each_has_a_name_of_its_own_and_is_found_by_it() {
    let names: BTreeSet<&str> = FORMATS.iter().map(|format| format.name).collect();
    assert_eq!(names.len(), FORMATS.len());
    for format in &FORMATS {
        assert_eq!(named(format.name), Some(format));
        assert!(
            !format.name.contains('='),
            "{format:?} could not be asked for"
        );
    }
    assert_eq!(named("nope"), None);
}

/// Each of them shows the worst, and says of a report that is not whole why it is not.
#[test]
fn no_format_hides_an_escape_or_a_partial_report() {
    let mut report = sample::report();
    for format in &FORMATS {
        let text = format.text(&report);
        assert!(text.contains("network/escaped"), "{format:?}:\n{text}");
        assert!(text.contains("lost"), "{format:?}:\n{text}");
        assert!(!text.contains("interrupted"), "{format:?}:\n{text}");
    }
    report.incomplete = Some("the audit was interrupted after 3 of 36".into());
    for format in &FORMATS {
        let text = format.text(&report);
        assert!(text.contains("network/escaped"), "{format:?}:\n{text}");
        assert!(
            text.contains("interrupted after 3 of 36"),
            "{format:?}:\n{text}"
        );
    }
}

/// What every format promises of what strangers wrote, in titles and names as in output: no character acts, no reader of
/// logs is commanded, and the text can still be read. That the counts are right and nothing runs, each format's own tests
/// have another reader say.
#[test]
fn nothing_of_a_stranger_acts_in_any_format() {
    let mut excused = sample::hostile_report();
    let text = sample::hostile_text();
    excused.trials[6].waived = Some(Waived {
        until: "2027-02-28".parse().expect("a day"),
        reason: text.clone(),
        ticket: Some(text.clone()),
    });
    let remark = |weight| Remark {
        weight,
        code: "waiver-expired",
        sandbox: Some(text.clone()),
        case: Some(text.clone()),
        sentence: text.clone(),
    };
    excused.gate.remarks = [Weight::Fails, Weight::Warning, Weight::Note]
        .map(remark)
        .into();
    excused.gate.sentence.clone_from(&text);
    for report in [sample::report(), sample::hostile_report(), excused] {
        for format in &FORMATS {
            let text = format.text(&report);
            for c in text.chars().filter(|c| *c != '\n') {
                assert!(!must_escape(c), "{format:?}: {c:?}");
            }
            for line in text.lines() {
                let command = line.trim_start().starts_with("::");
                let ours = format.name == "github" && line.starts_with("::");
                assert!(!command || ours, "{format:?}: {line}");
                let lower = line.to_ascii_lowercase();
                for mark in ["##[", "##vso[", "##teamcity[", "[[attachment|"] {
                    assert!(!lower.contains(mark), "{format:?}: {mark} in {line}");
                }
            }
            for readable in [
                "alert(1)",
                "stop-commands",
                "task.complete result",
                "/etc/passwd",
            ] {
                assert!(text.contains(readable), "{format:?} lost {readable}");
            }
        }
    }
}

/// What the gate excused is told with its reason, and does not look like a failure; what it found wrong is told too.
#[test]
fn a_waived_escape_is_shown_and_excused_in_every_format() {
    let (before, after) = (sample::report(), sample::waived());
    for format in &FORMATS {
        let text = format.text(&after);
        assert!(text.contains("2027-02-28"), "{format:?}:\n{text}");
        assert!(
            text.contains("a hardened kernel lands in February"),
            "{format:?}"
        );
        assert!(text.contains("ended on 2026-11-28"), "{format:?}:\n{text}");
        let red = match format.name {
            "junit" => "<failure ",
            "github" => "title=ESCAPED",
            "tap" => "  verdict: \"ESCAPED\"",
            _ => continue, // they show it, and what it counts for in words
        };
        let count = |text: &str| match format.name {
            "github" => text
                .lines()
                .filter(|l| l.starts_with("::error ") && l.contains(red))
                .count(),
            "tap" => text
                .lines()
                .filter(|l| l.starts_with("not ok") && !l.contains("# TODO"))
                .count(),
            _ => text.matches(red).count(),
        };
        // The waived one and the one below --fail-on are gone; in TAP the gate's remark is a point of its own.
        let gone = if format.name == "tap" { 1 } else { 2 };
        assert_eq!(
            count(&format.text(&before)),
            count(&text) + gone,
            "{format:?}:\n{text}"
        );
    }
    let sarif: serde_json::Value =
        serde_json::from_str(&named("sarif").expect("there").text(&after)).expect("JSON");
    let results = sarif["runs"][0]["results"].as_array().expect("a list");
    let suppressed = results.iter().filter(|r| r["suppressions"].is_array());
    assert_eq!(suppressed.count(), 1);
}

/// The same trials, whatever they are called, come to the same number of everything.
#[test]
fn a_strangers_names_change_no_count() {
    let hostile = sample::hostile_report();
    let mut tame = hostile.clone();
    for (n, trial) in tame.trials.iter_mut().enumerate() {
        trial.case = format!("network/case-{n}");
        trial.source.id.clone_from(&trial.case);
        trial.source.title = "A title".into();
        trial.judgement.sentence = "A sentence.".into();
    }
    let count = |report: &Report, format: &str, what: &str| {
        let text = named(format).expect("there").text(report);
        text.lines()
            .filter(|line| line.trim_start().starts_with(what))
            .count()
    };
    for (format, what) in [
        ("jsonl", "{\"line\":\"trial\""),
        ("junit", "<testcase "),
        ("junit", "<failure "),
        ("junit", "<error "),
        ("junit", "<skipped>"),
        ("sarif", "\"ruleId\""),
        ("markdown", "| "),
        ("markdown", "<details>"),
        ("html", "<details class=\"trial"),
        ("github", "::error "),
        ("github", "::notice "),
        ("tap", "not ok "),
        ("tap", "ok "),
        ("tap", "---"),
        ("tap", "..."),
    ] {
        let counted = count(&hostile, format, what);
        assert_ne!(counted, 0, "{format}: {what}");
        assert_eq!(counted, count(&tame, format, what), "{format}: {what}");
    }
}

/// A long output keeps its beginning and its end, and what is between them is counted and hashed.
#[test]
fn a_long_output_keeps_both_ends() {
    let mut report = sample::report();
    let mut output = b"the beginning\n".to_vec();
    output.extend(b"middle ".repeat(100_000));
    output.extend(b"\nthe end");
    for trial in &mut report.trials {
        trial.observed.inside.output = output.clone().into();
    }
    for format in ["junit", "html"] {
        let text = named(format).expect("there").text(&report);
        assert!(
            text.contains("the beginning\n") && text.contains("\nthe end"),
            "{format}"
        );
        assert!(
            text.contains(&format!("of {} bytes left out, sha256 ", output.len())),
            "{format}"
        );
        assert!(
            text.len() < report.trials.len() * 300_000,
            "{format}: {}",
            text.len()
        );
    }
}
