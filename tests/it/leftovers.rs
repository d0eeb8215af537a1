//! Nothing is left behind: after success, failure, each signal, and, once somebody looks, after SIGKILL. What is counted
//! is in `support::traces`: processes, groups in every hierarchy, mounts, folders, planted files.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use escape_audit::host::proc;
use nix::sys::signal::Signal;

use crate::support::{Audit, Seen, alone, folder, have, planted, run, runner, traces};

/// A run of the whole library, when the first trials are decided and others are going on; what it has planted; and who
/// lives in its network namespace.
fn in_the_middle() -> (Audit, Vec<PathBuf>, Vec<Process>) {
    let mut audit = Audit::run(&["--case", "*"]);
    audit.until("the first verdict", |audit| {
        audit.said().contains("BLOCKED")
    });
    let planted = planted(audit.pid);
    assert!(planted.len() > 4, "{planted:?}");
    let traces = audit.traces().join("\n");
    for sign in ["process ", "/sys/fs/cgroup", "/escape-audit"] {
        assert!(traces.contains(sign), "no {sign} in\n{traces}");
    }
    let inside = inside_the_namespaces_of(&audit);
    assert!(!inside.is_empty());
    (audit, planted, inside)
}

/// A process for good: its id, and when it started.
type Process = (i32, Option<u64>);

/// Who lives in the network namespaces of the run that are not this test's own. A namespace goes with the last of them;
/// its number is soon another one's.
fn inside_the_namespaces_of(audit: &Audit) -> Vec<Process> {
    let space = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = fs::read_link("/proc/self/ns/net").ok();
    let helpers = crate::support::helpers(audit.pid);
    let spaces: BTreeSet<_> = helpers
        .into_iter()
        .map(|(pid, _)| space(pid))
        .filter(|found| found.is_some() && *found != own)
        .collect();
    proc::processes()
        .into_iter()
        .filter(|pid| spaces.contains(&space(*pid)))
        .map(|pid| (pid, proc::start_time(pid)))
        .collect()
}

#[track_caller]
fn assert_gone(planted: &[PathBuf], inside: &[Process]) {
    let left: Vec<_> = planted.iter().filter(|path| path.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    // One that has ended, and whose new parent has not noticed, lives nowhere.
    let lives = |pid: i32| !matches!(proc::state(pid), None | Some('Z' | 'X'));
    let left: Vec<_> = inside
        .iter()
        .filter(|(pid, start)| lives(*pid) && proc::start_time(*pid) == *start)
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A report that says what it is: not whole.
#[track_caller]
fn assert_partial(seen: &Seen, exit_code: i32) {
    assert_eq!(seen.status, exit_code, "{}{}", seen.out, seen.err);
    assert_eq!(seen.report["exit_code"], exit_code);
    assert!(
        seen.report["incomplete"].is_string(),
        "{}",
        seen.report["incomplete"]
    );
    let trials = seen.trials().len();
    assert!((1..47).contains(&trials), "{trials} trials");
    assert_eq!(seen.report["summary"]["total"], trials);
    let junit = seen.junit.as_deref().expect("a JUnit report");
    let read = quick_junit::Report::deserialize_from_str(junit).unwrap();
    let errors: usize = read.test_suites.iter().map(|suite| suite.errors).sum();
    assert!(
        errors >= 1,
        "a reader of JUnit alone takes it for whole:\n{junit}"
    );
    assert!(seen.err.contains("stopping"), "{}", seen.err);
    assert!(seen.out.contains("interrupted"), "{}", seen.out);
}

fn after_a_signal(signal: Signal, exit_code: i32) {
    let (mut audit, planted, spaces) = in_the_middle();
    audit.signal(signal);
    let seen = audit.finish();
    assert_partial(&seen, exit_code);
    assert_gone(&planted, &spaces);
}

#[test]
fn after_success_and_after_failure() {
    if !have(&["root"]) {
        return;
    }
    for arguments in [
        &["--case", "works/*", "--case", "kernel/*"][..],
        &[
            "--case",
            "filesystem/*",
            "--case",
            "works/*",
            "--sandbox",
            "unsandboxed",
        ],
        &["--case", "processes/see-host-process", "--", "false"],
    ] {
        let mut audit = Audit::run(arguments);
        let mut seen = Vec::new();
        audit.until("its plants", |audit| {
            seen = planted(audit.pid);
            !seen.is_empty()
        });
        audit.finish();
        assert_gone(&seen, &[]);
    }
}

#[test]
fn after_ctrl_c() {
    if have(&["root"]) {
        after_a_signal(Signal::SIGINT, 130);
    }
}

#[test]
fn after_sigterm() {
    if have(&["root"]) {
        after_a_signal(Signal::SIGTERM, 143);
    }
}

#[test]
fn after_a_hang_up() {
    if have(&["root"]) {
        after_a_signal(Signal::SIGHUP, 129);
    }
}

/// The second one ends it at once; what is left then, the next run removes.
#[test]
fn after_ctrl_c_twice() {
    if !have(&["root"]) {
        return;
    }
    let (mut audit, planted, spaces) = in_the_middle();
    let pid = audit.pid;
    audit.signal(Signal::SIGINT);
    while audit.is_running() && !audit.said().contains("stopping") {
        std::thread::yield_now();
    }
    audit.signal(Signal::SIGINT);
    let (seen, _) = audit.finish_with_traces();
    assert_eq!(seen.status, 130, "{}", seen.err);
    clean();
    assert_eq!(traces(pid), Vec::<String>::new());
    assert_gone(&planted, &spaces);
}

fn clean() -> Seen {
    let seen = Audit::start_in("clean", &[], |_| {}).finish();
    assert_eq!(seen.status, 0, "{}", seen.err);
    seen
}

/// Nobody is left to clean up. The next run does it, and touches no run that is going on.
#[test]
fn after_sigkill_the_next_run_reaps_its_dead_and_nothing_else() {
    if !have(&["root"]) {
        return;
    }
    let place = folder();
    let folder = place.path().to_str().unwrap();
    let waits = runner("waits-for-a-word");
    let mut living = Audit::run(&["--case", "works/run", "--", &*waits, folder, "env"]);
    living.until("the launcher", |_| place.path().join("here").exists());
    // Its launcher looks about by one short `sleep` after another: those come and go.
    let mut before = living.traces();
    before.retain(|trace| !trace.contains("(sleep)"));
    assert!(before.len() > 4, "{before:?}");

    // A run of another test may reap it just as well, before anyone looks: then one more is killed.
    let killed = |_| {
        let (mut killed, plants, spaces) = in_the_middle();
        let dead = killed.pid;
        killed.signal(Signal::SIGKILL);
        let (seen, left) = killed.finish_with_traces();
        assert_eq!(seen.status, -9);
        assert_eq!(
            seen.junit.as_deref().unwrap_or(""),
            "",
            "no report stands for a run that has none"
        );
        (!left.is_empty()).then_some((dead, plants, spaces))
    };
    let (dead, dead_plants, spaces) = (0..5)
        .find_map(killed)
        .expect("a killed run leaves something");

    assert_eq!(run(&["--case", "works/run"]).status, 0);
    assert_eq!(traces(dead), Vec::<String>::new());
    assert_gone(&dead_plants, &spaces);

    let now = living.traces();
    let touched: Vec<_> = before.iter().filter(|trace| !now.contains(trace)).collect();
    assert!(
        touched.is_empty(),
        "the next run touched a living one: {touched:?}"
    );
    fs::write(place.path().join("go"), "").unwrap();
    living
        .finish()
        .expect(0, &[("works/run", "ALLOWED", "worked")]);
}

#[test]
fn after_sigkill_clean_reaps_too() {
    if !have(&["root"]) {
        return;
    }
    let (mut killed, planted, spaces) = in_the_middle();
    let dead = killed.pid;
    killed.signal(Signal::SIGKILL);
    killed.finish_with_traces();
    clean();
    assert_eq!(traces(dead), Vec::<String>::new());
    assert_gone(&planted, &spaces);
    // And there is nothing more to do.
    assert!(!clean().out.contains(&format!("run-{dead}-")));
}

/// What the probe writes wherever it may, it removes itself. Killed before that, the next run does.
#[test]
fn what_was_written_anywhere_goes_after_sigkill() {
    if !have(&["root"]) {
        return;
    }
    let _alone = alone();
    let written = || -> BTreeSet<PathBuf> {
        ["/run", "/dev/shm", "/etc"]
            .iter()
            .flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten())
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("ea-"))
            .map(|entry| entry.path())
            .collect()
    };
    let before = written();
    let case = "filesystem/write-outside-scratch";
    // Between its writing and its removing lies the blink of an eye: sooner or later one is caught.
    for _ in 0..20 {
        let mut audit = Audit::run(&["--sandbox", "unsandboxed", "--case", case]);
        while audit.is_running() && written() == before {}
        audit.signal(Signal::SIGKILL);
        let left = written();
        audit.finish_with_traces();
        let status = std::process::Command::new(env!("CARGO_BIN_EXE_escape-audit"))
            .arg("clean")
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(written(), before);
        if left != before {
            return;
        }
    }
    panic!("no run was killed in time");
}
