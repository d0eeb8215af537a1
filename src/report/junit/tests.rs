//! What is written is read back by another crate: well-formed, the counts right, nothing forged.

use quick_junit::{NonSuccessKind, TestCaseStatus};

use super::*;
use crate::config::BackendKind;
use crate::report::{outside, sample};

fn written(report: &Report) -> String {
    in_profile(report, Profile::Rich)
}

fn in_profile(report: &Report, profile: Profile) -> String {
    let mut out = Vec::new();
    write(report, profile, &mut out).expect("a Vec takes everything");
    String::from_utf8(out).expect("UTF-8")
}

fn read(xml: &str) -> quick_junit::Report {
    // This reader insists on the zone, which the strict profile leaves out.
    let xml = &xml.replace("T13:40:12\"", "T13:40:12Z\"");
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
    bwrap.repeat.clear();
    bwrap.sandbox.command = ["bwrap", "--setenv", "A", "it's"]
        .map(String::from)
        .to_vec();
    private.repeat = [
        "--config",
        "a b.toml",
        "--sandbox",
        "oci",
        "--without",
        "pids",
    ]
    .map(String::from)
    .to_vec();
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
    let again = "escape-audit run --config 'a b.toml' --sandbox oci --without pids --cases 'my cases' --case acme/vault\n";
    assert!(
        undecided.replace("&apos;", "'").contains(again),
        "{undecided}"
    );
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

#[test]
fn the_rich_profile_adds_files_and_properties_and_changes_nothing_else() {
    let report = sample::report();
    let (rich, strict) = (written(&report), in_profile(&report, Profile::Strict));
    assert!(
        rich.contains(r#"file="escapes/network/escaped.toml" line="1""#),
        "{rich}"
    );
    for said in [
        r#"<property name="verdict" value="ESCAPED"/>"#,
        r#"<property name="severity" value="critical"/>"#,
        r#"<property name="technique" value="T1048"/>"#,
    ] {
        assert!(rich.contains(said), "{said}\n{rich}");
        assert!(!strict.contains(said), "{said}");
    }
    assert!(
        !strict.contains(" file=\"") && !strict.contains(" line=\"") && !strict.contains("12Z\"")
    );
    assert_eq!(counts(&read(&rich)), counts(&read(&strict)));
    let properties = &read(&rich).test_suites[0].test_cases[0].properties;
    assert_eq!(properties.len(), 7);
}

/// libxml2 is what most consumers read with.
#[test]
fn libxml2_takes_it() {
    let report = sample::report();
    for profile in [Profile::Rich, Profile::Strict] {
        let xml = in_profile(&report, profile);
        let said = outside::filter("xmllint", &["--noout", "--nonet", "-"], &xml);
        assert!(said.is_none_or(|said| said.ok), "{profile:?}");
    }
}

/// Every way in which a report can look: whole, partial, empty, hostile.
#[test]
fn the_published_schemas_accept_the_strict_profile_and_refuse_the_rich_one() {
    for name in ["junit-10.xsd", "jenkins-junit.xsd"] {
        let Some(schema) = outside::schema(name) else {
            continue;
        };
        let schema = schema.to_string_lossy();
        let arguments = ["--noout", "--nonet", "--schema", &schema, "-"];
        let mut partial = sample::report();
        partial.incomplete = Some("interrupted".into());
        for report in [
            sample::report(),
            partial,
            sample::empty(),
            sample::hostile_report(),
        ] {
            let strict = in_profile(&report, Profile::Strict);
            if let Some(said) = outside::filter("xmllint", &arguments, &strict) {
                assert!(said.ok, "{name}: {}", said.err);
            }
        }
        let rich = written(&sample::report());
        let said = outside::filter("xmllint", &arguments, &rich);
        assert!(
            said.is_none_or(|said| !said.ok),
            "{name} takes the rich profile too"
        );
    }
}

/// A third reader, written in Python.
#[test]
fn junitparser_counts_the_same() {
    const COUNT: &str = "import sys, junitparser\n\
        xml = junitparser.JUnitXml.fromstring(sys.stdin.buffer.read())\n\
        sums = [0] * 4\n\
        for suite in xml:\n\
        \x20 for case in suite:\n\
        \x20   kinds = [type(result).__name__ for result in case.result]\n\
        \x20   sums[0] += 1\n\
        \x20   for n, kind in enumerate(['Failure', 'Error', 'Skipped'], 1): sums[n] += kinds.count(kind)\n\
        print(*sums)\n";
    let Some(python) = outside::python("junitparser") else {
        return;
    };
    for report in [sample::report(), sample::hostile_report()] {
        for profile in [Profile::Rich, Profile::Strict] {
            let xml = in_profile(&report, profile);
            let said = outside::filter(&python, &["-c", COUNT], &xml).expect("it was there");
            assert!(said.ok, "{}", said.err);
            let [_, cases] = counts(&read(&xml));
            assert_eq!(said.out.trim(), cases.map(|n| n.to_string()).join(" "));
        }
    }
}
