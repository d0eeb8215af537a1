//! What outlives its sandbox is seen, counted and swept, by whichever way the run was ended.

use crate::support::{have, run, run_with, runner};

const WAYS: [&str; 3] = [
    "processes/outlive-launcher",
    "processes/outlive-group",
    "processes/outlive-terminate",
];

/// Double fork, a session of its own, closed descriptors, a beacon each moment; then each of the three ends.
#[test]
fn a_launcher_without_a_process_namespace_leaves_survivors_by_each_way_of_ending_it() {
    if !have(&["root"]) {
        return;
    }
    let seen = run_with(&WAYS, &[&runner("stays-beside")]);
    seen.expect(1, &WAYS.map(|case| (case, "ESCAPED", "survivor")));
    // `run` has looked: nothing of them is left once they were counted.
}

/// Three ways, three verdicts: unshare(1) does not end upon SIGTERM, and the rest goes on with it. Its arguments hold
/// everything that the probe's do, and it is not taken for a survivor when it is gone.
#[test]
fn each_way_of_ending_a_launcher_is_judged_by_itself() {
    if !have(&["root", "unshare"]) {
        return;
    }
    let launcher = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "env",
    ];
    let seen = run_with(&WAYS, &launcher);
    seen.expect(
        1,
        &[
            ("processes/outlive-launcher", "BLOCKED", "killed"),
            ("processes/outlive-group", "BLOCKED", "killed"),
            ("processes/outlive-terminate", "ESCAPED", "survivor"),
        ],
    );
}

#[test]
fn a_promised_timeout_that_nobody_keeps() {
    if !have(&["root"]) {
        return;
    }
    let cases = ["resources/cpu-spin", "processes/outlive-timeout"];
    let mut arguments: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
    arguments.extend(["--timeout", "1s", "--", "env"]);
    run(&arguments).expect(1, &cases.map(|case| (case, "ESCAPED", "survivor")));
}

#[test]
fn a_promised_timeout_that_the_launcher_keeps() {
    if !have(&["root", "unshare"]) {
        return;
    }
    let cases = ["resources/cpu-spin", "processes/outlive-timeout"];
    let mut arguments: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
    arguments.extend(["--timeout", "2s", "--", "timeout", "-s", "KILL", "2"]);
    arguments.extend(["unshare", "--pid", "--fork", "--kill-child"]);
    let seen = run(&arguments);
    seen.expect(0, &cases.map(|case| (case, "BLOCKED", "killed")));
}

#[test]
fn the_embedded_sandbox_without_its_cleanup_leaves_survivors_that_are_swept() {
    if !have(&["root"]) {
        return;
    }
    let seen = run(&[
        "--without",
        "pid-namespace,cleanup",
        "--case",
        "processes/outlive-timeout",
    ]);
    seen.expect(1, &[("processes/outlive-timeout", "ESCAPED", "survivor")]);
}
