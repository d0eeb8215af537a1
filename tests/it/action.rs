//! The GitHub Action: its steps are taken as GitHub's runner takes them (`fixtures/action/as-the-runner`), with the real
//! program. What an input holds is never executed, and what cannot be shown to hold is red.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{Place, folder, have, text, traces};

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A runner's machine: its folder for temporary files, a workspace, and a PATH.
struct Machine {
    temp: tempfile::TempDir,
    work: tempfile::TempDir,
    path: Vec<PathBuf>,
    curl: Option<PathBuf>,
}

/// What became of the action.
struct Taken {
    steps: Vec<Value>,
    outputs: Value,
}

impl Machine {
    /// One with the program in its PATH.
    fn with_program() -> Self {
        let machine = Self::without_program();
        let bin = machine.temp.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_escape-audit"), bin.join("escape-audit")).unwrap();
        Self {
            path: [vec![bin], machine.path].concat(),
            ..machine
        }
    }

    fn without_program() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::split_paths(&path)
            .filter(|folder| !folder.join("escape-audit").exists())
            .collect();
        Self {
            temp: folder(),
            work: folder(),
            path,
            curl: None,
        }
    }

    fn take(&self, inputs: &Value) -> Taken {
        let _place = Place::take();
        let mut command = Command::new(python());
        command
            .arg(root().join("fixtures/action/as-the-runner"))
            .arg(root().join("action.yml"))
            .arg(self.temp.path())
            .current_dir(self.work.path())
            .env("PATH", std::env::join_paths(&self.path).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(home) = &self.curl {
            command.env("CURL_HOME", home);
        }
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(inputs.to_string().as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{inputs}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        Taken {
            steps: told["steps"].as_array().unwrap().clone(),
            outputs: told["outputs"].clone(),
        }
    }
}

impl Taken {
    fn last(&self) -> &Value {
        self.steps.last().unwrap()
    }

    fn out(&self) -> &str {
        text(&self.last()["out"])
    }

    fn output(&self, name: &str) -> &str {
        text(&self.outputs[name])
    }

    fn summary(&self) -> &str {
        text(&self.last()["summary"])
    }

    /// The lines that the runner obeys.
    fn commands(&self) -> Vec<&str> {
        let both = [self.out(), text(&self.last()["err"])];
        let lines = both.into_iter().flat_map(str::lines);
        lines
            .filter(|line| line.trim_start().starts_with("::") || line.contains("##["))
            .collect()
    }

    #[track_caller]
    fn expect(&self, verdict: &str, code: i32) {
        let told = (self.output("verdict"), self.output("exit-code"));
        assert_eq!(told, (verdict, &*code.to_string()), "{}", self.last());
        assert_eq!(self.last()["code"], code, "{}", self.last());
    }
}

/// The Python that has a reader of YAML.
fn python() -> PathBuf {
    crate::support::cache().join("schemas/python/bin/python")
}

/// A file of the project, read as YAML.
pub fn yaml(path: &str) -> Value {
    let program = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)";
    let output = Command::new(python())
        .args(["-c", program])
        .stdin(fs::File::open(root().join(path)).unwrap())
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{path}: {error}"))
}

const NEEDS: &[&str] = &["root", "schemas", "jq"];

#[test]
fn a_sandbox_that_holds_is_green() {
    if !have(NEEDS) {
        return;
    }
    let machine = Machine::with_program();
    let taken = machine.take(&json!({
        "sandbox": " oci ",
        "level": "strict",
        "args": "--case network/*\n\n--case=works/*\r\n",
        "junit": "reports/junit.xml",
    }));
    taken.expect("held", 0);
    for none in ["escaped", "broken", "inconclusive", "error"] {
        assert_eq!(taken.output(none), "0");
    }
    let number = |name: &str| taken.output(name).parse::<u32>().unwrap();
    let sum = number("blocked") + number("allowed") + number("skipped");
    assert!(number("total") > 8 && number("total") == sum, "{sum}");
    assert!(taken.summary().starts_with("## ✅ "), "{}", taken.summary());
    assert_eq!(taken.commands().len(), 1, "{:?}", taken.commands());
    assert!(taken.commands()[0].starts_with("::notice "));

    assert_eq!(taken.output("junit"), "reports/junit.xml");
    assert!(machine.work.path().join("reports/junit.xml").is_file());
    for report in ["json", "sarif"] {
        assert!(Path::new(taken.output(report)).is_file(), "{report}");
    }
    let mut reports: Vec<String> = fs::read_dir(taken.output("reports"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    reports.sort();
    assert_eq!(
        reports,
        ["report.html", "report.json", "report.sarif", "summary.md"]
    );
    assert!(taken.output("program").ends_with("/bin/escape-audit"));
}

#[test]
fn a_weak_sandbox_is_red_and_everything_is_told_before() {
    if !have(NEEDS) {
        return;
    }
    let weak = json!({"sandbox": "oci", "args": "--without network\n--case network/*"});
    let machine = Machine::with_program();
    let taken = machine.take(&weak);
    taken.expect("failed", 1);
    let escaped: usize = taken.output("escaped").parse().unwrap();
    assert!(escaped > 3, "{}", taken.outputs);
    let errors = taken.commands();
    let errors = errors
        .iter()
        .filter(|line| line.starts_with("::error file=escapes/network/"));
    assert_eq!(errors.count(), escaped, "{}", taken.out());
    let first = taken
        .summary()
        .lines()
        .find(|line| line.starts_with("| ❌"));
    assert!(
        first.is_some_and(|row| row.contains("ESCAPED") && row.contains("critical")),
        "{}",
        taken.summary()
    );
    let sarif = fs::read_to_string(taken.output("sarif")).unwrap();
    assert_eq!(sarif.matches("\"ruleId\"").count(), escaped);

    // The same, lived with: the step is green, and the outputs are not.
    let mut tolerant = weak;
    tolerant["args"] = json!("--without network\n--case network/tcp-egress\n--no-fail");
    tolerant["summary"] = json!("false");
    let taken = machine.take(&tolerant);
    taken.expect("failed", 0);
    assert_eq!(taken.output("escaped"), "1");
    assert_eq!(taken.summary(), "");
}

#[test]
fn a_launcher_may_follow_the_arguments() {
    if !have(NEEDS) {
        return;
    }
    let taken = Machine::with_program().take(&json!({
        "args": "--case works/run\n--\nenv\n-u\nHOME",
    }));
    taken.expect("held", 0);
}

#[test]
fn a_broken_project_file_is_told_with_its_place() {
    if !have(&["schemas", "jq"]) {
        return;
    }
    let machine = Machine::with_program();
    let file = machine.work.path().join("broken.toml");
    fs::write(
        &file,
        "[sandbox.agent]\nbackend = \"oci\"\nmem_limt = \"64m\"\n",
    )
    .unwrap();
    let taken = machine.take(&json!({"config": "broken.toml"}));
    taken.expect("invalid", 2);
    assert!(text(&taken.last()["err"]).contains("broken.toml:3"));
    assert_eq!(taken.output("json"), "");
    assert!(taken.summary().contains("invalid (exit code 2)"));
    assert!(taken.commands()[0].starts_with("::error "));
}

#[test]
fn nothing_that_an_input_holds_is_executed_or_obeyed() {
    if !have(&["schemas", "jq"]) {
        return;
    }
    let machine = Machine::with_program();
    let marks = folder();
    let mark = marks.path().join("mark");
    let mark = mark.display();
    let hostile = [
        format!("\"; touch {mark}; \""),
        format!("$(touch {mark})"),
        format!("`touch {mark}`"),
        format!("'; touch {mark} #"),
        format!("a[$(touch {mark})]"),
        format!("& touch {mark} &"),
        format!("x\ntouch {mark}\nverdict=held\nexit-code=0"),
        "x\n::error::forged".to_owned(),
        "##[error]forged".to_owned(),
        "%0A::error::forged".to_owned(),
        "-*".to_owned(),
    ];
    let inputs = [
        "config", "sandbox", "level", "fail-on", "baseline", "args", "summary", "sudo", "install",
        "version",
    ];
    for value in &hostile {
        for input in inputs {
            let taken = machine.take(&json!({ input: value }));
            match input {
                "install" | "version" => assert_eq!(taken.output("verdict"), "not-installed"),
                _ => taken.expect("invalid", 2),
            }
            assert_eq!(taken.last()["code"], 2, "{input}: {value}");
            for line in taken.commands() {
                let ours = line.starts_with("::error title=escape-audit::");
                assert!(ours && !line.contains("##["), "{input}: {line}");
            }
            let left: Vec<_> = fs::read_dir(marks.path()).unwrap().collect();
            assert!(left.is_empty(), "{input}: {value} was executed");
        }
    }
}

/// A path goes into the outputs, where a line is an output.
#[test]
fn a_path_cannot_forge_an_output() {
    if !have(NEEDS) {
        return;
    }
    for input in ["junit", "sarif"] {
        let machine = Machine::with_program();
        let forged = json!({
            input: "x\nverdict=held\nexit-code=0",
            "sandbox": "oci",
            "args": "--without network\n--case network/tcp-egress",
        });
        machine.take(&forged).expect("invalid", 2);
    }
}

/// Everything else that ends with 0, such as a page of help, proves nothing.
#[test]
fn an_exit_code_of_zero_counts_only_with_a_report() {
    if !have(&["schemas", "jq"]) {
        return;
    }
    for words in ["--help", "--version\n--case none"] {
        let taken = Machine::with_program().take(&json!({ "args": words }));
        match words {
            "--help" => taken.expect("undecided", 3),
            _ => taken.expect("invalid", 2),
        }
    }
    let machine = Machine::with_program();
    let bin = machine.path[0].join("escape-audit");
    fs::remove_file(&bin).unwrap();
    symlink("/bin/true", &bin).unwrap();
    let taken = machine.take(&json!({"install": "none"}));
    taken.expect("undecided", 3);
    assert!(taken.commands()[0].contains("nothing is proven"));
}

#[test]
fn what_cannot_be_installed_is_told_with_what_to_do() {
    if !have(&["schemas"]) {
        return;
    }
    let table = [
        (json!({"install": "none"}), "install: auto"),
        (json!({"install": "all"}), "write one of: auto"),
        (json!({"version": "1/../../x"}), "write it as 1.2.3"),
    ];
    for (inputs, help) in table {
        let taken = Machine::without_program().take(&inputs);
        assert_eq!(taken.steps.len(), 1, "{inputs}");
        assert_eq!(taken.last()["code"], 2);
        assert_eq!(taken.output("verdict"), "not-installed");
        assert!(taken.out().contains(help), "{}", taken.out());
    }
    let taken = Machine::with_program().take(&json!({"install": "none", "version": "99.0.0"}));
    assert!(
        taken.out().contains("is not version 99.0.0"),
        "{}",
        taken.out()
    );
    // Without cargo nothing is built.
    let mut machine = Machine::without_program();
    machine.path.retain(|folder| !folder.join("cargo").exists());
    let taken = machine.take(&json!({"install": "source"}));
    assert!(taken.out().contains("there is no cargo"), "{}", taken.out());
}

/// Plays github.com on this machine's loopback, for curl alone.
struct Releases(Child);

impl Drop for Releases {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Releases {
    /// Serves `folder`, and makes the settings in it by which curl comes here and to nowhere else.
    fn of(folder: &Path) -> Self {
        let mut child = Command::new("python3")
            .arg(root().join("fixtures/action/releases"))
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        Self(child)
    }
}

#[test]
fn a_release_is_taken_only_with_the_bytes_of_its_list() {
    if !have(&["schemas", "curl", "openssl"]) {
        return;
    }
    let site = folder();
    let version = env!("CARGO_PKG_VERSION");
    let release = site.path().join(format!(
        "escape-audit/escape-audit/releases/download/v{version}"
    ));
    fs::create_dir_all(&release).unwrap();
    let _server = Releases::of(site.path());
    let mut machine = Machine::without_program();
    machine.curl = Some(site.path().to_owned());
    // `none` of what follows would audit anything but a mistake, which is faster.
    let install = json!({"install": "binary", "level": "none"});

    let taken = machine.take(&install);
    assert!(
        taken.out().contains("has no program for"),
        "{}",
        taken.out()
    );

    let sh = |script: &str| {
        let status = Command::new("sh")
            .arg("-ec")
            .arg(script)
            .current_dir(&release)
            .status();
        assert!(status.unwrap().success(), "{script}");
    };
    let program = Path::new(env!("CARGO_BIN_EXE_escape-audit"))
        .parent()
        .unwrap();
    let archive = "escape-audit-x86_64-unknown-linux-gnu.tar.gz";
    sh(&format!(
        "tar --create --use-compress-program 'gzip -1' --file {archive} --directory '{}' escape-audit; sha256sum {archive} >SHA256SUMS",
        program.display()
    ));
    let taken = machine.take(&install);
    taken.expect("invalid", 2);
    assert!(
        taken
            .output("program")
            .starts_with(&*machine.temp.path().to_string_lossy())
    );

    sh(&format!("printf x >>{archive}"));
    for install in ["binary", "auto"] {
        let taken = machine.take(&json!({ "install": install }));
        assert_eq!(taken.output("verdict"), "not-installed");
        assert_eq!(taken.output("program"), "");
        let said = "is not what the release's list of checksums says";
        assert!(taken.out().contains(said), "{}", taken.out());
    }
    sh("echo >SHA256SUMS");
    let taken = machine.take(&json!({"install": "binary"}));
    assert_eq!(taken.output("verdict"), "not-installed");
}

#[test]
fn a_job_that_is_cancelled_ends_its_audit_in_order() {
    if !have(NEEDS) {
        return;
    }
    let _place = Place::take();
    let temp = folder();
    let outputs = temp.path().join("outputs");
    let words = temp.path().join("words");
    let mut command = Command::new(root().join("action/audit"));
    for input in ["CONFIG", "LEVEL", "FAIL_ON", "BASELINE", "JUNIT", "SARIF"] {
        command.env(format!("INPUT_{input}"), "");
    }
    let mut child = command
        .env("PROGRAM", env!("CARGO_BIN_EXE_escape-audit"))
        .env("INPUT_SANDBOX", "unsandboxed")
        // The first is told at once, and the others watch for survivors long after that.
        .env(
            "INPUT_ARGS",
            "--case kernel/bpf\n--case processes/outlive-*",
        )
        .env("INPUT_SUMMARY", "true")
        .env("INPUT_SUDO", "false")
        .env("RUNNER_TEMP", temp.path())
        .env("GITHUB_OUTPUT", &outputs)
        .env("GITHUB_STEP_SUMMARY", temp.path().join("summary"))
        .current_dir(temp.path())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&words).unwrap())
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let mut audit = None;
    for _ in 0..3000 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        if fs::read_to_string(&words).unwrap().contains("ESCAPED") {
            let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            audit = list
                .split_whitespace()
                .next()
                .and_then(|pid| pid.parse().ok());
            break;
        }
    }
    let audit: i32 = audit.expect("an escape, and the audit that tells of it");
    // As GitHub's runner does: the script alone gets the signal.
    kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let told = fs::read_to_string(&outputs).unwrap();
    assert!(told.contains("verdict=interrupted\n"), "{told}");
    assert!(!told.contains("escaped=0\n"), "{told}");
    let summary = fs::read_to_string(temp.path().join("summary")).unwrap();
    assert!(summary.contains("interrupted"), "{summary}");
    assert_eq!(traces(audit), Vec::<String>::new());
}

/// Green where it has to be red, and red for another reason: both fail the job.
#[test]
fn the_gate_of_this_project_fails_where_a_weak_sandbox_came_out_green() {
    let table = [
        (["failure", "failed", "1", "3"], true),
        (["success", "held", "0", "0"], false),
        (["failure", "invalid", "2", "0"], false),
        (["failure", "undecided", "3", "0"], false),
        (["failure", "not-installed", "", ""], false),
        (["success", "failed", "0", "3"], false),
        (["", "", "", ""], false),
    ];
    for (values, fine) in table {
        let names = ["OUTCOME", "VERDICT", "EXIT_CODE", "ESCAPED"];
        let status = Command::new(root().join(".ci/expect-red"))
            .envs(names.into_iter().zip(values))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.success(), fine, "{values:?}");
    }
}

#[test]
fn the_recipe_for_a_shell_keeps_the_exit_code() {
    if !have(&["root"]) {
        return;
    }
    let _place = Place::take();
    let machine = Machine::with_program();
    let table: [(&[&str], i32); 3] = [
        (&["--case", "works/run"], 0),
        (&["--case", "network/tcp-egress", "--without", "network"], 1),
        (&["--case", "no/such-case"], 2),
    ];
    for (arguments, code) in table {
        let output = Command::new(root().join("examples/ci/pre-merge.sh"))
            .arg("reports")
            .args(arguments)
            .env("PATH", std::env::join_paths(&machine.path).unwrap())
            .current_dir(machine.work.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let report = machine.work.path().join("reports/report.xml");
        assert_eq!(report.is_file(), code != 2, "{arguments:?}");
    }
}
