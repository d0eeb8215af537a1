//! Which trials share a sandbox, what is tried first, what is tried again: the plan's trials, made and judged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};

use super::able::{Controlled, Together};
use super::bench::Bench;
use super::facts::Facts;
use super::instance::{self, Order, may_share};
use super::{Audit, measures_cpu, mostly_waits};
use crate::backend::{Backend, BackendError};
use crate::case::{Case, Expect};
use crate::config::{BackendKind, Sandbox};
use crate::evidence::{Able, End, Evidence, Start};
use crate::host::proc;
use crate::judge::judge;
use crate::plan::{self, Control, Planned, Skip};
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
    /// How often it was made.
    attempts: u32,
}

pub(super) type Opened = Result<Box<dyn Backend>, BackendError>;
type Later<'a, T> = Shared<LocalBoxFuture<'a, T>>;

/// Carries one audit out.
pub(super) struct Runner<'a> {
    audit: &'a Audit,
    bench: &'a Bench,
    backends: &'a [Opened],
    next: Cell<usize>,
    able: RefCell<BTreeMap<String, Later<'a, Able>>>,
    /// For each sandbox and control, the cases that were tried together where nothing should stop them.
    able_together: BTreeMap<(usize, Control), Later<'a, Together>>,
    facts: RefCell<Vec<Facts>>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        audit: &'a Audit,
        bench: &'a Bench,
        backends: &'a [Opened],
        planned: &[Planned],
    ) -> Self {
        let mut runner = Self {
            audit,
            bench,
            backends,
            next: Cell::new(0),
            able: RefCell::default(),
            able_together: BTreeMap::new(),
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
                    let again = self.tried_alone(tried.planned).await;
                    let attempts = tried.attempts + again.attempts;
                    settled.push(Tried { attempts, ..again });
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
                attempts: 0,
            };
        }
        let unit = [planned];
        let made = self.made(&unit);
        let (mut made, able) = if !needs_able(case, sandbox) || may_share(case) {
            (made.await, None)
        } else {
            let control = plan::control(case, sandbox, &self.bench.machine);
            let able = self.able(case, unit[0].sandbox, control);
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
                attempts: 1,
            })
            .collect()
    }

    fn is_settled(&self, tried: &Tried) -> bool {
        let case = &self.audit.cases[tried.planned.case];
        let sandbox = &self.audit.sandboxes[tried.planned.sandbox];
        is_settled(case, sandbox, &tried.evidence)
    }

    /// The verdict, once it is known whether the attempt is able.
    pub(super) async fn judged(&self, tried: Tried) -> (Planned, Trial) {
        let Tried {
            planned,
            skip,
            mut evidence,
            able,
            attempts,
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
                self.learn_of_engine(planned.sandbox, &mut evidence).await;
                judge(case, sandbox, &evidence)
            }
        };
        let trial = Trial {
            case: case.id.clone(),
            sandbox: sandbox.name.clone(),
            judgement,
            gates: planned.gates,
            waived: None,
            tolerated: false,
            attempts,
            duration: evidence.elapsed,
            observed: evidence,
            source: case.clone(),
        };
        (planned, trial)
    }

    /// Lets every backend remove what is left of its sandboxes, also of those that were given up halfway.
    pub(super) async fn close(&mut self) {
        // What was begun and given up holds containers as long as somebody may ask for it.
        self.able_together.clear();
        self.forget_able();
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
        let sandboxes = self.audit.sandboxes.iter().zip(self.backends);
        sandboxes
            .zip(facts)
            .map(|((sandbox, backend), facts)| facts.report(sandbox, backend, self.bench))
            .collect()
    }

    /// Finds out for all sandboxes which of the cases that may share one are able.
    pub(super) async fn find_able(&self) {
        for together in self.able_together.values().cloned() {
            together.await;
        }
    }

    /// For each sandbox: what only looks, tried in one go where nothing should stop it. Sandboxes that promise the same
    /// share what is tried without any sandbox; an engine's container is tried for each.
    fn plan_able(&self, planned: &[Planned]) -> BTreeMap<(usize, Control), Later<'a, Together>> {
        let (audit, bench) = (self.audit, self.bench);
        let mut lists: BTreeMap<(usize, Control), Vec<usize>> = BTreeMap::new();
        for (index, sandbox) in audit.sandboxes.iter().enumerate() {
            // What an engine's container is like is learnt even where no case asks.
            if sandbox.backend == BackendKind::Docker {
                lists.insert((index, Control::Unrestricted), Vec::new());
            }
        }
        for trial in planned.iter().filter(|trial| trial.skip.is_none()) {
            let case = &audit.cases[trial.case];
            let sandbox = &audit.sandboxes[trial.sandbox];
            if needs_able(case, sandbox) && may_share(case) {
                let control = plan::control(case, sandbox, &bench.machine);
                // The first sandbox that promises the same stands for all.
                let same = |other: &Sandbox| {
                    other.policy == sandbox.policy && other.range == sandbox.range
                };
                let first = match control {
                    Control::Unsandboxed => audit.sandboxes.iter().position(same),
                    Control::Unrestricted => None,
                };
                let key = (first.unwrap_or(trial.sandbox), control);
                let list = lists.entry(key).or_default();
                if !list.contains(&trial.case) {
                    list.push(trial.case);
                }
            }
        }
        let mut found: BTreeMap<(usize, Control), Later<'a, Together>> = BTreeMap::new();
        for ((index, control), list) in lists {
            let number = self.number();
            let control_of = Controlled {
                bench,
                sandbox: &audit.sandboxes[index],
                backend: self.backends[index].as_deref(),
                control,
            };
            let future = async move { control_of.together(audit, list, number).await };
            found.insert((index, control), future.boxed_local().shared());
        }
        for (index, sandbox) in audit.sandboxes.iter().enumerate() {
            let same = audit
                .sandboxes
                .iter()
                .position(|other| other.policy == sandbox.policy && other.range == sandbox.range);
            let first = found
                .get(&(same.unwrap_or(index), Control::Unsandboxed))
                .cloned();
            if let Some(first) = first {
                found.entry((index, Control::Unsandboxed)).or_insert(first);
            }
        }
        found
    }

    /// Whether a case that may share a sandbox is able. What did not get through in company is tried alone.
    async fn able_of(&self, planned: &Planned) -> Able {
        let case = &self.audit.cases[planned.case];
        let sandbox = &self.audit.sandboxes[planned.sandbox];
        let control = plan::control(case, sandbox, &self.bench.machine);
        if let Some(together) = self.able_together.get(&(planned.sandbox, control)).cloned() {
            let together = together.await;
            if let Some(able @ Able::Proven { .. }) = together.able.get(&planned.case) {
                return able.clone();
            }
        }
        let able = self.able(case, planned.sandbox, control).await;
        // Not every target can stand in a network that others use; in ours all do.
        match (&able, control) {
            (Able::NotProven { .. }, Control::Unrestricted) if case.attempt.is_network() => {
                self.able(case, planned.sandbox, Control::Unsandboxed).await
            }
            _ => able,
        }
    }

    /// Whether the attempt gets through where nothing should stop it: tried once a policy, however many sandboxes ask.
    fn able(
        &self,
        case: &'a Case,
        index: usize,
        control: Control,
    ) -> impl Future<Output = Able> + use<'a> {
        let sandbox = &self.audit.sandboxes[index];
        let engine = match control {
            Control::Unsandboxed => None,
            Control::Unrestricted => Some(index),
        };
        let key = format!(
            "{} {:?} {:?} {engine:?}",
            case.id, sandbox.policy, sandbox.range
        );
        let (bench, number) = (self.bench, self.number());
        let backend = self.backends[index].as_deref();
        let mut able = self.able.borrow_mut();
        let later = able.entry(key).or_insert_with(|| {
            let controlled = Controlled {
                bench,
                sandbox,
                backend,
                control,
            };
            async move { controlled.alone(case, number).await }
                .boxed_local()
                .shared()
        });
        later.clone()
    }

    /// What the engine's unrestricted container showed: whether its network is the canaries', whether there is a way to those
    /// on the engine's side (one that nobody reaches proves nothing by its silence), and whether an ordinary
    /// container of it is visible to the host while this one is not.
    async fn learn_of_engine(&self, index: usize, evidence: &mut Evidence) {
        let key = (index, Control::Unrestricted);
        let Some(together) = self.able_together.get(&key).cloned() else {
            return;
        };
        let together = together.await;
        let backend = self.backends[index].as_ref().ok();
        let comes_out_here = backend.is_some_and(|backend| backend.comes_out_here());
        evidence.leads_to_range &= together.reached && comes_out_here;
        let posts = backend.and_then(|backend| backend.posts());
        for target in &mut evidence.targets {
            let of_post = posts.filter(|posts| posts.holds(&target.address));
            target.alive &= of_post.is_none_or(|posts| posts.is_vouched(&target.address));
        }
        let own = backend.and_then(|backend| backend.own_kernel(&self.audit.sandboxes[index]));
        let Start::Seen { boot, .. } = &evidence.start else {
            return;
        };
        // Where the host sees the probe itself, its own kernel runs it, whatever the engine calls the runtime.
        let elsewhere = *boot != proc::boot_id() && evidence.probe().is_none();
        evidence.own_kernel = own.filter(|_| elsewhere && together.seen_by_name).map(|engine| {
            let boot = if boot.is_empty() { "is absent" } else { "is another" };
            format!("{engine}, the boot id {boot}, and the host sees an ordinary container's processes")
        });
    }

    /// Lets everything be tried again.
    pub(super) fn forget_able(&self) {
        self.able.borrow_mut().clear();
    }

    fn number(&self) -> usize {
        self.next.replace(self.next.get() + 1)
    }
}

/// Whether what a case came to in a shared sandbox stands. What escaped by its own evidence did, however the sandbox fared:
/// no repetition may lower it. Anything else counts where the sandbox did as one alone does and the case came out decided.
fn is_settled(case: &Case, sandbox: &Sandbox, evidence: &Evidence) -> bool {
    let by = "assumed".to_owned();
    let assumed = Evidence {
        able: Able::Proven { by },
        ..evidence.clone()
    };
    let own = Evidence {
        survivors: Vec::new(),
        end: End::Unknown,
        ..assumed.clone()
    };
    if judge(case, sandbox, &own).verdict == Verdict::Escaped {
        return true;
    }
    let went_well = evidence.inside.ended
        && evidence.end == (End::ByItself { status: 0 })
        && evidence.survivors.is_empty()
        && evidence.contradictions.is_empty()
        && evidence.faults.is_empty();
    let undecided = [Verdict::Inconclusive, Verdict::Error];
    went_well && !undecided.contains(&judge(case, sandbox, &assumed).verdict)
}

/// What must work is its own control, and an unsandboxed trial is the control itself.
fn needs_able(case: &Case, sandbox: &Sandbox) -> bool {
    case.expect == Expect::Blocked && sandbox.backend != BackendKind::Unsandboxed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{CanaryKind, Library};
    use crate::evidence::{Fault, Touch};

    #[test]
    fn what_escaped_in_a_shared_sandbox_is_never_tried_away() {
        let library = Library::load(&[]).expect("the library");
        let id = "network/tcp-egress";
        let case = library.cases.iter().find(|case| case.id == id);
        let case = case.expect("a case");
        let sandbox = Sandbox::new("oci", BackendKind::Oci);
        let mut evidence = Evidence::default();
        evidence.faults.push(Fault {
            code: "engine-gone",
            text: "the engine hung up".into(),
        });
        assert!(
            !is_settled(case, &sandbox, &evidence),
            "it has to be made again"
        );
        evidence.touches.push(Touch {
            canary: CanaryKind::Tcp,
            address: "tcp://203.0.113.10:1".into(),
            at_ms: 1,
            late: false,
            saw: Vec::new(),
        });
        assert!(is_settled(case, &sandbox, &evidence), "it escaped");
    }
}
