//! The example of a sandbox's repository, built and run as its users do: by `cargo test`, and test by test in a process of
//! its own, as cargo-nextest does.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{alone, folder, have, traces};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/gate")
}

/// In this build's own target folder most of it is there already.
fn cargo(arguments: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_escape-audit"));
    let target = program.ancestors().nth(2).unwrap();
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["test", "--offline", "--manifest-path"])
        .arg(example().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .args(arguments)
        .env("CARGO_TERM_COLOR", "never")
        .stdin(Stdio::null());
    command
}

/// The test binaries, built once.
struct Built {
    sandbox: PathBuf,
    weakened: PathBuf,
}

static BUILT: LazyLock<Built> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The same versions of everything, which are on this machine.
    fs::copy(root.join("Cargo.lock"), example().join("Cargo.lock")).unwrap();
    let output = cargo(&["--no-run", "--message-format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let binary = |name: &str| {
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let mut of_test = messages.filter(|message| message["target"]["name"] == name);
        let path = of_test.find_map(|message| message["executable"].as_str().map(PathBuf::from));
        path.unwrap_or_else(|| panic!("no test {name}"))
    };
    Built {
        sandbox: binary("sandbox"),
        weakened: binary("weakened"),
    }
});

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(text).unwrap()
}

/// As cargo and cargo-nextest start a test binary: in the package's own folder.
fn test(binary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .current_dir(example())
        .stdin(Stdio::null());
    command
}

/// Its exit code, what it said on standard output, and all that it said.
fn run(binary: &Path, arguments: &[&str]) -> (i32, String, String) {
    let _alone = alone();
    let output = test(binary, arguments).output().unwrap();
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    (output.status.code().unwrap(), out, said(&output))
}

/// The names that a list holds, which has to hold nothing else.
fn listed(binary: &Path, arguments: &[&str]) -> Vec<String> {
    let all = [&["--list", "--format", "terse"], arguments].concat();
    let (status, out, said) = run(binary, &all);
    assert_eq!(status, 0, "{said}");
    out.lines()
        .map(|line| {
            let name = line.strip_suffix(": test");
            name.unwrap_or_else(|| panic!("not a test: {line}"))
                .to_owned()
        })
        .collect()
}

fn there() -> bool {
    have(&["root", "cargo"])
}

#[test]
fn each_case_is_a_test_and_what_cannot_be_tried_is_ignored() {
    if !there() {
        return;
    }
    let all = listed(&BUILT.sandbox, &[]);
    for name in [
        "agent::network/tcp-egress",
        "agent::kernel/request-key",
        "agent::gate",
    ] {
        assert!(all.iter().any(|listed| listed == name), "{name} in {all:?}");
    }
    assert!(
        all.len() > 40 && all.iter().all(|name| name.starts_with("agent::")),
        "{all:?}"
    );
    let ignored = listed(&BUILT.sandbox, &["--ignored"]);
    assert!(
        ignored.contains(&"agent::works/write-scratch".to_owned()),
        "{ignored:?}"
    );
    assert!(ignored.len() < 6, "{ignored:?}");
}

#[test]
fn by_cargo_test_a_selection_is_one_audit() {
    if !there() {
        return;
    }
    LazyLock::force(&BUILT);
    let alone = alone();
    let output = cargo(&["--test", "sandbox", "--", "works/", "--skip", "use-memory"])
        .output()
        .unwrap();
    drop(alone);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("test agent::works/run           ... ok"),
        "{text}"
    );
    assert!(
        text.contains("test agent::works/write-scratch ... ignored"),
        "{text}"
    );
    assert!(
        text.contains("test result: ok. 1 passed; 0 failed; 1 ignored;"),
        "{text}"
    );
    let why =
        "ignored agent::works/write-scratch: not-applicable: the policy names no writable place";
    assert!(text.contains(why), "{text}");
}

#[test]
fn a_weak_sandbox_fails_and_says_why() {
    if !there() {
        return;
    }
    let (status, out, said) = run(&BUILT.weakened, &[]);
    assert_eq!(status, 101, "{said}");
    for line in [
        "test weakened::resources/fork-bomb ... FAILED",
        "test weakened::works/run           ... ok",
        "test weakened::gate                ... ok",
        "X ESCAPED  weakened, resources/fork-bomb (high, ceiling-passed)",
        "  missing   pids (a ceiling on processes and threads)",
        "test result: FAILED. 4 passed; 1 failed; 0 ignored;",
    ] {
        assert!(out.contains(line), "no {line:?} in\n{said}");
    }
}

/// `BIN --list --format terse`, the same with `--ignored`, then `BIN --exact NAME --nocapture` for each, each by itself.
#[test]
fn by_nextests_protocol_each_test_is_an_audit_of_its_own() {
    if !there() {
        return;
    }
    let came = |binary: &Path, pattern: &str| {
        let ignored = listed(binary, &["--ignored"]);
        let names = listed(binary, &[])
            .into_iter()
            .filter(|name| name.contains(pattern));
        let mut came = Vec::new();
        for name in names.filter(|name| !ignored.contains(name)) {
            let (status, out, said) = run(binary, &["--exact", &name, "--nocapture"]);
            assert!(out.contains("running 1 test"), "{said}");
            assert_eq!(status == 101, said.contains("ESCAPED"), "{said}");
            came.push((name, status));
        }
        came
    };
    let table = |rows: &[(&str, i32)]| {
        rows.iter()
            .map(|(name, status)| ((*name).to_owned(), *status))
            .collect::<Vec<_>>()
    };
    let weakened = table(&[
        ("weakened::resources/fork-bomb", 101),
        ("weakened::works/run", 0),
        ("weakened::works/use-memory", 0),
        ("weakened::works/write-scratch", 0),
        ("weakened::gate", 0),
    ]);
    assert_eq!(came(&BUILT.weakened, ""), weakened);
    let works = table(&[("agent::works/run", 0), ("agent::works/use-memory", 0)]);
    assert_eq!(came(&BUILT.sandbox, "works/"), works);
    let key = table(&[("agent::kernel/request-key", 0)]);
    assert_eq!(came(&BUILT.sandbox, "request-key"), key);
}

#[test]
fn what_was_not_tried_is_never_green() {
    if !there() {
        return;
    }
    // Asked for all the same, a case that cannot be tried has not passed.
    let (status, out, said) = run(&BUILT.sandbox, &["--ignored", "write-scratch"]);
    assert_eq!(status, 101, "{said}");
    assert!(
        out.contains("SKIPPED (not-applicable): the policy names no writable place"),
        "{said}"
    );
    // A filter of another binary's is no mistake, and no proof.
    let (status, _, said) = run(&BUILT.sandbox, &["no-such-test"]);
    assert_eq!(status, 0);
    assert!(
        said.contains("is selected: nothing is audited, and nothing is proven"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_set_up_fails_before_any_test() {
    if !there() {
        return;
    }
    let elsewhere = folder();
    let output = test(&BUILT.sandbox, &[])
        .current_dir(elsewhere.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("escape-audit.toml"),
        "{}",
        said(&output)
    );
    let wrong = "[sandbox.agent]\nbackend = \"ocl\"\n";
    fs::write(elsewhere.path().join("escape-audit.toml"), wrong).unwrap();
    fs::create_dir(elsewhere.path().join("cases")).unwrap();
    let output = test(&BUILT.sandbox, &["--list"])
        .current_dir(elsewhere.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        output.stdout.is_empty() && said(&output).contains("did you mean `oci`?"),
        "{}",
        said(&output)
    );
}

#[test]
fn an_interruption_leaves_nothing_behind() {
    if !there() {
        return;
    }
    let _alone = alone();
    let mut command = test(&BUILT.sandbox, &[]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // A session of its own is what its descendants are known by. SAFETY: one system call, nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let began = Instant::now();
    let at_work = || {
        let traces = traces(pid).join("\n");
        traces.contains("trial-") || traces.matches("process ").count() > 3
    };
    while !at_work() {
        assert!(began.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(traces(pid), Vec::<String>::new());
}
