//! Whatever is changed in a record, it is no longer good for what it was good for.

use serde_json::{Value, json};

use super::*;
use crate::case::{Level, Library};
use crate::config::{BackendKind, Sandbox};
use crate::report::decided::{Decided, Waived};
use crate::report::{Report, Summary, sample};
use crate::verdict::Verdict;
use std::path::Path;
use std::time::Duration;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const D: &str = "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd";
const NOW: u64 = 1_795_960_000;

fn library() -> Library {
    Library::load(&[]).expect("the library is valid")
}

fn configured(change: impl FnOnce(&mut Sandbox)) -> Configured {
    let mut sandbox = Sandbox::new("agent", BackendKind::Docker);
    change(&mut sandbox);
    Configured::of(&sandbox, Path::new(""), &[])
}

/// Every case of the level held, in an image of these two digests.
fn report(library: &Library, level: Level) -> Report {
    let mut report = sample::empty();
    let mut sandbox = sample::sandbox("agent");
    sandbox.digest = Some(format!("python@sha256:{A}"));
    sandbox
        .in_force
        .push(("image id".into(), format!("sha256:{B}")));
    report.sandboxes = vec![sandbox];
    for case in library.cases.iter().filter(|case| case.level <= level) {
        let mut trial = sample::trial("agent", &case.id, Verdict::Blocked);
        trial.source = case.clone();
        report.trials.push(trial);
    }
    report.summary = Summary::of(&report.trials);
    report.started = "2026-11-29T13:40:12Z".into();
    report.gate = Decided::without_gate(0);
    report
}

fn good() -> Record {
    let library = library();
    of_report(
        &report(&library, Level::Standard),
        &library,
        &[configured(|_| {})],
        Some("c".repeat(64)),
    )
}

fn changed(change: impl FnOnce(&mut Report)) -> Record {
    let library = library();
    let mut report = report(&library, Level::Standard);
    change(&mut report);
    of_report(&report, &library, &[configured(|_| {})], None)
}

fn bytes(statement: &Value) -> Vec<u8> {
    statement.to_string().into_bytes()
}

/// What does not hold, under the usual wishes.
fn refused(record: &Record, wish: impl FnOnce(&mut Wanted<'_>)) -> Vec<&'static str> {
    let (library, sandbox) = (library(), configured(|_| {}));
    let mut wanted = Wanted {
        sandbox: &sandbox,
        image: Some(A),
        level: Level::Standard,
        library: Some(&library),
        project: None,
        now: NOW,
        max_age: Some(Duration::from_secs(86_400)),
        allow_partial: false,
        allow_waived: false,
    };
    wish(&mut wanted);
    let findings = verify(record, &wanted);
    assert!(!findings.is_empty());
    findings
        .into_iter()
        .filter(|finding| !finding.holds)
        .map(|finding| finding.what)
        .collect()
}

#[test]
fn what_was_written_is_read_back_and_holds() {
    let record = good();
    let statement = write(&record);
    assert_eq!(statement["_type"], STATEMENT);
    assert_eq!(statement["predicateType"], PREDICATE);
    assert_eq!(statement["predicate"]["result"], "PASSED");
    let back = read(&bytes(&statement)).expect("it is one of ours");
    assert_eq!(back, record);
    assert_eq!(refused(&back, |_| {}), [""; 0]);
    assert_eq!(refused(&back, |wanted| wanted.image = Some(B)), [""; 0]);
}

/// Other programs sort members otherwise, write `1` for `1.0`, and add what is theirs.
#[test]
fn a_statement_survives_what_signers_do_to_it() {
    let mut statement = write(&good());
    statement["predicate"]["url"] = json!("https://example.org/run/1");
    statement["subject"] = json!([{"name": "ghcr.io/acme/agent", "digest": {"sha256": A}}]);
    let text = statement
        .to_string()
        .replace("\"seconds\":4.21", "\"seconds\":4.210");
    let back = read(text.as_bytes()).expect("still one of ours");
    assert_eq!(refused(&back, |_| {}), [""; 0]);
    assert_eq!(
        refused(&back, |wanted| wanted.image = Some(B)),
        ["image"],
        "no subject of what was signed"
    );
}

/// Every value of a statement, by its path.
fn leaves(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                leaves(value, format!("{path}/{name}"), found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (n, item) in items.iter().enumerate() {
                leaves(item, format!("{path}/{n}"), found);
            }
        }
        _ => found.push(path),
    }
}

fn other(value: &Value) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix('a') {
            Some(rest) => json!(format!("b{rest}")),
            None => json!(format!("a{}", text.get(1..).unwrap_or_default())),
        },
        Value::Number(number) => json!(number.as_f64().unwrap_or(0.0) + 1.0),
        Value::Bool(flag) => json!(!flag),
        _ => json!("more"),
    }
}

#[test]
fn whatever_value_is_changed_or_taken_away_it_no_longer_holds() {
    let statement = write(&good());
    let mut paths = Vec::new();
    leaves(&statement, String::new(), &mut paths);
    assert!(paths.len() > 200, "{}", paths.len());
    let holds = |statement: &Value| {
        read(&bytes(statement)).is_ok_and(|record| refused(&record, |_| {}).is_empty())
    };
    let mut harmless = Vec::new();
    for path in &paths {
        let mut tampered = statement.clone();
        let place = tampered.pointer_mut(path).expect("a path");
        *place = other(place);
        if holds(&tampered) {
            harmless.push(path.clone());
        }
        let (parent, name) = path.rsplit_once('/').expect("a path");
        let name = name.replace("~1", "/").replace("~0", "~");
        let mut tampered = statement.clone();
        match tampered.pointer_mut(parent).expect("a path") {
            Value::Object(members) => drop(members.remove(&name)),
            Value::Array(items) => drop(items.remove(name.parse().expect("an index"))),
            _ => unreachable!(),
        }
        if holds(&tampered) {
            harmless.push(format!("{path} taken away"));
        }
    }
    // A name of the subject says nothing; the other digest of the image is not the one that is asked for; and the project
    // file is told and not relied on.
    let expected: Vec<String> = [
        "/predicate/configuration/2/digest/sha256",
        "/subject/0/name",
        "/subject/0/name taken away",
        "/subject/1/digest/sha256",
        "/subject/1/name",
        "/subject/1/name taken away",
    ]
    .map(String::from)
    .to_vec();
    assert_eq!(harmless, expected);
}

/// A forger recomputes the hashes. What he then says is still compared with what was wanted, and with itself.
#[test]
fn a_consistent_lie_is_held_against_the_wishes() {
    let lie = |change: &dyn Fn(&mut Record)| {
        let mut record = good();
        change(&mut record);
        refused(&read(&bytes(&write(&record))).expect("consistent"), |_| {})
    };
    type Lie = (&'static str, &'static dyn Fn(&mut Record));
    let table: [Lie; 12] = [
        ("sandbox", &|record| {
            record.sandboxes[0].name = "other".into()
        }),
        ("image", &|record| {
            record.sandboxes[0].in_force.digests = vec![D.to_owned()]
        }),
        ("image", &|record| {
            record.subject = vec![("python".into(), D.to_owned())]
        }),
        ("settings", &|record| {
            record.sandboxes[0]
                .settings
                .insert("mem_limit".into(), json!(1));
        }),
        ("settings", &|record| {
            record.sandboxes[0].settings.remove("read_only");
        }),
        ("policy", &|record| {
            record.sandboxes[0]
                .policy
                .insert("pids".into(), json!(4000));
        }),
        ("level", &|record| {
            record.sandboxes[0]
                .policy
                .insert("level".into(), json!("none"));
        }),
        ("library", &|record| record.library.digest = "e".repeat(64)),
        ("library", &|record| {
            record.sandboxes[0]
                .verdicts
                .tried
                .remove("network/tcp-egress");
        }),
        ("library", &|record| {
            let tried = &mut record.sandboxes[0].verdicts.tried;
            let came = tried.get_mut("network/tcp-egress").expect("a case");
            (came.verdict, came.gates) = (Verdict::Escaped, false);
        }),
        ("age", &|record| {
            record.run.started = "2026-11-29T13:50:00Z".into()
        }),
        ("age", &|record| record.run.started = "yesterday".into()),
    ];
    for (n, (what, change)) in table.into_iter().enumerate() {
        assert!(
            lie(change).contains(&what),
            "{n}: {what}, not {:?}",
            lie(change)
        );
    }
}

#[test]
fn only_the_whole_library_that_held_has_passed() {
    let of = |change: &dyn Fn(&mut Report)| changed(change).deserves();
    assert_eq!(of(&|_| {}), TestResult::Passed);
    for verdict in [
        Verdict::Escaped,
        Verdict::Broken,
        Verdict::Error,
        Verdict::Inconclusive,
    ] {
        // The exit code says 0 all the same: it can be told to.
        assert_eq!(
            of(&|report| report.trials[0].judgement.verdict = verdict),
            TestResult::Failed
        );
    }
    assert_eq!(
        of(&|report| report.trials[0].judgement.verdict = Verdict::Skipped),
        TestResult::Passed
    );
    assert_eq!(of(&|report| report.gate.exit_code = 3), TestResult::Failed);
    assert_eq!(
        of(&|report| report.incomplete = Some("interrupted".into())),
        TestResult::Failed
    );
    assert_eq!(
        of(&|report| report.sandboxes[0].failed = Some("no engine".into())),
        TestResult::Failed
    );
    assert_eq!(
        of(&|report| report.sandboxes[0].digest = None),
        TestResult::Passed,
        "its id is known"
    );
    assert_eq!(of(&|report| report.sandboxes.clear()), TestResult::Failed);
    assert_eq!(of(&|report| report.trials.clear()), TestResult::Failed);
    assert_eq!(of(&|report| drop(report.trials.pop())), TestResult::Warned);
    let nothing_held = |report: &mut Report| {
        for trial in &mut report.trials {
            trial.judgement.verdict = Verdict::Skipped;
        }
    };
    assert_eq!(of(&nothing_held), TestResult::Failed);

    let library = library();
    let weakened =
        configured(|sandbox| sandbox.without = [crate::protection::Protection::Pids].into());
    let record = of_report(
        &report(&library, Level::Standard),
        &library,
        &[weakened],
        None,
    );
    assert_eq!(
        record.deserves(),
        TestResult::Failed,
        "with protections taken away it is another sandbox"
    );
}

#[test]
fn a_part_of_the_library_is_enough_only_where_it_is_said_to_be() {
    let record = changed(|report| report.trials.truncate(3));
    assert_eq!(write(&record)["predicate"]["result"], "WARNED");
    assert_eq!(refused(&record, |_| {}), ["result"]);
    assert_eq!(
        refused(&record, |wanted| wanted.allow_partial = true),
        [""; 0]
    );
    let failed = changed(|report| report.trials[0].judgement.verdict = Verdict::Escaped);
    assert_eq!(
        refused(&failed, |wanted| wanted.allow_partial = true),
        ["result"]
    );
}

#[test]
fn an_escape_that_is_waived_is_told_and_taken_only_by_who_says_so_and_until_its_day() {
    let waived = |until: &str, verdict| {
        changed(|report| {
            report.trials[0].judgement.verdict = verdict;
            report.trials[0].waived = Some(Waived {
                until: until.parse().expect("a day"),
                reason: "lived with".into(),
                ticket: None,
            });
        })
    };
    let record = waived("2027-01-01", Verdict::Escaped);
    let statement = write(&record);
    assert_eq!(statement["predicate"]["result"], "WARNED");
    assert_eq!(
        statement["predicate"]["warnedTests"][0],
        "agent::credentials/ci-token"
    );
    assert_eq!(read(&bytes(&statement)), Ok(record.clone()));
    assert_eq!(refused(&record, |_| {}), ["result"]);
    assert_eq!(
        refused(&record, |wanted| wanted.allow_partial = true),
        ["result"]
    );
    assert_eq!(
        refused(&record, |wanted| wanted.allow_waived = true),
        [""; 0]
    );
    let expired = waived("2026-11-28", Verdict::Escaped);
    assert_eq!(
        refused(&expired, |wanted| wanted.allow_waived = true),
        ["result"]
    );
    for verdict in [Verdict::Inconclusive, Verdict::Error] {
        assert_eq!(waived("2027-01-01", verdict).deserves(), TestResult::Failed);
    }
    let tolerated = changed(|report| {
        report.trials[0].judgement.verdict = Verdict::Escaped;
        report.trials[0].tolerated = true;
    });
    assert_eq!(
        tolerated.deserves(),
        TestResult::Failed,
        "a severity lets it pass, and it escaped"
    );
}

#[test]
fn each_wish_is_asked_for_by_itself() {
    let record = good();
    assert_eq!(refused(&record, |wanted| wanted.image = Some(D)), ["image"]);
    assert_eq!(
        refused(&record, |wanted| wanted.level = Level::Strict),
        ["level"]
    );
    assert_eq!(
        refused(&record, |wanted| wanted.max_age =
            Some(Duration::from_secs(60))),
        ["age"]
    );
    assert_eq!(
        refused(&record, |wanted| wanted.now -= 100_000),
        ["age"],
        "from the future"
    );
    let mut other = library();
    other.digest = "f".repeat(64);
    let refused_by_other = |wish: fn(&mut Wanted<'_>)| {
        let sandbox = configured(|_| {});
        let mut wanted = Wanted {
            sandbox: &sandbox,
            image: None,
            level: Level::Standard,
            library: Some(&other),
            project: None,
            now: NOW,
            max_age: None,
            allow_partial: false,
            allow_waived: false,
        };
        wish(&mut wanted);
        verify(&record, &wanted)
            .into_iter()
            .filter(|f| !f.holds)
            .map(|f| f.what)
            .collect::<Vec<_>>()
    };
    assert_eq!(refused_by_other(|_| {}), ["library"]);
    assert_eq!(refused_by_other(|wanted| wanted.library = None), [""; 0]);
}

#[test]
fn a_higher_level_holds_for_a_lower_one() {
    let library = library();
    let sandbox = configured(|sandbox| sandbox.policy.level = Level::Hostile);
    let record = of_report(
        &report(&library, Level::Hostile),
        &library,
        &[sandbox],
        None,
    );
    assert_eq!(
        refused(&record, |_| {}),
        [""; 0],
        "the policy is compared but for its level"
    );
    assert_eq!(
        refused(&record, |wanted| wanted.level = Level::Strict),
        [""; 0]
    );
}

#[test]
fn what_is_no_record_of_ours_says_why() {
    let why = |change: &dyn Fn(&mut Value)| {
        let mut statement = write(&good());
        change(&mut statement);
        read(&bytes(&statement)).expect_err("refused").to_string()
    };
    let said =
        why(&|s| s["predicateType"] = json!("https://in-toto.io/attestation/test-result/v9"));
    assert!(
        said.starts_with("predicateType: is `https://in-toto.io/attestation/test-result/v9`"),
        "{said}"
    );
    assert!(why(&|s| s["_type"] = json!("x")).starts_with("_type: "));
    assert!(why(&|s| s["subject"] = json!([])).contains("names nothing"));
    assert!(why(&|s| s["predicate"]["result"] = json!("FINE")).contains("unknown variant"));
    assert!(why(&|s| s["predicate"]["result"] = json!("FAILED")).contains("PASSED follows"));
    let twice = why(&|s| {
        let list = s["predicate"]["configuration"]
            .as_array_mut()
            .expect("a list");
        let copy = list[0].clone();
        list.push(copy);
    });
    assert!(twice.contains("`escape-audit` is there twice"), "{twice}");
    let more = why(&|s| {
        let list = s["predicate"]["configuration"]
            .as_array_mut()
            .expect("a list");
        list.push(json!({"name": "policy/ghost", "digest": {"sha256": A}}));
    });
    assert!(more.contains("`policy/ghost` belongs to nothing"), "{more}");
    assert!(read(b"[]").is_err() && read(b"{}").is_err() && read(b"null").is_err());
}
