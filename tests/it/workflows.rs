//! The workflows, of this project and of `examples/ci`, and the page about them: what they say to the action and to the
//! program is understood, and nobody gets more rights than are used. zizmor and check-jsonschema look at them in `.ci/run`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::Parser as _;
use escape_audit::cli::args::Arguments;
use serde_json::Value;

use crate::action::{root, yaml};
use crate::readme::first_cells;
use crate::support::{have, text};

/// Every workflow for GitHub, as a path below the root.
fn workflows() -> Vec<String> {
    let mut found = Vec::new();
    for folder in [".github/workflows", "examples/ci"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".yml") && name != "gitlab-ci.yml" {
                found.push(format!("{folder}/{name}"));
            }
        }
    }
    assert!(found.len() >= 6, "{found:?}");
    found
}

/// Each job's name and content.
fn jobs(workflow: &Value) -> Vec<(&String, &Value)> {
    workflow["jobs"].as_object().unwrap().iter().collect()
}

fn steps(job: &Value) -> &[Value] {
    job["steps"].as_array().unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    let keys = value.as_object().into_iter().flatten();
    keys.map(|(key, _)| key.as_str()).collect()
}

/// As `action/audit` makes them of the inputs that take part.
fn arguments(with: &Value) -> Vec<String> {
    let mut words = vec!["escape-audit".to_owned(), "run".to_owned()];
    for option in ["config", "level", "fail-on", "baseline"] {
        if let Some(value) = with[option].as_str() {
            words.push(format!("--{option}={value}"));
        }
    }
    for name in with["sandbox"]
        .as_str()
        .unwrap_or_default()
        .split([',', '\n'])
    {
        if !name.trim().is_empty() {
            words.push(format!("--sandbox={}", name.trim()));
        }
    }
    // A matrix counts from one, as the parts do.
    let more = with["args"].as_str().unwrap_or_default();
    let more = more.replace("${{ matrix.part }}", "1");
    words.extend(more.split_whitespace().map(str::to_owned));
    words
}

#[test]
fn every_workflow_asks_for_the_least_and_ends_in_time() {
    if !have(&["schemas"]) {
        return;
    }
    for path in workflows() {
        let workflow = yaml(&path);
        assert_eq!(workflow["permissions"], serde_json::json!({}), "{path}");
        assert!(workflow["concurrency"]["group"].is_string(), "{path}");
        for (name, job) in jobs(&workflow) {
            assert!(job["timeout-minutes"].is_u64(), "{path}: {name}");
            assert!(job["permissions"].is_object(), "{path}: {name}");
            for step in steps(job) {
                let run = step["run"].as_str().unwrap_or_default();
                assert!(
                    !run.contains("${{"),
                    "{path}: an expression is text of a shell: {run}"
                );
                let uses = step["uses"].as_str().unwrap_or_default();
                if uses.starts_with("actions/checkout@") {
                    assert_eq!(step["with"]["persist-credentials"], false, "{path}: {name}");
                }
            }
        }
    }
}

#[test]
fn every_action_of_others_is_pinned_by_its_commit() {
    let ours = format!("escape-audit/escape-audit@v{}", env!("CARGO_PKG_VERSION"));
    let mut pinned = BTreeSet::new();
    let pages = ["README.md", "docs/ci.md"].map(str::to_owned);
    for path in workflows().into_iter().chain(pages) {
        for line in fs::read_to_string(root().join(&path)).unwrap().lines() {
            let line = line.trim().trim_start_matches("- ");
            let Some(uses) = line.strip_prefix("uses: ") else {
                continue;
            };
            if uses == "./" || uses == ours {
                continue;
            }
            let (action, rest) = uses.split_once('@').unwrap_or((uses, ""));
            let (commit, version) = rest.split_once(" # v").unwrap_or((rest, ""));
            let hexadecimal = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
            assert!(hexadecimal && !version.is_empty(), "{path}: {line}");
            pinned.insert((action.to_owned(), commit.to_owned(), version.to_owned()));
        }
    }
    // One version each, wherever it is used.
    let actions: BTreeSet<&String> = pinned.iter().map(|(action, ..)| action).collect();
    assert!(actions.len() >= 5);
    assert_eq!(actions.len(), pinned.len(), "{pinned:?}");
}

/// GitHub warns of an unknown input, and goes on without it.
#[test]
fn what_is_said_to_the_action_is_understood() {
    if !have(&["schemas"]) {
        return;
    }
    let action = yaml("action.yml");
    let (inputs, outputs) = (keys(&action["inputs"]), keys(&action["outputs"]));
    let mut calls = 0;
    for path in workflows() {
        let workflow = yaml(&path);
        for (_, job) in jobs(&workflow) {
            for step in steps(job) {
                let uses = step["uses"].as_str().unwrap_or_default();
                if uses != "./" && !uses.starts_with("escape-audit/") {
                    continue;
                }
                calls += 1;
                let with = keys(&step["with"]);
                let unknown: Vec<_> = with.difference(&inputs).collect();
                assert!(unknown.is_empty(), "{path}: {unknown:?}");
                let words = arguments(&step["with"]);
                if let Err(error) = Arguments::try_parse_from(&words) {
                    panic!("{path}: {words:?}\n{error}");
                }
            }
        }
        let page = fs::read_to_string(root().join(&path)).unwrap();
        for output in page.split(".outputs.").skip(1) {
            let end = output.find(|c: char| !c.is_ascii_lowercase() && c != '-');
            let name = &output[..end.unwrap_or(output.len())];
            assert!(outputs.contains(name), "{path}: {name}");
        }
    }
    assert!(calls >= 7, "{calls}");
}

#[test]
fn the_page_has_every_input_and_output_of_the_action() {
    if !have(&["schemas"]) {
        return;
    }
    let action = yaml("action.yml");
    let page = fs::read_to_string(root().join("docs/ci.md")).unwrap();
    for (heading, table) in [
        ("| input | what it does |", "inputs"),
        ("| output | what it is |", "outputs"),
    ] {
        let cells = first_cells(&page, heading);
        let listed: Vec<&str> = cells.iter().flat_map(|cell| cell.split("`, `")).collect();
        let listed: BTreeSet<&str> = listed.into_iter().collect();
        assert_eq!(listed, keys(&action[table]), "{table}");
    }
}

#[test]
fn the_job_for_gitlab_keeps_its_exit_code_and_its_reports() {
    if !have(&["schemas"]) {
        return;
    }
    let job = &yaml("examples/ci/gitlab-ci.yml")["sandbox-gate"];
    let script = job["script"].as_array().unwrap();
    let last = text(script.last().unwrap());
    let words: Vec<&str> = last.split_whitespace().collect();
    if let Err(error) = Arguments::try_parse_from(&words) {
        panic!("{last}\n{error}");
    }
    assert_eq!(job["allow_failure"], false);
    assert_eq!(job["artifacts"]["when"], "always");
    let junit = text(&job["artifacts"]["reports"]["junit"]);
    assert!(
        words.windows(2).any(|pair| pair == ["--junit", junit]),
        "{last}"
    );
    assert!(Path::new(junit).starts_with("escape-audit"));
}
