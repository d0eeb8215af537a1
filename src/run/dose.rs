//! How much of an attempt is enough: case and policy → the probe's arguments, and what the host then counts against.
//! Pure.
//!
//! A dose lies above the ceiling, so that it shows whether the ceiling holds, and below what could hurt the machine.

use std::time::Duration;

use escape_audit_probe::wire::Message;

use crate::case::{Attempt, Case, Ceiling, KilledBy, MemoryDose, SpinUntil, WriteInto};
use crate::config::Policy;
use crate::host::cgroup::Bounds;

const MIB: u64 = 1024 * 1024;

/// How long something may take to end after it was told to, before it counts as a survivor.
pub const GRACE: Duration = Duration::from_secs(2);

/// How long CPU time is measured.
const SPIN: Duration = Duration::from_millis(1500);

/// What the range and the plants give to one trial.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The trial's token.
    pub token: String,
    /// The probe's thread name.
    pub thread_name: String,
    /// The addresses to try, as the wire writes them.
    pub targets: Vec<String>,
    /// Files to read.
    pub paths: Vec<String>,
    /// The host's folders to write into.
    pub host_folders: Vec<String>,
    /// Sentinel process ids.
    pub sentinels: Vec<i32>,
    /// Where the host's processes appear, besides `/proc`.
    pub processes: Vec<String>,
    /// What a signal carries.
    pub signal_value: i32,
    /// Where a detached process beacons.
    pub beacons: Vec<String>,
    /// Set-uid helpers.
    pub helpers: Vec<String>,
    /// The sandbox's own name servers are asked, too.
    pub resolver: bool,
    /// The machine's CPUs.
    pub cpus: u64,
}

/// A dose.
#[derive(Debug, Clone)]
pub struct Dose {
    /// The `attempt` line for the probe.
    pub message: Message,
    /// The probe ends the attempt itself after this.
    pub deadline: Duration,
    /// The ceiling that the host counts against.
    pub measure: Option<Measure>,
    /// Watching goes on for so long after the payload's end.
    pub watch: Duration,
    /// How the harness ends the run, where the case asks for it.
    pub killed_by: Option<KilledBy>,
    /// The limiter's bounds: above the dose.
    pub bounds: Bounds,
}

/// A ceiling to be counted against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measure {
    /// Of what.
    pub what: Ceiling,
    /// The ceiling.
    pub ceiling: f64,
    /// Beyond this it was passed: ceiling plus slack.
    pub passed_above: f64,
}

/// The dose of this case under this policy; `id` is the attempt's place in the list.
pub fn dose(case: &Case, id: usize, policy: &Policy, given: &Given) -> Dose {
    let mut line = Line::new(id, case.attempt.kind());
    let mut deadline = Duration::from_secs(10);
    let mut measure = None;
    let mut watch = Duration::ZERO;
    let mut killed_by = None;
    let mut bounds = Bounds {
        pids: Some(1024),
        memory: Some(1024 * MIB),
    };
    let timeout = policy.timeout.unwrap_or(Duration::from_secs(3));
    match &case.attempt {
        Attempt::Run | Attempt::Environment { .. } | Attempt::Capabilities => {}
        Attempt::ProcessEnvironment => line.all("proc", &given.processes),
        Attempt::UserNamespace => line.hold(),
        Attempt::ReadFile { .. } => line.all("path", &given.paths),
        Attempt::WriteFile { into } => {
            line.hold();
            line.field("name", &given.token);
            line.field("content", &given.token);
            // Promised scratch is tried beside the host's folders: a sandbox that can write nowhere proves nothing.
            let scratch = policy
                .writable
                .iter()
                .filter(|path| !path.starts_with("/dev/"));
            match into {
                WriteInto::OutsideScratch => line.field("mounts", "1"),
                WriteInto::Host => {
                    line.all("dir", &given.host_folders);
                    line.all("dir", scratch);
                }
                WriteInto::Scratch => line.all("dir", scratch),
            }
        }
        Attempt::Connect { transport, .. } => {
            line.all("target", &given.targets);
            line.field("payload", format!("{}\n", given.token));
            line.network_patience();
            if *transport == crate::case::Transport::Udp {
                watch = GRACE;
            }
        }
        Attempt::Http {
            urls,
            method,
            headers,
        } => {
            line.all("target", &given.targets);
            line.field("payload", http_request(urls, method, headers, &given.token));
            line.network_patience();
        }
        Attempt::Dns => {
            line.all("server", &given.targets);
            line.field("name", format!("{}.canary.test", given.token));
            if given.resolver {
                line.field("resolver", "1");
            }
            line.network_patience();
            watch = GRACE;
        }
        Attempt::ConnectUnix { .. } => {
            line.all("target", &given.targets);
            line.field("payload", format!("{}\n", given.token));
        }
        Attempt::EngineSocket { paths } => {
            let canaries = given.targets.iter();
            line.all("path", canaries.filter_map(|t| t.strip_prefix("path:")));
            line.all("path", &given.paths);
            if paths.is_empty() {
                line.field("known", "1");
            }
            line.field("token", &given.token);
            deadline = Duration::from_secs(20);
        }
        Attempt::RawSocket => {
            line.all("target", given.targets.iter().take(1));
            line.field("payload", &given.token);
            line.hold();
            watch = Duration::from_millis(500);
        }
        Attempt::Spawn => {
            let ceiling = policy.pids.unwrap_or(64);
            line.hold();
            line.field("count", (ceiling + 20).to_string());
            deadline = Duration::from_secs(30);
            measure = Some(Measure::new(
                Ceiling::Pids,
                ceiling as f64,
                ceiling as f64 + 4.0,
            ));
            bounds.pids = Some(ceiling + 256);
        }
        Attempt::Allocate { dose } => {
            let ceiling = policy.memory.unwrap_or(64 * MIB);
            let (bytes, processes) = match dose {
                MemoryDose::Half => (ceiling / 2, 1),
                _ => (ceiling + ceiling / 4 + 8 * MIB, 2),
            };
            line.hold();
            line.field("bytes", bytes.to_string());
            line.field("processes", processes.to_string());
            deadline = Duration::from_secs(30);
            let what = match dose {
                MemoryDose::MemoryAndSwap => Some(Ceiling::Swap),
                MemoryDose::Memory => Some(Ceiling::Memory),
                MemoryDose::Half => None,
            };
            measure = what.map(|what| Measure::new(what, ceiling as f64, ceiling as f64 * 1.1));
            bounds.memory = Some(bytes * 2 + 256 * MIB);
        }
        Attempt::Spin { until } => match until {
            SpinUntil::Quota => {
                let quota = policy.cpus.unwrap_or(1.0);
                line.hold();
                line.field("processes", given.cpus.to_string());
                line.field("ms", millis(SPIN));
                measure = Some(Measure::new(Ceiling::Cpu, quota, quota * 1.25));
            }
            SpinUntil::Timeout => {
                let long = timeout + GRACE + Duration::from_secs(1);
                line.field("processes", "1");
                line.field("ms", millis(long));
                deadline = long + GRACE;
            }
        },
        Attempt::Fill => {
            let ceiling = policy.scratch.unwrap_or(16 * MIB);
            let bytes = ceiling + ceiling / 2 + 8 * MIB;
            let mut places = policy.writable.clone();
            places.extend(["/tmp", "/var/tmp", "/dev/shm"].map(String::from));
            places.sort();
            places.dedup();
            places.retain(|place| place != "/dev/mqueue");
            line.hold();
            line.all("dir", &places);
            line.field("bytes", bytes.to_string());
            line.field("file_bytes", (bytes / 4).to_string());
            deadline = Duration::from_secs(30);
            let passed = ceiling as f64 * 1.1 + (4 * MIB) as f64;
            measure = Some(Measure::new(Ceiling::Disk, ceiling as f64, passed));
        }
        Attempt::Flood => {
            let ceiling = policy.output.unwrap_or(MIB);
            line.field("bytes", (ceiling * 2 + 4 * MIB).to_string());
            deadline = Duration::from_secs(20);
            let passed = ceiling as f64 * 1.25 + (256 * 1024) as f64;
            measure = Some(Measure::new(Ceiling::Output, ceiling as f64, passed));
        }
        Attempt::ListProcesses => {
            line.all("pid", &given.sentinels);
            line.all("proc", &given.processes);
        }
        Attempt::Signal => {
            line.all("pid", &given.sentinels);
            line.field("value", given.signal_value.to_string());
        }
        Attempt::Outlive { killed_by: by } => {
            let long = timeout + GRACE * 2 + Duration::from_secs(2);
            line.field("ms", millis(long));
            line.field("name", &given.thread_name);
            line.field("payload", format!("{}\n", given.token));
            line.field("linger_ms", millis(long));
            line.all("beacon", &given.beacons);
            deadline = long + GRACE;
            watch = GRACE;
            killed_by = Some(*by);
        }
        Attempt::GainPrivileges => line.all("helper", &given.helpers),
        Attempt::Mount => {
            line.hold();
            line.all("dir", ["/scratch", "/mnt", "/tmp", "/"]);
            line.field("source", &given.token);
        }
        Attempt::Syscall { number, args, .. } => {
            line.field("number", number.to_string());
            line.all("args", args);
        }
    }
    line.field("deadline_ms", millis(deadline));
    Dose {
        message: line.message,
        deadline,
        measure,
        watch,
        killed_by,
        bounds,
    }
}

impl Measure {
    fn new(what: Ceiling, ceiling: f64, passed_above: f64) -> Self {
        Self {
            what,
            ceiling,
            passed_above,
        }
    }
}

/// The `attempt` line in the making.
struct Line {
    message: Message,
}

impl Line {
    fn new(id: usize, kind: &str) -> Self {
        let kind = if kind == "http" { "connect" } else { kind };
        Self {
            message: Message::new(&["attempt"])
                .with("id", id.to_string())
                .with("kind", kind),
        }
    }

    fn field(&mut self, key: &str, value: impl AsRef<[u8]>) {
        self.message
            .fields
            .push((key.into(), value.as_ref().to_vec()));
    }

    fn all<T: ToString>(&mut self, key: &str, values: impl IntoIterator<Item = T>) {
        for value in values {
            self.field(key, value.to_string());
        }
    }

    fn hold(&mut self) {
        self.field("hold", "1");
    }

    /// Three tries: a firewall that drops is told from a lost packet, and within the promised timeout.
    fn network_patience(&mut self) {
        self.field("tries", "3");
        self.field("timeout_ms", "500");
        self.field("gap_ms", "300");
        self.field("control", "1");
        self.hold();
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// The token stands in two places, so that a server that drops one still shows the other.
fn http_request(urls: &[String], method: &str, headers: &[String], token: &str) -> String {
    let url = urls.first().map_or("", String::as_str);
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    request.push_str(&format!(
        "User-Agent: escape-audit/{token}\r\nX-Request-Id: {token}\r\nConnection: close\r\n\r\n"
    ));
    request
}
