//! The real program, driven through pipes as the harness drives it. Nothing here sends a packet anywhere but to
//! loopback. `ESCAPE_AUDIT_PROBE` names another build of the program to test, for instance the static one.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use escape_audit_probe::sha256::secret_hash;
use escape_audit_probe::wire::{KINDS, Message, Outcome};

const NONCE: &str = "0123abcd";

fn program() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_escape-audit-probe"));
    std::env::var_os("ESCAPE_AUDIT_PROBE").map_or(built, PathBuf::from)
}

/// A thread name that no other test uses.
fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("ea{}-{number}", std::process::id())
}

/// A directory of our own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(unique_name());
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running probe.
struct Probe {
    child: Child,
    name: String,
    output: BufReader<ChildStdout>,
    records: u64,
}

impl Probe {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let name = unique_name();
        let mut probe = Self {
            child,
            name,
            output,
            records: 0,
        };
        let hello = Message::new(&["hello"])
            .with("nonce", NONCE)
            .with("name", &probe.name);
        probe.say(&hello);
        probe
    }

    fn new() -> Self {
        Self::start(Command::new(program()).env_clear())
    }

    fn say(&mut self, message: &Message) {
        self.say_raw(&message.encode());
    }

    fn say_raw(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn go(&mut self) {
        self.say(&Message::new(&["go"]));
    }

    fn next(&mut self) {
        self.say(&Message::new(&["next"]));
    }

    fn end_input(&mut self) {
        self.child.stdin = None;
    }

    /// The next line that is a record; it has to carry the nonce and the next number.
    fn record(&mut self) -> Option<Message> {
        loop {
            let mut line = Vec::new();
            if self.output.read_until(b'\n', &mut line).unwrap() == 0 {
                return None;
            }
            if line.starts_with(b"EA1 ") {
                let record = Message::decode(line.trim_ascii_end()).unwrap();
                assert_eq!(record.words[0], NONCE);
                assert_eq!(record.words[1], self.records.to_string());
                self.records += 1;
                return Some(record);
            }
        }
    }

    /// All records up to one with this word, that one included.
    fn until(&mut self, word: &str) -> Vec<Message> {
        let mut records = Vec::new();
        while let Some(record) = self.record() {
            let found = record.words[2] == word;
            records.push(record);
            if found {
                return records;
            }
        }
        panic!("no {word} after {records:?}");
    }

    fn status(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn attempt(kind: &str, deadline_ms: u32, hold: bool) -> Message {
    Message::new(&["attempt"])
        .with("id", "a")
        .with("kind", kind)
        .with("deadline_ms", deadline_ms.to_string())
        .with("hold", if hold { "1" } else { "0" })
}

/// Everything that one attempt reports.
fn records_of(request: Message) -> Vec<Message> {
    let mut probe = Probe::new();
    probe.say(&request);
    probe.go();
    let records = probe.until("end");
    assert_eq!(probe.status(), Some(0));
    records
}

fn result(records: &[Message], what: &str, target: &str) -> Outcome {
    let mut steps = records.iter().filter(|record| {
        record.words[2] == "step"
            && record.text("what") == Some(what)
            && record.text("target") == Some(target)
    });
    let step = steps
        .next()
        .unwrap_or_else(|| panic!("no step {what} {target} in {records:?}"));
    Outcome::decode(step.text("result").unwrap()).unwrap()
}

fn done(records: &[Message]) -> Outcome {
    let done = records
        .iter()
        .find(|record| record.words[2] == "done")
        .unwrap();
    Outcome::decode(done.text("result").unwrap()).unwrap()
}

fn fact<'a>(records: &'a [Message], key: &str, name: &str) -> Option<&'a str> {
    let mut facts = records.iter().rev().filter(|record| {
        record.words[2] == "fact"
            && record.text("key") == Some(key)
            && record.text("name") == Some(name)
    });
    facts.next()?.text("value")
}

/// How many living processes have this thread name.
fn living(name: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let alive = processes.filter(|process| {
        let status = std::fs::read_to_string(process.path().join("status")).unwrap_or_default();
        status.starts_with(&format!("Name:\t{name}\n")) && !status.contains("State:\tZ")
    });
    alive.count()
}

/// Waits until nothing of this name lives.
fn assert_gone(name: &str, within: Duration) {
    let until = Instant::now() + within;
    while living(name) > 0 {
        assert!(Instant::now() < until, "{} of {name} live on", living(name));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_session_starts_runs_and_ends() {
    let mut probe = Probe::new();
    let start = probe.record().unwrap();
    assert_eq!(start.words[2], "start");
    assert_eq!(start.number("pid"), Some(probe.child.id()));
    assert!(start.number::<u32>("cpus").unwrap() > 0);
    assert_eq!(living(&probe.name), 1);
    probe.say(&attempt("run", 1000, false));
    probe.go();
    let records = probe.until("end");
    assert_eq!(records[0].text("kind"), Some("run"));
    assert_eq!(records[0].text("fork"), Some("1"));
    assert_eq!(result(&records, "run", ""), Outcome::Ok);
    assert_eq!(done(&records), Outcome::Ok);
    assert_eq!(probe.status(), Some(0));
}

#[test]
fn without_input_it_says_so() {
    let output = Command::new(program())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"EA1 - 0 no-input\n");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn it_ends_quietly_without_descriptors() {
    for closed in ["<&-", ">&-", "<&- >&- 2>&-", "2>&- <&-"] {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("exec \"$0\" {closed}"))
            .arg(program());
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{closed}");
        assert!(output.stderr.is_empty(), "{closed}");
    }
}

#[test]
fn a_list_that_breaks_off_is_not_begun() {
    let mut probe = Probe::new();
    probe.say(&attempt("run", 1000, false));
    probe.end_input();
    assert_eq!(probe.record().unwrap().words[2], "start");
    assert_eq!(probe.record(), None);
    assert_eq!(probe.status(), Some(3));
}

#[test]
fn it_ends_when_nobody_listens() {
    let mut probe = Probe::new();
    probe.say(&attempt("spawn", 30_000, true).with("count", "3"));
    probe.say(&attempt("spawn", 30_000, true).with("count", "3"));
    probe.until("start");
    let (reader, _writer) = std::io::pipe().unwrap();
    probe.output = BufReader::new(OwnedFd::from(reader).into());
    probe.go();
    assert_eq!(probe.status(), Some(3));
    assert_gone(&probe.name, Duration::from_secs(2));
}

#[test]
fn what_it_does_not_understand_is_reported_in_its_place() {
    let mut probe = Probe::new();
    probe.say_raw(&"x".repeat(50_000));
    probe.say_raw("EA1 0123abcd 0 done id=a result=ok");
    probe.say_raw("EA1 attempt id=a kind=%4");
    probe.say(&attempt("teleport", 1000, false));
    probe.say(
        &Message::new(&["attempt"])
            .with("id", "a")
            .with("kind", "run"),
    );
    probe.say(&attempt("run", 1000, false));
    probe.go();
    let records = probe.until("end");
    let unsupported = records
        .iter()
        .filter(|r| r.text("key") == Some("unsupported"));
    assert_eq!(unsupported.count(), 5);
    assert_eq!(
        fact(&records, "unsupported", "teleport"),
        Some("unknown kind")
    );
    assert_eq!(fact(&records, "unsupported", "run"), Some("no deadline"));
    assert_eq!(result(&records, "run", ""), Outcome::Ok);
}

#[test]
fn every_kind_of_the_vocabulary_is_known() {
    let mut probe = Probe::new();
    for (kind, _) in KINDS {
        probe.say(&attempt(kind, 5000, false));
    }
    probe.go();
    let records = probe.until("end");
    let unsupported: Vec<_> = records
        .iter()
        .filter(|r| r.text("key") == Some("unsupported"))
        .collect();
    assert!(unsupported.is_empty(), "{unsupported:?}");
    let ends: Vec<_> = records.iter().filter(|r| r.words[2] == "done").collect();
    assert_eq!(ends.len(), KINDS.len());
    assert!(
        ends.iter().all(|end| end.text("result") == Some("ok")),
        "{ends:?}"
    );
}

#[test]
fn the_environment_is_told_by_hash() {
    let mut probe = Probe::start(Command::new(program()).env_clear().env("A_SECRET", "xyz"));
    probe.say(&attempt("environment", 1000, false));
    probe.go();
    let records = probe.until("end");
    assert_eq!(
        fact(&records, "env", "A_SECRET"),
        Some(secret_hash(NONCE, b"xyz").as_str())
    );
    assert_eq!(fact(&records, "env-count", ""), Some("1"));
}

#[test]
fn the_environments_of_ancestors_are_read() {
    let mut shell = Command::new("sh");
    shell
        .env("A_SECRET", "of the shell")
        .arg("-c")
        .arg("env -i \"$0\"; true")
        .arg(program());
    let mut probe = Probe::start(&mut shell);
    probe.say(&attempt("process-environment", 5000, false));
    probe.go();
    let records = probe.until("end");
    assert_eq!(
        result(&records, "control", "/proc/self/environ"),
        Outcome::Ok
    );
    let hash = secret_hash(NONCE, b"of the shell");
    assert!(
        records.iter().any(|r| r.text("value") == Some(&hash)),
        "{records:?}"
    );
}

#[test]
fn a_hold_lasts_until_next() {
    let mut probe = Probe::new();
    probe.say(&attempt("spawn", 30_000, true).with("count", "5"));
    probe.go();
    let records = probe.until("hold");
    assert_eq!(result(&records, "fork", ""), Outcome::Ok);
    assert_eq!(fact(&records, "made", ""), Some("5"));
    // The session, the attempt, and its children.
    assert_eq!(living(&probe.name), 7);
    // A word for another attempt does not count.
    probe.say(&Message::new(&["next"]).with("id", "b"));
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(living(&probe.name), 7);
    probe.next();
    assert_eq!(done(&probe.until("end")), Outcome::Ok);
    assert_gone(&probe.name, Duration::from_secs(1));
}

#[test]
fn an_unattended_hold_ends_by_itself() {
    let mut probe = Probe::new();
    probe.say(&attempt("run", 30_000, true));
    probe.say(&attempt("run", 30_000, true));
    probe.go();
    probe.end_input();
    let begun = Instant::now();
    probe.until("end");
    let held = begun.elapsed();
    assert!(
        held > Duration::from_millis(1300) && held < Duration::from_secs(5),
        "{held:?}"
    );
}

#[test]
fn a_deadline_ends_everything_that_was_started() {
    for request in [
        attempt("spawn", 400, true).with("count", "5"),
        attempt("spin", 400, false)
            .with("processes", "3")
            .with("ms", "60000"),
    ] {
        let mut probe = Probe::new();
        probe.say(&request);
        probe.say(&attempt("run", 1000, false));
        probe.go();
        let begun = Instant::now();
        assert_eq!(done(&probe.until("done")), Outcome::Timeout);
        assert!(begun.elapsed() < Duration::from_secs(3));
        assert_eq!(done(&probe.until("end")), Outcome::Ok);
        assert_gone(&probe.name, Duration::from_secs(1));
    }
}

#[test]
fn its_children_die_with_it() {
    let mut probe = Probe::new();
    probe.say(&attempt("spawn", 30_000, true).with("count", "5"));
    probe.go();
    probe.until("hold");
    probe.child.kill().unwrap();
    probe.child.wait().unwrap();
    assert_gone(&probe.name, Duration::from_secs(2));
}

#[test]
fn memory_is_touched_and_held() {
    let request = attempt("allocate", 20_000, false)
        .with("bytes", (40 << 20).to_string())
        .with("processes", "2");
    let records = records_of(request);
    assert_eq!(result(&records, "allocate", "0"), Outcome::Ok);
    assert_eq!(result(&records, "allocate", "1"), Outcome::Ok);
    assert_eq!(fact(&records, "touched", ""), Some("41943040"));
    assert_eq!(fact(&records, "held", ""), Some("41943040"));
}

/// The program under a limit of its own on each process or file.
fn limited(resource: i64, bytes: u64) -> Command {
    let mut command = Command::new(program());
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: setrlimit may be called between fork and exec.
    unsafe {
        command
            .env_clear()
            .pre_exec(move || match libc::setrlimit(resource as _, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
    }
    command
}

#[test]
fn a_bound_on_each_process_is_none_on_all_of_them() {
    let mut probe = Probe::start(&mut limited(libc::RLIMIT_AS.into(), 48 << 20));
    probe.say(
        &attempt("allocate", 20_000, false)
            .with("bytes", (128 << 20).to_string())
            .with("processes", "2"),
    );
    probe.go();
    let records = probe.until("end");
    assert_eq!(
        result(&records, "allocate", "0"),
        Outcome::Errno(libc::ENOMEM)
    );
    assert_eq!(fact(&records, "held", ""), Some("134217728"));
}

#[test]
fn a_bound_on_each_file_is_none_on_all_of_them() {
    let directory = Directory::new();
    let name = directory.0.to_str().unwrap().to_owned();
    let mut probe = Probe::start(&mut limited(libc::RLIMIT_FSIZE.into(), 3 << 10));
    probe.say(
        &attempt("fill", 20_000, false)
            .with("dir", &name)
            .with("bytes", (4 << 20).to_string()),
    );
    probe.go();
    let records = probe.until("end");
    assert_eq!(result(&records, "write", &name), Outcome::Ok);
    assert_eq!(fact(&records, "written", &name), Some("4194304"));
}

#[test]
fn what_is_left_out_is_told() {
    let mut command = Command::new(program());
    command.env_clear();
    for number in 0..4097 {
        command.env(format!("V{number}"), "x");
    }
    let mut probe = Probe::start(&mut command);
    probe.say(&attempt("environment", 5000, false));
    probe.go();
    let records = probe.until("end");
    assert_eq!(fact(&records, "env-count", ""), Some("4097"));
    assert_eq!(fact(&records, "truncated", "variables"), Some("4096"));
}

#[test]
fn a_spin_takes_its_time_and_no_more() {
    let records = records_of(
        attempt("spin", 5000, false)
            .with("processes", "2")
            .with("ms", "200"),
    );
    let spun: u64 = fact(&records, "spun", "").unwrap().parse().unwrap();
    assert!((200..3000).contains(&spun), "{spun}");
    assert_eq!(result(&records, "spin", ""), Outcome::Ok);
}

#[test]
fn a_flood_hides_no_record() {
    let mut probe = Probe::new();
    probe.say(&attempt("flood", 5000, false).with("bytes", "1000000"));
    probe.go();
    let mut all = Vec::new();
    probe.output.read_to_end(&mut all).unwrap();
    let lines = all.split_inclusive(|byte| *byte == b'\n');
    let (records, noise): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with(b"EA1 "));
    assert_eq!(noise.concat().trim_ascii_end().len(), 999_999);
    let words = |line: &[u8]| Message::decode(line.trim_ascii_end()).unwrap().words[2].clone();
    let words: Vec<_> = records.into_iter().map(words).collect();
    assert_eq!(words, ["start", "begin", "step", "fact", "done", "end"]);
}

#[test]
fn files_are_shown_and_removed() {
    let directory = Directory::new();
    let file = directory.0.join("token");
    let mut probe = Probe::new();
    let request = attempt("write-file", 20_000, true)
        .with("dir", directory.0.to_str().unwrap())
        .with("dir", "/nowhere")
        .with("name", "token")
        .with("content", "some text");
    probe.say(&request);
    probe.go();
    let records = probe.until("hold");
    assert_eq!(std::fs::read(&file).unwrap(), b"some text");
    assert_eq!(
        result(&records, "write", file.to_str().unwrap()),
        Outcome::Ok
    );
    assert_eq!(
        result(&records, "write", "/nowhere/token"),
        Outcome::Errno(libc::ENOENT)
    );
    probe.next();
    probe.until("end");
    assert!(directory.is_empty());
}

#[test]
fn what_exists_is_never_touched() {
    let directory = Directory::new();
    std::fs::write(directory.0.join("token"), "mine").unwrap();
    std::os::unix::fs::symlink("elsewhere", directory.0.join("link")).unwrap();
    for name in ["token", "link", "../token", ""] {
        let request = attempt("write-file", 5000, false)
            .with("dir", directory.0.to_str().unwrap())
            .with("name", name)
            .with("content", "other");
        assert_eq!(done(&records_of(request)), Outcome::Ok);
    }
    assert_eq!(std::fs::read(directory.0.join("token")).unwrap(), b"mine");
    assert!(!directory.0.join("elsewhere").exists());
}

#[test]
fn files_are_read_and_told_by_hash() {
    let directory = Directory::new();
    let path = |name: &str| directory.0.join(name).to_str().unwrap().to_owned();
    std::fs::write(path("secret"), "hidden").unwrap();
    let mut command = Command::new(program());
    let mut probe = Probe::start(command.env_clear().env("HOME", &directory.0));
    probe.say(
        &attempt("read-file", 5000, false)
            .with("path", "~/secret")
            .with("path", path("none")),
    );
    probe.go();
    let records = probe.until("end");
    assert_eq!(result(&records, "read", &path("secret")), Outcome::Ok);
    let hash = secret_hash(NONCE, b"hidden");
    assert_eq!(fact(&records, "file", &path("secret")), Some(hash.as_str()));
    assert_eq!(
        result(&records, "read", &path("none")),
        Outcome::Errno(libc::ENOENT)
    );
}

/// Whoever started the sandbox left a folder and a file open: the one leads to what its own root does not show.
#[test]
fn what_was_left_open_is_read() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    std::fs::write(elsewhere.0.join("secret"), "hidden").unwrap();
    std::fs::write(directory.0.join("log"), "so far").unwrap();
    let mut log = std::fs::File::open(directory.0.join("log")).unwrap();
    log.read_exact(&mut [0; 2]).unwrap();
    let folder = std::fs::File::open(&directory.0).unwrap();
    // The lowest numbers, so that what the probe opens itself comes after them.
    let given = [(folder.as_raw_fd(), 3), (log.as_raw_fd(), 4)];
    let mut command = Command::new(program());
    // SAFETY: only system calls are made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let high = given.map(|(fd, _)| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100));
            for (fd, (_, number)) in high.into_iter().zip(given) {
                libc::dup2(fd, number);
            }
            Ok(())
        });
    }
    let mut probe = Probe::start(&mut command);
    let path = elsewhere.0.join("secret").to_str().unwrap().to_owned();
    probe.say(&attempt("read-file", 5000, false).with("path", &path));
    probe.go();
    let records = probe.until("end");
    for (name, content) in [
        (format!("descriptor 3, {path}"), "hidden"),
        ("descriptor 4".to_owned(), "so far"),
    ] {
        assert_eq!(result(&records, "read", &name), Outcome::Ok);
        let hash = secret_hash(NONCE, content.as_bytes());
        assert_eq!(fact(&records, "file", &name), Some(hash.as_str()));
    }
    let told = records.iter().filter(|r| r.text("key") == Some("file"));
    assert_eq!(told.count(), 3, "nothing of its own: {records:?}");
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, " far", "it stands where it stood");
}

#[test]
fn a_filled_disk_is_free_again() {
    let directory = Directory::new();
    let name = directory.0.to_str().unwrap().to_owned();
    let mut probe = Probe::new();
    let request = attempt("fill", 20_000, true)
        .with("dir", &name)
        .with("bytes", (4 << 20).to_string())
        .with("file_bytes", (1 << 20).to_string());
    probe.say(&request);
    probe.go();
    let records = probe.until("hold");
    assert_eq!(result(&records, "write", &name), Outcome::Ok);
    assert_eq!(fact(&records, "written", &name), Some("4194304"));
    // Held without a name: even a killed probe leaves nothing.
    assert!(directory.is_empty());
    probe.next();
    probe.until("end");
}

/// Answers one connection with "heard", and gives what it said.
fn tcp_canary(address: &str) -> Option<(String, std::thread::JoinHandle<Vec<u8>>)> {
    let listener = TcpListener::bind(address).ok()?;
    let target = format!("tcp://{}", listener.local_addr().unwrap());
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = [0; 7];
        stream.read_exact(&mut said).unwrap();
        stream.write_all(b"heard").unwrap();
        said.to_vec()
    });
    Some((target, heard))
}

#[test]
fn tcp_delivers_and_brings_the_answer() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Some((target, heard)) = tcp_canary(address) else {
            assert_ne!(address, "127.0.0.1:0");
            continue;
        };
        let request = attempt("connect", 5000, false)
            .with("target", &target)
            .with("payload", "a\r\nb c=")
            .with("timeout_ms", "2000")
            .with("control", "1");
        let records = records_of(request);
        assert_eq!(result(&records, "control", "loopback"), Outcome::Ok);
        assert_eq!(result(&records, "connect", &target), Outcome::Ok);
        let told = format!("5 bytes, {}", secret_hash(NONCE, b"heard"));
        assert_eq!(fact(&records, "reply", &target), Some(told.as_str()));
        assert_eq!(heard.join().unwrap(), b"a\r\nb c=");
    }
}

#[test]
fn a_refusal_carries_its_number() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target = format!("tcp://{closed}");
    let records = records_of(
        attempt("connect", 5000, false)
            .with("target", &target)
            .with("tries", "3"),
    );
    assert_eq!(
        result(&records, "connect", &target),
        Outcome::Errno(libc::ECONNREFUSED)
    );
    let none = "abstract:escape-audit-nobody";
    let records = records_of(attempt("connect-unix", 5000, false).with("target", none));
    assert_eq!(
        result(&records, "connect", none),
        Outcome::Errno(libc::ECONNREFUSED)
    );
    assert_eq!(result(&records, "control", "socketpair"), Outcome::Ok);
}

#[test]
fn every_datagram_is_sent() {
    let canary = UdpSocket::bind("127.0.0.1:0").unwrap();
    canary
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let target = format!("udp://{}", canary.local_addr().unwrap());
    let request = attempt("connect", 5000, false)
        .with("target", &target)
        .with("payload", "ping")
        .with("tries", "3")
        .with("gap_ms", "10")
        .with("timeout_ms", "50");
    let records = records_of(request);
    assert_eq!(result(&records, "reply", &target), Outcome::Timeout);
    for _ in 0..3 {
        let mut datagram = [0; 16];
        assert_eq!(canary.recv(&mut datagram).unwrap(), 4);
    }
}

#[test]
fn a_name_arrives_at_the_name_server() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let server = format!("udp://{}", udp.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let mut query = [0; 512];
        let (length, from) = udp.recv_from(&mut query).unwrap();
        udp.send_to(&query[..length], from).unwrap();
        query[..length].to_vec()
    });
    let request = attempt("dns", 5000, false)
        .with("server", &server)
        .with("name", "token.example");
    let records = records_of(request);
    let query = answering.join().unwrap();
    assert_eq!(result(&records, "query", &server), Outcome::Ok);
    assert!(
        query
            .windows(14)
            .any(|part| part == b"\x05token\x07example")
    );
}

/// What drops costs its time once a round, however many targets there are, and each is tried as often as if it were alone.
#[test]
fn the_silent_are_waited_for_at_once() {
    let silent: Vec<UdpSocket> = (0..40)
        .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
        .collect();
    let address = |socket: &UdpSocket| format!("udp://{}", socket.local_addr().unwrap());
    for (kind, list, step) in [("dns", "server", "query"), ("connect", "target", "send")] {
        let mut request = attempt(kind, 9000, false)
            .with("name", "token.example")
            .with("payload", "ping")
            .with("tries", "3")
            .with("gap_ms", "50")
            .with("timeout_ms", "200");
        for socket in &silent {
            request = request.with(list, address(socket));
        }
        let began = Instant::now();
        let records = records_of(request);
        assert!(
            began.elapsed() < Duration::from_secs(6),
            "{:?}",
            began.elapsed()
        );
        for socket in &silent {
            let of_this = |record: &&Message| {
                record.text("what") == Some(step) && record.text("target") == Some(&address(socket))
            };
            assert_eq!(records.iter().filter(of_this).count(), 3, "{kind}");
        }
    }
}

#[test]
fn a_survivor_tells_of_itself_and_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = unique_name();
    let mut probe = Probe::new();
    let request = attempt("outlive", 5000, false)
        .with("ms", "1500")
        .with("name", &name)
        .with(
            "beacon",
            format!("tcp://{}", listener.local_addr().unwrap()),
        )
        .with("payload", "alive");
    probe.say(&request);
    probe.go();
    // Standard output ends with the session: the survivor holds none of it.
    let records = probe.until("end");
    assert_eq!(probe.record(), None);
    assert_eq!(result(&records, "detach", ""), Outcome::Ok);
    assert_eq!(probe.status(), Some(0));
    for _ in 0..2 {
        let mut said = String::new();
        listener
            .accept()
            .unwrap()
            .0
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(said, "alive");
    }
    assert_eq!(living(&name), 1);
    assert_gone(&name, Duration::from_secs(4));
}

#[test]
fn a_signal_arrives_and_harms_nobody() {
    let mut sleeper = Command::new("sleep").arg("20").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let request = attempt("signal", 5000, false)
        .with("pid", &pid)
        .with("pid", "-1")
        .with("value", "7");
    let records = records_of(request);
    assert_eq!(result(&records, "control", "child"), Outcome::Ok);
    assert_eq!(result(&records, "signal", &pid), Outcome::Ok);
    assert_eq!(
        result(&records, "malformed", "-1"),
        Outcome::Errno(libc::EINVAL)
    );
    let records = records_of(attempt("list-processes", 5000, false).with("pid", &pid));
    assert_eq!(result(&records, "probe", &pid), Outcome::Ok);
    assert_eq!(
        fact(&records, "process", &pid),
        Some(secret_hash(NONCE, b"sleep").as_str())
    );
    assert!(sleeper.try_wait().unwrap().is_none());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_helper_tells_its_user_and_nothing_else() {
    let output = Command::new(program())
        .arg0("escape-audit-euid")
        .output()
        .unwrap();
    // SAFETY: cannot fail.
    let euid = unsafe { libc::geteuid() };
    assert_eq!(output.stdout, format!("euid={euid}\n").as_bytes());
    let path = program().to_str().unwrap().to_owned();
    let records = records_of(
        attempt("gain-privileges", 5000, false)
            .with("helper", &path)
            .with("helper", "/none"),
    );
    assert_eq!(result(&records, "exec", &path), Outcome::Ok);
    assert_eq!(
        fact(&records, "euid", &path),
        Some(euid.to_string().as_str())
    );
    assert_eq!(
        result(&records, "exec", "/none"),
        Outcome::Errno(libc::ENOENT)
    );
    for place in ["/", "/proc", "/sys", "/dev/shm", "/dev/pts"] {
        let records = records_of(attempt("gain-privileges", 5000, false).with("helper", place));
        let name = std::ffi::CString::new(place).unwrap();
        // SAFETY: a live structure that the kernel fills, and a path that ends with a NUL.
        let flags = unsafe {
            let mut about: libc::statvfs = std::mem::zeroed();
            libc::statvfs(name.as_ptr(), &mut about);
            about.f_flag
        };
        let wanted = (flags & libc::ST_NOSUID != 0).then_some("1");
        assert_eq!(fact(&records, "nosuid", place), wanted, "{place}");
    }
}

#[test]
fn a_bad_pointer_is_told_from_a_refusal() {
    let write = libc::SYS_write.to_string();
    let request = attempt("syscall", 5000, false)
        .with("number", &write)
        .with("args", "1")
        .with("args", "bad-pointer")
        .with("args", "1");
    let records = records_of(request);
    assert_eq!(
        result(&records, "syscall", &write),
        Outcome::Errno(libc::EFAULT)
    );
    let kill = libc::SYS_kill.to_string();
    let request = attempt("syscall", 5000, false)
        .with("number", &kill)
        .with("args", "0")
        .with("args", "0");
    assert_eq!(
        result(&records_of(request), "malformed", &kill),
        Outcome::Errno(libc::EINVAL)
    );
}

#[test]
fn a_mount_leaves_nothing_behind() {
    let directory = Directory::new();
    let path = directory.0.to_str().unwrap().to_owned();
    for ends in ["next", "input", "deadline", "killed"] {
        let mut probe = Probe::new();
        let deadline = if ends == "deadline" { 400 } else { 20_000 };
        let token = unique_name();
        let request = attempt("mount", deadline, true);
        probe.say(&request.with("dir", &path).with("source", &token));
        probe.go();
        let records = probe.until("hold");
        // Refused to an ordinary user, and then there is nothing to leave.
        let mounted = result(&records, "mount", &path) == Outcome::Ok;
        assert!(mounted || result(&records, "fsopen", "tmpfs") != Outcome::Ok);
        match ends {
            "next" => probe.next(),
            "input" => probe.end_input(),
            "killed" => probe.child.kill().unwrap(),
            _ => {}
        }
        while probe.record().is_some() {}
        assert_gone(&probe.name, Duration::from_secs(2));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&token), "{ends}: {mounts}");
    }
}

#[test]
fn others_may_not_look_into_it() {
    let mut probe = Probe::new();
    probe.until("start");
    let environ = Path::new("/proc")
        .join(probe.child.id().to_string())
        .join("environ");
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(environ).unwrap().uid(), 0);
}

#[test]
fn where_no_process_can_be_had_attempts_run_in_place() {
    let directory = Directory::new();
    let copy = directory.0.join("probe");
    std::fs::copy(program(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.env_clear();
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        // The limit does not bind root. A user of nobody else's, so that only this process counts.
        command.uid(61_000 + std::process::id() % 4000);
    }
    // SAFETY: setrlimit may be called between fork and exec, and touches nothing but the limit.
    unsafe {
        command.pre_exec(|| {
            let one = libc::rlimit {
                rlim_cur: 1,
                rlim_max: 1,
            };
            match libc::setrlimit(libc::RLIMIT_NPROC, &one) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let mut probe = Probe::start(&mut command);
    probe.say(&attempt("run", 1000, true));
    probe.say(&attempt("spawn", 1000, false).with("count", "4"));
    probe.say(
        &attempt("allocate", 5000, false)
            .with("bytes", "33554432")
            .with("processes", "2"),
    );
    probe.say(&attempt("signal", 5000, false).with("value", "1"));
    probe.go();
    let records = probe.until("hold");
    assert_eq!(records[1].text("fork"), Some("0"));
    probe.next();
    let records = probe.until("end");
    assert_eq!(result(&records, "fork", ""), Outcome::Errno(libc::EAGAIN));
    assert_eq!(fact(&records, "made", ""), Some("0"));
    assert_eq!(fact(&records, "held", ""), Some("16777216"));
    assert_eq!(result(&records, "control", "self"), Outcome::Ok);
    assert_eq!(probe.status(), Some(0));
}

/// Answers every connection to a Unix socket with these bytes, after it has heard something; nothing means that it
/// hangs up at once.
fn unix_server(
    path: &Path,
    answers: &'static [&'static [u8]],
) -> std::thread::JoinHandle<Vec<Vec<u8>>> {
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let mut heard = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut part = [0; 512];
            let n = stream.read(&mut part).unwrap();
            heard.push(part[..n].to_vec());
            let _ = stream.write_all(answer);
        }
        heard
    })
}

#[test]
fn engines_are_asked_and_known() {
    let folder = Directory::new();
    let path = |name: &str| folder.0.join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    let docker = unix_server(
        &path("docker"),
        &[b"HTTP/1.0 200 OK\r\nServer: Docker/20.10 (linux)\r\nApi-Version: 1.41\r\n\r\nOK"],
    );
    let grpc = unix_server(
        &path("grpc"),
        &[b"", b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64"],
    );
    let other = unix_server(&path("other"), &[b"220 mail\r\n\r\n"]);
    let silent = std::os::unix::net::UnixListener::bind(path("silent")).unwrap();
    std::fs::write(path("file"), "").unwrap();
    let request = ["docker", "grpc", "other", "silent", "file", "none"]
        .iter()
        .fold(attempt("engine-socket", 5000, false), |request, name| {
            request.with("path", text(name))
        });
    let records = records_of(request.with("token", "ea-token").with("timeout_ms", "200"));
    let connect = |name: &str| result(&records, "connect", &text(name));
    let ask = |name: &str| result(&records, "ask", &text(name));
    let kind = |name: &str| fact(&records, "engine", &text(name));
    assert_eq!(ask("docker"), Outcome::Ok);
    assert_eq!(kind("docker"), Some("docker"));
    assert_eq!(kind("grpc"), Some("http2"));
    assert_eq!((ask("other"), kind("other")), (Outcome::Ok, None));
    assert!(
        fact(&records, "reply", &text("other"))
            .unwrap()
            .starts_with("12 bytes, ")
    );
    assert_eq!(
        (connect("silent"), ask("silent")),
        (Outcome::Ok, Outcome::Timeout)
    );
    assert_eq!(connect("file"), Outcome::Errno(libc::ECONNREFUSED));
    assert_eq!(connect("none"), Outcome::Errno(libc::ENOENT));
    assert_eq!(
        fact(&records, "peer", &text("docker")),
        Some(&*std::process::id().to_string())
    );
    let nowhere = "/escape-audit-nowhere/none.sock";
    assert_eq!(
        result(&records, "nowhere", nowhere),
        Outcome::Errno(libc::ENOENT)
    );
    drop(silent);
    let heard = docker.join().unwrap().concat();
    assert!(heard.starts_with(b"GET /_ping?token=ea-token HTTP/1.0\r\n"));
    assert!(grpc.join().unwrap()[1].starts_with(b"PRI * HTTP/2.0"));
    other.join().unwrap();
}

#[test]
fn a_socket_that_does_not_accept_holds_nobody_up() {
    let folder = Directory::new();
    let path = folder.0.join("full");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // SAFETY: takes numbers. The shortest queue: it is full after one.
    unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) };
    let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let began = Instant::now();
    let path = path.to_str().unwrap();
    let records = records_of(
        attempt("engine-socket", 5000, false)
            .with("path", path)
            .with("timeout_ms", "100"),
    );
    assert_eq!(result(&records, "connect", path), Outcome::Timeout);
    assert_eq!(done(&records), Outcome::Ok);
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[test]
fn the_usual_sockets_of_engines_and_the_one_of_the_environment_are_known() {
    let folder = Directory::new();
    let path = folder.0.join("own.sock");
    let mut probe = Probe::start(
        Command::new(program())
            .env_clear()
            .env("DOCKER_HOST", format!("unix://{}", path.display())),
    );
    probe.say(&attempt("engine-socket", 20_000, false).with("known", "1"));
    probe.go();
    let records = probe.until("end");
    assert_eq!(
        result(&records, "connect", path.to_str().unwrap()),
        Outcome::Errno(libc::ENOENT)
    );
    for usual in escape_audit_probe::engine::SOCKETS {
        result(&records, "connect", usual);
    }
}

/// Where a probe that was asked to listen listens on loopback: over TCP, over UDP.
fn listening(seconds: u32) -> (Probe, std::net::SocketAddr, std::net::SocketAddr) {
    let mut probe = Probe::new();
    probe.say(&Message::new(&["listen"]).with("seconds", seconds.to_string()));
    let told = probe.until("ready");
    let at = |kind: &str| {
        let begin = format!("{kind}://127.0.0.1:");
        let mut told = told.iter().filter(|record| record.words[2] == "listens");
        let found = told.find(|record| record.text("address").unwrap().starts_with(&begin));
        let found = found.unwrap_or_else(|| panic!("no {begin} in {told:?}"));
        assert_eq!(
            (found.text("kind"), found.text("interface")),
            (Some(kind), Some("lo"))
        );
        let address = found.text("address").unwrap();
        address.split_once("://").unwrap().1.parse().unwrap()
    };
    let (tcp, udp) = (at("tcp"), at("udp"));
    (probe, tcp, udp)
}

fn token(letter: &str) -> String {
    format!("ea-{}", letter.repeat(24))
}

/// The next touch that is told of: its kind and its token.
fn touch(probe: &mut Probe) -> (String, String) {
    let told = probe.until("touch");
    let last = told.last().unwrap();
    let text = |key| last.text(key).unwrap().to_owned();
    assert!(text("address").starts_with(&format!("{}://127.0.0.1:", text("kind"))));
    (text("kind"), text("token"))
}

#[test]
fn who_touches_it_while_it_listens_is_told_by_token() {
    let (mut probe, tcp, udp) = listening(60);
    let (first, second) = (token("a"), token("b"));
    let mut stream = std::net::TcpStream::connect(tcp).unwrap();
    stream.set_nodelay(true).unwrap();
    // In parts, twice, among other bytes; the second in upper case.
    for part in [
        "x",
        &first[..5],
        &first[5..],
        &first,
        " EA-",
        &second.to_uppercase()[3..],
    ] {
        stream.write_all(part.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(touch(&mut probe), ("tcp".into(), first.clone()));
    assert_eq!(touch(&mut probe), ("tcp".into(), second));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"nothing", udp).unwrap();
    socket.send_to(first.as_bytes(), udp).unwrap();
    assert_eq!(touch(&mut probe), ("udp".into(), first));
    probe.end_input();
    assert_eq!(probe.until("end").len(), 1);
    assert_eq!(probe.status(), Some(0));
}

#[test]
fn it_touches_itself_and_nobody_else() {
    let (mut probe, tcp, udp) = listening(60);
    for address in [format!("tcp://{tcp}"), format!("udp://{udp}")] {
        let ask = Message::new(&["touch"]).with("address", &address);
        probe.say(&ask.with("payload", token("c")));
        let told = probe.until("touched");
        assert_eq!(told.last().unwrap().text("result"), Some("ok"), "{told:?}");
        assert_eq!(touch(&mut probe).1, token("c"));
    }
    // Of documentation (RFC 5737): nobody's address, and not this network's, whichever that is.
    for address in ["tcp://203.0.113.99:80", "udp://203.0.113.99:80", "path:/x"] {
        probe.say(&Message::new(&["touch"]).with("address", address));
        let told = probe.until("touched");
        let refused = format!("errno:{}", libc::EADDRNOTAVAIL);
        assert_eq!(told.last().unwrap().text("result"), Some(&*refused));
    }
}

#[test]
fn whoever_crowds_or_floods_it_keeps_nobody_else_out_for_long() {
    let (mut probe, tcp, udp) = listening(60);
    let crowd: Vec<_> = (0..100)
        .map(|_| std::net::TcpStream::connect(tcp).unwrap())
        .collect();
    let mut stream = std::net::TcpStream::connect(tcp).unwrap();
    stream.write_all(token("d").as_bytes()).unwrap();
    assert_eq!(touch(&mut probe).1, token("d"));
    drop(crowd);
    // More than it takes in a second; what comes after 4 KiB of one conversation is not heard.
    let mut flood = std::net::TcpStream::connect(tcp).unwrap();
    let noise = [b'x'; 4096];
    let _ = flood.write_all(&noise);
    let _ = flood.write_all(token("e").as_bytes());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..32 {
        socket.send_to(&noise, udp).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1200));
    let mut stream = std::net::TcpStream::connect(tcp).unwrap();
    stream.write_all(token("f").as_bytes()).unwrap();
    assert_eq!(touch(&mut probe).1, token("f"));
}

#[test]
fn listening_ends_by_itself() {
    let (mut probe, _, _) = listening(1);
    let began = Instant::now();
    assert_eq!(probe.until("end").len(), 1);
    assert_eq!(probe.status(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5));
}
