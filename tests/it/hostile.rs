//! What the harness runs may do anything: the harness goes on, says what it saw, and calls nothing held that was not.

use std::ffi::CString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::support::{Audit, Seen, folder, have, run_with, runner};

/// What must work, and what a launcher without a sandbox gives away.
const CASES: [&str; 2] = ["works/run", "credentials/environment-dump"];
const OPEN: [(&str, &str, &str); 2] = [
    ("works/run", "ALLOWED", "worked"),
    ("credentials/environment-dump", "ESCAPED", "secret-read"),
];

fn misbehaves<'a>(runner: &'a str, how: &[&'a str]) -> Vec<&'a str> {
    [&[runner][..], how].concat()
}

/// What only prints never keeps the harness from its deadline: 20 s for the first record.
#[test]
fn output_without_an_end_ends_at_the_deadline() {
    if !have(&["root"]) {
        return;
    }
    let runner = runner("misbehaves");
    for how in ["floods", "floods-one-line"] {
        let began = Instant::now();
        let seen = run_with(&CASES[..1], &misbehaves(&runner, &[how]));
        assert!(
            began.elapsed() < Duration::from_secs(50),
            "{how}: {:?}",
            began.elapsed()
        );
        seen.expect_nothing_proven();
        assert_eq!(seen.status, 3, "{how}: {}", seen.out);
        small(&seen);
    }
}

/// Nothing that was printed is kept whole.
#[track_caller]
fn small(seen: &Seen) {
    let junit = seen.junit.as_deref().unwrap();
    assert!(
        seen.report.to_string().len() < 1 << 20
            && junit.len() < 1 << 20
            && seen.out.len() < 1 << 20
    );
    quick_junit::Report::deserialize_from_str(junit).unwrap();
}

/// What a runner prints beside the probe's records changes nothing: 64 MiB, JSON a hundred thousand levels deep, every byte.
#[test]
fn what_is_printed_beside_the_records_changes_no_verdict() {
    if !have(&["root"]) {
        return;
    }
    let runner = runner("misbehaves");
    for how in [
        "prints-first",
        "prints-last",
        "prints-deep",
        "prints-every-byte",
    ] {
        let seen = run_with(&CASES, &misbehaves(&runner, &[how]));
        seen.expect(1, &OPEN);
        small(&seen);
    }
}

/// A stream that is closed early: without its output nothing is known, without its errors everything.
#[test]
fn streams_that_are_closed_early() {
    if !have(&["root"]) {
        return;
    }
    let runner = runner("misbehaves");
    for how in ["closes-stdout", "closes-all"] {
        let seen = run_with(&CASES, &misbehaves(&runner, &[how]));
        seen.expect_nothing_proven();
        assert_eq!(seen.status, 3, "{how}: {}", seen.out);
    }
    run_with(&CASES, &misbehaves(&runner, &["closes-stderr"])).expect(1, &OPEN);
}

#[test]
fn a_launcher_that_does_not_end_when_it_is_asked() {
    if !have(&["root"]) {
        return;
    }
    let runner = runner("misbehaves");
    let seen = run_with(&CASES, &misbehaves(&runner, &["ignores-sigterm"]));
    // Its word is not doubted where it gave itself away, and nothing that it held is believed.
    seen.expect(
        1,
        &[
            ("works/run", "ERROR", "launcher-hangs"),
            ("credentials/environment-dump", "ESCAPED", "secret-read"),
        ],
    );
}

#[test]
fn every_exit_status_without_a_record_proves_nothing() {
    if !have(&["root"]) {
        return;
    }
    let runner = runner("misbehaves");
    for status in ["1", "2", "126", "127", "128", "255"] {
        let seen = run_with(&CASES, &misbehaves(&runner, &["exits", status]));
        seen.expect(
            3,
            &CASES.map(|case| (case, "INCONCLUSIVE", "no-start-record")),
        );
    }
}

/// Ended between the probe's start and its attempt, by each signal that ends a process: whatever was refused, nobody tried.
#[test]
fn a_launcher_that_a_signal_ends_proves_nothing() {
    if !have(&["root"]) {
        return;
    }
    let runner = runner("misbehaves");
    let signals = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "XCPU", "XFSZ", "VTALRM", "PROF", "SYS",
    ];
    for signals in signals.chunks(4) {
        let audits: Vec<_> = signals
            .iter()
            .map(|signal| {
                let mut arguments: Vec<&str> =
                    CASES.iter().flat_map(|case| ["--case", case]).collect();
                arguments.push("--");
                arguments.extend(misbehaves(&runner, &["dies", signal]));
                (signal, Audit::run(&arguments))
            })
            .collect();
        for (signal, audit) in audits {
            let seen = audit.finish();
            seen.expect_nothing_proven();
            assert_eq!(seen.status, 3, "{signal}: {}", seen.out);
        }
    }
}

/// Runs the program with a file system of `size` at `place`, in a mount namespace of its own.
fn with_a_small_disk(place: &Path, size: &str, arguments: &[&str]) -> Audit {
    let (place, size) = (
        CString::new(place.to_str().unwrap()).unwrap(),
        format!("size={size},mode=755"),
    );
    Audit::start_in("run", arguments, |command: &mut Command| {
        // SAFETY: system calls alone, on what was made before.
        unsafe {
            command.pre_exec(move || {
                unshare(CloneFlags::CLONE_NEWNS)?;
                let flags = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
                mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?;
                mount(
                    Some("none"),
                    place.as_c_str(),
                    Some("tmpfs"),
                    MsFlags::empty(),
                    Some(size.as_str()),
                )?;
                Ok(())
            });
        }
    })
}

/// The reports' disk is full: what was decided is on standard output, and the exit code is not green.
#[test]
fn a_full_disk_for_the_reports() {
    if !have(&["root"]) {
        return;
    }
    let reports = folder();
    let place = |name: &str| reports.path().join(name).to_string_lossy().into_owned();
    let (json, junit) = (place("a.json"), place("a.xml"));
    for (sandbox, exit_code, word) in [("oci", 3, "ALLOWED"), ("unsandboxed", 1, "ESCAPED")] {
        let mut arguments = vec![
            "--sandbox",
            sandbox,
            "--case",
            "works/run",
            "--case",
            "kernel/bpf",
        ];
        arguments.extend(["--json", &json, "--junit", &junit]);
        let seen = with_a_small_disk(reports.path(), "4k", &arguments).finish();
        assert_eq!(seen.status, exit_code, "{}{}", seen.out, seen.err);
        assert!(seen.out.contains(word), "{}", seen.out);
        for words in ["cannot write the report", "No space left", "help: "] {
            assert!(seen.err.contains(words), "{}", seen.err);
        }
    }
}

/// The run's own disk is full: nothing ran, it is said why and where, and nothing is left.
#[test]
fn a_full_disk_for_the_run() {
    if !have(&["root"]) {
        return;
    }
    for size in ["4k", "1m", "2m"] {
        let seen = with_a_small_disk(Path::new("/run"), size, &["--case", "works/*"]).finish();
        seen.expect_refusal(&[
            "/run/escape-audit",
            "No space left",
            "see that there is space",
        ]);
    }
}

/// Nobody reads standard output: the reports are there, and a green is not.
#[test]
fn standard_output_that_takes_nothing() {
    if !have(&["root"]) {
        return;
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let seen = Audit::start_in("run", &["--case", "works/run"], |command| {
        command.stdout(Stdio::from(full));
    })
    .finish();
    assert_eq!(seen.status, 3, "{}", seen.err);
    assert!(
        seen.err.contains("write to standard output: No space left"),
        "{}",
        seen.err
    );
    assert_eq!(seen.verdict("works/run").0, "ALLOWED");
}
