//! Carries a plan out: canaries, backend, judge, events; always sweeps.

mod able;
pub mod bench;
mod course;
pub mod dose;
mod facts;
pub mod instance;
mod meet;
pub mod observe;
pub mod output;
pub mod records;
mod runner;
pub mod session;
mod trial;
mod watch;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;

use anyhow::Result;
use futures_util::pin_mut;
use futures_util::stream::{self, StreamExt};

use crate::backend::{self, BackendError};
use crate::case::{Attempt, Case, Danger, Expect, SpinUntil, Transport};
use crate::config::{RangeConfig, Sandbox};
use crate::plan::{self, Planned};
use crate::report::{SandboxReport, Trial};
use crate::verdict::Verdict;
use bench::Bench;
use runner::{Opened, Runner, Unit};

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
    /// Only these trials, by the names of sandbox and case; `None`: all.
    pub chosen: Option<BTreeSet<(String, String)>>,
    /// How many short trials at a time.
    pub jobs: usize,
    /// A sandbox of its own for every case, also for those that only look.
    pub fresh: bool,
    /// How often a trial that came to INCONCLUSIVE is made again, alone; `None`: once, where a ceiling on CPU time was
    /// measured in company. Nothing else is tried away: what escaped did, whatever a second try would show.
    pub retries: Option<u32>,
}

impl Audit {
    /// How often this trial may be made again, for what it came to.
    fn retries(&self, trial: &Trial) -> u32 {
        // A ceiling on CPU time shows only where there is CPU time to be had.
        let by_default = u32::from(measures_cpu(&trial.source));
        match trial.judgement.verdict {
            Verdict::Inconclusive => self.retries.unwrap_or(by_default),
            _ => 0,
        }
    }

    /// The trials, made or skipped.
    pub fn planned(&self, bench: &Bench) -> Vec<Planned> {
        let mut planned = plan::plan(&self.cases, &self.sandboxes, &bench.machine);
        if self.only_weakened {
            planned.retain(|trial| proves(&self.cases[trial.case], &self.sandboxes[trial.sandbox]));
        }
        if let Some(chosen) = &self.chosen {
            planned.retain(|trial| {
                let sandbox = self.sandboxes[trial.sandbox].name.clone();
                chosen.contains(&(sandbox, self.cases[trial.case].id.clone()))
            });
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

/// What happens while the audit runs.
pub enum Happened<'a> {
    /// A backend does something that takes long: it pulls an image.
    Progress(&'a str),
    /// A trial came to a verdict.
    Trial(&'a Trial),
}

/// How many trials that mostly wait go on beside the others.
const WAITING_JOBS: usize = 8;

/// Carries the audit out. `stop` ends it early: what runs is swept, what was decided is kept.
pub async fn run(
    audit: &Audit,
    bench: &Bench,
    on_event: &mut dyn FnMut(Happened<'_>),
    stop: impl Future<Output = ()>,
) -> Result<Outcome> {
    pin_mut!(stop);
    let mut interrupted = false;
    let mut backends: Vec<Opened> = Vec::new();
    for sandbox in &audit.sandboxes {
        let told = RefCell::new(&mut *on_event);
        let progress = |text: &str| (told.borrow_mut())(Happened::Progress(text));
        let opening = bench.opening(&progress);
        backends.push(tokio::select! {
            biased;
            () = &mut stop => { interrupted = true; Err(never_opened()) }
            opened = backend::open(sandbox, &opening) => opened,
        });
        if interrupted {
            for left in backend::abandon(sandbox, &opening).await {
                on_event(Happened::Progress(&format!("left behind: {left}")));
            }
            break;
        }
    }
    backends.resize_with(audit.sandboxes.len(), || Err(never_opened()));
    let planned = audit.planned(bench);
    let mut runner = Runner::new(audit, bench, &backends, &planned);
    // What mostly waits starts first and goes on beside the rest.
    let (waiting, short): (Vec<Unit>, Vec<Unit>) =
        runner.units(planned).into_iter().partition(|unit| {
            unit.iter()
                .any(|trial| mostly_waits(&audit.cases[trial.case]))
        });
    let waiting = stream::iter(waiting)
        .map(|unit| runner.tried(unit))
        .buffer_unordered(WAITING_JOBS);
    let short = stream::iter(short)
        .map(|unit| runner.tried(unit))
        .buffer_unordered(audit.jobs.max(1));
    let mut done: Vec<(Planned, Trial)> = Vec::new();
    {
        // Whoever waits to hear whether the attempt is able keeps no other trial from being made.
        let trials = stream::select(waiting, short)
            .flat_map(stream::iter)
            .map(|tried| runner.judged(tried))
            .buffer_unordered(usize::MAX);
        let able = stream::once(runner.find_able()).filter_map(|()| std::future::ready(None));
        let trials = stream::select(able, trials);
        pin_mut!(trials);
        while !interrupted {
            tokio::select! {
                biased;
                () = &mut stop => interrupted = true,
                next = trials.next() => match next {
                    Some((planned, trial)) => {
                        if audit.retries(&trial) == 0 {
                            on_event(Happened::Trial(&trial));
                        }
                        done.push((planned, trial));
                    }
                    None => break,
                }
            }
        }
        // What could not be decided in company is tried again, alone.
        'trials: for (planned, trial) in &mut done {
            if interrupted {
                break;
            }
            let most = audit.retries(trial);
            let mut made = 0;
            while made < most && trial.judgement.verdict == Verdict::Inconclusive {
                runner.forget_able();
                let before = trial.attempts;
                tokio::select! {
                    biased;
                    () = &mut stop => { interrupted = true; break 'trials; }
                    again = runner.alone(planned.clone()) => *trial = again,
                }
                trial.attempts += before;
                made += 1;
            }
            if made > 0 {
                on_event(Happened::Trial(trial));
            }
        }
    }
    done.sort_by_key(|(planned, _)| (planned.sandbox, planned.case));
    runner.close().await;
    Ok(Outcome {
        sandboxes: runner.reports(),
        trials: done.into_iter().map(|(_, trial)| trial).collect(),
        interrupted,
    })
}

fn never_opened() -> BackendError {
    BackendError::new(
        "backend-failed",
        "the audit was stopped before it was opened",
    )
}

/// Whether this sandbox lacks just what the case says must be missing.
fn proves(case: &Case, sandbox: &Sandbox) -> bool {
    let set = case.weakened.for_backend(sandbox.backend.name());
    case.expect == Expect::Blocked
        && !set.is_empty()
        && set.iter().copied().collect::<BTreeSet<_>>() == sandbox.without
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

/// How many short trials at a time where the user did not say: the CPUs are busy while one waits for the kernel.
pub fn default_jobs(bench: &Bench) -> usize {
    usize::try_from(bench.machine.cpus).unwrap_or(1) * 2
}
