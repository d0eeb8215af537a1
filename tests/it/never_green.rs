//! What proves nothing is never green: no BLOCKED, no ALLOWED, no exit code 0.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Audit, alone, folder, have, helpers, run, run_with, runner};

/// A target of ours, an absence that is proven by facts from inside, and something that must work.
const CASES: [&str; 3] = [
    "network/tcp-egress",
    "credentials/environment-dump",
    "works/run",
];

/// Runs [`CASES`] with this launcher; all of them have to come out so.
#[track_caller]
fn all_come_out(launcher: &[&str], verdict: &str, reason: &str) {
    let seen = run_with(&CASES, launcher);
    seen.expect_nothing_proven();
    seen.expect(3, &CASES.map(|case| (case, verdict, reason)));
}

#[test]
fn a_launcher_that_prints_and_exits_0() {
    if have(&["root"]) {
        all_come_out(
            &[&runner("prints-and-exits")],
            "INCONCLUSIVE",
            "no-start-record",
        );
    }
}

#[test]
fn a_launcher_that_gives_the_verdict_itself() {
    if have(&["root"]) {
        all_come_out(
            &[&runner("says-blocked")],
            "INCONCLUSIVE",
            "no-start-record",
        );
    }
}

#[test]
fn forged_records() {
    if have(&["root"]) {
        all_come_out(&[&runner("forges-records")], "ERROR", "contradiction");
    }
}

#[test]
fn an_old_session_replayed() {
    if !have(&["root"]) {
        return;
    }
    let folder = folder();
    let kept = folder.path().join("session");
    let launcher = [&*runner("replays"), kept.to_str().unwrap()];
    // The first time it is an ordinary launcher without a sandbox.
    assert_eq!(
        run_with(&["works/run"], &launcher).verdict("works/run").0,
        "ALLOWED"
    );
    all_come_out(&launcher, "ERROR", "contradiction");
}

#[test]
fn records_said_twice() {
    if !have(&["root"]) {
        return;
    }
    let seen = run_with(
        &["works/run", "credentials/environment-dump"],
        &[&runner("doubles-the-records")],
    );
    // Nothing that a sandbox prints lowers an escape, and nothing of it is a proof.
    seen.expect(
        1,
        &[
            ("works/run", "ERROR", "contradiction"),
            ("credentials/environment-dump", "ESCAPED", "secret-read"),
        ],
    );
}

/// The launcher has probe and nonce: it can say anything, and that is out of what can be guarded against. The report
/// says that the host saw nothing of it.
#[test]
fn answers_in_the_probes_place_are_marked_as_the_insides_word_alone() {
    if !have(&["root"]) {
        return;
    }
    let case = "credentials/environment-dump";
    let seen = run_with(&[case], &[&runner("answers-for-the-probe")]);
    assert_eq!(seen.verdict(case), ("BLOCKED", "absent"));
    assert_eq!(seen.trial(case)["inside_only"], true);
    assert!(seen.out.contains("inside-only"), "{}", seen.out);
}

#[test]
fn a_launcher_that_closes_standard_input() {
    if have(&["root"]) {
        all_come_out(&[&runner("closes-stdin")], "INCONCLUSIVE", "no-input");
    }
}

#[test]
fn a_probe_on_a_file_system_without_execution() {
    if have(&["root"]) {
        all_come_out(
            &[&runner("copies-to-noexec")],
            "INCONCLUSIVE",
            "no-start-record",
        );
    }
}

#[test]
fn a_probe_that_the_sandboxes_user_may_not_reach() {
    if have(&["root", "setpriv"]) {
        all_come_out(
            &[&runner("copies-for-nobody")],
            "INCONCLUSIVE",
            "no-start-record",
        );
    }
}

#[test]
fn a_launcher_that_hangs_before_it_starts() {
    if have(&["root"]) {
        all_come_out(&[&runner("hangs")], "INCONCLUSIVE", "no-start-record");
    }
}

#[test]
fn a_launcher_that_goes_on_after_its_probe() {
    if !have(&["root", "bwrap"]) {
        return;
    }
    let bwrap = [
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
    let sleeps = runner("sleeps-after");
    let launcher: Vec<&str> = [&*sleeps].into_iter().chain(bwrap).collect();
    let cases = ["network/tcp-egress", "works/run"];
    let seen = run_with(&cases, &launcher);
    seen.expect(3, &cases.map(|case| (case, "ERROR", "launcher-hangs")));
}

#[test]
fn run_false() {
    if have(&["root"]) {
        all_come_out(&["false"], "INCONCLUSIVE", "no-start-record");
    }
}

#[test]
fn run_true() {
    if have(&["root"]) {
        all_come_out(&["true"], "INCONCLUSIVE", "no-start-record");
    }
}

/// `cat PROBE` prints the probe's own file: a megabyte of anything.
#[test]
fn run_cat() {
    if have(&["root"]) {
        all_come_out(&["cat"], "INCONCLUSIVE", "no-start-record");
    }
}

/// `tee` gives back what the harness says to the probe, in the harness's own words.
#[test]
fn run_what_echoes_the_harness() {
    if !have(&["root"]) {
        return;
    }
    let seen = run_with(&CASES, &["sh", "-c", "cat", "sh"]);
    seen.expect_nothing_proven();
    assert_eq!(seen.status, 3);
}

#[test]
fn a_missing_launcher() {
    let seen = run_with(&CASES, &["escape-audit-test-no-such-launcher"]);
    seen.expect_refusal(&["escape-audit-test-no-such-launcher", "nothing was run"]);
}

#[test]
fn an_empty_selection() {
    for none in [
        &["--case", "netwrok/*"][..],
        &["--case", "network/tcp-egress", "--skip", "network/*"],
        &["--tag", "no-such-tag"],
        &["--case", "works/*", "--severity", "critical"],
    ] {
        let seen = run(none);
        assert!(matches!(seen.status, 2 | 4), "{none:?}: {}", seen.status);
        assert!(!seen.out.contains("that was tried held"), "{}", seen.out);
    }
}

#[test]
fn a_selection_of_which_nothing_could_be_tried() {
    if !have(&["root"]) {
        return;
    }
    let seen = run_with(&["processes/outlive-timeout"], &["env"]);
    seen.expect(
        4,
        &[("processes/outlive-timeout", "SKIPPED", "not-applicable")],
    );
    assert!(seen.out.contains("exit 4: nothing ran"), "{}", seen.out);
}

#[test]
fn a_canary_that_died_while_it_was_tried() {
    if !have(&["root"]) {
        return;
    }
    let folder = folder();
    let place = folder.path().to_str().unwrap();
    let bwrap = ["bwrap", "--unshare-all", "--ro-bind", "/", "/"];
    let waits = runner("waits-for-a-word");
    let mut arguments = vec!["--case", "network/tcp-egress", "--", &*waits, place];
    arguments.extend(bwrap);
    let mut audit = Audit::run(&arguments);
    audit.until("the launcher", |_| folder.path().join("here").exists());
    // The helper holds the range's namespace and proves from inside that its canaries are alive.
    let helper = |audit: &Audit| {
        let helpers = helpers(audit.pid);
        helpers
            .into_iter()
            .find(|(_, line)| line.contains("__range"))
    };
    let (pid, _) = helper(&audit).expect("a helper in the namespace");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    audit.until("its end", |audit| helper(audit).is_none());
    std::fs::write(folder.path().join("go"), "").unwrap();
    let seen = audit.finish();
    seen.expect_nothing_proven();
    seen.expect(
        3,
        &[("network/tcp-egress", "INCONCLUSIVE", "target-not-alive")],
    );
}

/// A sandbox without a ceiling on CPU time, on a machine that has none to give: its low use is no proof.
#[test]
fn a_saturated_machine() {
    if !have(&["root"]) {
        return;
    }
    let _alone = alone();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let mut spinners: Vec<_> = (0..cpus * 6)
        .map(|_| {
            let spin = "end=$(($(date +%s) + 12)); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; done";
            Command::new("sh").args(["-c", spin]).spawn().unwrap()
        })
        .collect();
    let began = Instant::now();
    let seen = run_with(&["resources/cpu-quota"], &["env"]);
    let saturated = spinners
        .iter_mut()
        .all(|child| child.try_wait().unwrap().is_none());
    for spinner in &mut spinners {
        spinner.kill().unwrap();
        spinner.wait().unwrap();
    }
    assert!(saturated || began.elapsed() > Duration::from_secs(10));
    let (verdict, reason) = seen.verdict("resources/cpu-quota");
    assert!(
        matches!(verdict, "ESCAPED" | "INCONCLUSIVE"),
        "{verdict} ({reason})"
    );
    seen.expect_nothing_proven();
}

#[test]
fn a_sandbox_whose_own_file_is_missing_is_named() {
    let folder = folder();
    let file = folder.path().join("project.toml");
    std::fs::write(
        &file,
        "[sandbox.first]\nbackend = \"oci\"\n[sandbox.second]\nbackend = \"command\"\ncommand = [\"/no/such/engine\"]\n",
    )
    .unwrap();
    assert!(Path::new(&file).is_file());
    let seen = run(&["--config", file.to_str().unwrap()]);
    seen.expect_refusal(&["second", "/no/such/engine"]);
}
