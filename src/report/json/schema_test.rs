//! The published schema describes what is written, and nothing else.

use serde_json::Value;

use crate::config::{self, Sandbox};
use crate::diag::Source;
use crate::report::{Report, sample};

const SCHEMA: &str = include_str!("../../../schema/report-1.schema.json");

/// Every way in which a value does not fit the schema, with its place.
fn check(value: &Value) -> Vec<String> {
    let schema = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let errors = validator.iter_errors(value);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

fn json(report: &Report) -> Value {
    serde_json::to_value(report).expect("JSON")
}

#[test]
fn what_is_written_fits_the_schema() {
    assert_eq!(check(&json(&sample::report())), [""; 0]);
    assert_eq!(check(&json(&sample::empty())), [""; 0]);
    assert_eq!(check(&json(&sample::hostile_report())), [""; 0]);
}

#[test]
fn what_the_gate_decided_fits_the_schema() {
    let report = sample::waived();
    let value = json(&report);
    assert_eq!(check(&value), [""; 0]);
    assert_eq!(value["trials"][6]["verdict"], "ESCAPED");
    assert_eq!(value["trials"][6]["waived"]["until"], "2027-02-28");
    assert_eq!(value["gate"]["remarks"][0]["weight"], "fails");
}

#[test]
fn a_container_fits_the_schema() {
    let mut report = sample::report();
    report.sandboxes[0].sandbox = sandbox(
        "[sandbox.a]\nbackend = 'docker'\nimage = 'a'\nallow_tag = true\nmemswap_limit = -1\n\
         network_mode = 'inner'\ntmpfs = ['/t:noexec']\nvolumes = ['/h:/h', 'v:/v', '/w']\nruntime = 'runsc'\n",
    );
    let value = json(&report);
    assert_eq!(check(&value), [""; 0]);
    let settings = &value["sandboxes"][0]["settings"];
    let said =
        ["image", "network_mode", "user", "memswap_limit"].map(|key| settings[key].to_string());
    assert_eq!(said, ["\"a\"", "\"inner\"", "\"image\"", "-1"]);
    assert_eq!(settings["volumes"][1]["source"]["named"], "v");
    assert_eq!(settings["volumes"][2]["source"], "anonymous");
}

fn sandbox(text: &str) -> Sandbox {
    let project = config::parse(&Source::new("project.toml", text)).expect("valid");
    project.sandboxes.into_iter().next().expect("one sandbox")
}

#[test]
fn what_does_not_fit_is_noticed() {
    let mut report = json(&sample::report());
    report["schema"] = 2.into();
    report["trials"][0]["verdict"] = "FINE".into();
    report["trials"][1]["new"] = 1.into();
    report["sandboxes"][0]["in_force"][0] = serde_json::json!(["one"]);
    report["summary"]["total"] = (-1).into();
    report["tool"] = Value::Null;
    let found = check(&report).join("\n");
    for needle in [
        "/schema",
        "FINE",
        "'new'",
        "/in_force/0",
        "/summary/total",
        "/tool",
    ] {
        assert!(found.contains(needle), "{needle} in:\n{found}");
    }
}

#[test]
fn a_value_of_the_environment_is_not_written() {
    let mut report = sample::report();
    report.sandboxes[0].sandbox.settings.environment = vec![("TOKEN".into(), "s3cret".into())];
    let value = json(&report);
    assert_eq!(
        value["sandboxes"][0]["settings"]["environment"],
        serde_json::json!(["TOKEN"])
    );
    assert_eq!(check(&value), [""; 0]);
}
