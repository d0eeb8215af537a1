//! What is written is read back by another crate: well-formed, the counts right, nothing forged.

use quick_junit::{NonSuccessKind, TestCaseStatus};

use super::*;
use crate::report::sample;

fn written(report: &Report) -> String {
    let mut out = Vec::new();
    write(report, &mut out).expect("a Vec takes everything");
    String::from_utf8(out).expect("UTF-8")
}

fn read(xml: &str) -> quick_junit::Report {
    quick_junit::Report::deserialize_from_str(xml).unwrap_or_else(|e| panic!("{e}\n{xml}"))
}

/// Of all suites: tests, failures, errors, skipped, as their attributes say and as their testcases are.
fn counts(report: &quick_junit::Report) -> [[usize; 4]; 2] {
    let mut counts = [[0; 4]; 2];
    for suite in &report.test_suites {
        let said = [suite.tests, suite.failures, suite.errors, suite.skipped];
        for (sum, n) in counts[0].iter_mut().zip(said) {
            *sum += n;
        }
        for case in &suite.test_cases {
            counts[1][0] += 1;
            match &case.status {
                TestCaseStatus::Success { .. } => {}
                TestCaseStatus::NonSuccess {
                    kind: NonSuccessKind::Failure,
                    ..
                } => counts[1][1] += 1,
                TestCaseStatus::NonSuccess {
                    kind: NonSuccessKind::Error,
                    ..
                } => counts[1][2] += 1,
                TestCaseStatus::Skipped { .. } => counts[1][3] += 1,
            }
        }
    }
    counts
}

#[test]
fn another_reader_counts_the_same_whatever_a_payload_prints() {
    let report = read(&written(&sample::report()));
    // 7 verdicts, the runner's 3, and the sandbox that could not be audited; the experimental escape is skipped.
    assert_eq!(counts(&report), [[11, 3, 3, 2]; 2]);
    let names: Vec<&str> = report
        .test_suites
        .iter()
        .map(|suite| suite.name.as_str())
        .collect();
    assert_eq!(names, ["oci", "runner", "lost"]);
}

#[test]
fn what_is_excused_is_skipped_with_its_reason_and_what_the_gate_misses_is_red() {
    let xml = written(&sample::waived());
    let report = read(&xml);
    // Two of the three escapes are excused, and the waiver that ended errs.
    assert_eq!(counts(&report), [[12, 1, 4, 4]; 2]);
    for said in [
        "<skipped>waived until 2027-02-28 (SEC-7): a hardened kernel lands in February: ESCAPED canary: The canary",
        "<skipped>does not gate (below --fail-on): ESCAPED canary",
        r#"<testcase name="gate oci network/tcp" "#,
        r#"<error type="waiver-expired" message="The waiver for"#,
    ] {
        assert!(xml.contains(said), "{said}\n{xml}");
    }
}

#[test]
fn each_trial_has_its_place() {
    let xml = written(&sample::report());
    let report = read(&xml);
    let first = &report.test_suites[0].test_cases[0];
    assert_eq!(first.name.as_str(), "network/allowed");
    assert_eq!(
        first.classname.as_ref().map(|c| c.as_str()),
        Some("oci.network")
    );
    assert!(
        xml.contains(r#"time="0.012" classname="oci.network""#),
        "{xml}"
    );
    assert!(xml.contains(r#"timestamp="2026-11-29T13:40:12Z""#));
    assert!(xml.contains("<skipped>not-applicable: This machine has no swap.</skipped>"));
    assert!(xml.contains("<skipped>does not gate (experimental): ESCAPED canary: The canary"));
    assert!(
        xml.contains(r#"<error type="not-audited" message="The launcher `bwrap` is not there."/>"#)
    );
}

#[test]
fn a_payload_neither_forges_nor_commands() {
    let xml = written(&sample::report());
    for mark in ["##[", "##vso[", "##teamcity[", "[[ATTACHMENT|"] {
        assert!(!xml.contains(mark), "{mark}");
    }
    for line in xml.lines() {
        assert!(!line.trim_start().starts_with("::"), "{line}");
    }
    for c in xml.chars().filter(|c| *c != '\n') {
        assert!(!crate::safe_text::must_escape(c), "{c:?}");
    }
    let report = read(&xml);
    let nasty = &report.test_suites[1].test_cases[2];
    let printed = nasty.system_out.as_ref().expect("output").as_str();
    assert_eq!(printed, SafeText::block(sample::hostile()).as_str());
    assert!(
        printed.starts_with("]]></system-out></testcase><testcase name=\"ok\"/>\n: :error::x\n")
    );
}

#[test]
fn a_failure_says_all_that_a_person_needs_to_act() {
    let mut report = sample::empty();
    let (mut bwrap, mut private) = (sample::sandbox("command"), sample::sandbox("oci"));
    bwrap.sandbox.backend = BackendKind::Command;
    bwrap.sandbox.command = ["bwrap", "--setenv", "A", "it's"]
        .map(String::from)
        .to_vec();
    private.sandbox.without = [crate::protection::Protection::Pids].into();
    report.sandboxes = vec![bwrap, private];
    report.trials = vec![
        sample::trial("command", "network/tcp", Verdict::Escaped),
        sample::trial("oci", "acme/vault", Verdict::Inconclusive),
    ];
    report.trials[1].source.source = "my cases/acme/vault.toml".into();
    let xml = written(&report);
    let trace = |verdict: &str| xml.split(verdict).nth(1).expect(verdict).to_owned();
    let escaped = trace("ESCAPED: ");
    for said in [
        "saw this trial's token. First of the evidence: tcp",
        "Severity: critical\nWhy it matters: A script",
        "What would have held it: network\n",
        "Fix: Run without",
        "To repeat it: escape-audit run --case network/tcp -- bwrap --setenv A 'it'\\''s'\n",
    ] {
        assert!(
            escaped.replace("&apos;", "'").contains(said),
            "{said}\n{escaped}"
        );
    }
    let undecided = trace("INCONCLUSIVE: ");
    assert!(!undecided.contains("Why it matters"), "{undecided}");
    let again =
        "escape-audit run --sandbox oci --without pids --cases 'my cases' --case acme/vault\n";
    assert!(undecided.contains(again), "{undecided}");
}

#[test]
fn hostile_names_stay_apart() {
    let mut report = sample::empty();
    let name = String::from_utf8_lossy(&sample::hostile()).into_owned();
    report.sandboxes = vec![sample::sandbox(&name)];
    for id in ["a/\x1b", "a/\\x1b"] {
        report
            .trials
            .push(sample::trial(&name, id, Verdict::Escaped));
    }
    report.exit_code = 1;
    let read = read(&written(&report));
    assert_eq!(counts(&read), [[2, 2, 0, 0]; 2]);
    let cases = &read.test_suites[0].test_cases;
    assert_ne!(cases[0].name, cases[1].name);
}

#[test]
fn what_is_missing_is_red() {
    let mut report = sample::empty();
    assert_eq!(counts(&read(&written(&report))), [[1, 0, 1, 0]; 2]);
    report.incomplete = Some("interrupted after 3 of 36 trials".into());
    report.exit_code = 130;
    let xml = written(&report);
    assert_eq!(counts(&read(&xml)), [[1, 0, 1, 0]; 2]);
    assert!(xml.contains("interrupted after 3 of 36 trials"));
}

/// libxml2 is what most consumers read with. `JUNIT_XSD` names schema files to hold the document to.
#[test]
fn libxml2_takes_it() {
    let xml = written(&sample::report());
    let schemas = std::env::var("JUNIT_XSD").unwrap_or_default();
    let schemas = schemas.split(':').filter(|path| !path.is_empty());
    for schema in std::iter::once(None).chain(schemas.map(Some)) {
        let mut command = std::process::Command::new("xmllint");
        command.args(["--noout", "--nonet"]);
        if let Some(schema) = schema {
            command.args(["--schema", schema]);
        }
        let child = command.arg("-").stdin(std::process::Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            eprintln!("xmllint is not here: not checked");
            return;
        };
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(xml.as_bytes()).expect("xmllint reads");
        drop(stdin);
        assert!(child.wait().expect("it ends").success(), "{schema:?}");
    }
}
