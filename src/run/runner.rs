//! Which trials share a sandbox, what is tried first, what is tried again: the plan's trials, made and judged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};

use super::bench::Bench;
use super::instance::{self, Order, may_share};
use super::{Audit, measures_cpu, mostly_waits};
use crate::backend::unsandboxed::Unsandboxed;
use crate::backend::{Backend, BackendError};
use crate::case::{Case, Expect};
use crate::config::{BackendKind, Policy, RangeMode, Sandbox};
use crate::evidence::{Able, End, Evidence};
use crate::judge::judge;
use crate::plan::{self, Planned, Skip};
use crate::report::{SandboxReport, Trial};
use crate::verdict::{Judgement, Verdict};

/// What is made in one sandbox, one after the other.
pub(super) type Unit = Vec<Planned>;

/// A trial that was made, or skipped.
pub(super) struct Tried {
    planned: Planned,
    skip: Option<Skip>,
    evidence: Evidence,
    /// Whether it is able, where that was found out beside it.
    able: Option<Able>,
}

type Opened = Result<Box<dyn Backend>, BackendError>;
type Later<'a, T> = Shared<LocalBoxFuture<'a, T>>;

/// Carries one audit out.
pub(super) struct Runner<'a> {
    audit: &'a Audit,
    bench: &'a Bench,
    backends: Vec<Opened>,
    next: Cell<usize>,
    able: RefCell<BTreeMap<String, Later<'a, Able>>>,
    /// For each sandbox, the cases that were tried together where nothing should stop them.
    able_together: Vec<Later<'a, BTreeMap<usize, Able>>>,
    facts: RefCell<Vec<Facts>>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        audit: &'a Audit,
        bench: &'a Bench,
        backends: Vec<Opened>,
        planned: &[Planned],
    ) -> Self {
        let mut runner = Self {
            audit,
            bench,
            backends,
            next: Cell::new(0),
            able: RefCell::default(),
            able_together: Vec::new(),
            facts: RefCell::new(vec![Facts::default(); audit.sandboxes.len()]),
        };
        runner.able_together = runner.plan_able(planned);
        runner
    }

    /// What is made in which sandbox.
    pub(super) fn units(&self, planned: Vec<Planned>) -> Vec<Unit> {
        let mut alone: Vec<Unit> = Vec::new();
        let mut together: BTreeMap<(usize, bool), Unit> = BTreeMap::new();
        for trial in planned {
            let case = &self.audit.cases[trial.case];
            let backend = &self.backends[trial.sandbox];
            let shares = !self.audit.fresh && backend.as_ref().is_ok_and(|b| b.shares());
            if shares && trial.skip.is_none() && may_share(case) {
                let key = (trial.sandbox, mostly_waits(case));
                together.entry(key).or_default().push(trial);
            } else {
                alone.push(vec![trial]);
            }
        }
        together.into_values().chain(alone).collect()
    }

    /// Makes the trials of one unit. What several had in common is trusted only where all went as it should: else each
    /// is made again, alone.
    pub(super) async fn tried(&self, unit: Unit) -> Vec<Tried> {
        if unit.len() > 1 {
            let mut settled = Vec::new();
            for tried in self.made(&unit).await {
                if self.is_settled(&tried) {
                    settled.push(tried);
                } else {
                    settled.push(self.tried_alone(tried.planned).await);
                }
            }
            return settled;
        }
        let mut tried = Vec::new();
        for planned in unit {
            tried.push(self.tried_alone(planned).await);
        }
        tried
    }

    /// One trial, alone and to the end.
    pub(super) async fn alone(&self, planned: Planned) -> Trial {
        let tried = self.tried_alone(planned).await;
        self.judged(tried).await.1
    }

    async fn tried_alone(&self, planned: Planned) -> Tried {
        let case = &self.audit.cases[planned.case];
        let sandbox = &self.audit.sandboxes[planned.sandbox];
        if let Some(skip) = planned.skip.clone() {
            return Tried {
                planned,
                skip: Some(skip),
                evidence: Evidence::default(),
                able: None,
            };
        }
        let unit = [planned];
        let made = self.made(&unit);
        let (mut made, able) = if !needs_able(case, sandbox) || may_share(case) {
            (made.await, None)
        } else {
            let able = self.able(case, &sandbox.policy, sandbox.range);
            if measures_cpu(case) {
                // Side by side each would take from the other what it is measured by.
                let able = able.await;
                (made.await, Some(able))
            } else {
                let (made, able) = tokio::join!(made, able);
                (made, Some(able))
            }
        };
        let mut tried = made.swap_remove(0);
        tried.able = able;
        tried
    }

    async fn made(&self, unit: &[Planned]) -> Vec<Tried> {
        let index = unit[0].sandbox;
        let sandbox = &self.audit.sandboxes[index];
        let settings = sandbox.settings_in_force();
        let order = Order {
            bench: self.bench,
            sandbox,
            settings: &settings,
            backend: self.backends[index].as_deref(),
            watches: true,
        };
        let cases: Vec<&Case> = unit.iter().map(|p| &self.audit.cases[p.case]).collect();
        let made = instance::make(order, &cases, self.number()).await;
        if let Some(facts) = self.facts.borrow_mut().get_mut(index) {
            if facts.in_force.is_empty() {
                facts.in_force = made.in_force;
            }
            facts.not_engaged |= made.not_engaged;
        }
        unit.iter()
            .cloned()
            .zip(made.seen)
            .map(|(planned, seen)| Tried {
                planned,
                skip: seen.already_root.then(|| Skip {
                    reason: "not-applicable",
                    sentence: "the sandbox's user is root already: nothing can be gained".into(),
                }),
                evidence: seen.evidence,
                able: None,
            })
            .collect()
    }

    /// Whether a sandbox that several shared did as one alone does, and this case came out decided.
    fn is_settled(&self, tried: &Tried) -> bool {
        let evidence = &tried.evidence;
        let went_well = evidence.inside.ended
            && evidence.end == (End::ByItself { status: 0 })
            && evidence.survivors.is_empty()
            && evidence.contradictions.is_empty()
            && evidence.faults.is_empty();
        let able = Able::Proven {
            by: "assumed".into(),
        };
        let assumed = Evidence {
            able,
            ..evidence.clone()
        };
        let case = &self.audit.cases[tried.planned.case];
        let sandbox = &self.audit.sandboxes[tried.planned.sandbox];
        let undecided = [Verdict::Inconclusive, Verdict::Error];
        went_well && !undecided.contains(&judge(case, sandbox, &assumed).verdict)
    }

    /// The verdict, once it is known whether the attempt is able.
    pub(super) async fn judged(&self, tried: Tried) -> (Planned, Trial) {
        let Tried {
            planned,
            skip,
            mut evidence,
            able,
        } = tried;
        let case = &self.audit.cases[planned.case];
        let sandbox = &self.audit.sandboxes[planned.sandbox];
        let judgement = match skip {
            Some(skip) => Judgement {
                verdict: Verdict::Skipped,
                reason: skip.reason,
                sentence: skip.sentence,
                evidence: Vec::new(),
                inside_only: false,
            },
            None => {
                evidence.able = match able {
                    Some(able) => able,
                    None if needs_able(case, sandbox) => self.able_of(&planned).await,
                    None => Able::NotTried,
                };
                judge(case, sandbox, &evidence)
            }
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

    /// Lets every backend remove what is left of its sandboxes, also of those that were given up halfway.
    pub(super) async fn close(&self) {
        for (index, backend) in self.backends.iter().enumerate() {
            if let Ok(backend) = backend {
                let left = backend.close().await;
                self.facts.borrow_mut()[index].left = left;
            }
        }
    }

    /// What was audited, once all trials are made.
    pub(super) fn reports(self) -> Vec<SandboxReport> {
        let facts = self.facts.into_inner();
        let sandboxes = self.audit.sandboxes.iter().zip(&self.backends);
        sandboxes
            .zip(facts)
            .map(|((sandbox, backend), facts)| facts.report(sandbox, backend, self.bench))
            .collect()
    }

    /// Finds out for all sandboxes which of the cases that may share one are able.
    pub(super) async fn find_able(&self) {
        for together in self.able_together.clone() {
            together.await;
        }
    }

    /// For each sandbox: what only looks, tried in one go where nothing should stop it. Sandboxes that promise the same share it.
    fn plan_able(&self, planned: &[Planned]) -> Vec<Later<'a, BTreeMap<usize, Able>>> {
        let key = |sandbox: &Sandbox| format!("{:?} {:?}", sandbox.policy, sandbox.range);
        let mut lists: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for trial in planned.iter().filter(|trial| trial.skip.is_none()) {
            let case = &self.audit.cases[trial.case];
            let sandbox = &self.audit.sandboxes[trial.sandbox];
            let list = lists.entry(key(sandbox)).or_default();
            if needs_able(case, sandbox) && may_share(case) && !list.contains(&trial.case) {
                list.push(trial.case);
            }
        }
        let mut futures: BTreeMap<String, Later<'a, BTreeMap<usize, Able>>> = BTreeMap::new();
        let (audit, bench) = (self.audit, self.bench);
        audit
            .sandboxes
            .iter()
            .map(|sandbox| {
                let list = lists.remove(&key(sandbox)).unwrap_or_default();
                let number = self.number();
                let future = futures.entry(key(sandbox)).or_insert_with(|| {
                    async move { able_together(audit, bench, sandbox, list, number).await }
                        .boxed_local()
                        .shared()
                });
                future.clone()
            })
            .collect()
    }

    /// Whether a case that may share a sandbox is able. What did not get through in company is tried alone.
    async fn able_of(&self, planned: &Planned) -> Able {
        let case = &self.audit.cases[planned.case];
        let sandbox = &self.audit.sandboxes[planned.sandbox];
        let together = self.able_together[planned.sandbox].clone().await;
        match together.get(&planned.case) {
            Some(able @ Able::Proven { .. }) => able.clone(),
            _ => self.able(case, &sandbox.policy, sandbox.range).await,
        }
    }

    /// Whether the attempt gets through where nothing should stop it: tried once a policy, however many sandboxes ask.
    fn able(
        &self,
        case: &'a Case,
        policy: &'a Policy,
        range: RangeMode,
    ) -> impl Future<Output = Able> + use<'a> {
        let key = format!("{} {policy:?} {range:?}", case.id);
        let (bench, number) = (self.bench, self.number());
        let mut able = self.able.borrow_mut();
        let later = able.entry(key).or_insert_with(|| {
            async move { able_alone(bench, case, policy, range, number).await }
                .boxed_local()
                .shared()
        });
        later.clone()
    }

    /// Lets everything be tried again.
    pub(super) fn forget_able(&self) {
        self.able.borrow_mut().clear();
    }

    fn number(&self) -> usize {
        self.next.replace(self.next.get() + 1)
    }
}

/// What was seen of a sandbox over all its trials.
#[derive(Debug, Clone, Default)]
struct Facts {
    in_force: Vec<(String, String)>,
    not_engaged: bool,
    left: Vec<String>,
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
        notes.extend(self.left.iter().map(|what| format!("left behind: {what}")));
        let mut in_force = self.in_force;
        in_force.extend(backend.iter().flat_map(|backend| backend.facts()));
        // A launcher may have been given a secret as an argument.
        let mut shown = sandbox.clone();
        for argument in &mut shown.command {
            let clean = bench.plants.redact(argument.as_bytes());
            *argument = String::from_utf8_lossy(&clean).into_owned();
        }
        let opened = backend.as_ref();
        SandboxReport {
            sandbox: shown,
            digest: opened.ok().and_then(|backend| backend.digest(sandbox)),
            in_force,
            notes,
            failed: opened.err().map(BackendError::to_string),
        }
    }
}

/// What must work is its own control, and an unsandboxed trial is the control itself.
fn needs_able(case: &Case, sandbox: &Sandbox) -> bool {
    case.expect == Expect::Blocked && sandbox.backend != BackendKind::Unsandboxed
}

/// The control of these cases in one go: no sandbox at all, one probe, one attempt after the other.
async fn able_together(
    audit: &Audit,
    bench: &Bench,
    sandbox: &Sandbox,
    list: Vec<usize>,
    number: usize,
) -> BTreeMap<usize, Able> {
    let control = plan::able_sandbox(&sandbox.policy, sandbox.range);
    let possible = |index: &usize| plan::skip(&audit.cases[*index], &control, &bench.machine);
    let list: Vec<usize> = list
        .into_iter()
        .filter(|index| possible(index).is_none())
        .collect();
    let cases: Vec<&Case> = list.iter().map(|index| &audit.cases[*index]).collect();
    if cases.is_empty() {
        return BTreeMap::new();
    }
    let order = Order {
        watches: false,
        ..unsandboxed(bench, &control)
    };
    let made = instance::make(order, &cases, number).await;
    let able = cases
        .iter()
        .zip(made.seen)
        .map(|(case, seen)| able_by(case, &control, seen.evidence));
    list.into_iter().zip(able).collect()
}

/// The control of one case.
async fn able_alone(
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
    let mut made = instance::make(unsandboxed(bench, &control), &[case], number).await;
    able_by(case, &control, made.seen.swap_remove(0).evidence)
}

fn unsandboxed<'a>(bench: &'a Bench, control: &'a Sandbox) -> Order<'a> {
    Order {
        bench,
        sandbox: control,
        settings: &control.settings,
        backend: Ok(&Unsandboxed),
        watches: true,
    }
}

/// The attempt is able where it comes out ESCAPED.
fn able_by(case: &Case, control: &Sandbox, mut seen: Evidence) -> Able {
    let by = control.name.clone();
    seen.able = Able::Proven { by: by.clone() };
    let judgement = judge(case, control, &seen);
    match judgement.verdict {
        Verdict::Escaped => Able::Proven { by },
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
