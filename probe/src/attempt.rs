//! One attempt as its code sees it: what was asked for, how to report, when to stop; and the table of all kinds.

use std::time::{Duration, Instant};

use escape_audit_probe::wire::{Message, Outcome};

/// Where an attempt's records go: through a pipe to the session, or straight to standard output where no process of
/// its own could be had.
pub trait Link {
    /// Sends one record, without number and nonce.
    fn record(&mut self, record: &Message);
    /// Reports that the attempt holds, and waits for the harness's word, at most until then.
    fn hold(&mut self, record: &Message, until: Instant);
}

/// A running attempt.
pub struct Attempt<'a> {
    /// The request's line.
    pub request: &'a Message,
    /// The trial's nonce, which salts every hash.
    pub nonce: &'a str,
    /// The process that talks to the harness: the attempt's parent, or itself where it runs in place.
    pub session: i32,
    /// When it has to be over.
    pub deadline: Instant,
    link: &'a mut dyn Link,
    held: bool,
}

impl<'a> Attempt<'a> {
    /// An attempt that has not begun.
    pub fn new(
        request: &'a Message,
        nonce: &'a str,
        session: i32,
        deadline: Instant,
        link: &'a mut dyn Link,
    ) -> Self {
        Self {
            request,
            nonce,
            session,
            deadline,
            link,
            held: false,
        }
    }

    fn record(&self, word: &str) -> Message {
        Message::new(&[word]).with("id", self.request.bytes("id").unwrap_or_default())
    }

    /// Reports one elementary step.
    pub fn step(&mut self, what: &str, target: impl AsRef<[u8]>, result: Outcome) {
        let record = self
            .record("step")
            .with("what", what)
            .with("target", target)
            .with("result", result.encode());
        self.link.record(&record);
    }

    /// Reports something that was seen.
    pub fn fact(&mut self, key: &str, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let record = self
            .record("fact")
            .with("key", key)
            .with("name", name)
            .with("value", value);
        self.link.record(&record);
    }

    /// As [`Attempt::fact`], of a number.
    pub fn count(&mut self, key: &str, name: impl AsRef<[u8]>, value: u64) {
        self.fact(key, name, value.to_string());
    }

    /// Waits for the harness's word, if it asked for that: it looks at the host's side meanwhile.
    pub fn hold(&mut self) {
        if self.request.text("hold") == Some("1") && !self.held {
            self.held = true;
            let record = self.record("hold");
            self.link.hold(&record, self.deadline);
        }
    }

    /// The time that is left.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Whether no time is left: loops ask this.
    pub fn is_over(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Sleeps, at most until the deadline.
    pub fn sleep(&self, time: Duration) {
        std::thread::sleep(time.min(self.remaining()));
    }

    /// A number of the request, or the default; never more than the cap that keeps the attempt harmless.
    pub fn capped(&self, key: &str, default: u64, cap: u64) -> u64 {
        self.request.number(key).unwrap_or(default).min(cap)
    }

    /// A time of the request in milliseconds, capped, and never longer than what is left.
    pub fn time(&self, key: &str, default_ms: u64, cap_ms: u64) -> Duration {
        let asked = Duration::from_millis(self.capped(key, default_ms, cap_ms));
        // A socket time-out of zero would mean "for ever".
        asked.min(self.remaining()).max(Duration::from_millis(1))
    }

    /// Whether a switch of the request is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.request.text(key) == Some("1")
    }

    /// A field's bytes, empty if it is missing.
    pub fn bytes(&self, key: &str) -> &'a [u8] {
        self.request.bytes(key).unwrap_or_default()
    }

    /// All values of a field, bounded.
    pub fn all(&mut self, key: &str) -> Vec<&'a [u8]> {
        let of_key = self.request.fields.iter().filter(|(name, _)| name == key);
        let all = of_key.map(|(_, v)| v.as_slice()).collect();
        self.bounded(all, 1024, key)
    }

    /// The first `most` of these, and that there are more, if there are: what was not looked at is not known.
    pub fn bounded<T>(&mut self, mut all: Vec<T>, most: usize, what: &str) -> Vec<T> {
        if all.len() > most {
            self.truncated(what, most as u64);
            all.truncate(most);
        }
        all
    }

    /// Reports that a bound of this program's own was reached, and what it is.
    pub fn truncated(&mut self, what: &str, most: u64) {
        self.count("truncated", what, most);
    }

    /// Reports that somebody answered: how much and by hash, for what it says is nobody's business.
    pub fn reply(&mut self, from: impl AsRef<[u8]>, answer: &[u8]) {
        let told = match answer.len() {
            0 => String::new(),
            n => format!("{n} bytes, {}", self.hash(answer)),
        };
        self.fact("reply", from, told);
    }

    /// The name of a secret value in this trial.
    pub fn hash(&self, value: &[u8]) -> String {
        escape_audit_probe::sha256::secret_hash(self.nonce, value)
    }
}

/// What makes an attempt of one kind.
pub type Perform = fn(&mut Attempt);

/// Whether an attempt of this kind reads what there is and reports it, which nothing can end halfway.
pub fn only_reads(kind: &str) -> bool {
    [
        "environment",
        "process-environment",
        "read-file",
        "list-processes",
    ]
    .contains(&kind)
}

/// The code of a kind; `None` if this probe does not know it.
pub fn of_kind(kind: &str) -> Option<Perform> {
    Some(match kind {
        "run" => |attempt| attempt.step("run", "", Outcome::Ok),
        "environment" => crate::environment::own,
        "process-environment" => crate::environment::of_processes,
        "read-file" => crate::files::read,
        "write-file" => crate::files::write,
        "fill" => crate::fill::fill,
        "connect" => crate::network::connect,
        "connect-unix" => crate::network::connect_unix,
        "engine-socket" => crate::engine_socket::ask,
        "raw-socket" => crate::network::raw_socket,
        "dns" => crate::dns::query,
        "spawn" => crate::resources::spawn,
        "allocate" => crate::resources::allocate,
        "spin" => crate::resources::spin,
        "flood" => crate::resources::flood,
        "list-processes" => crate::processes::list,
        "signal" => crate::processes::signal,
        "outlive" => crate::survivor::outlive,
        "capabilities" => crate::capabilities::examine,
        "gain-privileges" => crate::escalate::gain_privileges,
        "user-namespace" => crate::namespaces::user_namespace,
        "mount" => crate::namespaces::mount,
        "syscall" => crate::capabilities::system_call,
        _ => return None,
    })
}
