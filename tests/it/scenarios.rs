//! What audits of this kind got wrong in public, staged with a launcher or with the embedded sandbox. The rows about
//! silence are in `never_green`, about wrappers in `not_engaged`, about survivors in `survivors`, about kills in
//! `leftovers`, about hostile output in `reports`.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Audit, alone, folder, have, run, run_with, runner};

/// An image without curl, wget, nc or python, and a network.
#[test]
fn egress_from_an_image_that_holds_no_client() {
    if !have(&["root"]) {
        return;
    }
    let seen = run(&[
        "--without",
        "network",
        "--case",
        "network/tcp-egress",
        "--case",
        "metadata/aws-v2",
    ]);
    // A metadata service that answers 401 was reached, too.
    seen.expect(
        1,
        &[
            ("network/tcp-egress", "ESCAPED", "canary-reached"),
            ("metadata/aws-v2", "ESCAPED", "canary-reached"),
        ],
    );
}

/// A launcher that holds a folder of the host open, and hands it on with the standard streams; one that never leaves its
/// working folder.
#[test]
fn a_folder_that_was_left_open() {
    if !have(&["root", "bwrap"]) {
        return;
    }
    let case = "filesystem/read-host-file";
    for (launcher, by) in [
        ("leaves-a-folder-open", "found in descriptor 9, /"),
        ("works-outside-its-root", "found in working folder, /"),
    ] {
        let seen = run_with(&[case], &[&runner(launcher)]);
        seen.expect(1, &[(case, "ESCAPED", "secret-read")]);
        // Lines are as long as the page is wide.
        let words: Vec<&str> = seen.out.split_whitespace().collect();
        assert!(words.join(" ").contains(by), "{}", seen.out);
    }
    let seen = run_with(&[case], &[&runner("nothing-but-the-probe")]);
    seen.expect(0, &[(case, "BLOCKED", "absent")]);
}

/// Memory with swap left open.
#[test]
fn a_memory_ceiling_that_swap_goes_around() {
    if !have(&["root"]) {
        return;
    }
    let case = "resources/memory-swap";
    let seen = run(&["--without", "swap", "--case", case]);
    match seen.verdict(case).0 {
        "ESCAPED" => assert_eq!(seen.status, 1),
        "SKIPPED" => assert_eq!(seen.status, 4), // no swap on this machine, or none that is counted
        other => panic!("{other}: {}", seen.out),
    }
}

/// The engine was told to limit the number of processes, and somebody lifts the limit while the sandbox lives.
#[test]
fn a_limit_that_is_configured_and_not_in_force() {
    if !have(&["root"]) {
        return;
    }
    let case = "resources/fork-bomb";
    let mut audit = Audit::run(&["--case", case]);
    let run = format!("run-{}-", audit.pid);
    let stop = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for file in limits(&run) {
                    let _ = std::fs::write(file, "max");
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        while audit.is_running() {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        audit.finish()
    });
    let judged = seen.verdict(case);
    let right = [
        ("ESCAPED", "ceiling-passed"),
        ("ERROR", "limit-not-applied"),
    ];
    assert!(right.contains(&judged), "{judged:?}\n{}", seen.out);
    assert_ne!(seen.status, 0);
}

/// The files that limit the number of processes in this run's sandboxes, on either version of cgroups.
fn limits(run: &str) -> Vec<PathBuf> {
    let bases = [
        "/sys/fs/cgroup/pids/escape-audit",
        "/sys/fs/cgroup/escape-audit",
    ];
    let list = |folder: &Path| -> Vec<PathBuf> {
        let listed = std::fs::read_dir(folder).into_iter().flatten().flatten();
        listed.map(|entry| entry.path()).collect()
    };
    bases
        .iter()
        .flat_map(|base| list(Path::new(base)))
        .filter(|path| path.to_string_lossy().contains(run))
        .flat_map(|run| list(&run))
        .map(|trial| trial.join("sandbox/pids.max"))
        .filter(|file| file.exists())
        .collect()
}

/// A payload that gets out and then prints the verdict itself, on three descriptors, and exits 0.
#[test]
fn an_escape_that_says_that_it_was_blocked() {
    if !have(&["root"]) {
        return;
    }
    let seen = run_with(
        &["network/tcp-egress", "credentials/environment-dump"],
        &[&runner("runs-and-says-blocked")],
    );
    seen.expect(
        1,
        &[
            ("network/tcp-egress", "ESCAPED", "canary-reached"),
            ("credentials/environment-dump", "ESCAPED", "secret-read"),
        ],
    );
}

/// An image's own `/etc/passwd` is no file of the host; a file that was written in the sandbox's own `/tmp` is none either.
#[test]
fn an_image_with_files_of_its_own() {
    if !have(&["root", "bwrap"]) {
        return;
    }
    let seen = run_with(
        &[
            "filesystem/read-host-file",
            "filesystem/write-host-file",
            "credentials/ssh-keys",
        ],
        &[&runner("own-image")],
    );
    seen.expect(
        0,
        &[
            ("filesystem/read-host-file", "BLOCKED", "absent"),
            // Its own `/dev/shm` takes the file, and the host sees nothing of it.
            ("filesystem/write-host-file", "BLOCKED", "private"),
            ("credentials/ssh-keys", "BLOCKED", "absent"),
        ],
    );
}

/// Written into the image's own layer: outside scratch, and not on the host.
#[test]
fn a_file_in_the_image_is_not_on_the_host() {
    if !have(&["root"]) {
        return;
    }
    let seen = run(&[
        "--without",
        "read-only,user",
        "--case",
        "filesystem/write-*",
    ]);
    let outside = seen.verdict("filesystem/write-outside-scratch");
    assert_eq!(outside, ("ESCAPED", "written-outside-scratch"));
    assert_eq!(seen.verdict("filesystem/write-host-file").0, "BLOCKED");
}

/// The whole resource group behind a launcher without any limit, eight at a time.
#[test]
fn all_resource_cases_at_once_without_any_limit() {
    if !have(&["root"]) {
        return;
    }
    let _alone = alone();
    let seen = run(&[
        "--jobs",
        "8",
        "--case",
        "resources/*",
        "--timeout",
        "1s",
        "--",
        "env",
    ]);
    for (case, (verdict, reason)) in seen.verdicts() {
        let needs = matches!(case, "resources/memory-swap" | "resources/output-flood");
        let right = verdict == "ESCAPED" || (needs && verdict == "SKIPPED");
        assert!(right, "{case}: {verdict} ({reason})");
    }
    assert_eq!(seen.status, 1);
    assert!(folder().path().exists(), "the machine has no room left");
}

/// The engine takes limits, and its runtime does nothing with them.
#[test]
fn limits_that_are_given_and_ignored() {
    if !have(&["root"]) {
        return;
    }
    let ignores = runner("ignores-its-limits");
    let cases = ["resources/memory", "resources/fork-bomb"];
    let launcher = [
        &*ignores,
        "--memory",
        "64m",
        "--pids-limit",
        "16",
        "--cpus",
        "0.1",
        "--",
    ];
    let seen = run_with(&cases, &launcher);
    seen.expect(1, &cases.map(|case| (case, "ESCAPED", "ceiling-passed")));
}

/// RLIMIT_AS, RLIMIT_FSIZE, and RLIMIT_NPROC as root: each process is limited, all of them together are not.
#[test]
fn limits_on_each_process_alone() {
    if !have(&["root", "prlimit"]) {
        return;
    }
    let cases = [
        "resources/memory",
        "resources/fork-bomb",
        "resources/disk-fill",
    ];
    let seen = run_with(&cases, &[&runner("limits-each-process")]);
    seen.expect(1, &cases.map(|case| (case, "ESCAPED", "ceiling-passed")));
}

/// Files of the harness that only its owner can read, and a sandbox whose user is another.
#[test]
fn a_strict_umask_does_not_pass_for_a_sandbox() {
    if !have(&["root", "setpriv"]) {
        return;
    }
    let launcher = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    let cases = ["network/tcp-egress", "works/run"];
    let mut arguments: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
    arguments.push("--");
    arguments.extend(launcher);
    let audit = Audit::start_in("run", &arguments, |command| {
        // SAFETY: one system call, nothing is allocated.
        unsafe {
            command.pre_exec(|| {
                nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
                Ok(())
            });
        }
    });
    audit.finish().expect(
        1,
        &[
            ("network/tcp-egress", "ESCAPED", "canary-reached"),
            ("works/run", "ALLOWED", "worked"),
        ],
    );
}

/// The program's environment is empty; PID 1 beside it is the launcher, and keeps its own.
#[test]
fn a_launcher_that_is_pid_1_and_keeps_its_environment() {
    if !have(&["root", "unshare"]) {
        return;
    }
    let cases = [
        "credentials/environment-dump",
        "credentials/launcher-environment",
    ];
    let seen = run_with(&cases, &[&runner("keeps-its-environment")]);
    seen.expect(
        1,
        &[
            ("credentials/environment-dump", "BLOCKED", "absent"),
            ("credentials/launcher-environment", "ESCAPED", "secret-read"),
        ],
    );
}

/// No shell, no `/dev/null`, no `/proc`, no library: the probe needs nothing, so its silence is never the sandbox's merit.
#[test]
fn a_root_that_holds_the_probe_and_nothing_else() {
    if !have(&["root", "bwrap"]) {
        return;
    }
    let seen = run_with(
        &[
            "network/tcp-egress",
            "credentials/*",
            "processes/s*",
            "works/run",
            "works/use-memory",
        ],
        &[&runner("nothing-but-the-probe")],
    );
    for (case, (verdict, reason)) in seen.verdicts() {
        let wanted = if case.starts_with("works/") {
            "ALLOWED"
        } else {
            "BLOCKED"
        };
        assert_eq!(verdict, wanted, "{case}: {reason}");
    }
    assert_eq!(seen.status, 0);
}

/// Scratch that cannot be written by accident proves nothing about the places that must not be.
#[test]
fn scratch_that_is_not_writable_by_accident() {
    if !have(&["root", "bwrap"]) {
        return;
    }
    let seen = run_with(
        &[
            "filesystem/write-outside-scratch",
            "resources/disk-fill",
            "works/write-scratch",
        ],
        &["bwrap", "--unshare-all", "--ro-bind", "/", "/"],
    );
    seen.expect(
        1,
        &[
            (
                "filesystem/write-outside-scratch",
                "INCONCLUSIVE",
                "control-failed",
            ),
            ("resources/disk-fill", "INCONCLUSIVE", "control-failed"),
            ("works/write-scratch", "BROKEN", "refused"),
        ],
    );
}

/// It is there, and this user may not use it: one setting holds it, and the report tells that from an absence.
#[test]
fn what_is_there_and_not_permitted_is_told_from_what_is_absent() {
    if !have(&["root"]) {
        return;
    }
    let case = "processes/signal-host-process";
    let seen = run(&["--without", "pid-namespace", "--case", case]);
    seen.expect(0, &[(case, "BLOCKED", "permission")]);
    run(&["--case", case]).expect(0, &[(case, "BLOCKED", "absent")]);
}

/// Half a core is no ceiling where others take the rest: the quota is measured against a control, or alone.
#[test]
fn a_cpu_ceiling_that_is_there_is_seen_among_other_trials() {
    if !have(&["root"]) {
        return;
    }
    let _alone = alone();
    let seen = run(&[
        "--jobs",
        "16",
        "--case",
        "resources/cpu-quota",
        "--case",
        "credentials/*",
    ]);
    assert_eq!(seen.verdict("resources/cpu-quota"), ("BLOCKED", "ceiling"));
    let weak = run(&[
        "--jobs",
        "16",
        "--without",
        "cpu",
        "--case",
        "resources/cpu-quota",
        "--case",
        "credentials/*",
    ]);
    assert_eq!(
        weak.verdict("resources/cpu-quota"),
        ("ESCAPED", "ceiling-passed")
    );
}

/// Connecting to a socket needs no writable mount.
#[test]
fn a_socket_below_a_read_only_bind() {
    if !have(&["root", "bwrap"]) {
        return;
    }
    let case = "network/unix-socket";
    let seen = run_with(&[case], &["bwrap", "--unshare-all", "--ro-bind", "/", "/"]);
    seen.expect(1, &[(case, "ESCAPED", "canary-reached")]);
}
