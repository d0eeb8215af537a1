//! One fresh sandbox, from its start to the last sweep, and the trials that are made in it: what is done, in order, and
//! what is seen on the way.
//!
//! Most trials have a sandbox of their own. Cases that only look may share one: each attempt has its own process, token
//! and records, and what concerns the sandbox as a whole is evidence in all of its trials.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::bench::Bench;
use super::dose::{Dose, dose};
use super::session::Session;
use super::trial::{Trial, random_hex};
use crate::backend::{Backend, BackendError, Launch};
use crate::case::{Attempt, Case, Ceiling, Danger, Need};
use crate::config::model::NOBODY;
use crate::config::{BackendKind, NetworkMode, Sandbox, Settings};
use crate::evidence::{Evidence, Fault, Inside};
use crate::host::cgroup::{Bounds, Cgroup};
use crate::host::mounts::Translator;
use crate::host::proc;
use crate::range::posts::Posts;

/// How long a process may take to be gone after SIGKILL.
const GONE: Duration = Duration::from_secs(2);

/// What is to be made.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// What all trials of the run share.
    pub bench: &'a Bench,
    /// What is audited.
    pub sandbox: &'a Sandbox,
    /// Its settings without what was taken away.
    pub settings: &'a Settings,
    /// What starts it, or why it could not be opened.
    pub backend: Result<&'a dyn Backend, &'a BackendError>,
    /// Watch on after the payload's end: late beacons and survivors. What only has to be seen getting through needs none.
    pub watches: bool,
}

/// What was seen.
pub struct Made {
    /// One for each case, in their order.
    pub seen: Vec<Seen>,
    /// What was in force, as the host read it.
    pub in_force: Vec<(String, String)>,
    /// The launcher added no isolation at all.
    pub not_engaged: bool,
    /// The host saw the probe in there by its secret name.
    pub seen_by_name: bool,
}

/// What one trial brought.
pub struct Seen {
    /// The evidence, complete but for *able*.
    pub evidence: Evidence,
    /// The sandbox's user turned out to be root, and the attempt means nothing to root.
    pub already_root: bool,
}

/// Makes one sandbox and tries these cases in it. `number` names it within the run.
pub async fn make(order: Order<'_>, cases: &[&Case], number: usize) -> Made {
    let range = order.bench.range_of(order.sandbox);
    let stood_by = match order.backend {
        // Whose network the engine's is decides about names and metadata too, where no post is a target.
        Ok(backend) if cases.iter().any(|case| case.attempt.is_network()) => {
            backend.stand_by(range).await
        }
        _ => Ok(()),
    };
    let posts = order.backend.ok().and_then(Backend::posts);
    let started = std::time::Instant::now();
    let name = format!("trial-{number}");
    let folder = order.bench.run_dir().join(&name);
    let limiter = match needs_no_bounds(cases, order.sandbox) {
        true => Ok(None),
        false => order.bench.limiter(&name),
    };
    let trials = cases
        .iter()
        .map(|case| Trial::new(case, range, posts))
        .collect();
    let mut instance = Instance {
        order,
        nonce: random_hex(16),
        thread_name: format!("ea{}", random_hex(6)),
        started,
        limiter: limiter.as_ref().ok().cloned().flatten(),
        common: Evidence::default(),
        in_force: Vec::new(),
        not_engaged: false,
        seen_by_name: false,
        posts,
        trials,
    };
    if let Err(error) = stood_by {
        instance.fault(error.code, error.to_string());
    }
    match (limiter, order.backend) {
        (_, Err(error)) => instance.fault(error.code, error.to_string()),
        (Err(error), _) => instance.fault("harness-failed", error.to_string()),
        (Ok(_), Ok(backend)) => instance.run(backend, &name, &folder).await,
    }
    instance.sweep(&folder);
    instance.common.elapsed = started.elapsed();
    instance.made()
}

/// One sandbox in the making.
pub(super) struct Instance<'a> {
    pub(super) order: Order<'a>,
    pub(super) nonce: String,
    pub(super) thread_name: String,
    pub(super) started: std::time::Instant,
    pub(super) limiter: Option<Cgroup>,
    /// What is evidence in every trial.
    pub(super) common: Evidence,
    pub(super) in_force: Vec<(String, String)>,
    pub(super) not_engaged: bool,
    pub(super) seen_by_name: bool,
    /// The canaries on the engine's side.
    pub(super) posts: Option<&'a Posts>,
    pub(super) trials: Vec<Trial<'a>>,
}

impl Instance<'_> {
    async fn run(&mut self, backend: &dyn Backend, name: &str, folder: &Path) {
        let bench = self.order.bench;
        for trial in &mut self.trials {
            if let Err(error) = trial.plant(bench.run_dir()) {
                return self.fault("harness-failed", format!("prepare the attempt: {error}"));
            }
        }
        let doses = self.doses(&Translator::default());
        let bounds = doses.iter().map(|dose| dose.bounds);
        if let Some(limiter) = &self.limiter
            && let Some(bounds) = bounds.reduce(Bounds::wider)
            && let Err(error) = limiter.bound(bounds)
        {
            return self.fault("harness-failed", format!("bound the limiter: {error}"));
        }
        let mut measured = doses.iter().filter_map(|dose| dose.measure);
        if let Some(limiter) = &self.limiter
            && measured.any(|measure| measure.what == Ceiling::Cpu)
        {
            limiter.favour();
        }
        let exposed = bench.exposed(self.order.settings);
        let launch = Launch {
            trial: name,
            sandbox: self.order.sandbox,
            settings: self.order.settings,
            probe: &bench.probe,
            folder,
            entry: bench.entry(self.order.sandbox),
            limiter: self.limiter.as_ref(),
            environment: &bench.plants.environment,
            home: &bench.plants.home,
            exposed: &exposed,
            gains: self.any(gains),
            set_uid: bench.set_uid().filter(|_| self.any(gains)),
            as_user: self.as_user(),
            may_mount: self.any(|case| case.danger > Danger::Looks),
        };
        match backend.start(&launch).await {
            Ok(running) => {
                let mut session = Session::new(running, &self.nonce, self.trials.len());
                let enforces = backend.enforces(self.order.settings);
                self.converse(&mut session, enforces).await;
                self.collect(session).await;
            }
            Err(error) => self.fault(error.code, error.to_string()),
        }
    }

    /// Whether any of the cases is of this kind.
    pub(super) fn any(&self, is: impl Fn(&Case) -> bool) -> bool {
        self.trials.iter().any(|trial| is(trial.case))
    }

    fn as_user(&self) -> Option<(u32, u32)> {
        let unsandboxed = self.order.sandbox.backend == BackendKind::Unsandboxed;
        let means_nothing_to_root = self.any(|case| case.needs.contains(&Need::NotRoot));
        (unsandboxed && self.order.bench.machine.root && means_nothing_to_root).then_some(NOBODY)
    }

    /// The dose of each case, in their order. Where the host's files appear inside is known once the sandbox runs.
    pub(super) fn doses(&self, translator: &Translator) -> Vec<Dose> {
        let policy = &self.order.sandbox.policy;
        let backend = self.order.sandbox.backend;
        let (on_this_machine, resolver) = (self.stays_in_range(), self.has_a_resolver());
        self.trials
            .iter()
            .enumerate()
            .map(|(id, trial)| {
                let mut given = trial.given(self.order.bench, translator, backend, on_this_machine);
                given.thread_name.clone_from(&self.thread_name);
                given.resolver = resolver;
                dose(trial.case, id, policy, &given)
            })
            .collect()
    }

    /// Whether the sandbox has name servers that its engine chose and that may lead farther than its own packets do. One
    /// without a way out has none, and one in the host's network has the host's.
    fn has_a_resolver(&self) -> bool {
        let Order {
            sandbox, settings, ..
        } = self.order;
        let witness = self.common.witness.as_ref();
        sandbox.backend == BackendKind::Docker
            && !matches!(settings.network_mode, NetworkMode::None | NetworkMode::Host)
            && witness.is_none_or(|witness| witness.no_route != Some(true))
    }

    /// Whether what the probe sends stays on this machine, as far as the host sees. A survivor is found without beacons,
    /// too, so where this is not known there are none.
    fn stays_in_range(&self) -> bool {
        let witness = self.common.witness.as_ref();
        self.common.leads_to_range
            || witness.is_some_and(|witness| self.order.bench.in_range(witness.pid))
    }

    /// What was told, what was found, and whether the sentinels are well.
    async fn collect(&mut self, mut session: Session) {
        session.hang_up();
        for error in session.running.life.trouble() {
            self.fault(error.code, error.text);
        }
        let left = session.running.life.end().await;
        for error in session.running.life.trouble() {
            self.fault(error.code, error.text);
        }
        for left in left {
            self.fault("left-behind", left);
        }
        let records = session.records;
        let bench = self.order.bench;
        // Without any secret of the user's.
        let [output, error] = records.printed(|said| bench.plants.redact(said));
        for (id, trial) in self.trials.iter_mut().enumerate() {
            let inside = Inside {
                output: output.clone(),
                error: error.clone(),
                ..records.inside(id)
            };
            trial.told(inside, &self.nonce, bench);
            trial.look_at_sentinels(&self.nonce).await;
        }
        self.common.start = records.start;
        self.common.contradictions = records.contradictions;
    }

    pub(super) fn fault(&mut self, code: &'static str, text: String) {
        self.common.faults.push(Fault { code, text });
    }

    /// Nothing of the sandbox stays: its processes, its group, its folder.
    fn sweep(&mut self, folder: &Path) {
        for trial in &mut self.trials {
            let bench = self.order.bench;
            trial.sweep(bench.range_of(self.order.sandbox), bench.run_dir());
        }
        self.end_by_name();
        if let Some(limiter) = self.limiter.take() {
            let left = limiter.kill();
            if !left.is_empty() {
                self.fault(
                    "left-behind",
                    format!("processes {left:?} could not be ended"),
                );
            }
            if let Err(error) = limiter.remove() {
                self.fault("left-behind", error.to_string());
            }
        }
        if let Err(error) = fs::remove_dir_all(folder)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            self.fault("left-behind", format!("{}: {error}", folder.display()));
        }
    }

    /// Ends what carries the probe's secret name, wherever it was started.
    fn end_by_name(&mut self) {
        let named = || self.searched_name().map(proc::named).unwrap_or_default();
        let until = std::time::Instant::now() + GONE;
        let mut left = named();
        while !left.is_empty() && std::time::Instant::now() < until {
            for pid in &left {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
            left = named();
        }
        if !left.is_empty() {
            let text = format!("processes {left:?}, which this user may not end");
            self.fault("left-behind", text);
        }
    }

    fn made(self) -> Made {
        let mut common = self.common;
        for fault in &mut common.faults {
            fault.text = self.order.bench.without_secrets(&fault.text);
        }
        let shared = self.trials.len() > 1;
        Made {
            seen: self
                .trials
                .into_iter()
                .map(|trial| trial.seen(&common, shared))
                .collect(),
            in_force: self.in_force,
            not_engaged: self.not_engaged,
            seen_by_name: self.seen_by_name,
        }
    }
}

fn gains(case: &Case) -> bool {
    case.attempt == Attempt::GainPrivileges
}

/// Our own probe, putting no load on, needs no group to hold it: it ends by its own deadline, and with its process group.
fn needs_no_bounds(cases: &[&Case], sandbox: &Sandbox) -> bool {
    let loads = |case: &&Case| case.danger >= Danger::Loads;
    sandbox.backend == BackendKind::Unsandboxed && !cases.iter().any(loads)
}

/// Whether a case's attempt changes nothing and loads nothing, so that another may be made in the same sandbox.
pub fn may_share(case: &Case) -> bool {
    case.danger == Danger::Looks && !case.needs.contains(&Need::NotRoot)
}
