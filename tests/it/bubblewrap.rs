//! `bwrap --unshare-all --clearenv --die-with-parent --ro-bind / / --tmpfs /tmp`: what a careful person writes first.
//! It closes the network and the environment; it shows every file of the host, and bounds nothing.

use crate::support::{alone, have, run};

const BWRAP: [&str; 9] = [
    "bwrap",
    "--unshare-all",
    "--clearenv",
    "--die-with-parent",
    "--ro-bind",
    "/",
    "/",
    "--tmpfs",
    "/tmp",
];

/// Pattern of the case, the verdicts that are right, and why. The first pattern that fits counts.
const EXPECTED: &[(&str, &[&str], &str)] = &[
    ("credentials/ci-token", &["BLOCKED"], "--clearenv"),
    ("credentials/cloud-keys", &["BLOCKED"], "--clearenv"),
    ("credentials/environment-dump", &["BLOCKED"], "--clearenv"),
    (
        "credentials/launcher-environment",
        &["ESCAPED"],
        "the host's /proc is shown, to the same user",
    ),
    (
        "credentials/",
        &["ESCAPED"],
        "home folders are shown, read-only or not",
    ),
    (
        "engine/",
        &["ESCAPED"],
        "the sockets of the host are shown, and read-only closes none of them",
    ),
    (
        "filesystem/read-host-file",
        &["ESCAPED"],
        "every file of the host is shown",
    ),
    (
        "filesystem/",
        &["BLOCKED"],
        "read-only, and /tmp is the sandbox's own",
    ),
    ("metadata/", &["BLOCKED"], "--unshare-net"),
    (
        "network/unix-socket",
        &["ESCAPED"],
        "a socket needs no writable mount to be connected to",
    ),
    (
        "network/ipv6-egress",
        &["BLOCKED", "SKIPPED"],
        "--unshare-net",
    ),
    ("network/", &["BLOCKED"], "--unshare-net"),
    (
        "privilege/new-privileges",
        &["SKIPPED"],
        "it runs as root already",
    ),
    (
        "privilege/user-namespace",
        &["ESCAPED"],
        "no filter on system calls",
    ),
    (
        "privilege/",
        &["BLOCKED"],
        "root of a user namespace of its own alone",
    ),
    (
        "processes/outlive-timeout",
        &["SKIPPED"],
        "it promises no timeout",
    ),
    (
        "processes/outlive-",
        &["BLOCKED"],
        "--die-with-parent, and a process namespace",
    ),
    (
        "processes/see-host-process",
        &["ESCAPED"],
        "the host's /proc is shown",
    ),
    (
        "processes/signal-host-process",
        &["BLOCKED"],
        "a process namespace",
    ),
    ("resources/cpu-spin", &["SKIPPED"], "it promises no timeout"),
    (
        "resources/output-flood",
        &["SKIPPED"],
        "it promises no ceiling on output",
    ),
    (
        "resources/memory-swap",
        &["ESCAPED", "SKIPPED"],
        "no ceilings",
    ),
    ("resources/", &["ESCAPED"], "no ceilings"),
    (
        "works/",
        &["ALLOWED"],
        "it runs programs, and /tmp is there to be written",
    ),
];

#[test]
fn shows_the_hosts_files_and_bounds_nothing_and_closes_the_network() {
    if !have(&["root", "bwrap"]) {
        return;
    }
    let mut arguments = vec!["--"];
    arguments.extend(BWRAP);
    let _alone = alone();
    let seen = run(&arguments);
    let mut used = vec![false; EXPECTED.len()];
    for (case, (verdict, reason)) in seen.verdicts() {
        let at = EXPECTED
            .iter()
            .position(|(start, ..)| case.starts_with(start));
        let at = at.unwrap_or_else(|| panic!("say what is expected of {case}"));
        let (_, wanted, why) = EXPECTED[at];
        used[at] = true;
        assert!(
            wanted.contains(&verdict),
            "{case}: {verdict} ({reason}), because: {why}"
        );
    }
    assert!(used.iter().all(|used| *used), "{used:?}");
    assert_eq!(seen.status, 1);
    assert!(!seen.notes().contains("not engaged"), "{}", seen.notes());
}
