//! The record of real audits: what `run --attest` writes, `verify` takes, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::support::{Audit, alone, folder, have, range_image};

/// A project with one sandbox of the embedded kind.
const PROJECT: &str =
    "[sandbox.agent]\nbackend = \"oci\"\nmem_limit = \"128m\"\nmemswap_limit = \"128m\"\n";

/// A folder with a project file, and the record of an audit of it.
struct Recorded {
    folder: tempfile::TempDir,
    status: i32,
    err: String,
}

impl Recorded {
    /// Audits a project with the record beside it.
    fn of(project: &str, arguments: &[&str]) -> Self {
        let folder = folder();
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        fs::write(file("escape-audit.toml"), project).unwrap();
        let (config, record) = (file("escape-audit.toml"), file("record.json"));
        let mut all = vec!["--config", &config, "--attest", &record];
        all.extend(arguments);
        let seen = Audit::run(&all).finish();
        Self {
            folder,
            status: seen.status,
            err: seen.err,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn statement(&self) -> Value {
        let text = fs::read(self.path("record.json"))
            .unwrap_or_else(|_| panic!("no record\n{}", self.err));
        serde_json::from_slice(&text).unwrap()
    }

    /// `verify` of the record beside the project file.
    fn verify(&self, arguments: &[&str]) -> Output {
        self.verify_file(
            &self.path("record.json"),
            &self.path("escape-audit.toml"),
            arguments,
        )
    }

    fn verify_file(&self, record: &Path, config: &Path, arguments: &[&str]) -> Output {
        let mut command = program();
        command
            .arg("verify")
            .arg(record)
            .arg("--config")
            .arg(config);
        command.args(arguments).output().unwrap()
    }

    /// `verify` of the statement after a change to it.
    fn verify_changed(&self, change: impl FnOnce(&mut Value)) -> Output {
        let mut statement = self.statement();
        change(&mut statement);
        let changed = self.path("changed.json");
        fs::write(&changed, statement.to_string()).unwrap();
        self.verify_file(&changed, &self.path("escape-audit.toml"), &[])
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_escape-audit"));
    command.env("NO_COLOR", "1").env("LANG", "C.UTF-8");
    command
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(text).unwrap()
}

#[track_caller]
fn expect(output: &Output, code: i32, words: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in\n{said}");
    }
}

/// The whole level in the embedded sandbox, once for all tests that read it.
static WHOLE: LazyLock<Recorded> = LazyLock::new(|| {
    let _alone = alone();
    Recorded::of(PROJECT, &[])
});

#[test]
fn of_a_whole_audit_holds_for_what_was_audited_and_for_nothing_else() {
    if !have(&["root"]) {
        return;
    }
    assert_eq!(WHOLE.status, 0, "{}", WHOLE.err);
    let statement = WHOLE.statement();
    assert_eq!(statement["predicate"]["result"], "PASSED");
    assert_eq!(statement["predicate"]["failedTests"], json!([]));
    let passed = statement["predicate"]["passedTests"].as_array().unwrap();
    assert!(passed.len() > 30 && passed.contains(&json!("agent::network/tcp-egress")));
    assert!(!statement["subject"].as_array().unwrap().is_empty());

    expect(
        &WHOLE.verify(&["--max-age", "1d"]),
        0,
        &["it was audited like this, and held", "not signed", "PASSED"],
    );
    expect(
        &WHOLE.verify(&["--level", "strict"]),
        1,
        &["level", "audited: standard; wanted: strict"],
    );
    expect(
        &WHOLE.verify(&["--max-age", "0s"]),
        1,
        &["age", "wanted: within 0 seconds"],
    );
    let other = format!("sha256:{}", "a".repeat(64));
    expect(
        &WHOLE.verify(&["--image", &other]),
        1,
        &["not to be relied on: image", &other],
    );
    expect(
        &WHOLE.verify(&["--sandbox", "unsandboxed"]),
        1,
        &["audited: agent; wanted: unsandboxed"],
    );

    let config = WHOLE.path("other.toml");
    let record = WHOLE.path("record.json");
    let verify = |project: &str| {
        fs::write(&config, project).unwrap();
        WHOLE.verify_file(&record, &config, &[])
    };
    expect(
        &verify(&PROJECT.replace("128m", "256m")),
        1,
        &[
            "mem_limit: audited: 134217728; configured: 268435456",
            "memory: audited: ",
        ],
    );
    expect(
        &verify(&format!("{PROJECT}environment = [\"A=1\"]\n")),
        1,
        &["environment: audited: null; configured: "],
    );
    expect(
        &verify(&format!("# a comment\n{PROJECT}")),
        0,
        &["another project file"],
    );
}

#[test]
fn that_was_tampered_with_is_refused() {
    if !have(&["root"]) {
        return;
    }
    let subject = |s: &mut Value| s["subject"][0]["digest"]["sha256"] = json!("x");
    expect(&WHOLE.verify_changed(subject), 2, &["no SHA-256", "help: "]);
    expect(
        &WHOLE.verify_changed(|s| s["predicate"]["result"] = json!("WARNED")),
        2,
        &["PASSED follows from the verdicts"],
    );
    expect(
        &WHOLE.verify_changed(|s| {
            s["predicateType"] = json!("https://in-toto.io/attestation/test-result/v0.2")
        }),
        2,
        &["predicateType: is `https://in-toto.io/attestation/test-result/v0.2`"],
    );
    let version =
        |s: &mut Value| s["predicate"]["configuration"][0]["annotations"]["version"] = json!("9");
    expect(
        &WHOLE.verify_changed(version),
        2,
        &["its digest is ", "that of its content"],
    );
    // Terminal escapes of a stranger are shown, and not obeyed.
    let hostile = WHOLE.verify_changed(|s| s["predicateType"] = json!("\u{1b}[2J##[error]x"));
    expect(&hostile, 2, &["\\x1b[2J"]);
    assert!(!said(&hostile).contains("##["));
}

#[test]
fn that_is_no_json_too_deep_too_large_or_not_there_is_unreadable() {
    if !have(&["root"]) {
        return;
    }
    let verify = |name: &str, bytes: &[u8]| {
        let path = WHOLE.path(name);
        fs::write(&path, bytes).unwrap();
        WHOLE.verify_file(&path, &WHOLE.path("escape-audit.toml"), &[])
    };
    expect(
        &verify("deep.json", "[".repeat(1_000_000).as_bytes()),
        2,
        &["recursion limit", "help: "],
    );
    expect(
        &verify("large.json", &vec![b' '; 17 << 20]),
        2,
        &["larger than 16 MiB"],
    );
    expect(
        &verify("twice.json", br#"{"_type": "a", "_type": "b"}"#),
        2,
        &["is there twice"],
    );
    expect(&verify("empty.json", b""), 2, &["EOF"]);
    let config = WHOLE.path("escape-audit.toml");
    expect(
        &WHOLE.verify_file(Path::new("/nowhere.json"), &config, &[]),
        2,
        &["No such file", "help: "],
    );
    expect(
        &WHOLE.verify_file(Path::new("/"), &config, &[]),
        2,
        &["help: "],
    );
    expect(
        &WHOLE.verify(&["--image", "python:3.12"]),
        2,
        &["a tag may mean another image", "help: "],
    );
}

#[test]
fn of_a_part_of_the_library_says_so() {
    if !have(&["root"]) {
        return;
    }
    let part = Recorded::of(PROJECT, &["--case", "works/run"]);
    assert_eq!(part.status, 0, "{}", part.err);
    assert_eq!(part.statement()["predicate"]["result"], "WARNED");
    expect(
        &part.verify(&[]),
        1,
        &["not asked for: ", "it would take `--allow-partial`"],
    );
    expect(
        &part.verify(&["--allow-partial"]),
        0,
        &["WARNED: 1 allowed", "not asked for: "],
    );
}

#[test]
fn of_a_weakened_sandbox_has_failed_whatever_came_of_it() {
    if !have(&["root"]) {
        return;
    }
    // Nothing that is tried here is held by what was taken away.
    let held = Recorded::of(PROJECT, &["--without", "swap", "--case", "works/run"]);
    assert_eq!(held.status, 0, "{}", held.err);
    assert_eq!(held.statement()["predicate"]["result"], "FAILED");
    expect(
        &held.verify(&["--allow-partial"]),
        1,
        &["without: audited: [\"swap\"]; configured: []", "result"],
    );

    let escaped = Recorded::of(
        PROJECT,
        &["--without", "pids", "--case", "resources/fork-bomb"],
    );
    assert_eq!(escaped.status, 1, "{}", escaped.err);
    let predicate = &escaped.statement()["predicate"];
    assert_eq!(
        predicate["failedTests"],
        json!(["agent::resources/fork-bomb"])
    );
    expect(
        &escaped.verify(&["--allow-partial"]),
        1,
        &["did not hold: resources/fork-bomb", "it exited with 1"],
    );
}

#[test]
fn of_a_waived_escape_is_taken_only_by_who_says_so() {
    if !have(&["root"]) {
        return;
    }
    // The whole host in the sandbox, and everybody knows.
    let project = format!(
        "{PROJECT}volumes = [\"/etc:/etc:ro\"]\n[[gate.waiver]]\ncase = \"filesystem/read-host-file\"\nsandbox = \"agent\"\n\
         until = 2999-01-01\nreason = \"lived with\"\n"
    );
    let waived = Recorded::of(
        &project,
        &["--case", "filesystem/read-host-file", "--case", "works/run"],
    );
    assert_eq!(waived.status, 0, "{}", waived.err);
    let predicate = &waived.statement()["predicate"];
    assert_eq!(predicate["result"], "WARNED");
    assert_eq!(
        predicate["warnedTests"],
        json!(["agent::filesystem/read-host-file"])
    );
    let allowed = ["--allow-partial", "--allow-waived"];
    expect(
        &waived.verify(&allowed[..1]),
        1,
        &[
            "waived until 2999-01-01: lived with",
            "it would take `--allow-waived`",
        ],
    );
    expect(
        &waived.verify(&allowed),
        0,
        &["WARNED: 1 escaped, 1 allowed"],
    );

    // What a severity or `--no-fail` lets pass has escaped all the same.
    let weak = PROJECT.to_owned() + "volumes = [\"/etc:/etc:ro\"]\n";
    let told = Recorded::of(&weak, &["--case", "filesystem/read-host-file", "--no-fail"]);
    assert_eq!(told.status, 0, "{}", told.err);
    assert_eq!(told.statement()["predicate"]["result"], "FAILED");
    expect(
        &told.verify(&allowed),
        1,
        &[
            "did not hold: filesystem/read-host-file",
            "it exited with 1",
        ],
    );
}

#[test]
fn is_not_promised_where_nothing_could_be_said() {
    let refused = |arguments: &[&str]| {
        let folder = folder();
        let record = folder.path().join("record.json");
        fs::write(&record, "an old one").unwrap();
        let output = program()
            .arg("run")
            .arg("--attest")
            .arg(&record)
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(!record.exists(), "the old record is gone");
        output
    };
    expect(
        &refused(&["--sandbox", "unsandboxed"]),
        2,
        &["--attest: nothing could be said", "help: "],
    );
    expect(
        &refused(&["--json", "record.json"]),
        2,
        &["another report goes to the same file"],
    );
}

#[test]
fn of_an_image_holds_for_each_digest_that_it_goes_by() {
    if !have(&["root", "docker"]) {
        return;
    }
    let id = range_image("BUSYBOX_ID").unwrap();
    let project = "[sandbox.box]\nbackend = \"docker\"\nimage = \"escape-audit-test/busybox\"\nallow_tag = true\n\
        network_mode = \"none\"\n";
    let part = Recorded::of(project, &["--case", "works/run"]);
    assert_eq!(part.status, 0, "{}", part.err);
    let id = format!("sha256:{}", id.trim_start_matches("sha256:"));
    expect(
        &part.verify(&["--allow-partial", "--image", &id]),
        0,
        &[&id],
    );
    let reference = format!("escape-audit-test/busybox@{id}");
    expect(
        &part.verify(&["--allow-partial", "--image", &reference]),
        0,
        &[&id],
    );
    let other = format!("sha256:{}", "a".repeat(64));
    expect(
        &part.verify(&["--allow-partial", "--image", &other]),
        1,
        &["not to be relied on: image", &other, &id],
    );
    expect(
        &part.verify(&["--allow-partial"]),
        2,
        &["names its image by a tag", "help: "],
    );

    // The image is the subject and no setting: one policy serves for every submission.
    let pinned = part.path("pinned.toml");
    let text = project.replace(
        "image = \"escape-audit-test/busybox\"\nallow_tag = true",
        &format!("image_id = \"{id}\""),
    );
    fs::write(&pinned, text).unwrap();
    expect(
        &part.verify_file(&part.path("record.json"), &pinned, &["--allow-partial"]),
        0,
        &[&id],
    );
}
