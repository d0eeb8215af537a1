//! Bad input: one clear error with what to do, exit code 2, and nothing started.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

use crate::support::{Seen, copy_of, folder, have, run};

/// A case file that is right.
const CASE: &str = r#"
title    = "Dump the environment"
severity = "low"
level    = "standard"
why      = "It may hold a secret."
fix      = "Clear it."

[attempt.environment]

[escaped]
secret = true

[weakened]
remove = ["environment"]
"#;

/// Runs with a folder that holds this one case.
fn with_case(path: &str, text: &str) -> Seen {
    let folder = folder();
    let file = folder.path().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    run(&[
        "--cases",
        folder.path().to_str().unwrap(),
        "--case",
        "private/*",
    ])
}

fn with_project(text: &str) -> Seen {
    let folder = folder();
    let file = folder.path().join("project.toml");
    fs::write(&file, text).unwrap();
    run(&["--config", file.to_str().unwrap()])
}

#[test]
fn a_case_that_is_right_runs() {
    if !have(&["root"]) {
        return;
    }
    let seen = with_case("private/dump.toml", CASE);
    seen.expect(0, &[("private/dump", "BLOCKED", "absent")]);
}

#[test]
fn an_unknown_key_in_a_case() {
    let seen = with_case("private/dump.toml", &format!("severty = \"low\"\n{CASE}"));
    seen.expect_refusal(&["severty", "severity", "private/dump.toml:1"]);
}

#[test]
fn a_wrong_type_in_a_case() {
    let seen = with_case("private/dump.toml", &CASE.replace("\"low\"", "3"));
    seen.expect_refusal(&["severity", "private/dump.toml:3"]);
}

#[test]
fn a_case_whose_canary_proves_nothing() {
    let seen = with_case(
        "private/dump.toml",
        &CASE.replace("secret = true", "canary = \"tcp\""),
    );
    seen.expect_refusal(&["private/dump.toml"]);
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = CASE
        .replace("\"low\"", "3")
        .replace("secret = true", "secrets = true");
    with_case("private/dump.toml", &text).expect_refusal(&["severity", "secrets"]);
}

#[test]
fn two_cases_with_one_id() {
    let folders = [folder(), folder()];
    for folder in &folders {
        fs::create_dir(folder.path().join("private")).unwrap();
        fs::write(folder.path().join("private/dump.toml"), CASE).unwrap();
    }
    let paths = folders
        .each_ref()
        .map(|folder| folder.path().to_str().unwrap());
    let seen = run(&["--cases", paths[0], "--cases", paths[1]]);
    seen.expect_refusal(&["private/dump", paths[0], paths[1]]);
}

#[test]
fn a_case_with_the_id_of_the_librarys_own() {
    let seen = with_case("network/tcp-egress.toml", CASE);
    seen.expect_refusal(&["network/tcp-egress"]);
}

#[test]
fn a_case_folder_that_is_not_there() {
    run(&["--cases", "/no/such/folder"]).expect_refusal(&["/no/such/folder"]);
}

/// As an ordinary user, since root can read everything.
#[test]
fn a_case_folder_that_cannot_be_read() {
    if !have(&["root"]) {
        return;
    }
    let folder = folder();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let (_copy, program) = copy_of(env!("CARGO_BIN_EXE_escape-audit").as_ref());
    let output = std::process::Command::new(&program)
        .args(["run", "--cases"])
        .arg(&closed)
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("closed") && said.contains("help: "), "{said}");
}

#[test]
fn an_empty_case_folder() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    run(&["--cases", path]).expect_refusal(&[path]);
}

#[test]
fn mistakes_in_a_project_file() {
    let seen =
        with_project("[sandbox.a]\nbackend = \"oci\"\nmem_limt = \"64m\"\npids_limit = \"many\"\n");
    seen.expect_refusal(&[
        "mem_limt",
        "mem_limit",
        "pids_limit",
        "project.toml:3",
        "project.toml:4",
    ]);
}

#[test]
fn a_limit_that_the_backend_cannot_set() {
    let seen =
        with_project("[sandbox.a]\nbackend = \"command\"\ncommand = [\"env\"]\npids_limit = 64\n");
    seen.expect_refusal(&["pids_limit", "command"]);
}

#[test]
fn a_project_file_that_is_no_toml_or_not_there() {
    with_project("[sandbox.a\n").expect_refusal(&["project.toml:1"]);
    run(&["--config", "/no/such/file.toml"]).expect_refusal(&["/no/such/file.toml"]);
}

#[test]
fn a_sandbox_that_nobody_knows() {
    run(&["--sandbox", "unsandboxd"]).expect_refusal(&["unsandboxd", "unsandboxed"]);
}

#[test]
fn a_protection_that_nobody_knows() {
    let seen = run(&["--without", "nonsense"]);
    assert_eq!(seen.status, 2);
    assert!(
        seen.err.contains("nonsense") && seen.err.contains("--without"),
        "{}",
        seen.err
    );
    assert!(seen.err.to_lowercase().contains("help"), "{}", seen.err);
}

#[test]
fn protections_of_a_launcher_are_not_ours_to_take_away() {
    run(&["--without", "network", "--", "env"]).expect_refusal(&["--without", "command"]);
}

#[test]
fn a_report_that_cannot_be_written() {
    for file in ["/dev/null/report.xml", "/"] {
        let folder = folder();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_escape-audit"))
            .args(["run", "--case", "works/run", "--junit", file])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(file) && said.contains("help: "), "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

/// A green report of yesterday must not stand for a run that could not start today, whatever the mistake is.
#[test]
fn an_old_report_does_not_outlive_a_refusal() {
    for mistake in [
        ["--junit", "/dev/null/report.xml"],
        ["--config", "/no/such/file.toml"],
        ["--cases", "/no/such/folder"],
        ["--sandbox", "unknown"],
    ] {
        let folder = folder();
        let old = folder.path().join("old.json");
        fs::write(&old, "{\"exit_code\": 0}").unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_escape-audit"))
            .args(["run", "--case", "works/run"])
            .args(mistake)
            .arg("--json")
            .arg(&old)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{mistake:?}");
        assert!(!old.exists(), "{mistake:?}: the old report is still there");
    }
}

#[test]
fn numbers_and_durations_that_make_no_sense() {
    for wrong in [
        &["--jobs", "0"][..],
        &["--jobs", "many"],
        &["--timeout", "10"],
        &["--timeout", "-1s"],
        &["--level", "lax"],
        &["--sandbox", "oci", "--", "env"],
        &["--no-such-option"],
    ] {
        let seen = run(wrong);
        assert_eq!(seen.status, 2, "{wrong:?}: {}", seen.err);
        assert!(seen.err.starts_with("error: "), "{wrong:?}: {}", seen.err);
    }
}

/// An argument may come from a matrix or a branch's name, and what a mistake quotes of it stands in a CI system's log.
#[test]
fn no_ci_system_obeys_what_a_mistake_quotes() {
    for value in ["##[error]forged", "x\n::error::forged", "\u{1b}[2J"] {
        let seen = run(&["--level", value]);
        assert_eq!(seen.status, 2, "{}", seen.err);
        assert!(seen.err.contains("invalid value"), "{}", seen.err);
        for line in seen.err.lines() {
            let obeyed = line.trim_start().starts_with("::") || line.contains("##[");
            assert!(!obeyed && !line.contains('\u{1b}'), "{value:?}: {line}");
        }
    }
}
