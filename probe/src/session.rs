//! The conversation with the harness: greeting, list of attempts, records, end.

use std::time::{Duration, Instant};

use escape_audit_probe::wire::{Message, Outcome, PROTOCOL};

use crate::attempt::{self, Attempt, Link, Perform};
use crate::child;
use crate::input::Input;
use crate::listen;
use crate::sys::{self, Reaction};

/// How long an attempt holds where nobody can say `next`, because standard input has ended.
pub const UNATTENDED_HOLD: Duration = Duration::from_millis(700);

/// No attempt lasts longer, whatever its deadline.
const LONGEST: u64 = 180_000;

/// How many attempts one session makes.
const MOST: usize = 4096;

/// The exit status of a session that could not take place.
const NO_SESSION: i32 = 3;

/// The numbered records on standard output.
pub struct Output {
    nonce: String,
    next: u64,
    broken: bool,
}

impl Output {
    /// Writes a record, in one call.
    pub fn record(&mut self, record: &Message) {
        self.numbered(&record.encode()[PROTOCOL.len() + 1..]);
    }

    /// Writes records that are encoded already, a line each, without the protocol's name: all of them in one call.
    pub fn numbered(&mut self, lines: &str) {
        let mut text = String::new();
        for rest in lines.lines() {
            text.push_str(&format!("{PROTOCOL} {} {} {rest}\n", self.nonce, self.next));
            self.next += 1;
        }
        self.broken |= sys::write_all(sys::STDOUT, text.as_bytes()).is_err();
    }

    /// Begins a new line, where noise may have left half a one.
    pub fn fresh_line(&mut self) {
        self.broken |= sys::write_all(sys::STDOUT, b"\n").is_err();
    }

    /// Whether nobody listens any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

/// One line of the list.
struct Job {
    request: Message,
    id: Vec<u8>,
    kind: String,
    what: Result<Perform, &'static str>,
}

/// What a session is for.
enum Work {
    /// Attempts, one after the other.
    Attempts(Vec<Job>),
    /// Listening, as this request says.
    Listen(Message),
}

/// Holds the whole session; returns the exit status.
pub fn run() -> i32 {
    prepare();
    if !sys::is_open(sys::STDOUT) {
        return NO_SESSION;
    }
    let mut input = Input::default();
    let Some((nonce, name)) = hello(&mut input) else {
        let _ = sys::write_all(sys::STDOUT, b"EA1 - 0 no-input\n");
        return NO_SESSION;
    };
    if let Some(name) = name {
        sys::set_name(&name);
    }
    let mut output = Output {
        nonce,
        next: 0,
        broken: false,
    };
    output.record(&start());
    let jobs = match work(&mut input) {
        Some(Work::Attempts(jobs)) => jobs,
        Some(Work::Listen(request)) => {
            listen::run(&request, &mut input, &mut output);
            Vec::new()
        }
        None => return NO_SESSION,
    };
    if output.is_broken() {
        return NO_SESSION;
    }
    for job in &jobs {
        perform(job, &mut input, &mut output);
        if output.is_broken() {
            return NO_SESSION;
        }
    }
    output.record(&Message::new(&["end"]));
    0
}

/// Brings the process into a known state, whatever it was started with.
fn prepare() {
    if sys::is_open(sys::STDIN) && !sys::is_open(sys::STDERR) {
        // So that no file opened later becomes descriptor 2; what is written to an input goes nowhere.
        sys::duplicate(sys::STDIN, sys::STDERR);
    }
    sys::set_dumpable(false);
    for signal in [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGHUP] {
        sys::react(signal, Reaction::Ignore);
    }
    sys::react(libc::SIGCHLD, Reaction::Interrupt);
    sys::react(libc::SIGALRM, Reaction::Exit);
    sys::block_only(&[libc::SIGCHLD]);
}

/// Waits for the greeting: the nonce, and the thread name.
fn hello(input: &mut Input) -> Option<(String, Option<String>)> {
    if !sys::is_open(sys::STDIN) {
        return None;
    }
    loop {
        while let Some(line) = input.line() {
            let Ok(message) = Message::decode(&line) else {
                continue;
            };
            let nonce = message.text("nonce").filter(|nonce| is_nonce(nonce));
            if let (["hello"], Some(nonce)) = (words(&message).as_slice(), nonce) {
                return Some((nonce.to_owned(), message.text("name").map(str::to_owned)));
            }
        }
        if input.has_ended() {
            return None;
        }
        input.read();
    }
}

fn is_nonce(nonce: &str) -> bool {
    (1..=64).contains(&nonce.len()) && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The bare words of a message.
pub fn words(message: &Message) -> Vec<&str> {
    message.words.iter().map(String::as_str).collect()
}

/// Reads the list up to `go`, or the wish to listen; `None` if the input ends before.
fn work(input: &mut Input) -> Option<Work> {
    let mut jobs = Vec::new();
    loop {
        while let Some(line) = input.line() {
            let job = match Message::decode(&line) {
                Ok(message) => match words(&message).as_slice() {
                    ["go"] => return Some(Work::Attempts(jobs)),
                    ["listen"] => return Some(Work::Listen(message)),
                    ["attempt"] => job(message),
                    _ => malformed("unknown message"),
                },
                Err(_) => malformed("malformed line"),
            };
            if jobs.len() < MOST {
                jobs.push(job);
            }
        }
        if input.has_ended() {
            return None;
        }
        input.read();
    }
}

fn job(request: Message) -> Job {
    let kind = request.text("kind").unwrap_or("-").to_owned();
    let id = request.bytes("id").unwrap_or(b"-").to_vec();
    let what = if request.bytes("id").is_none() {
        Err("no id")
    } else if request.number::<u64>("deadline_ms").is_none() {
        Err("no deadline")
    } else {
        attempt::of_kind(&kind).ok_or("unknown kind")
    };
    Job {
        request,
        id,
        kind,
        what,
    }
}

fn malformed(why: &'static str) -> Job {
    Job {
        request: Message::default(),
        id: b"-".to_vec(),
        kind: "-".into(),
        what: Err(why),
    }
}

/// The start record: what this process is, as the kernel tells it.
fn start() -> Message {
    let (uid, euid, gid) = sys::ids();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let state = |option| match sys::prctl(option, 0, 0) {
        Ok(value) => value.to_string(),
        Err(errno) => format!("errno:{errno}"),
    };
    Message::new(&["start"])
        .with("pid", sys::pid().to_string())
        .with("ppid", sys::parent_pid().to_string())
        .with("uid", uid.to_string())
        .with("euid", euid.to_string())
        .with("gid", gid.to_string())
        .with("cpus", sys::cpus().to_string())
        .with("boot", boot.trim_ascii())
        .with("kernel", sys::kernel_release())
        .with("nnp", state(libc::PR_GET_NO_NEW_PRIVS))
        .with("seccomp", state(libc::PR_GET_SECCOMP))
}

/// Makes one attempt, in a child of its own if there can be one.
fn perform(job: &Job, input: &mut Input, output: &mut Output) {
    let begin = |forked: bool| {
        Message::new(&["begin"])
            .with("id", &job.id)
            .with("kind", &job.kind)
            .with("fork", if forked { "1" } else { "0" })
    };
    let done = |result: Outcome| {
        Message::new(&["done"])
            .with("id", &job.id)
            .with("result", result.encode())
    };
    let code = match job.what {
        Ok(code) => code,
        Err(why) => {
            let fact = Message::new(&["fact"]).with("id", &job.id);
            output.record(&begin(false));
            output.record(
                &fact
                    .with("key", "unsupported")
                    .with("name", &job.kind)
                    .with("value", why),
            );
            output.record(&done(Outcome::Exit(2)));
            return;
        }
    };
    let allowed = job.request.number("deadline_ms").unwrap_or(0).min(LONGEST);
    let deadline = Instant::now() + Duration::from_millis(allowed);
    let (nonce, session) = (output.nonce.clone(), sys::pid());
    let make = |link: &mut dyn Link| {
        let mut attempt = Attempt::new(&job.request, &nonce, session, deadline, link);
        code(&mut attempt);
        // A kind that has no better moment to hold does so at its end.
        attempt.hold();
    };
    let result = match child::start(attempt::only_reads(&job.kind), make) {
        Ok(running) => {
            output.record(&begin(true));
            running.attend(&job.id, deadline, input, output)
        }
        Err(_) => {
            output.record(&begin(false));
            in_place(&job.id, deadline, input, output, make)
        }
    };
    if job.kind == "flood" {
        output.fresh_line();
    }
    output.record(&done(result));
}

/// Makes an attempt in this very process. Nobody can stop it, so it has to stop itself; if it does not, an alarm ends
/// the session.
fn in_place(
    id: &[u8],
    deadline: Instant,
    input: &mut Input,
    output: &mut Output,
    make: impl FnOnce(&mut dyn Link),
) -> Outcome {
    let left = deadline.saturating_duration_since(Instant::now());
    sys::alarm(left.as_secs() as u32 + 3);
    make(&mut Place { id, input, output });
    sys::alarm(0);
    if Instant::now() < deadline {
        Outcome::Ok
    } else {
        Outcome::Timeout
    }
}

/// The link of an attempt that is made in the session's own process.
struct Place<'a> {
    id: &'a [u8],
    input: &'a mut Input,
    output: &'a mut Output,
}

impl Link for Place<'_> {
    fn record(&mut self, record: &Message) {
        self.output.record(record);
    }

    fn hold(&mut self, record: &Message, until: Instant) {
        self.output.record(record);
        let mut until = until;
        let mut attended = true;
        while Instant::now() < until && !self.output.is_broken() {
            if hears_next(self.input, self.id) {
                return;
            }
            if attended && self.input.has_ended() {
                attended = false;
                until = until.min(Instant::now() + UNATTENDED_HOLD);
            }
            let stdin = Some(sys::STDIN).filter(|_| attended);
            let left = until.saturating_duration_since(Instant::now());
            if sys::wait_readable([stdin, None], left)[0] {
                self.input.read();
            }
        }
    }
}

/// Whether the lines that were read say `next` to the attempt that holds. A `next` with an `id` is for that attempt
/// alone, so that a late word never releases the one after.
pub fn hears_next(input: &mut Input, id: &[u8]) -> bool {
    while let Some(line) = input.line() {
        if let Ok(message) = Message::decode(&line)
            && words(&message) == ["next"]
            && message.bytes("id").is_none_or(|named| named == id)
        {
            return true;
        }
    }
    false
}
