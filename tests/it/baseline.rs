//! Baselines from end to end: written from a real audit, and held against later ones.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Audit, Seen, folder, have, text};

const CASES: [&str; 4] = ["--case", "works/*", "--case", "network/tcp-egress"];

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_escape-audit"))
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

/// All that it said, on one line.
fn said(output: &Output) -> String {
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    said.concat()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// A report as a file, and the baseline of it.
fn remembered(place: &Path, report: &Value) -> (String, String) {
    let file = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let (report_file, baseline) = (file("report.json"), file("baseline.toml"));
    fs::write(&report_file, report.to_string()).unwrap();
    let output = program(&["baseline", "write", &report_file, "-o", &baseline]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    (report_file, baseline)
}

fn audit(more: &[&str]) -> Seen {
    Audit::run(&[&CASES[..], more].concat()).finish()
}

fn codes(seen: &Seen) -> Vec<&str> {
    let remarks = seen.report["gate"]["remarks"].as_array().unwrap();
    remarks.iter().map(|remark| text(&remark["code"])).collect()
}

#[test]
fn what_held_is_held_against_what_comes_later() {
    if !have(&["root"]) {
        return;
    }
    let place = folder();
    let first = audit(&[]);
    assert_eq!(first.status, 0, "{}{}", first.out, first.err);
    let (report, baseline) = remembered(place.path(), &first.report);
    let written = fs::read_to_string(&baseline).unwrap();
    let lines = written
        .lines()
        .filter(|line| line.starts_with("\""))
        .count();
    assert_eq!(lines, first.trials().len(), "{written}");

    let output = program(&["baseline", "check", &baseline, &report]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));

    let again = audit(&["--baseline", &baseline]);
    assert_eq!(
        (again.status, codes(&again)),
        (0, vec![]),
        "{}{}",
        again.out,
        again.err
    );

    let worse = audit(&["--baseline", &baseline, "--without", "network"]);
    assert_eq!(
        (worse.status, codes(&worse)),
        (1, vec!["baseline-worse"]),
        "{}",
        worse.out
    );
    let sentence = "`network/tcp-egress` was BLOCKED in `oci`, and is ESCAPED now.";
    assert!(worse.out.contains(sentence), "{}", worse.out);
    let junit = worse.junit.unwrap();
    assert!(
        junit.contains("failures=\"1\"") && !junit.contains("baseline-worse"),
        "{junit}"
    );

    let less = audit(&["--baseline", &baseline, "--skip", "works/run"]);
    assert_eq!(
        (less.status, codes(&less)),
        (3, vec!["baseline-not-covered"]),
        "{}",
        less.out
    );
    assert!(less.out.contains("--skip works/run"), "{}", less.out);
    assert!(
        less.junit
            .unwrap()
            .contains("type=\"baseline-not-covered\"")
    );

    let elsewhere = audit(&["--baseline", &baseline, "--sandbox", "unsandboxed"]);
    assert_eq!(
        (elsewhere.status, codes(&elsewhere)),
        (1, vec!["baseline-not-audited"])
    );
}

#[test]
fn a_part_of_the_library_answers_for_its_part_and_all_parts_for_all() {
    if !have(&["root"]) {
        return;
    }
    let place = folder();
    let whole = audit(&[]);
    let (_, baseline) = remembered(place.path(), &whole.report);
    let mut tried = Vec::new();
    for part in ["hash:1/2", "hash:2/2"] {
        let seen = audit(&[
            "--baseline",
            &baseline,
            "--partition",
            part,
            "--no-tests",
            "pass",
        ]);
        assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
        assert_eq!(seen.report["selection"][2], format!("--partition {part}"));
        tried.extend(
            seen.trials()
                .iter()
                .map(|trial| text(&trial["case"]).to_owned()),
        );
    }
    tried.sort();
    let all: Vec<&str> = whole
        .trials()
        .iter()
        .map(|trial| text(&trial["case"]))
        .collect();
    assert_eq!(tried, all);
}

/// Reports that were not made by hand, but changed by it.
#[test]
fn a_renamed_case_a_skipped_one_and_a_cut_report() {
    if !have(&["root"]) {
        return;
    }
    let place = folder();
    let whole = audit(&[]);
    let (report, baseline) = remembered(place.path(), &whole.report);
    let check = |change: &dyn Fn(&mut Value), code: i32, words: &[&str]| {
        let mut changed = whole.report.clone();
        // The selection explains what is missing; here nothing does.
        changed["selection"] = Value::Array(Vec::new());
        change(&mut changed);
        fs::write(&report, changed.to_string()).unwrap();
        let output = program(&["baseline", "check", &baseline, &report]);
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        for word in words {
            assert!(said(&output).contains(word), "{word}\n{}", said(&output));
        }
    };
    check(&|_| {}, 0, &["exit 0"]);
    check(
        &|value| value["trials"][0]["case"] = "network/renamed".into(),
        3,
        &[
            "`network/tcp-egress` was renamed to `network/renamed`",
            "exit 3: ",
        ],
    );
    check(
        &|value| {
            value["trials"][0]["verdict"] = "SKIPPED".into();
            value["summary"]["blocked"] = 0.into();
            value["summary"]["skipped"] = 1.into();
        },
        3,
        &["was BLOCKED in `oci`, and was skipped now: it cannot be shown to hold"],
    );
    check(
        &|value| value["schema"] = 9.into(),
        2,
        &["version 9", "help: "],
    );
    check(&|value| value["incomplete"] = "cut".into(), 3, &["exit 3"]);

    let cut = whole.report.to_string();
    fs::write(&report, &cut[..cut.len() / 2]).unwrap();
    let output = program(&["baseline", "check", &baseline, &report]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("it ends in the middle"),
        "{}",
        said(&output)
    );
    let output = program(&["baseline", "check", &report, &report]);
    assert!(
        said(&output).contains("error[not-a-baseline]"),
        "{}",
        said(&output)
    );
    let output = audit(&["--baseline", &report]);
    output.expect_refusal(&["not-a-baseline"]);

    for (member, words) in [
        ("incomplete", "not complete"),
        ("without", "without network"),
    ] {
        let mut changed = whole.report.clone();
        match member {
            "without" => changed["sandboxes"][0]["without"] = serde_json::json!(["network"]),
            _ => changed[member] = "interrupted".into(),
        }
        fs::write(&report, changed.to_string()).unwrap();
        let before = fs::read(&baseline).unwrap();
        let output = program(&["baseline", "write", &report, "-o", &baseline]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
        assert_eq!(fs::read(&baseline).unwrap(), before, "the old one stays");
    }
}
