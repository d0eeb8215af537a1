//! Ctrl-C, SIGTERM, SIGHUP and SIGKILL in every phase of an audit: exit codes, partial reports that say so, and nothing
//! left. The phase is known by what the audit made or said, or by what it asked an engine; nothing here counts seconds.
//! What happens in the middle of the whole library is in `leftovers`.

use std::time::{Duration, Instant};

use escape_audit::backend::docker::call::Phase;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;

use crate::engine_faults;
use crate::fake_engine::{FakeEngine, Fault, Rule};
use crate::support::{Audit, Seen, folder, have, runner, traces};

const SIGNALS: [(Signal, i32); 3] = [
    (Signal::SIGINT, 130),
    (Signal::SIGTERM, 143),
    (Signal::SIGHUP, 129),
];

/// No phase's own deadline: an audit that is told to stop does not wait for what it was waiting for.
const SOON: Duration = Duration::from_secs(8);

/// Both reports say that they are not whole, to readers of either.
#[track_caller]
fn assert_partial(seen: &Seen, exit_code: i32) {
    assert_eq!(seen.status, exit_code, "{}{}", seen.out, seen.err);
    assert_eq!(seen.report["exit_code"], exit_code);
    assert!(seen.report["incomplete"].is_string(), "{}", seen.report);
    let junit = seen.junit.as_deref().expect("a JUnit report");
    let read = quick_junit::Report::deserialize_from_str(junit).unwrap();
    let errors: usize = read.test_suites.iter().map(|suite| suite.errors).sum();
    assert!(
        errors >= 1,
        "a reader of JUnit alone takes it for whole:\n{junit}"
    );
    for trial in seen.trials() {
        let case = trial["case"].as_str().unwrap();
        assert!(
            junit.contains(case),
            "{case} is in one report and not in the other"
        );
    }
}

#[test]
fn while_the_range_is_opened() {
    if !have(&["root"]) {
        return;
    }
    for (signal, exit_code) in SIGNALS {
        let mut audit = Audit::run(&["--case", "works/*"]);
        audit.until("the run's folder", |audit| {
            audit.traces().iter().any(|trace| trace.contains("/run-"))
        });
        audit.signal(signal);
        assert_partial(&audit.finish(), exit_code);
    }
}

/// Between the trial's folder and the sandbox's first process: whoever makes it is waited for, and nothing of it stays.
#[test]
fn while_sandboxes_are_made() {
    if !have(&["root"]) {
        return;
    }
    for n in 0..12 {
        let mut audit = Audit::run(&["--jobs", "4", "--fresh", "--case", "works/*"]);
        audit.until("a trial's group", |audit| {
            let traces = audit.traces();
            traces.iter().any(|trace| trace.contains("youki")) || n % 2 == 0 && traces.len() > 6
        });
        audit.signal(Signal::SIGINT);
        assert_partial(&audit.finish(), 130);
    }
}

/// An engine that hangs holds the audit in a phase for as long as that takes.
#[test]
fn while_an_engine_is_asked() {
    if !have(&["root"]) {
        return;
    }
    let places: [(&'static [&'static str], usize); 6] = [
        (&["GET /images/"], 0),
        (&["/archive"], 0),
        (&["/attach"], 0),
        (&["/start"], 0),
        (&["/wait"], 0),
        (&["POST /containers/create"], 1), // the one that takes longest
    ];
    let all: Vec<_> = places
        .into_iter()
        .zip(SIGNALS.into_iter().cycle())
        .map(|((words, after), (signal, exit_code))| {
            let fault = Fault::Hang;
            let engine = FakeEngine::start(Some(Rule {
                words,
                after,
                fault,
            }));
            let audit = engine_faults::audit(&engine, &["--fresh", "--jobs", "4"]);
            (words, signal, exit_code, engine, audit)
        })
        .collect();
    let told: Vec<_> = all
        .into_iter()
        .map(|(words, signal, exit_code, engine, mut audit)| {
            audit.until("the phase", |_| engine.has_failed());
            audit.signal(signal);
            (words, exit_code, engine, audit, Instant::now())
        })
        .collect();
    for (words, exit_code, engine, audit, told) in told {
        let seen = audit.finish();
        // A container that is being created may still come to be: it is waited for, so that it is not left.
        let patience = match words[0].contains("create") {
            true => SOON + Phase::Create.deadline(),
            false => SOON,
        };
        assert!(told.elapsed() < patience, "{words:?}: {:?}", told.elapsed());
        assert_partial(&seen, exit_code);
        assert_eq!(engine.containers(), Vec::<String>::new(), "{words:?}");
    }
}

/// Killed, it can remove nothing; `clean` does, once the engine answers.
#[test]
fn killed_while_an_engine_is_asked() {
    if !have(&["root"]) {
        return;
    }
    for words in [&["POST /containers/create"][..], &["/start"], &["/wait"]] {
        let fault = Fault::DoesAndHangs;
        let engine = FakeEngine::start(Some(Rule {
            words,
            after: 0,
            fault,
        }));
        let mut audit = engine_faults::audit(&engine, &[]);
        let pid = audit.pid;
        audit.until("the phase", |_| {
            engine.has_failed() && !engine.containers().is_empty()
        });
        audit.signal(Signal::SIGKILL);
        let (seen, _) = audit.finish_with_traces();
        assert_eq!(seen.status, -9);
        // What it left on this machine, a run beside it may have reaped by now: nobody else knows this engine.
        assert!(
            !engine.containers().is_empty(),
            "nothing was left, so nothing is shown"
        );
        engine_faults::clean(&engine);
        assert_eq!(traces(pid), Vec::<String>::new());
        assert_eq!(engine.containers(), Vec::<String>::new(), "{words:?}");
    }
}

#[test]
fn while_launchers_are_at_work() {
    if !have(&["root"]) {
        return;
    }
    let waits = runner("waits-for-a-word");
    for (signal, exit_code) in SIGNALS {
        let place = folder();
        let word = place.path().to_str().unwrap();
        let mut audit = Audit::run(&[
            "--jobs",
            "4",
            "--case",
            "works/*",
            "--case",
            "kernel/bpf",
            "--",
            &waits,
            word,
            "env",
        ]);
        audit.until("the launcher", |_| place.path().join("here").exists());
        audit.signal(signal);
        let seen = audit.finish();
        assert_partial(&seen, exit_code);
        assert!(seen.err.contains("stopping"), "{}", seen.err);
    }
    // And killed, the next one to clean up finds everything.
    let place = folder();
    let word = place.path().to_str().unwrap();
    let mut audit = Audit::run(&["--case", "works/*", "--", &waits, word, "env"]);
    audit.until("the launcher", |_| place.path().join("here").exists());
    let pid = audit.pid;
    audit.signal(Signal::SIGKILL);
    audit.finish_with_traces();
    let seen = Audit::start_in("clean", &[], |_| {}).finish();
    assert_eq!(seen.status, 0, "{}", seen.err);
    assert_eq!(traces(pid), Vec::<String>::new());
}

/// What escaped before the end of the audit is in what it leaves, and counts in both reports.
#[test]
fn what_escaped_by_then_is_told() {
    if !have(&["root"]) {
        return;
    }
    // The last of them watches for survivors, long after the others are decided.
    let cases = [
        "kernel/bpf",
        "works/run",
        "processes/outlive-launcher",
        "processes/outlive-group",
    ];
    let mut arguments: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
    arguments.extend(["--sandbox", "unsandboxed"]);
    let mut audit = Audit::run(&arguments);
    audit.until("an escape", |audit| audit.said().contains("ESCAPED"));
    audit.signal(Signal::SIGINT);
    let seen = audit.finish();
    assert_partial(&seen, 130);
    let escaped: Vec<_> = seen
        .trials()
        .iter()
        .filter(|trial| trial["verdict"] == "ESCAPED")
        .collect();
    assert!(
        !escaped.is_empty() && seen.trials().len() < cases.len(),
        "{}",
        seen.out
    );
    let read = quick_junit::Report::deserialize_from_str(seen.junit.as_deref().unwrap()).unwrap();
    let failures: usize = read.test_suites.iter().map(|suite| suite.failures).sum();
    assert_eq!(failures, escaped.len());
    assert!(seen.out.contains("ESCAPED"), "{}", seen.out);
}

/// A report goes into a pipe that nobody reads: the sandboxes are gone by then, and a signal ends what is left.
#[test]
fn while_reports_are_written() {
    if !have(&["root"]) {
        return;
    }
    let place = folder();
    let pipe = place.path().join("report.json");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    for (signal, exit_code) in SIGNALS {
        let mut audit = Audit::run(&["--case", "works/run", "--json", pipe.to_str().unwrap()]);
        audit.until("its folder", |audit| !audit.traces().is_empty());
        audit.until("the end of its sandboxes", |audit| {
            audit.traces().is_empty()
        });
        // It listens again a moment after it has tidied up.
        let told = Instant::now();
        while audit.is_running() && told.elapsed() < SOON {
            audit.signal(signal);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!audit.is_running(), "it cannot be stopped");
        let seen = audit.finish();
        assert_eq!(seen.status, exit_code, "{}", seen.err);
        assert!(
            seen.err.contains("not every report was written"),
            "{}",
            seen.err
        );
    }
}
