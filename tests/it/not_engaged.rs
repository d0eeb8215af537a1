//! A launcher that adds no isolation is told so, and what must be blocked is not.

use crate::support::{have, run_with, runner};

#[track_caller]
fn is_not_engaged(launcher: &[&str]) {
    let seen = run_with(
        &[
            "network/host-loopback",
            "credentials/environment-dump",
            "filesystem/write-host-file",
        ],
        launcher,
    );
    seen.expect(
        1,
        &[
            ("network/host-loopback", "ESCAPED", "canary-reached"),
            ("credentials/environment-dump", "ESCAPED", "secret-read"),
            ("filesystem/write-host-file", "ESCAPED", "host-file-written"),
        ],
    );
    assert!(
        seen.notes().contains("sandbox not engaged"),
        "{}",
        seen.notes()
    );
    assert!(seen.out.contains("sandbox not engaged"), "{}", seen.out);
}

#[test]
fn env() {
    if have(&["root"]) {
        is_not_engaged(&["env"]);
    }
}

#[test]
fn nice() {
    if have(&["root"]) {
        is_not_engaged(&["nice"]);
    }
}

#[test]
fn a_shell() {
    if have(&["root"]) {
        is_not_engaged(&["sh", "-c", "\"$@\"", "sh"]);
    }
}

#[test]
fn timeout() {
    if have(&["root"]) {
        is_not_engaged(&["timeout", "60"]);
    }
}

/// It leaves at once, and what it started goes on.
#[test]
fn setsid() {
    if have(&["root"]) {
        is_not_engaged(&["setsid"]);
    }
}

#[test]
fn a_wrapper_that_warns_and_runs_the_command_unwrapped() {
    if have(&["root"]) {
        is_not_engaged(&[&runner("warns-and-runs")]);
    }
}

#[test]
fn a_sandbox_is_engaged() {
    if !have(&["root", "bwrap"]) {
        return;
    }
    let bwrap = [
        "bwrap",
        "--unshare-net",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
    ];
    let seen = run_with(&["network/host-loopback"], &bwrap);
    assert_eq!(seen.verdict("network/host-loopback").0, "BLOCKED");
    assert_eq!(seen.notes(), "[]");
}
