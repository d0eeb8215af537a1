//! Waivers from end to end: written by the program, kept by real audits, and shown by every report.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use escape_audit::config::Date;

use crate::support::{Audit, Seen, folder, have, text};

const CASE: &str = "network/tcp-egress";

/// So many days from today.
fn day(from_today: i64) -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let today = i64::try_from(seconds / 86_400).unwrap();
    Date::from_days(today + from_today).to_string()
}

fn program(at: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_escape-audit"))
        .args(arguments)
        .current_dir(at)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn waive(at: &Path, case: &str, sandbox: &str, until: &str) -> Output {
    let reason = "the \"range\" moves in February";
    let arguments = [
        "waive",
        case,
        "--sandbox",
        sandbox,
        "--until",
        until,
        "--reason",
        reason,
    ];
    program(at, &arguments)
}

/// The unsandboxed control with one case that escapes and one that works, by this project file.
fn audit(project: &str, more: &[&str]) -> Seen {
    let place = folder();
    let file = place.path().join("project.toml");
    fs::write(&file, project).unwrap();
    let file = file.to_str().unwrap();
    let mut arguments = vec!["--sandbox", "unsandboxed", "--config", file, "--case", CASE];
    arguments.extend(["--case", "works/run"]);
    arguments.extend(more);
    Audit::run(&arguments).finish()
}

fn waiver(case: &str, sandbox: &str, until: &str) -> String {
    format!(
        "[[gate.waiver]]\ncase = '{case}'\nsandbox = '{sandbox}'\nuntil = {until}\n\
         reason = 'the range moves in February'\nticket = 'SEC-7'\n"
    )
}

#[test]
fn a_waived_escape_stays_one_and_does_not_fail() {
    if !have(&["root"]) {
        return;
    }
    let until = day(90);
    let seen = audit(&waiver(CASE, "unsandboxed", &until), &[]);
    assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
    let trial = seen.trial(CASE);
    assert_eq!(trial["verdict"], "ESCAPED");
    assert_eq!(trial["waived"]["until"], *until);
    assert_eq!(trial["waived"]["ticket"], "SEC-7");
    for word in [
        &format!("waived    until {until} (SEC-7): the range moves in February"),
        "1 of them waived",
        "exit 0: everything that was tried held, but for 1 waived",
    ] {
        assert!(seen.out.contains(word), "{word}\n{}", seen.out);
    }
    let junit = seen.junit.unwrap();
    let skipped =
        format!("<skipped>waived until {until} (SEC-7): the range moves in February: ESCAPED");
    assert!(junit.contains(&skipped), "{junit}");
    assert!(junit.contains("failures=\"0\""), "{junit}");
}

#[test]
fn a_waiver_that_ended_or_is_for_another_sandbox_excuses_nothing() {
    if !have(&["root"]) {
        return;
    }
    let yesterday = day(-1);
    let ended = audit(&waiver(CASE, "unsandboxed", &yesterday), &[]);
    assert_eq!(ended.status, 1, "{}", ended.out);
    let sentence = format!("ended on {yesterday} and no longer counts");
    assert!(
        ended.out.replace("\n            ", " ").contains(&sentence),
        "{}",
        ended.out
    );
    assert_eq!(
        text(&ended.report["gate"]["remarks"][0]["code"]),
        "waiver-expired"
    );
    // It fails although the one case that is tried works.
    let held = audit(&waiver(CASE, "unsandboxed", &yesterday), &["--skip", CASE]);
    assert_eq!(held.status, 3, "{}", held.out);
    assert!(held.junit.unwrap().contains("type=\"waiver-expired\""));

    let elsewhere = audit(&waiver(CASE, "oci", &day(90)), &[]);
    assert_eq!(elsewhere.status, 1, "{}", elsewhere.out);
    assert!(elsewhere.trial(CASE)["waived"].is_null());
    // A launcher of the command line is no sandbox of the project, whatever it is called there.
    let project = "[sandbox.command]\nbackend = 'command'\ncommand = ['env']\n".to_owned()
        + &waiver(CASE, "command", &day(90));
    let place = folder();
    let file = place.path().join("project.toml");
    fs::write(&file, project).unwrap();
    let file = file.to_str().unwrap();
    let configured = ["--config", file, "--case", CASE];
    let quick = Audit::run(&[&configured[..], &["--", "env"]].concat()).finish();
    assert_eq!(
        (quick.status, quick.trial(CASE)["waived"].is_null()),
        (1, true),
        "{}",
        quick.out
    );
    let named = Audit::run(&configured).finish();
    assert_eq!(named.status, 0, "{}{}", named.out, named.err);
}

#[test]
fn a_waiver_that_nothing_needs_or_that_ends_soon_warns() {
    if !have(&["root"]) {
        return;
    }
    let both = waiver("works/run", "unsandboxed", &day(90)) + &waiver(CASE, "unsandboxed", &day(3));
    let seen = audit(&both, &[]);
    assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
    let remarks = seen.report["gate"]["remarks"].as_array().unwrap();
    let codes: Vec<&str> = remarks.iter().map(|remark| text(&remark["code"])).collect();
    assert_eq!(codes, ["waiver-unused", "waiver-ends-soon"]);
    assert!(
        seen.out.contains("warning   The waiver for `works/run`"),
        "{}",
        seen.out
    );
    assert!(seen.out.contains("ends in 3 days"), "{}", seen.out);
}

#[test]
fn a_waiver_for_a_case_that_does_not_exist_is_a_mistake_with_its_place() {
    let place = folder();
    let project = waiver("network/tcp-egres", "oci", &day(90));
    fs::write(place.path().join("escape-audit.toml"), project).unwrap();
    let output = program(place.path(), &["run", "--case", CASE]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    for word in [
        "escape-audit.toml:2:8",
        "help: did you mean `network/tcp-egress`?",
    ] {
        assert!(said(&output).contains(word), "{}", said(&output));
    }
}

const PROJECT: &str =
    "# Ours.\n[sandbox.agent]   # the agent's\nbackend = 'oci'\n\n\n[range]\n  # none yet";

#[test]
fn waive_appends_and_keeps_what_stands_there() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = folder();
    let real = place.path().join("real.toml");
    let file = place.path().join("escape-audit.toml");
    fs::write(&real, PROJECT).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, &file).unwrap();
    let (until, later) = (day(0), day(30));
    let first = waive(place.path(), CASE, "agent", &until);
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    let second = waive(place.path(), "kernel/bpf", "oci", &later);
    assert_eq!(second.status.code(), Some(0), "{}", said(&second));
    let expected = format!(
        "{PROJECT}\n[[gate.waiver]]\ncase = \"network/tcp-egress\"\nsandbox = \"agent\"\nuntil = {until}\n\
         reason = 'the \"range\" moves in February'\n\n[[gate.waiver]]\ncase = \"kernel/bpf\"\nsandbox = \"oci\"\n\
         until = {later}\nreason = 'the \"range\" moves in February'\n"
    );
    assert_eq!(fs::read_to_string(&real).unwrap(), expected);
    assert!(file.is_symlink());
    assert_eq!(
        fs::metadata(&real).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);

    fs::write(&real, "[sandbox.agent]\r\nbackend = 'oci'\r\n").unwrap();
    assert_eq!(
        waive(place.path(), CASE, "agent", &until).status.code(),
        Some(0)
    );
    let lines = fs::read_to_string(&real).unwrap();
    assert!(
        !lines.replace("\r\n", "").contains(['\r', '\n']),
        "{lines:?}"
    );
}

#[test]
fn waive_refuses_what_would_excuse_nothing_and_changes_nothing_then() {
    let place = folder();
    let file = place.path().join("escape-audit.toml");
    let refused = |project: &str, case: &str, sandbox: &str, until: &str, words: &[&str]| {
        fs::write(&file, project).unwrap();
        let output = waive(place.path(), case, sandbox, until);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        for word in words.iter().chain(&["help: "]) {
            assert!(said(&output).contains(word), "{word}\n{}", said(&output));
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), project);
    };
    let later = day(30);
    refused(
        PROJECT,
        "network/tcp-egres",
        "agnt",
        &day(-1),
        &[
            "there is no case `network/tcp-egres`",
            "did you mean `network/tcp-egress`?",
            "there is no sandbox `agnt`",
            "this day is past",
            "3 mistakes",
        ],
    );
    refused(
        PROJECT,
        "network/*",
        "agent",
        &later,
        &["there is no case `network/*`"],
    );
    let twice = format!("{PROJECT}\n{}", waiver(CASE, "agent", &later));
    refused(
        &twice,
        CASE,
        "agent",
        &later,
        &["already", "escape-audit.toml:9:8"],
    );
    refused(
        "[sandbox.agent]\nbackend = 'ocy'\n",
        CASE,
        "agent",
        &later,
        &["did you mean `oci`?"],
    );
    let inline = "gate = { waiver = [] }\n[sandbox.agent]\nbackend = 'oci'\n";
    refused(
        inline,
        CASE,
        "agent",
        &later,
        &["write it by hand", "nothing was changed"],
    );
    let output = program(
        place.path(),
        &[
            "waive",
            CASE,
            "--sandbox",
            "agent",
            "--until",
            &later,
            "--reason",
            " ",
        ],
    );
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), inline);

    fs::remove_file(&file).unwrap();
    let output = waive(place.path(), CASE, "agent", &later);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("is not there\nhelp: "),
        "{}",
        said(&output)
    );
    assert!(!file.exists());
}
