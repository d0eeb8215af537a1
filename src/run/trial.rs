//! One trial, from a fresh sandbox to the last sweep: what is done, in order, and what is seen on the way.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use escape_audit_probe::wire::Outcome;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::Rng;
use tokio::time::{Instant, sleep};

use super::bench::Bench;
use super::dose::{GRACE, Given, dose};
use super::session::Session;
use crate::backend::{Backend, BackendError, Launch};
use crate::case::{Attempt, Case, Ceiling, Danger, Need};
use crate::config::model::NOBODY;
use crate::config::{BackendKind, Sandbox, Settings};
use crate::evidence::{Able, Evidence, Fault, SecretFound};
use crate::host::cgroup::Cgroup;
use crate::host::mounts::Translator;
use crate::host::proc;
use crate::range::sentinel::Sentinel;
use crate::range::{TargetSpec, Token};

/// How much of what was printed is kept; more is read, so that no secret is cut in two before it is seen.
const MAX_SHOWN: usize = 4096;

/// What one trial brought.
pub struct Seen {
    /// The evidence, complete but for the verdict.
    pub evidence: Evidence,
    /// What was in force, as the host read it.
    pub in_force: Vec<(String, String)>,
    /// The launcher added no isolation at all.
    pub not_engaged: bool,
    /// The sandbox's user turned out to be root, and the attempt means nothing to root.
    pub already_root: bool,
}

/// Makes one trial. `number` names it within the run.
pub async fn trial(
    bench: &Bench,
    case: &Case,
    sandbox: &Sandbox,
    settings: &Settings,
    backend: Result<&dyn Backend, &BackendError>,
    able: Able,
    number: usize,
) -> Seen {
    let started = std::time::Instant::now();
    let name = format!("trial-{number}");
    let folder = bench.run_dir().join(&name);
    let limiter = match needs_no_bounds(case, sandbox) {
        true => Ok(None),
        false => bench.limiter(&name),
    };
    let token = bench.range.watch();
    let mut trial = Trial {
        bench,
        case,
        sandbox,
        settings,
        nonce: random_hex(16),
        thread_name: format!("ea{}", random_hex(6)),
        token,
        started,
        sentinels: Vec::new(),
        signal_value: rand::rng().random_range(1..i32::MAX),
        limiter: limiter.as_ref().ok().cloned().flatten(),
        seen: Seen {
            evidence: Evidence {
                able,
                ..Evidence::default()
            },
            in_force: Vec::new(),
            not_engaged: false,
            already_root: false,
        },
    };
    let made = fs::create_dir(&folder);
    match (limiter, made, backend) {
        (_, _, Err(error)) => trial.fault(error.code, error.to_string()),
        (Err(error), _, _) => trial.fault("harness-failed", error.to_string()),
        (_, Err(error), _) => trial.fault(
            "harness-failed",
            format!("make the trial's folder: {error}"),
        ),
        (Ok(_), Ok(()), Ok(backend)) => trial.run(backend, &name, &folder).await,
    }
    trial.sweep(&folder);
    trial.seen.evidence.elapsed = started.elapsed();
    trial.seen
}

/// One trial in the making.
pub(super) struct Trial<'a> {
    pub(super) bench: &'a Bench,
    pub(super) case: &'a Case,
    pub(super) sandbox: &'a Sandbox,
    pub(super) settings: &'a Settings,
    pub(super) nonce: String,
    pub(super) thread_name: String,
    pub(super) token: Token,
    pub(super) started: std::time::Instant,
    pub(super) sentinels: Vec<Sentinel>,
    pub(super) signal_value: i32,
    pub(super) limiter: Option<Cgroup>,
    pub(super) seen: Seen,
}

impl Trial<'_> {
    async fn run(&mut self, backend: &dyn Backend, name: &str, folder: &Path) {
        let specs = self.bench.range.targets(&self.case.attempt);
        if let Err(error) = self.start_sentinels() {
            return self.fault("harness-failed", format!("start a sentinel: {error}"));
        }
        let nowhere = Translator::default();
        let dose = dose(
            self.case,
            &self.sandbox.policy,
            &self.given(&specs, &nowhere),
        );
        if let Some(limiter) = &self.limiter
            && let Err(error) = limiter.bound(dose.bounds)
        {
            return self.fault("harness-failed", format!("bound the limiter: {error}"));
        }
        if let (Some(limiter), Some(Ceiling::Cpu)) =
            (&self.limiter, dose.measure.map(|measure| measure.what))
        {
            limiter.favour();
        }
        let host_folders: Vec<PathBuf> = self.bench.host_folders();
        let as_user = (self.sandbox.backend == BackendKind::Unsandboxed
            && self.bench.machine.root
            && self.case.needs.contains(&Need::NotRoot))
        .then_some(NOBODY);
        let launch = Launch {
            trial: name,
            sandbox: self.sandbox,
            settings: self.settings,
            probe: &self.bench.probe,
            folder,
            entry: self.bench.entry(self.sandbox),
            limiter: self.limiter.as_ref(),
            environment: &self.bench.plants.environment,
            home: &self.bench.plants.home,
            host_folders: &host_folders,
            as_user,
            may_mount: self.case.danger > Danger::Looks,
        };
        match backend.start(&launch).await {
            Ok(running) => {
                let mut session = Session::new(running, &self.nonce);
                let enforces = backend.enforces(self.settings);
                self.converse(&mut session, &specs, enforces).await;
                self.collect(session).await;
            }
            Err(error) => self.fault(error.code, error.to_string()),
        }
    }

    /// What was told, what was found, and whether the sentinels are well.
    async fn collect(&mut self, mut session: Session) {
        session.hang_up();
        for error in session.running.life.trouble() {
            self.fault(error.code, error.text);
        }
        for left in session.running.life.end().await {
            self.fault("left-behind", left);
        }
        let records = session.records;
        let evidence = &mut self.seen.evidence;
        evidence.start = records.start;
        evidence.contradictions = records.contradictions;
        evidence.inside = records.inside;
        let plants = &self.bench.plants;
        for said in [
            &mut evidence.inside.output_head,
            &mut evidence.inside.error_head,
        ] {
            *said = plants.redact(said);
            said.truncate(MAX_SHOWN);
        }
        for fault in &mut evidence.faults {
            let clean = plants.redact(fault.text.as_bytes());
            fault.text = String::from_utf8_lossy(&clean).into_owned();
        }
        self.find_secrets();
        self.hear_sentinels().await;
        self.look_at_sentinels();
    }

    fn find_secrets(&mut self) {
        let evidence = &mut self.seen.evidence;
        let mut found: Vec<SecretFound> = Vec::new();
        for key in ["env", "file"] {
            for fact in evidence.inside.facts_of(key) {
                let hash = std::str::from_utf8(&fact.value).unwrap_or_default();
                let Some(secret) = self.bench.plants.match_secret(&self.nonce, hash) else {
                    continue;
                };
                let secret = SecretFound {
                    name: secret.name,
                    found_in: fact.name.clone(),
                    real: secret.real,
                };
                if !found.contains(&secret) {
                    found.push(secret);
                }
            }
        }
        evidence.secrets.extend(found);
        let read = evidence.inside.steps_of("read");
        let ok = read.filter(|step| step.outcome == Outcome::Ok);
        let uncompared: Vec<String> = ok
            .map(|step| step.target.clone())
            .filter(|path| !self.bench.plants.knows(path))
            .filter(|path| fs::metadata(path).is_ok_and(|meta| meta.is_file()))
            .collect();
        if matches!(self.case.attempt, Attempt::ReadFile { .. }) {
            evidence.uncompared.extend(uncompared);
        }
    }

    fn start_sentinels(&mut self) -> std::io::Result<()> {
        let wanted = match self.case.attempt {
            Attempt::ListProcesses | Attempt::Signal => 1,
            _ => 0,
        };
        for _ in 0..wanted {
            self.sentinels
                .push(Sentinel::start(&crate::range::myself(), None)?);
        }
        Ok(())
    }

    /// A signal that was sent takes a moment to be told of by who got it.
    async fn hear_sentinels(&mut self) {
        let inside = &self.seen.evidence.inside;
        let sent = inside
            .steps_of("signal")
            .any(|step| step.outcome == Outcome::Ok);
        let until = Instant::now() + GRACE;
        while sent && Instant::now() < until {
            let value = self.signal_value;
            if self.sentinels.iter_mut().any(|s| s.signalled_with(value)) {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn look_at_sentinels(&mut self) {
        let sentinel = &mut self.seen.evidence.sentinel;
        sentinel.alive = !self.sentinels.is_empty();
        for planted in &mut self.sentinels {
            sentinel.alive &= planted.alive();
            sentinel.signalled |= planted.signalled_with(self.signal_value);
            let hash =
                escape_audit_probe::sha256::secret_hash(&self.nonce, planted.name().as_bytes());
            sentinel.seen |= self
                .seen
                .evidence
                .inside
                .facts
                .iter()
                .any(|fact| fact.key == "process" && fact.value == hash.as_bytes());
        }
    }

    pub(super) async fn alive(&self, specs: &[TargetSpec]) -> Vec<bool> {
        let mut alive = Vec::with_capacity(specs.len());
        for spec in specs {
            alive.push(self.bench.range.alive(spec).await);
        }
        alive
    }

    pub(super) fn given(&self, specs: &[TargetSpec], translator: &Translator) -> Given {
        // A socket of the host may appear at another path; any other address is the same everywhere.
        let addresses = || -> Vec<String> {
            let all = specs.iter().map(|spec| spec.address.clone());
            let elsewhere = specs
                .iter()
                .filter_map(|spec| spec.address.strip_prefix("path:"))
                .flat_map(|path| translator.inside(Path::new(path)))
                .map(|path| format!("path:{}", path.display()));
            all.chain(elsewhere).collect()
        };
        let outlive = matches!(self.case.attempt, Attempt::Outlive { .. });
        let plants = &self.bench.plants;
        let paths: Vec<String> = match &self.case.attempt {
            Attempt::ReadFile { paths } => paths
                .iter()
                .flat_map(|path| plants.expand_path(path))
                .collect(),
            _ => Vec::new(),
        };
        let places = plants.writable_places();
        let places = places
            .iter()
            .map(|place| place.to_string_lossy().into_owned());
        Given {
            token: self.token.as_str().to_owned(),
            thread_name: self.thread_name.clone(),
            targets: if outlive { Vec::new() } else { addresses() },
            paths: translator.with_translations(paths),
            host_folders: translator.with_translations(places.collect()),
            sentinels: self.sentinels.iter().map(Sentinel::pid).collect(),
            signal_value: self.signal_value,
            beacons: if outlive && self.stays_in_range() {
                addresses()
            } else {
                Vec::new()
            },
            helpers: self.bench.helpers(),
            cpus: self.bench.machine.cpus,
        }
    }

    /// Whether what the probe sends stays on this machine, as far as the host sees. A survivor is found without beacons,
    /// too, so where this is not known there are none.
    fn stays_in_range(&self) -> bool {
        let witness = self.seen.evidence.witness.as_ref();
        witness.is_some_and(|witness| self.bench.in_range(witness.pid))
    }

    pub(super) fn fault(&mut self, code: &'static str, text: String) {
        self.seen.evidence.faults.push(Fault { code, text });
    }

    /// Nothing of the trial stays: its processes, its group, its folder.
    fn sweep(&mut self, folder: &std::path::Path) {
        self.sentinels.clear();
        self.bench.range.forget(&self.token);
        // A probe that was ended while it waited could not remove what it had written.
        for path in &self.seen.evidence.host_files {
            if path.ends_with(self.token.as_str()) {
                let _ = fs::remove_file(path);
            }
        }
        for pid in self.searched_name().map(proc::named).unwrap_or_default() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
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
}

/// Our own probe, only looking, needs no group to hold it: it ends by its own deadline, and with its process group.
fn needs_no_bounds(case: &Case, sandbox: &Sandbox) -> bool {
    sandbox.backend == BackendKind::Unsandboxed && case.danger == Danger::Looks
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn random_hex(bytes: usize) -> String {
    let mut rng = rand::rng();
    (0..bytes)
        .map(|_| format!("{:02x}", rng.random::<u8>()))
        .collect()
}
