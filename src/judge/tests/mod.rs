//! Row by row, technique by technique, the scenarios that others got wrong, and by property.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod engine;
mod properties;
mod rows;
mod scenarios;
mod techniques;
mod techniques_ends;
mod works;

use std::time::Duration;

use escape_audit_probe::wire::Outcome;
use nix::libc;

use super::{judge, reasons};
use crate::case::*;
use crate::config::*;
use crate::evidence::*;
use crate::verdict::{Judgement, Verdict};

const INTERNET: &str = "tcp://203.0.113.10:4711";

/// A case of what must be blocked.
fn case(attempt: Attempt, escaped: &[Proof]) -> Case {
    Case {
        id: format!("test/{}", attempt.kind()),
        title: String::new(),
        severity: Severity::High,
        level: Level::Standard,
        status: Status::Stable,
        expect: Expect::Blocked,
        techniques: Vec::new(),
        references: Vec::new(),
        tags: Vec::new(),
        why: String::new(),
        fix: String::new(),
        danger: attempt.danger(),
        needs: attempt.needs(),
        attempt,
        escaped: escaped.to_vec(),
        weakened: Weakened::default(),
        source: "test.toml".into(),
        digest: String::new(),
    }
}

/// The same attempt as a case of what must work.
fn must_work(attempt: Attempt) -> Case {
    Case {
        expect: Expect::Allowed,
        ..case(attempt, &[])
    }
}

/// The embedded sandbox and its policy.
fn sandbox() -> Sandbox {
    let settings = Settings::default();
    Sandbox {
        name: "oci".into(),
        backend: BackendKind::Oci,
        policy: Policy::from_settings(&settings, BackendKind::Oci, Level::Standard),
        settings,
        without: Default::default(),
        command: Vec::new(),
        range: RangeMode::Own,
        notes: Vec::new(),
    }
}

/// The verdict and its reason, in the embedded sandbox.
fn verdict(case: &Case, evidence: &Evidence) -> (Verdict, &'static str) {
    let judgement = judgement(case, evidence);
    (judgement.verdict, judgement.reason)
}

/// Every judgement of every test has a registered reason and a sentence.
fn judgement(case: &Case, evidence: &Evidence) -> Judgement {
    let judgement = judge(case, &sandbox(), evidence);
    assert!(reasons::is_known(judgement.reason), "{}", judgement.reason);
    assert!(!judgement.sentence.is_empty(), "{}", judgement.reason);
    judgement
}

/// Everything that a BLOCKED takes, but what the attempt itself reports.
fn able() -> Evidence {
    Evidence {
        start: Start::Seen {
            uid: 65534,
            boot: "b".into(),
        },
        inside: Inside {
            begun: true,
            done: Some(Outcome::Ok),
            ended: true,
            ..Inside::default()
        },
        witness: Some(Witness {
            pid: 4242,
            own_namespaces: vec!["net".into(), "pid".into(), "mnt".into()],
            no_route: Some(true),
            ..Witness::default()
        }),
        end: End::ByItself { status: 0 },
        able: Able::Proven {
            by: "unsandboxed".into(),
        },
        watched: Duration::from_secs(3),
        ..Evidence::default()
    }
}

impl Evidence {
    fn step(mut self, what: &str, target: &str, outcome: Outcome) -> Self {
        self.inside.steps.push(Step {
            what: what.into(),
            target: target.into(),
            outcome,
        });
        self
    }

    fn refused(self, what: &str, target: &str, errno: i32) -> Self {
        self.step(what, target, Outcome::Errno(errno))
    }

    fn ok(self, what: &str, target: &str) -> Self {
        self.step(what, target, Outcome::Ok)
    }

    fn fact(mut self, key: &str, name: &str, value: &str) -> Self {
        self.inside.facts.push(Fact {
            key: key.into(),
            name: name.into(),
            value: value.into(),
        });
        self
    }

    fn target(mut self, canary: CanaryKind, position: Position, address: &str) -> Self {
        self.targets.push(Target {
            canary,
            position,
            address: address.into(),
            beyond: false,
            alive: true,
        });
        self
    }

    fn count(mut self, what: Ceiling, value: f64, ceiling: f64, held: bool) -> Self {
        self.counts.push(Count {
            what,
            value,
            ceiling,
            passed_above: ceiling * 1.1,
            held,
            by_host: true,
            source: "test".into(),
        });
        self
    }

    fn ended(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn no_done(self) -> Self {
        self.with(|e| {
            e.inside.done = None;
            e.inside.ended = false;
        })
    }
}

fn touch() -> Touch {
    Touch {
        canary: CanaryKind::Tcp,
        address: "203.0.113.10:4711".into(),
        at_ms: 12,
        late: true,
        saw: b"token".to_vec(),
    }
}

fn connect(positions: &[Position]) -> Case {
    let attempt = Attempt::Connect {
        transport: Transport::Tcp,
        positions: positions.to_vec(),
    };
    case(attempt, &[Proof::Canary(CanaryKind::Tcp)])
}

fn syscall() -> Case {
    let attempt = Attempt::Syscall {
        name: "io_uring_setup".into(),
        number: 425,
        args: vec!["0".into(), "bad-pointer".into()],
    };
    case(attempt, &[Proof::Breach])
}

const PLANTED: &str = "/var/tmp/canary/decoy";

/// For every kind of attempt, a case and the evidence of a sandbox that holds.
fn held() -> Vec<(Case, Evidence)> {
    use Attempt as A;
    let canary = |kind| [Proof::Canary(kind)];
    let killed = End::BySandbox {
        cause: Cause::Timeout,
        after_ms: 3050,
    };
    let sentinel = |e: &mut Evidence| e.sentinel.alive = true;
    vec![
        (
            connect(&[Position::Internet]),
            able()
                .target(CanaryKind::Tcp, Position::Internet, INTERNET)
                .ok("control", "loopback")
                .refused("connect", INTERNET, libc::ENETUNREACH),
        ),
        (
            connect(&[Position::Loopback]),
            able()
                .target(CanaryKind::Tcp, Position::Loopback, "tcp://127.0.0.1:40001")
                .refused("connect", "tcp://127.0.0.1:40001", libc::ECONNREFUSED),
        ),
        (
            case(
                A::Http {
                    urls: vec!["http://169.254.169.254/latest/meta-data".into()],
                    method: "GET".into(),
                    headers: Vec::new(),
                },
                &canary(CanaryKind::Http),
            ),
            able().refused("connect", "tcp://169.254.169.254:80", libc::ENETUNREACH),
        ),
        (
            case(A::Dns, &canary(CanaryKind::Dns)),
            able()
                .target(CanaryKind::Dns, Position::Internet, "udp://203.0.113.10:53")
                .refused("query", "udp://203.0.113.10:53", libc::ENETUNREACH),
        ),
        (
            case(
                A::ConnectUnix {
                    to: UnixTarget::Abstract,
                },
                &canary(CanaryKind::Unix),
            ),
            able()
                .target(CanaryKind::Unix, Position::Host, "abstract:canary")
                .ok("control", "socketpair")
                .refused("connect", "abstract:canary", libc::ECONNREFUSED),
        ),
        (
            case(
                A::EngineSocket { paths: Vec::new() },
                &[Proof::Canary(CanaryKind::Engine), Proof::Breach],
            ),
            able()
                .target(CanaryKind::Engine, Position::Host, "path:/c/docker.sock")
                .ok("control", "socketpair")
                .refused("nowhere", "/nowhere", libc::ENOENT)
                .refused("connect", "/c/docker.sock", libc::ENOENT)
                .refused("connect", "/run/docker.sock", libc::ENOENT),
        ),
        (
            case(A::RawSocket, &[Proof::Breach]),
            able()
                .ok("control", "stream")
                .refused("socket", "packet", libc::EPERM)
                .refused("socket", "raw-udp", libc::EPERM),
        ),
        (
            case(A::Environment { names: Vec::new() }, &[Proof::Secret]),
            able().fact("env-count", "", "0"),
        ),
        (
            case(A::ProcessEnvironment, &[Proof::Secret]),
            able()
                .ok("control", "/proc/self/environ")
                .ok("read", "/proc/1/environ"),
        ),
        (
            case(
                A::ReadFile {
                    paths: vec!["{planted}".into(), "/etc/machine-id".into()],
                },
                &[Proof::Secret],
            ),
            able().refused("read", PLANTED, libc::ENOENT).refused(
                "read",
                "/etc/machine-id",
                libc::ENOENT,
            ),
        ),
        (
            case(
                A::WriteFile {
                    into: WriteInto::OutsideScratch,
                },
                &[Proof::FileOutsideScratch],
            ),
            able()
                .refused("write", "/f", libc::EROFS)
                .ok("create", "/scratch/f")
                .ok("write", "/scratch/f"),
        ),
        (
            case(
                A::WriteFile {
                    into: WriteInto::Host,
                },
                &[Proof::FileOnHost],
            ),
            able().refused("write", "/var/tmp/canary/f", libc::ENOENT),
        ),
        (
            case(A::Fill, &[Proof::Ceiling(Ceiling::Disk)]),
            able()
                .refused("write", "/scratch", libc::ENOSPC)
                .fact("written", "/scratch", "16777216")
                .count(Ceiling::Disk, 16_777_216.0, 16_777_216.0, true),
        ),
        (
            case(A::Spawn, &[Proof::Ceiling(Ceiling::Pids)]),
            able()
                .refused("fork", "", libc::EAGAIN)
                .fact("made", "", "62")
                .count(Ceiling::Pids, 64.0, 64.0, true),
        ),
        (
            case(
                A::Allocate {
                    dose: MemoryDose::Memory,
                },
                &[Proof::Ceiling(Ceiling::Memory)],
            ),
            able()
                .step("allocate", "0", Outcome::Signal(libc::SIGKILL))
                .count(Ceiling::Memory, 134e6, 134_217_728.0, true),
        ),
        (
            case(
                A::Allocate {
                    dose: MemoryDose::MemoryAndSwap,
                },
                &[Proof::Ceiling(Ceiling::Swap)],
            ),
            able()
                .step("allocate", "0", Outcome::Signal(libc::SIGKILL))
                .count(Ceiling::Swap, 134e6, 134_217_728.0, true),
        ),
        (
            case(
                A::Spin {
                    until: SpinUntil::Quota,
                },
                &[Proof::Ceiling(Ceiling::Cpu)],
            ),
            able().ok("spin", "").count(Ceiling::Cpu, 0.5, 0.5, true),
        ),
        (
            case(
                A::Spin {
                    until: SpinUntil::Timeout,
                },
                &[Proof::Survivor],
            ),
            able().no_done().ended(killed.clone()),
        ),
        (
            case(A::Flood, &[Proof::Ceiling(Ceiling::Output)]),
            able().no_done().ended(End::BySandbox {
                cause: Cause::Output,
                after_ms: 40,
            }),
        ),
        (
            case(A::ListProcesses, &[Proof::ProcessSeen]),
            able()
                .ok("list", "/proc")
                .fact("process", "1", "hash")
                .refused("probe", "4000", libc::ESRCH)
                .with(sentinel),
        ),
        (
            case(A::Signal, &[Proof::ProcessSignalled]),
            able()
                .ok("control", "child")
                .refused("signal", "4000", libc::ESRCH)
                .with(sentinel),
        ),
        (
            case(
                A::Outlive {
                    killed_by: KilledBy::Timeout,
                },
                &[Proof::Survivor],
            ),
            able().no_done().ok("detach", "").ended(killed),
        ),
        (
            case(
                A::Outlive {
                    killed_by: KilledBy::Launcher,
                },
                &[Proof::Survivor],
            ),
            able().no_done().ok("detach", "").ended(End::ByTrial),
        ),
        (
            case(A::Capabilities, &[Proof::Breach]),
            able().refused("use", "CAP_SYS_ADMIN", libc::EPERM),
        ),
        (
            case(A::GainPrivileges, &[Proof::Breach]),
            able()
                .fact("euid", "self", "65534")
                .ok("exec", "/helper")
                .fact("euid", "/helper", "65534"),
        ),
        (
            case(A::UserNamespace, &[Proof::Breach]),
            able()
                .refused("clone", "user", libc::EPERM)
                .refused("clone3", "user", libc::ENOSYS)
                .refused("unshare", "user", libc::EPERM),
        ),
        (
            case(A::Mount, &[Proof::Breach]),
            able()
                .refused("unshare", "mount", libc::EPERM)
                .refused("mount", "/scratch", libc::EPERM)
                .refused("fsopen", "tmpfs", libc::EPERM),
        ),
        (syscall(), able().refused("syscall", "425", libc::EPERM)),
    ]
}

/// The held example of this kind of attempt.
fn held_of(kind: &str) -> (Case, Evidence) {
    let mut all = held().into_iter();
    all.find(|(case, _)| case.attempt.kind() == kind).unwrap()
}
