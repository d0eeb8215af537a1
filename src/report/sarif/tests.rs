//! What code scanning gets: only escapes and breaks as alerts, the same alert from run to run, links to nowhere.

use super::*;
use crate::report::{outside, sample};
use crate::verdict::Verdict;

fn log(report: &Report) -> Value {
    let mut out = Vec::new();
    write(report, &mut out).expect("a Vec takes everything");
    serde_json::from_slice(&out).expect("JSON")
}

fn results(report: &Report) -> Vec<Value> {
    let log = log(report);
    log["runs"][0]["results"]
        .as_array()
        .expect("a list")
        .clone()
}

#[test]
fn only_what_escaped_or_broke_is_a_result_and_the_worst_is_first() {
    let report = sample::report();
    let told: Vec<(String, Value)> = results(&report)
        .iter()
        .map(|result| (result["ruleId"].to_string(), result["level"].clone()))
        .collect();
    let wanted = [
        ("network/escaped", "error"),
        ("processes/nasty", "error"),
        ("network/broken", "error"),
        ("kernel/new", "note"), // it does not gate
    ];
    let wanted = wanted.map(|(id, level)| (format!("{id:?}"), Value::from(level)));
    assert_eq!(told, wanted);
    let run = &log(&report)["runs"][0];
    let notified: Vec<&Value> = run["invocations"][0]["toolExecutionNotifications"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|told| &told["descriptor"]["id"])
        .collect();
    assert_eq!(
        notified,
        ["not-audited", "limit-not-applied", "target-not-alive"]
    );
}

#[test]
fn each_result_points_at_its_rule_and_its_file() {
    let log = log(&sample::report());
    let run = &log["runs"][0];
    for result in run["results"].as_array().expect("a list") {
        let place = result["ruleIndex"].as_u64().expect("a number");
        let rule = &run["tool"]["driver"]["rules"][usize::try_from(place).expect("small")];
        assert_eq!(rule["id"], result["ruleId"]);
        let id = result["ruleId"].as_str().expect("text");
        let uri = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
        assert_eq!(*uri, format!("escapes/{id}.toml"));
    }
    let first = run["results"][0]["message"]["text"].as_str().expect("text");
    for said in [
        "ESCAPED in the sandbox oci: The canary",
        "\n- tcp 10.0.0.1:80 saw the token",
        "What would have held it: network (",
        "Fix: Run without a network",
        "To repeat it: escape-audit run --sandbox oci --case network/escaped",
    ] {
        assert!(first.contains(said), "{said}\n{first}");
    }
}

#[test]
fn an_alert_outlives_a_new_build_of_the_image() {
    let mut report = sample::empty();
    report.sandboxes = vec![sample::sandbox("agent")];
    report.trials = vec![sample::trial("agent", "network/tcp", Verdict::Escaped)];
    let mut fingerprint = |image: Image| {
        report.sandboxes[0].sandbox.settings.image = Some(image);
        results(&report)[0]["partialFingerprints"]["escapeAudit/v1"].to_string()
    };
    let mut digest = |name: &str, digit: &str| {
        let digest = format!("sha256:{}", digit.repeat(64));
        fingerprint(Image::Digest {
            reference: format!("{name}@{digest}"),
            digest,
        })
    };
    let first = digest("registry:5000/agent:1", "a");
    assert_eq!(first, digest("registry:5000/agent:2", "b"));
    assert_ne!(first, digest("registry:5000/other:1", "a"));
    assert_eq!(first, fingerprint(Image::Tag("registry:5000/agent".into())));
    let of = |text: &str| repository(&Image::Tag(text.into())).to_owned();
    assert_eq!(of("python:3.12-slim"), "python");
    assert_eq!(of("localhost:5000/a/b"), "localhost:5000/a/b");
    assert_eq!(repository(&Image::Id("sha256:ab".into())), "");
}

#[test]
fn a_run_that_did_not_come_to_its_end_or_left_something_undecided_says_so() {
    let mut report = sample::report();
    let successful =
        |report: &Report| log(report)["runs"][0]["invocations"][0]["executionSuccessful"].clone();
    assert_eq!(successful(&report), false, "something is undecided");
    let undecided = |trial: &Trial| standing::of(trial) == Standing::Undecided;
    report.trials.retain(|trial| !undecided(trial));
    assert_eq!(successful(&report), false, "a sandbox is lost");
    report.sandboxes.retain(|sandbox| sandbox.failed.is_none());
    assert_eq!(successful(&report), true);
    report.incomplete = Some("interrupted".into());
    assert_eq!(successful(&report), false);
    assert_eq!(successful(&sample::empty()), false);
}

#[test]
fn a_message_has_no_link_and_a_place_is_an_address() {
    let report = sample::hostile_report();
    let mut messages = Vec::new();
    texts(&log(&report), &mut messages);
    assert!(messages.len() > 10, "{messages:?}");
    for text in messages {
        assert!(!text.contains("]("), "{text}");
    }
    assert_eq!(uri(Path::new("my cases/a:b.toml")), "my%20cases/a%3Ab.toml");
    assert_eq!(uri(Path::new("/srv/ü.toml")), "file:///srv/%C3%BC.toml");
    assert!(!is_link("javascript:alert(1)") && !is_link("https://a\"b"));
    assert!(run_id(&report).len() < 150, "{}", run_id(&report));
}

/// Every `text`, which is where messages stand.
fn texts(value: &Value, found: &mut Vec<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        if name == "text" {
            found.push(value.as_str().expect("text").to_owned());
        }
        texts(value, found);
    }
    for value in value.as_array().into_iter().flatten() {
        texts(value, found);
    }
}

#[test]
fn the_published_schema_accepts_it() {
    let Some(path) = outside::schema("sarif-2.1.0.json") else {
        return;
    };
    let text = std::fs::read_to_string(path).expect("readable");
    // As published, the expression for a language has a bracket too many.
    let text = text.replace("{2}]?$", "{2}$");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let check = |log: &Value| -> Vec<String> {
        let errors = validator.iter_errors(log);
        errors
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect()
    };
    for report in [sample::report(), sample::empty(), sample::hostile_report()] {
        assert_eq!(check(&log(&report)), [""; 0]);
    }
    let mut wrong = log(&sample::report());
    wrong["runs"][0]["results"][0]["level"] = "fatal".into();
    assert_eq!(check(&wrong).len(), 1);
}
