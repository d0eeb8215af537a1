//! What the tests share: the real program, run as a user runs it and read by its reports. Whatever an audit started or
//! made has to be gone when it ended, in every test.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// No audit here takes nearly as long, even on a busy machine and with all others of an engine's network before it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Whether everything is there that the test needs: `root`, `docker` (an engine with the range's images), `gvisor` (the
/// engine's runtimes of that kind), `schemas` (what `fixtures/schemas/fetch` brings), or a program. Else it says so, aloud;
/// where the machine is one that has to have it (the test range, CI), the test fails instead.
pub fn have(needs: &[&str]) -> bool {
    let there = |need: &str| match need {
        "root" => nix::unistd::geteuid().is_root(),
        "docker" => engine_says("/_ping").is_some() && range_image("BUSYBOX_ID").is_some(),
        "schemas" => cache().join("schemas/python/bin/python").is_file(),
        "gvisor" => engine_says("/info").is_some_and(|info| {
            let runtimes = ["\"runsc\":", "\"runsc-net\":"];
            runtimes.iter().all(|name| info.contains(name))
        }),
        program => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|folder| folder.join(program).is_file()),
    };
    let Some(missing) = needs.iter().find(|need| !there(need)) else {
        return true;
    };
    let required = std::env::var("ESCAPE_AUDIT_REQUIRE").unwrap_or_default();
    let must = std::env::var("ESCAPE_AUDIT_RANGE_TEST").is_ok_and(|value| value == "1")
        || std::env::var("CI").is_ok_and(|value| value == "true")
        || required.split(',').any(|word| word == *missing);
    assert!(!must, "`{missing}` is missing, and must not be here");
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    // Not `eprintln`, which the test harness swallows when a test passes.
    let _ = writeln!(
        std::io::stderr(),
        "{test}: SKIPPED, for want of `{missing}`"
    );
    false
}

/// What the engine answers that `DOCKER_HOST` names. The system's own engine is not the range's, and not touched.
fn engine_says(path: &str) -> Option<String> {
    let host = std::env::var("DOCKER_HOST").ok()?;
    let mut engine = UnixStream::connect(host.strip_prefix("unix://")?).ok()?;
    engine
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    write!(engine, "GET {path} HTTP/1.0\r\nHost: engine\r\n\r\n").ok()?;
    let mut answer = String::new();
    engine.read_to_string(&mut answer).ok()?;
    answer.contains(" 200 OK").then_some(answer)
}

/// An image of the range, by its line in `images.env`: `BUSYBOX_ID`, `BUSYBOX_DIGEST`.
pub fn range_image(line: &str) -> Option<String> {
    let list = fs::read_to_string(std::env::var_os("ESCAPE_AUDIT_RANGE_IMAGES")?).ok()?;
    let value = |text: &str| {
        text.strip_prefix(line)?
            .strip_prefix('=')
            .map(str::to_owned)
    };
    list.lines().find_map(value)
}

/// What the range fetched stays here.
pub fn cache() -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    folder("ESCAPE_AUDIT_RANGE_DIR").unwrap_or_else(|| {
        folder("XDG_CACHE_HOME")
            .unwrap_or_else(|| folder("HOME").unwrap_or_default().join(".cache"))
            .join("escape-audit-range")
    })
}

/// A launcher of `fixtures/runners`.
pub fn runner(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/runners")
        .join(name);
    assert!(path.is_file(), "{}", path.display());
    path.to_string_lossy().into_owned()
}

/// A folder that everybody may pass through.
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

static QUIET: RwLock<()> = RwLock::new(());

thread_local! {
    /// How many audits this test has going, which need the lock only once.
    static GOING: Cell<usize> = const { Cell::new(0) };
}

/// One of this test's audits. Audits go on beside those of other tests, but for those of a test that has to be alone.
pub struct Place(#[allow(dead_code)] Option<RwLockReadGuard<'static, ()>>);

impl Place {
    pub fn take() -> Self {
        let first = GOING.replace(GOING.get() + 1) == 0;
        Self(first.then(|| QUIET.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        GOING.set(GOING.get() - 1);
    }
}

/// No other test's audit goes on while this is held: for what measures CPU time, or takes it all.
pub struct Alone(#[allow(dead_code)] RwLockWriteGuard<'static, ()>);

pub fn alone() -> Alone {
    let guard = QUIET.write().unwrap_or_else(PoisonError::into_inner);
    GOING.set(GOING.get() + 1);
    Alone(guard)
}

impl Drop for Alone {
    fn drop(&mut self) {
        GOING.set(GOING.get() - 1);
    }
}

/// A copy of the program for other users: the original may lie where only root gets to. Another process writes it, for
/// what a thread of this one has open for writing, the child of another may hold when it is to be executed.
pub fn copy_of(program: &Path) -> (tempfile::TempDir, PathBuf) {
    let shared = folder();
    let copy = shared.path().join("escape-audit");
    let status = Command::new("cp").arg(program).arg(&copy).status().unwrap();
    assert!(status.success());
    (shared, copy)
}

/// The program, at work.
pub struct Audit {
    pub pid: i32,
    child: Child,
    began: Instant,
    _place: Place,
    /// Where it works: whatever it plants there has to be gone again.
    folder: tempfile::TempDir,
    /// Where its reports and its words go.
    reports: tempfile::TempDir,
}

/// Runs `escape-audit run ARGS…` to its end.
pub fn run(arguments: &[&str]) -> Seen {
    Audit::run(arguments).finish()
}

/// Runs the selected cases with a launcher of `fixtures/runners`.
pub fn run_with(cases: &[&str], launcher: &[&str]) -> Seen {
    let mut arguments: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
    arguments.push("--");
    arguments.extend(launcher);
    run(&arguments)
}

impl Audit {
    /// Starts `escape-audit run`, with both reports.
    pub fn run(arguments: &[&str]) -> Self {
        Self::start_in("run", arguments, |_| {})
    }

    /// Starts any command that can write a JSON report; `prepare` may change the process and its folder first.
    pub fn start_in(word: &str, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        let place = Place::take();
        let (folder, reports) = (folder(), folder());
        let file = |name: &str| reports.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_escape-audit"));
        command.arg(word);
        let given = |flag: &str| arguments.contains(&flag);
        if matches!(word, "run" | "prove") && !given("--json") {
            command.arg("--json").arg(file("report.json"));
        }
        if word == "run" && !given("--junit") {
            command.arg("--junit").arg(file("report.xml"));
        }
        command
            .args(arguments)
            .current_dir(folder.path())
            .env("NO_COLOR", "1")
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(File::create(file("out")).unwrap())
            .stderr(File::create(file("err")).unwrap());
        // A session of its own is what its descendants are known by. SAFETY: one system call, nothing is allocated.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                Ok(())
            });
        }
        prepare(&mut command);
        let child = command.spawn().unwrap();
        Self {
            pid: i32::try_from(child.id()).unwrap(),
            child,
            began: Instant::now(),
            _place: place,
            folder,
            reports,
        }
    }

    /// What it said on standard error so far.
    pub fn said(&self) -> String {
        let path = self.reports.path().join("err");
        String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
    }

    /// Waits until something holds while the program is running.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        while !holds(self) {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "it ended before {what}: {}", self.said());
            assert!(self.began.elapsed() < PATIENCE, "no sign of {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal, if it is still there.
    pub fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            kill(Pid::from_raw(self.pid), signal).unwrap();
        }
    }

    /// Everything that this run made or started and that is there now.
    pub fn traces(&self) -> Vec<String> {
        traces(self.pid)
    }

    /// Waits for its end. Nothing of it may be left.
    pub fn finish(self) -> Seen {
        let (seen, left) = self.finish_with_traces();
        assert_eq!(left, Vec::<String>::new(), "left behind\n{}", seen.err);
        seen
    }

    /// Waits for its end; what is left is handed back.
    pub fn finish_with_traces(mut self) -> (Seen, Vec<String>) {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(self.began.elapsed() < PATIENCE, "hangs: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut left = traces(self.pid);
        left.extend(files(self.folder.path()));
        let text = |name: &str| fs::read_to_string(self.reports.path().join(name)).ok();
        let seen = Seen {
            // What a shell shows of a program that a signal ended, told apart from an exit code.
            status: status.code().unwrap_or_else(|| -status.signal().unwrap()),
            out: text("out").unwrap(),
            err: text("err").unwrap(),
            junit: text("report.xml"),
            report: text("report.json")
                .map_or(Value::Null, |text| serde_json::from_str(&text).unwrap()),
        };
        (seen, left)
    }
}

impl Drop for Audit {
    /// A test that failed halfway leaves no program behind.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What an ended program showed.
#[derive(Debug)]
pub struct Seen {
    /// The exit code; negative where a signal ended it.
    pub status: i32,
    pub out: String,
    pub err: String,
    pub junit: Option<String>,
    /// The JSON report, or null.
    pub report: Value,
}

impl Seen {
    pub fn trials(&self) -> &[Value] {
        self.report["trials"]
            .as_array()
            .unwrap_or_else(|| panic!("no report\n{}{}", self.out, self.err))
    }

    /// The one trial of this case.
    pub fn trial(&self, case: &str) -> &Value {
        let mut found = self.trials().iter().filter(|trial| trial["case"] == case);
        let trial = found.next();
        assert!(found.next().is_none(), "{case} was tried twice");
        trial.unwrap_or_else(|| panic!("{case} was not tried\n{}{}", self.out, self.err))
    }

    /// Verdict and reason of a case.
    pub fn verdict(&self, case: &str) -> (&str, &str) {
        judged(self.trial(case))
    }

    /// Case → verdict and reason.
    pub fn verdicts(&self) -> BTreeMap<&str, (&str, &str)> {
        self.trials()
            .iter()
            .map(|trial| (text(&trial["case"]), judged(trial)))
            .collect()
    }

    /// Exactly these trials, with these verdicts and reasons, and this exit code.
    #[track_caller]
    pub fn expect(&self, status: i32, verdicts: &[(&str, &str, &str)]) {
        let wanted: BTreeMap<_, _> = verdicts
            .iter()
            .map(|(case, verdict, reason)| (*case, (*verdict, *reason)))
            .collect();
        assert_eq!(self.verdicts(), wanted, "{}", self.out);
        assert_eq!(self.status, status, "{}{}", self.out, self.err);
    }

    /// Nothing was proven to hold: no BLOCKED, no ALLOWED, no exit code 0.
    #[track_caller]
    pub fn expect_nothing_proven(&self) {
        assert_ne!(self.status, 0, "{}{}", self.out, self.err);
        assert!(!self.trials().is_empty());
        for trial in self.trials() {
            let (verdict, reason) = judged(trial);
            let held = matches!(verdict, "BLOCKED" | "ALLOWED");
            assert!(
                !held,
                "{}: {verdict} ({reason})\n{}",
                trial["case"], self.out
            );
        }
    }

    /// What the report says beside the verdicts.
    pub fn notes(&self) -> String {
        self.report["sandboxes"][0]["notes"].to_string()
    }

    /// Nothing ran, and a person is told what to do about it.
    #[track_caller]
    pub fn expect_refusal(&self, words: &[&str]) {
        assert_eq!(self.status, 2, "{}{}", self.out, self.err);
        assert_eq!(self.report, Value::Null);
        assert_eq!(self.out, "");
        for word in words.iter().chain(&["error", "help: "]) {
            assert!(self.err.contains(word), "no {word:?} in\n{}", self.err);
        }
    }
}

fn judged(trial: &Value) -> (&str, &str) {
    (text(&trial["verdict"]), text(&trial["reason"]))
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// What there is of the run of this process: processes of its session and in its groups, its groups in every hierarchy,
/// its folders, its mounts, and what its journal says that it planted.
pub fn traces(pid: i32) -> Vec<String> {
    let run = format!("run-{pid}-");
    let mut found = Vec::new();
    for process in numbers("/proc") {
        let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}"));
        let Ok(stat) = read("stat") else { continue };
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or(vec![], |(_, rest)| rest.split_whitespace().collect());
        let [state, _, _, session, ..] = fields[..] else {
            continue;
        };
        let in_group = read("cgroup").is_ok_and(|groups| groups.contains(&run));
        if process != pid && !matches!(state, "Z" | "X") && (session == pid.to_string() || in_group)
        {
            let name = stat.rsplit_once(')').map_or("", |(name, _)| name);
            found.push(format!("process {name})"));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for line in mounts.lines() {
        if line.contains(&run) {
            found.push(format!("mount {line}"));
        }
        let fields: Vec<&str> = line.split(' ').collect();
        if line.contains(" - cgroup") {
            found.extend(starting_with(
                &Path::new(fields[4]).join("escape-audit"),
                &run,
            ));
        }
    }
    for folder in run_folders(&run) {
        let journal = fs::read_to_string(folder.join("planted")).unwrap_or_default();
        let planted = journal
            .lines()
            .filter_map(|line| serde_json::from_str::<PathBuf>(line).ok());
        found.extend(planted.filter(|path| path.exists()).map(|path| show(&path)));
        found.push(show(&folder));
    }
    found
}

/// What a run's journal says that it planted, and that is there.
pub fn planted(pid: i32) -> Vec<PathBuf> {
    run_folders(&format!("run-{pid}-"))
        .iter()
        .filter_map(|folder| fs::read_to_string(folder.join("planted")).ok())
        .flat_map(|journal| {
            let paths = journal
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            paths.collect::<Vec<PathBuf>>()
        })
        .filter(|path| path.exists())
        .collect()
}

fn run_folders(run: &str) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = ["/run", "/var/lib"].map(PathBuf::from).to_vec();
    places.extend(["/var/tmp", "/tmp"].map(PathBuf::from));
    places.push(std::env::temp_dir());
    places.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    places.sort();
    places.dedup();
    places
        .iter()
        .flat_map(|place| entries(place))
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("escape-audit")
        })
        .flat_map(|parent| entries(&parent))
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(run))
        .collect()
}

fn starting_with(folder: &Path, start: &str) -> Vec<String> {
    entries(folder)
        .into_iter()
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(start)
        })
        .map(|path| show(&path))
        .collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    listed.map(|entry| entry.path()).collect()
}

fn files(folder: &Path) -> Vec<String> {
    entries(folder).iter().map(|path| show(path)).collect()
}

fn show(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn numbers(folder: &str) -> Vec<i32> {
    entries(Path::new(folder))
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect()
}

/// The processes of a run's session, the program itself left out, with their arguments.
pub fn helpers(pid: i32) -> Vec<(i32, String)> {
    numbers("/proc")
        .into_iter()
        .filter(|process| *process != pid)
        .filter_map(|process| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            let session = stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.parse();
            let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (session == Ok(pid)).then_some((process, line))
        })
        .collect()
}
