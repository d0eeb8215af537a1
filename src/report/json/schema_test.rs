//! The published schema describes what is written: as much of JSON Schema as the schema file uses, and a check that
//! it uses no more.

use serde_json::Value;

use crate::config::{self, Sandbox};
use crate::diag::Source;
use crate::report::{Report, sample};

const SCHEMA: &str = include_str!("../../../schema/report-1.schema.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("the schema is JSON")
}

/// Every way in which `value` does not fit `rule`.
fn mismatches(root: &Value, rule: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let mut wrong = |what: String| found.push(format!("{at}: {what}"));
    for (keyword, argument) in rule.as_object().expect("a rule is an object") {
        match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "properties" | "items"
            | "$ref" => {}
            "type" => {
                let types = argument
                    .as_array()
                    .cloned()
                    .unwrap_or(vec![argument.clone()]);
                if !types
                    .iter()
                    .any(|name| is(value, name.as_str().unwrap_or_default()))
                {
                    wrong(format!("{value} is no {argument}"));
                }
            }
            "enum" if argument.as_array().expect("a list").contains(value) => {}
            "const" if argument == value => {}
            "minimum"
                if value
                    .as_f64()
                    .is_none_or(|n| n >= argument.as_f64().unwrap_or(0.0)) => {}
            "minItems"
                if value
                    .as_array()
                    .is_some_and(|a| a.len() as u64 >= argument.as_u64().unwrap_or(0)) => {}
            "maxItems"
                if value
                    .as_array()
                    .is_some_and(|a| a.len() as u64 <= argument.as_u64().unwrap_or(0)) => {}
            "pattern" => {} // for readers; there is no regular expression here to hold it to
            "required" if !value.is_object() => {} // what is none says `type`
            "required" => {
                for name in argument
                    .as_array()
                    .expect("a list")
                    .iter()
                    .filter_map(Value::as_str)
                {
                    if value.get(name).is_none() {
                        wrong(format!("{name} is missing"));
                    }
                }
            }
            "additionalProperties" => {
                assert_eq!(argument, false);
                for name in value.as_object().into_iter().flat_map(|o| o.keys()) {
                    if rule["properties"].get(name).is_none() {
                        wrong(format!("{name} is not described"));
                    }
                }
            }
            other => wrong(format!("{value} does not fit {other} {argument}")),
        }
    }
    if let Some(name) = rule["$ref"].as_str() {
        let name = name.strip_prefix("#/$defs/").expect("a local reference");
        mismatches(root, &root["$defs"][name], value, at, found);
    }
    for (name, rule) in rule["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            mismatches(root, rule, value, &format!("{at}.{name}"), found);
        }
    }
    if let Some(rule) = rule.get("items") {
        for (n, value) in value.as_array().into_iter().flatten().enumerate() {
            mismatches(root, rule, value, &format!("{at}[{n}]"), found);
        }
    }
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type of JSON: {other}"),
    }
}

fn check(value: &Value) -> Vec<String> {
    let (root, mut found) = (schema(), Vec::new());
    mismatches(&root, &root, value, "report", &mut found);
    found
}

fn json(report: &Report) -> Value {
    serde_json::to_value(report).expect("JSON")
}

#[test]
fn what_is_written_fits_the_schema() {
    assert_eq!(check(&json(&sample::report())), [""; 0]);
    assert_eq!(check(&json(&sample::empty())), [""; 0]);
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
    for needle in ["schema", "FINE", "new", "in_force[0]", "total", "tool"] {
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
