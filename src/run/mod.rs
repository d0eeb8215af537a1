//! Carries a plan out: canaries, backend, judge, events; always sweeps.

pub mod bench;
mod course;
pub mod dose;
pub mod observe;
pub mod records;
pub mod session;
pub mod trial;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;

use anyhow::Result;
use futures_util::future::{LocalBoxFuture, Shared};
use futures_util::stream::{self, StreamExt};
use futures_util::{FutureExt, pin_mut};

use crate::backend::unsandboxed::Unsandboxed;
use crate::backend::{self, Backend, BackendError};
use crate::case::{Attempt, Case, Danger, Expect, SpinUntil, Transport};
use crate::config::{BackendKind, Policy, RangeConfig, RangeMode, Sandbox};
use crate::evidence::{Able, Evidence};
use crate::judge::judge;
use crate::plan::{self, Planned};
use crate::report::{SandboxReport, Trial};
use crate::verdict::{Judgement, Verdict};
use bench::Bench;

/// What is to be audited.
pub struct Audit {
    /// The cases, in the library's order.
    pub cases: Vec<Case>,
    /// The sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// What of the network beyond this machine may be touched.
    pub range: RangeConfig,
    /// Only the cases whose `[weakened]` set is the one that the sandbox lacks: what `prove` tries.
    pub only_weakened: bool,
    /// How many short trials at a time.
    pub jobs: usize,
}

impl Audit {
    /// The trials, made or skipped.
    pub fn planned(&self, bench: &Bench) -> Vec<Planned> {
        let mut planned = plan::plan(&self.cases, &self.sandboxes, &bench.machine);
        if self.only_weakened {
            planned.retain(|trial| proves(&self.cases[trial.case], &self.sandboxes[trial.sandbox]));
        }
        planned
    }
}

/// What an audit brought.
pub struct Outcome {
    /// What was audited.
    pub sandboxes: Vec<SandboxReport>,
    /// Every trial that was made or skipped.
    pub trials: Vec<Trial>,
    /// The audit was stopped before its end.
    pub interrupted: bool,
}

/// How many trials that mostly wait go on beside the others.
const WAITING_JOBS: usize = 8;

/// Carries the audit out. `stop` ends it early: what runs is swept, what was decided is kept.
pub async fn run(
    audit: &Audit,
    bench: &Bench,
    on_trial: &mut dyn FnMut(&Trial),
    stop: impl Future<Output = ()>,
) -> Result<Outcome> {
    let planned = audit.planned(bench);
    let mut backends = Vec::new();
    for sandbox in &audit.sandboxes {
        backends.push(backend::open(sandbox, &bench.opening()).await);
    }
    let runner = Runner {
        audit,
        backends,
        bench,
        next: Cell::new(0),
        able: RefCell::new(BTreeMap::new()),
        facts: RefCell::new(vec![Facts::default(); audit.sandboxes.len()]),
    };
    // What mostly waits starts first and goes on beside the rest.
    let (waiting, short): (Vec<Planned>, Vec<Planned>) = planned
        .into_iter()
        .partition(|trial| mostly_waits(&audit.cases[trial.case]));
    let waiting = stream::iter(waiting)
        .map(|trial| runner.trial(trial))
        .buffer_unordered(WAITING_JOBS);
    let short = stream::iter(short)
        .map(|trial| runner.trial(trial))
        .buffer_unordered(audit.jobs.max(1));
    let mut done: Vec<(Planned, Trial)> = Vec::new();
    let mut interrupted = false;
    {
        let trials = stream::select(waiting, short);
        pin_mut!(trials, stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => { interrupted = true; break; }
                next = trials.next() => match next {
                    Some((planned, trial)) => {
                        if !measured_in_a_crowd(&trial) {
                            on_trial(&trial);
                        }
                        done.push((planned, trial));
                    }
                    None => break,
                }
            }
        }
        // A ceiling on CPU time shows only where there is CPU time to be had: once more, alone.
        if !interrupted {
            for (planned, trial) in &mut done {
                if measured_in_a_crowd(trial) {
                    runner.able.borrow_mut().clear();
                    tokio::select! {
                        biased;
                        () = &mut stop => { interrupted = true; break; }
                        again = runner.trial(planned.clone()) => *trial = again.1,
                    }
                    on_trial(trial);
                }
            }
        }
    }
    done.sort_by_key(|(planned, _)| (planned.sandbox, planned.case));
    let facts = runner.facts.into_inner();
    let sandboxes = audit
        .sandboxes
        .iter()
        .zip(&runner.backends)
        .zip(facts)
        .map(|((sandbox, backend), facts)| facts.report(sandbox, backend, bench))
        .collect();
    Ok(Outcome {
        sandboxes,
        trials: done.into_iter().map(|(_, trial)| trial).collect(),
        interrupted,
    })
}

/// Whether this sandbox lacks just what the case says must be missing.
fn proves(case: &Case, sandbox: &Sandbox) -> bool {
    let set = case.weakened.for_backend(sandbox.backend.name());
    case.expect == Expect::Blocked
        && !set.is_empty()
        && set
            .iter()
            .copied()
            .collect::<std::collections::BTreeSet<_>>()
            == sandbox.without
}

/// Whether the attempt itself takes no time to speak of: what the benchmark measures.
pub fn is_instant(case: &Case) -> bool {
    case.danger < Danger::Loads && !mostly_waits(case)
}

fn mostly_waits(case: &Case) -> bool {
    matches!(
        case.attempt,
        Attempt::Outlive { .. }
            | Attempt::Dns
            | Attempt::RawSocket
            | Attempt::Connect {
                transport: Transport::Udp,
                ..
            }
            | Attempt::Spin { .. }
    )
}

fn measures_cpu(case: &Case) -> bool {
    let until = SpinUntil::Quota;
    case.attempt == Attempt::Spin { until }
}

fn measured_in_a_crowd(trial: &Trial) -> bool {
    measures_cpu(&trial.source) && trial.judgement.verdict == Verdict::Inconclusive
}

/// What was seen of a sandbox over all its trials.
#[derive(Debug, Clone, Default)]
struct Facts {
    in_force: Vec<(String, String)>,
    not_engaged: bool,
}

impl Facts {
    fn report(self, sandbox: &Sandbox, backend: &Opened, bench: &Bench) -> SandboxReport {
        let mut notes = Vec::new();
        if self.not_engaged {
            notes.push(
                "sandbox not engaged: the launcher ran the probe with every right and view of the harness itself"
                    .to_owned(),
            );
        }
        // A launcher may have been given a secret as an argument.
        let mut shown = sandbox.clone();
        for argument in &mut shown.command {
            let clean = bench.plants.redact(argument.as_bytes());
            *argument = String::from_utf8_lossy(&clean).into_owned();
        }
        SandboxReport {
            sandbox: shown,
            digest: backend
                .as_ref()
                .ok()
                .and_then(|backend| backend.digest(sandbox)),
            in_force: self.in_force,
            notes,
            failed: backend.as_ref().err().map(BackendError::to_string),
        }
    }
}

type Opened = Result<Box<dyn Backend>, BackendError>;
type AbleTrial<'a> = Shared<LocalBoxFuture<'a, Able>>;

struct Runner<'a> {
    audit: &'a Audit,
    bench: &'a Bench,
    backends: Vec<Opened>,
    next: Cell<usize>,
    able: RefCell<BTreeMap<String, AbleTrial<'a>>>,
    facts: RefCell<Vec<Facts>>,
}

impl<'a> Runner<'a> {
    async fn trial(&self, planned: Planned) -> (Planned, Trial) {
        let case = &self.audit.cases[planned.case];
        let sandbox = &self.audit.sandboxes[planned.sandbox];
        let mut skip = planned.skip.clone();
        let mut evidence = Evidence::default();
        if skip.is_none() {
            let settings = sandbox.settings_in_force();
            let tried = trial::trial(
                self.bench,
                case,
                sandbox,
                &settings,
                self.backends[planned.sandbox].as_deref(),
                Able::NotTried,
                self.number(),
            );
            let able = self.able(case, &sandbox.policy, sandbox.range);
            let (seen, able) = if !needs_able(case, sandbox) {
                (tried.await, Able::NotTried)
            } else if measures_cpu(case) {
                // Side by side each would take from the other what it is measured by.
                let able = able.await;
                (tried.await, able)
            } else {
                tokio::join!(tried, able)
            };
            evidence = seen.evidence;
            evidence.able = able;
            if let Some(facts) = self.facts.borrow_mut().get_mut(planned.sandbox) {
                if facts.in_force.is_empty() {
                    facts.in_force = seen.in_force;
                }
                facts.not_engaged |= seen.not_engaged;
            }
            if seen.already_root {
                skip = Some(plan::Skip {
                    reason: "not-applicable",
                    sentence: "the sandbox's user is root already: nothing can be gained".into(),
                });
            }
        }
        let judgement = match skip {
            Some(skip) => Judgement {
                verdict: Verdict::Skipped,
                reason: skip.reason,
                sentence: skip.sentence,
                evidence: Vec::new(),
                inside_only: false,
            },
            None => judge(case, sandbox, &evidence),
        };
        let trial = Trial {
            case: case.id.clone(),
            sandbox: sandbox.name.clone(),
            judgement,
            gates: planned.gates,
            duration: evidence.elapsed,
            observed: evidence,
            source: case.clone(),
        };
        (planned, trial)
    }

    /// Whether the attempt gets through where nothing should stop it: tried once a policy, however many sandboxes ask.
    async fn able(&self, case: &'a Case, policy: &'a Policy, range: RangeMode) -> Able {
        let key = format!("{} {policy:?} {range:?}", case.id);
        let shared = self
            .able
            .borrow_mut()
            .entry(key)
            .or_insert_with(|| {
                let (bench, number) = (self.bench, self.number());
                async move { able(bench, case, policy, range, number).await }
                    .boxed_local()
                    .shared()
            })
            .clone();
        shared.await
    }

    fn number(&self) -> usize {
        self.next.replace(self.next.get() + 1)
    }
}

/// What must work is its own control, and an unsandboxed trial is the control itself.
fn needs_able(case: &Case, sandbox: &Sandbox) -> bool {
    case.expect == Expect::Blocked && sandbox.backend != BackendKind::Unsandboxed
}

async fn able(
    bench: &Bench,
    case: &Case,
    policy: &Policy,
    range: RangeMode,
    number: usize,
) -> Able {
    let control = plan::able_sandbox(policy, range);
    if let Some(skip) = plan::skip(case, &control, &bench.machine) {
        return Able::NotProven { why: skip.sentence };
    }
    let assumed = Able::Proven {
        by: control.name.clone(),
    };
    let settings = &control.settings;
    let nothing = Ok(&Unsandboxed as &dyn Backend);
    let seen = trial::trial(bench, case, &control, settings, nothing, assumed, number).await;
    let judgement = judge(case, &control, &seen.evidence);
    match judgement.verdict {
        Verdict::Escaped => Able::Proven { by: control.name },
        _ => Able::NotProven {
            why: format!(
                "unsandboxed it came out {} ({}): {}",
                judgement.verdict.name(),
                judgement.reason,
                judgement.sentence
            ),
        },
    }
}

/// How many short trials at a time where the user did not say: the CPUs are busy while one waits for the kernel.
pub fn default_jobs(bench: &Bench) -> usize {
    usize::try_from(bench.machine.cpus).unwrap_or(1) * 2
}
