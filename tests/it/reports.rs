//! The reports of real runs are well-formed, agree with each other, and survive what a sandbox prints.

use std::fs;
use std::path::Path;
use std::process::Command;

use escape_audit::report::format::{FORMATS, Format};
use nix::sys::signal::Signal;
use quick_junit::{NonSuccessKind, TestCaseStatus};
use serde_json::Value;

use crate::main_job::{OCI, UNSANDBOXED, counts};
use crate::support::{Audit, Seen, have, run, run_with, runner, text};

/// JUnit and JSON tell of the same trials, and count them alike.
#[track_caller]
fn agree(seen: &Seen) {
    let junit = seen.junit.as_deref().expect("a JUnit report");
    let read = quick_junit::Report::deserialize_from_str(junit).unwrap();
    let trials = seen.trials();
    let counts = counts(seen);
    let count =
        |verdicts: &[&str]| -> usize { verdicts.iter().filter_map(|v| counts.get(v)).sum() };
    let sum =
        |of: fn(&quick_junit::TestSuite) -> usize| read.test_suites.iter().map(of).sum::<usize>();
    assert_eq!(sum(|suite| suite.tests), trials.len());
    assert_eq!(sum(|suite| suite.failures), count(&["ESCAPED", "BROKEN"]));
    assert_eq!(sum(|suite| suite.errors), count(&["INCONCLUSIVE", "ERROR"]));
    let mut told = 0;
    for case in read.test_suites.iter().flat_map(|suite| &suite.test_cases) {
        let trial = seen.trial(case.name.as_str());
        let wanted: &[&str] = match &case.status {
            TestCaseStatus::Success { .. } => &["BLOCKED", "ALLOWED"],
            TestCaseStatus::Skipped { .. } => &["SKIPPED"],
            TestCaseStatus::NonSuccess {
                kind: NonSuccessKind::Failure,
                ..
            } => &["ESCAPED", "BROKEN"],
            TestCaseStatus::NonSuccess {
                kind: NonSuccessKind::Error,
                ..
            } => &["INCONCLUSIVE", "ERROR"],
        };
        assert!(
            wanted.contains(&text(&trial["verdict"])),
            "{}: {wanted:?}",
            case.name.as_str()
        );
        told += 1;
    }
    assert_eq!(told, trials.len());

    let summary = &seen.report["summary"];
    assert_eq!(summary["total"], trials.len());
    for (verdict, count) in &counts {
        assert_eq!(summary[verdict.to_lowercase()], *count, "{summary}");
    }
    assert_eq!(seen.report["exit_code"], seen.status);
    assert_eq!(seen.report["incomplete"], Value::Null);
    xmllint(junit);
}

/// `--format F=PATH` for every format, into this folder.
fn every_format(folder: &Path) -> Vec<String> {
    let asked = |format: &Format| {
        let path = folder.join(format.name);
        [
            "--format".to_owned(),
            format!("{}={}", format.name, path.display()),
        ]
    };
    FORMATS.iter().flat_map(asked).collect()
}

#[test]
fn of_one_run_in_every_format() {
    if !have(&["root"]) {
        return;
    }
    let folder = crate::support::folder();
    let asked = every_format(folder.path());
    let mut arguments: Vec<&str> = asked.iter().map(String::as_str).collect();
    arguments.extend([
        "--sandbox",
        "unsandboxed",
        "--sandbox",
        "oci",
        "--case",
        "kernel/*",
    ]);
    let seen = run(&arguments);
    assert_eq!(seen.status, 1, "{}", seen.err);
    let escaped = seen.report["summary"]["escaped"].as_u64().unwrap();
    let escaped = usize::try_from(escaped).unwrap();
    assert!(escaped > 5, "{}", seen.out);
    for format in &FORMATS {
        let text = fs::read_to_string(folder.path().join(format.name)).unwrap();
        assert!(
            text.contains("unsandboxed") && text.contains("kernel/io-uring"),
            "{format:?}"
        );
        assert!(!text.contains("interrupted"), "{format:?}");
        let (told, counted) = match format.name {
            "human" => ("ESCAPED  unsandboxed", escaped),
            "json" => ("\"verdict\": \"ESCAPED\"", escaped),
            "jsonl" => ("\"verdict\":\"ESCAPED\"", escaped),
            "junit" => ("<failure ", escaped),
            "sarif" => ("\"ruleId\"", escaped),
            "markdown" => ("<b>ESCAPED</b>", escaped),
            "html" => ("data-verdict=\"ESCAPED\" data-severity", escaped),
            "github" => ("::error ", escaped.min(10)),
            "tap" => ("not ok ", escaped),
            other => panic!("how is an escape told in {other}?"),
        };
        assert_eq!(text.matches(told).count(), counted, "{format:?}");
    }
    // What a reader pastes to see one again is what was asked for.
    let junit = fs::read_to_string(folder.path().join("junit")).unwrap();
    assert!(junit.contains("escape-audit run --sandbox unsandboxed --case kernel/io-uring"));
}

#[test]
fn standard_output_is_one_report_or_the_page() {
    if !have(&["root"]) {
        return;
    }
    let seen = run(&["--case", "works/run", "--format", "tap=-"]);
    assert_eq!(seen.out, "TAP version 14\n1..1\nok 1 - oci: works/run\n");
    assert_eq!(seen.status, 0, "{}", seen.err);
}

#[test]
fn an_interrupted_run_says_so_in_every_format_and_keeps_what_escaped() {
    if !have(&["root"]) {
        return;
    }
    let folder = crate::support::folder();
    let asked = every_format(folder.path());
    let mut arguments: Vec<&str> = asked.iter().map(String::as_str).collect();
    arguments.extend(["--sandbox", "unsandboxed", "--jobs", "1"]);
    let mut audit = Audit::run(&arguments);
    audit.until("an escape", |audit| audit.said().contains("ESCAPED"));
    audit.signal(Signal::SIGINT);
    let seen = audit.finish();
    assert_eq!(seen.status, 130, "{}", seen.err);
    for format in &FORMATS {
        let text = fs::read_to_string(folder.path().join(format.name)).unwrap();
        assert!(
            text.contains("the audit was interrupted"),
            "{format:?}:\n{text}"
        );
        let escape = text.find("ESCAPED").or_else(|| text.find("not ok 1"));
        assert!(escape.is_some(), "{format:?}:\n{text}");
    }
}

/// Nothing is written, and nothing runs, where one of the files cannot be had.
#[test]
fn every_file_is_claimed_before_anything_runs() {
    let folder = crate::support::folder();
    let old = folder.path().join("old.xml");
    fs::write(&old, "an older run's").unwrap();
    let junit = format!("junit={}", old.display());
    let seen = run(&["--format", &junit, "--format", "html=/proc/no/report.html"]);
    seen.expect_refusal(&["/proc/no/report.html"]);
    assert!(!old.exists(), "an older report stands for this run's");
}

/// A second reader, not written in Rust, where there is one.
fn xmllint(junit: &str) {
    let folder = crate::support::folder();
    let file = folder.path().join("report.xml");
    std::fs::write(&file, junit).unwrap();
    if let Ok(output) = Command::new("xmllint").arg("--noout").arg(&file).output() {
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn of_a_run_that_held() {
    if have(&["root"]) {
        agree(&OCI);
    }
}

#[test]
fn of_a_run_that_escaped() {
    if have(&["root"]) {
        agree(&UNSANDBOXED);
    }
}

#[test]
fn of_a_launcher_that_proves_nothing() {
    if have(&["root"]) {
        agree(&run_with(&["works/*", "network/tcp-egress"], &["false"]));
    }
}

/// NUL, ANSI, `]]>`, invalid UTF-8, CI commands, a forged testcase, five megabytes.
#[test]
fn of_a_sandbox_that_prints_what_breaks_readers() {
    if !have(&["root"]) {
        return;
    }
    let cases = [
        "works/run",
        "network/tcp-egress",
        "credentials/environment-dump",
    ];
    let seen = run_with(&cases, &[&runner("prints-garbage")]);
    seen.expect(
        1,
        &[
            ("works/run", "ALLOWED", "worked"),
            ("network/tcp-egress", "ESCAPED", "canary-reached"),
            ("credentials/environment-dump", "ESCAPED", "secret-read"),
        ],
    );
    agree(&seen);
    let junit = seen.junit.as_deref().unwrap();
    let json = seen.report.to_string();
    assert!(
        junit.len() < 1_000_000 && json.len() < 1_000_000,
        "the output was not cut"
    );
    for report in [junit, &*seen.out, &*seen.err] {
        let raw = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(!report.contains(raw), "{:?}", report.find(raw));
        for line in report.lines() {
            assert!(!line.trim_start().starts_with("::"), "{line}");
            for command in ["##[", "##vso[", "[[ATTACHMENT"] {
                assert!(!line.contains(command), "{line}");
            }
        }
    }
}

/// No value of the environment of whoever runs the audit, and no planted one, is written anywhere.
#[test]
fn no_secret_is_written() {
    if !have(&["root"]) {
        return;
    }
    let secret = "correct-horse-battery-staple-4711";
    let folder = crate::support::folder();
    let asked = every_format(folder.path());
    let mut arguments: Vec<&str> = asked.iter().map(String::as_str).collect();
    arguments.extend(["--case", "credentials/environment-dump", "--", "env"]);
    let seen = crate::support::Audit::start_in("run", &arguments, |command| {
        command.env("MY_SERVICE_TOKEN", secret);
    })
    .finish();
    assert_eq!(seen.verdict("credentials/environment-dump").0, "ESCAPED");
    let observed = seen.report.to_string();
    assert!(observed.contains("MY_SERVICE_TOKEN"), "it was not found");
    for format in &FORMATS {
        let text = fs::read_to_string(folder.path().join(format.name)).unwrap();
        assert!(text.contains("environment-dump"), "{format:?}");
        assert!(!text.contains(secret), "{format:?}:\n{text}");
    }
    for said in [&seen.out, &seen.err] {
        assert!(!said.contains(secret), "{said}");
    }
}
