//! What holds for any evidence at all.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const WORDS: &[&str] = &[
    "connect",
    "send",
    "query",
    "ask",
    "nowhere",
    "control",
    "read",
    "create",
    "write",
    "fork",
    "allocate",
    "spin",
    "flood",
    "list",
    "probe",
    "signal",
    "detach",
    "use",
    "exec",
    "unshare",
    "clone",
    "mount",
    "fsopen",
    "socket",
    "syscall",
    "run",
    "malformed",
];
const TARGETS: &[&str] = &[
    INTERNET,
    "tcp://127.0.0.1:40001",
    "udp://203.0.113.10:53",
    "abstract:canary",
    "/c/docker.sock",
    "/run/docker.sock",
    "",
    "user",
    "mount",
    "/f",
    "/scratch/f",
    "/scratch",
    "/dev/shm/f",
    PLANTED,
    "/etc/machine-id",
    "/helper",
    "425",
    "4000",
    "/proc/self/environ",
    "tcp://169.254.169.254:80",
];
const KEYS: &[&str] = &[
    "reply",
    "engine",
    "peer",
    "env-count",
    "made",
    "held",
    "spun",
    "written",
    "process",
    "cap-eff",
    "cap-prm",
    "euid",
    "env",
];
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "65534",
    "9000",
    "99999999999",
    "ffffffffffffffff",
    "x",
];
const ERRNOS: &[i32] = &[
    libc::EPERM,
    libc::ENOENT,
    libc::EACCES,
    libc::EROFS,
    libc::ENOSPC,
    libc::EAGAIN,
    libc::ENOMEM,
    libc::ENOSYS,
    libc::EINVAL,
    libc::EFAULT,
    libc::ESRCH,
    libc::EMFILE,
    libc::ECONNREFUSED,
    libc::ENETUNREACH,
    libc::EADDRNOTAVAIL,
];

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Ok),
        4 => select(ERRNOS).prop_map(Outcome::Errno),
        1 => Just(Outcome::Timeout),
        1 => select(&[9, 11, 31][..]).prop_map(Outcome::Signal),
        1 => Just(Outcome::Exit(1)),
    ]
}

prop_compose! {
    fn step()(what in select(WORDS), target in select(TARGETS), outcome in outcome()) -> Step {
        Step { what: what.into(), target: target.into(), outcome }
    }
}

prop_compose! {
    fn fact()(key in select(KEYS), name in select(TARGETS), value in select(VALUES)) -> Fact {
        Fact { key: key.into(), name: name.into(), value: value.into() }
    }
}

prop_compose! {
    fn count()(
        what in select(&[Ceiling::Pids, Ceiling::Memory, Ceiling::Swap, Ceiling::Cpu, Ceiling::Disk, Ceiling::Output][..]),
        value in 0.0..2.0f64,
        held in any::<bool>(),
        by_host in any::<bool>(),
    ) -> Count {
        Count { what, value, ceiling: 1.0, passed_above: 1.1, held, by_host, source: "test".into() }
    }
}

fn target() -> impl Strategy<Value = Target> {
    (select(TARGETS), any::<bool>(), any::<bool>()).prop_map(|(address, beyond, alive)| Target {
        canary: CanaryKind::Tcp,
        position: Position::Internet,
        address: address.into(),
        beyond,
        alive,
    })
}

fn end() -> impl Strategy<Value = End> {
    let cause = || select(&[Cause::Timeout, Cause::Output, Cause::Memory, Cause::Pids][..]);
    prop_oneof![
        Just(End::Unknown),
        Just(End::ByItself { status: 0 }),
        Just(End::ByTrial),
        (cause(), 0..20_000u64).prop_map(|(cause, after_ms)| End::BySandbox { cause, after_ms }),
        cause().prop_map(|cause| End::ByLimiter { cause }),
    ]
}

/// What can come on top of any evidence.
#[derive(Debug, Clone)]
struct More {
    steps: Vec<Step>,
    facts: Vec<Fact>,
    counts: Vec<Count>,
    targets: Vec<Target>,
    done: Option<Outcome>,
    flags: [bool; 9],
}

prop_compose! {
    fn more()(
        steps in vec(step(), 0..6),
        facts in vec(fact(), 0..4),
        counts in vec(count(), 0..2),
        targets in vec(target(), 0..2),
        done in proptest::option::of(outcome()),
        // Each is rare, so that most evidence is of the ordinary kind.
        flags in proptest::array::uniform9(proptest::bool::weighted(0.1)),
    ) -> More {
        More { steps, facts, counts, targets, done, flags }
    }
}

impl More {
    /// Adds, and takes nothing away.
    fn add_to(self, evidence: &mut Evidence) {
        let Self {
            steps,
            facts,
            counts,
            targets,
            done,
            flags,
        } = self;
        let [
            touched,
            secret,
            file,
            survivor,
            fault,
            contradiction,
            seen,
            signalled,
            noise,
        ] = flags;
        evidence.inside.steps.extend(steps);
        evidence.inside.facts.extend(facts);
        evidence.counts.extend(counts);
        evidence.targets.extend(targets);
        evidence.inside.done = evidence.inside.done.or(done);
        evidence.touches.extend(touched.then(touch));
        evidence.secrets.extend(secret.then(|| SecretFound {
            name: "S".into(),
            found_in: "S".into(),
            real: noise,
        }));
        evidence.host_files.extend(file.then(|| "/canary/f".into()));
        evidence.survivors.extend(survivor.then(|| "pid 7".into()));
        evidence.faults.extend(fault.then(|| Fault {
            code: "harness-failed",
            text: "x".into(),
        }));
        evidence
            .contradictions
            .extend(contradiction.then(|| "x".into()));
        evidence.sentinel.seen |= seen;
        evidence.sentinel.signalled |= signalled;
        evidence.inside.noise_lines += u64::from(noise);
    }
}

/// What can be otherwise and is not added: where the run stood, how it ended, what was lost.
#[derive(Debug, Clone)]
struct Context {
    end: Option<End>,
    lost_steps: usize,
    route: Option<bool>,
    flags: [bool; 8],
}

prop_compose! {
    fn context()(
        end in proptest::option::weighted(0.3, end()),
        lost_steps in 0..3usize,
        route in any::<Option<bool>>(),
        flags in proptest::array::uniform8(proptest::bool::weighted(0.15)),
    ) -> Context {
        Context { end, lost_steps, route, flags }
    }
}

impl Context {
    fn change(self, evidence: &mut Evidence) {
        let [
            unstarted,
            unbegun,
            undone,
            unable,
            blind,
            other_kernel,
            own_users,
            asleep,
        ] = self.flags;
        let steps = &mut evidence.inside.steps;
        steps.truncate(steps.len().saturating_sub(self.lost_steps));
        if let Some(end) = self.end {
            evidence.end = end;
        }
        if unstarted {
            evidence.start = Start::Missing;
        }
        evidence.inside.begun &= !unbegun;
        if undone {
            evidence.inside.done = None;
        }
        if unable {
            evidence.able = Able::NotTried;
        }
        if let Some(witness) = &mut evidence.witness {
            witness.no_route = self.route;
            witness.own_user_namespace = own_users;
        }
        if blind {
            evidence.witness = None;
        }
        if other_kernel {
            evidence.own_kernel = Some("x".into());
        }
        if asleep {
            evidence.watched = Duration::ZERO;
        }
    }
}

/// Any case, must-work ones among them, with evidence that begins as what holds and is then changed.
fn trial() -> impl Strategy<Value = (Case, Evidence)> {
    let works = [
        Attempt::Run,
        Attempt::WriteFile {
            into: WriteInto::Scratch,
        },
        Attempt::Allocate {
            dose: MemoryDose::Half,
        },
    ];
    let mut bases = held();
    bases.extend(works.map(|attempt| (must_work(attempt), able().ok("run", "/scratch/f"))));
    (
        select(bases),
        context(),
        proptest::option::weighted(0.7, more()),
    )
        .prop_map(|((case, mut evidence), context, more)| {
            context.change(&mut evidence);
            if let Some(more) = more {
                more.add_to(&mut evidence);
            }
            (case, evidence)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_evidence_on_top_lowers_an_escaped((case, evidence) in trial(), more in more()) {
        if judgement(&case, &evidence).verdict != Verdict::Escaped {
            return Ok(());
        }
        let mut added = evidence.clone();
        more.add_to(&mut added);
        prop_assert_eq!(judgement(&case, &added).verdict, Verdict::Escaped);
    }

    #[test]
    fn what_the_host_saw_escapes_whatever_else_is_or_is_not_there((case, mut evidence) in trial(), which in 0..4) {
        match which {
            0 => evidence.touches.push(touch()),
            1 => evidence.survivors.push("pid 7".into()),
            2 => evidence.host_files.push("/canary/f".into()),
            _ => evidence = evidence.count(Ceiling::Pids, 2.0, 1.0, true),
        }
        prop_assert_eq!(judgement(&case, &evidence).verdict, Verdict::Escaped);
    }

    #[test]
    fn a_good_verdict_rests_on_all_that_it_takes((case, evidence) in trial()) {
        let judged = judgement(&case, &evidence);
        if !matches!(judged.verdict, Verdict::Blocked | Verdict::Allowed) {
            return Ok(());
        }
        let started = matches!(evidence.start, Start::Seen { .. });
        prop_assert!(started && evidence.inside.begun);
        prop_assert!(evidence.faults.is_empty() && evidence.contradictions.is_empty());
        let unseen = evidence.touches.is_empty() && evidence.survivors.is_empty() && evidence.host_files.is_empty();
        prop_assert!(unseen);
        prop_assert!(!evidence.counts.iter().any(|count| count.by_host && count.passed()));
        let limited = matches!(evidence.end, End::ByLimiter { .. });
        prop_assert!(!limited);
        prop_assert_eq!(judged.inside_only, evidence.witness.is_none());
        if judged.verdict == Verdict::Blocked {
            let able = matches!(evidence.able, Able::Proven { .. });
            prop_assert!(able);
            prop_assert!(evidence.targets.iter().all(|target| target.alive));
            prop_assert!(!judged.evidence.is_empty());
        }
        prop_assert_eq!(judged.verdict == Verdict::Allowed, case.expect == Expect::Allowed);
    }
}

/// The properties above say something only if their evidence is varied enough.
#[test]
fn the_strategy_comes_to_every_verdict() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let trial = trial();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..2000 {
        let (case, evidence) = trial.new_tree(&mut runner).unwrap().current();
        *seen.entry(judgement(&case, &evidence).verdict).or_insert(0) += 1;
    }
    let wanted = [
        Verdict::Allowed,
        Verdict::Blocked,
        Verdict::Inconclusive,
        Verdict::Error,
        Verdict::Broken,
        Verdict::Escaped,
    ];
    for verdict in wanted {
        assert!(seen.get(&verdict).is_some_and(|n| *n >= 5), "{seen:?}");
    }
}
