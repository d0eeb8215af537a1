//! From nothing to a verdict: `init`, `pin`, `doctor`, and what the program says of itself. What `init` writes has to run.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{copy_of, folder, have, range_image};

fn program(place: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_escape-audit"))
        .args(arguments)
        .current_dir(place)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

/// Exit code, standard output, standard error.
fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn project(place: &Path) -> String {
    fs::read_to_string(place.join("escape-audit.toml")).unwrap()
}

const SERVICES: &str = "\
services:
  database:
    image: postgres:17
  code-runner:
    image: escape-audit-test/busybox
    network_mode: none
    read_only: true
";

#[test]
fn what_init_writes_for_a_service_runs_at_once() {
    if !have(&["root", "docker"]) {
        return;
    }
    let place = folder();
    fs::write(place.path().join("compose.yaml"), SERVICES).unwrap();
    let (code, out, err) = said(&program(place.path(), &["init"]));
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        out.contains("compose.yaml: audited: `code-runner`"),
        "{out}"
    );
    let written = project(place.path());
    let id = range_image("BUSYBOX_ID").unwrap();
    assert!(
        written.contains(&format!("image_id = \"{id}\"")),
        "{written}"
    );
    let cases = [
        "run",
        "--case",
        "works/run",
        "--case",
        "network/tcp-egress",
        "--case",
        "resources/fork-bomb",
    ];
    let (code, out, err) = said(&program(place.path(), &cases));
    assert_eq!(code, 1, "no ceiling on processes\n{out}{err}");
    assert!(
        out.contains("ALLOWED       works/run") && out.contains("BLOCKED       network/tcp-egress"),
        "{out}"
    );
    assert!(out.contains("ESCAPED       resources/fork-bomb"), "{out}");

    let (code, _, err) = said(&program(place.path(), &["init"]));
    assert!(code == 2 && err.contains("--force"), "{code} {err}");
    assert_eq!(project(place.path()), written);
    let (code, ..) = said(&program(place.path(), &["init", "--force"]));
    assert_eq!((code, project(place.path())), (0, written));
}

#[test]
fn where_nothing_is_init_writes_the_embedded_sandbox() {
    let place = folder();
    let mut init = Command::new(env!("CARGO_BIN_EXE_escape-audit"));
    init.args(["init", "below"])
        .current_dir(place.path())
        .env("DOCKER_HOST", "unix:///nonexistent.sock");
    fs::create_dir(place.path().join("below")).unwrap();
    let (code, out, err) = said(&init.output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("no container engine answers"), "{out}");
    if !have(&["root"]) {
        return;
    }
    let below = place.path().join("below");
    let (code, out, err) = said(&program(&below, &["run", "--case", "works/run"]));
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("embedded"), "{out}");
}

#[test]
fn pin_writes_digests_and_nothing_else() {
    if !have(&["docker"]) {
        return;
    }
    let place = folder();
    let (digest, id) = (
        range_image("BUSYBOX_DIGEST").unwrap(),
        range_image("PYTHON_ID").unwrap(),
    );
    let (name, hash) = digest.split_once('@').unwrap();
    let text = format!(
        "# mine\n[sandbox.a]\nbackend   = 'docker' # an engine\nimage     = '{name}' # from the registry\nread_only = true\n\n\
         [sandbox.b]\nbackend   = 'docker'\nimage     = 'escape-audit-test/python'\n"
    );
    fs::write(place.path().join("escape-audit.toml"), &text).unwrap();

    // The mistake says the line to write.
    let (code, _, err) = said(&program(place.path(), &["run"]));
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains(&format!("write `image = \"{name}@{hash}\"` here")),
        "{err}"
    );
    assert!(
        err.contains(&format!("write `image_id = \"{id}\"` in its place")),
        "{err}"
    );

    let (code, out, err) = said(&program(place.path(), &["pin", "--check"]));
    assert_eq!(code, 1, "{out}{err}");
    assert_eq!(project(place.path()), text, "--check writes nothing");
    let (code, out, err) = said(&program(place.path(), &["pin", "--sandbox", "a"]));
    assert_eq!(code, 0, "{out}{err}");
    let first = text.replace(&format!("'{name}'"), &format!("\"{name}@{hash}\""));
    assert_eq!(project(place.path()), first);
    let (code, ..) = said(&program(place.path(), &["pin"]));
    let both = first.replace(
        "image     = 'escape-audit-test/python'",
        &format!("image_id  = \"{id}\""),
    );
    assert_eq!((code, project(place.path())), (0, both.clone()));
    let (code, out, _) = said(&program(place.path(), &["pin", "--check"]));
    assert_eq!((code, out.as_str()), (0, "every image is pinned\n"));

    let gone = both.replace(
        &format!("\"{name}@{hash}\""),
        "'127.0.0.1:5000/escape-audit-test/gone'",
    );
    fs::write(place.path().join("escape-audit.toml"), &gone).unwrap();
    let (code, _, err) = said(&program(place.path(), &["pin"]));
    assert!(
        code == 3 && err.contains("error: a: ") && err.contains("help: "),
        "{code} {err}"
    );
    assert_eq!(project(place.path()), gone);
}

#[test]
fn pin_asks_the_registry_for_what_the_engine_does_not_hold() {
    if !have(&["docker"]) {
        return;
    }
    let place = folder();
    let digest = range_image("EMPTY_DIGEST").unwrap();
    let (name, hash) = digest.split_once('@').unwrap();
    // The engine knows no such tag; the registry knows the repository by its digest alone, and says no.
    let text = format!("[sandbox.a]\nbackend = 'docker'\nimage = '{name}:no-such-tag'\n");
    fs::write(place.path().join("escape-audit.toml"), text).unwrap();
    let (code, _, err) = said(&program(place.path(), &["pin"]));
    assert!(
        code == 3 && err.contains("no-such-tag") && !err.contains(hash),
        "{code} {err}"
    );
}

/// What the findings come to, by name.
fn findings(output: &Output) -> (i32, Value) {
    let (code, out, err) = said(output);
    let found: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    (code, found)
}

fn is_ok(found: &Value, what: &str) -> Option<bool> {
    let list = found["findings"].as_array().unwrap();
    list.iter().find(|finding| finding["what"] == what)?["ok"].as_bool()
}

#[test]
fn the_doctor_proves_what_it_says_and_leaves_nothing() {
    if !have(&["root"]) {
        return;
    }
    let place = folder();
    let (code, found) = findings(&program(place.path(), &["doctor", "--json"]));
    assert_eq!(code, 0, "{found}");
    for what in [
        "network namespace",
        "cgroup",
        "ceiling on processes",
        "ceiling on memory",
        "embedded sandbox",
    ] {
        assert_eq!(is_ok(&found, what), Some(true), "{what}\n{found}");
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    let (code, out, _) = said(&program(place.path(), &["doctor"]));
    assert!(
        code == 0 && out.lines().count() > 9 && !out.contains('\x1b'),
        "{out}"
    );
}

#[test]
fn an_ordinary_user_is_told_what_is_missing_and_what_follows() {
    if !have(&["root", "docker", "setpriv"]) {
        return;
    }
    let place = folder();
    let (_shared, copy) = copy_of(Path::new(env!("CARGO_BIN_EXE_escape-audit")));
    let with = |host: &str| {
        let mut doctor = Command::new("setpriv");
        let user = [
            "--reuid",
            "escape-audit",
            "--regid",
            "escape-audit",
            "--init-groups",
        ];
        doctor
            .args(user)
            .arg(&copy)
            .args(["doctor", "--json"])
            .current_dir(place.path());
        findings(
            &doctor
                .env("DOCKER_HOST", host)
                .env("HOME", "/nonexistent")
                .output()
                .unwrap(),
        )
    };
    let (code, found) = with(&std::env::var("DOCKER_HOST").unwrap());
    assert_eq!(
        (code, is_ok(&found, "container engine")),
        (0, Some(true)),
        "{found}"
    );
    let (code, found) = with("unix:///nonexistent.sock");
    assert_eq!(is_ok(&found, "container engine"), Some(false), "{found}");
    let embedded = found["embedded"].as_bool().unwrap();
    assert_eq!(code, if embedded { 0 } else { 3 }, "{found}");
    if !embedded {
        let skipped = found["skipped"].to_string();
        assert!(
            skipped.contains("resources/fork-bomb") && skipped.contains("needs-limiter"),
            "{skipped}"
        );
    }
}

#[test]
fn the_program_explains_itself() {
    let place = folder();
    let out = |arguments: &[&str]| {
        let (code, out, err) = said(&program(place.path(), arguments));
        assert_eq!(code, 0, "{arguments:?}\n{err}");
        out
    };
    assert!(out(&["help"]).contains("Topics of `help`: exit-codes"));
    assert!(out(&["help", "exit-codes"]).contains("3  something could not be decided"));
    assert!(out(&["help", "run"]).contains("--without"));
    assert!(out(&["completions", "bash"]).contains("complete -F"));
    assert!(out(&["man"]).contains(".SH \"EXIT STATUS\""));
    out(&["man", "pages"]);
    assert!(place.path().join("pages/escape-audit-run.1").is_file());
    let (code, _, err) = said(&program(place.path(), &["help", "exitcodes"]));
    assert!(code == 2 && err.contains("did you mean"), "{err}");
}
