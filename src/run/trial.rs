//! One trial, from a fresh sandbox to the last sweep: what is done, in order, and what is seen on the way.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use escape_audit_probe::wire::{Message, Outcome};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::Rng;
use tokio::time::{Instant, sleep};

use super::bench::Bench;
use super::dose::{Dose, GRACE, Given, dose};
use super::observe::{self, Meter};
use super::records::Event;
use super::session::{Happening, Session};
use crate::backend::{Enforces, Launch, Stop, backend};
use crate::case::{
    Attempt, Case, Ceiling, Danger, KilledBy, Need, SpinUntil, UnixTarget, WriteInto,
};
use crate::config::{BackendKind, Sandbox, Settings};
use crate::evidence::{Able, Cause, End, Evidence, Fault, SecretFound, Start, Target};
use crate::host::cgroup::Cgroup;
use crate::host::counters::Ceilings;
use crate::host::proc;
use crate::range::sentinel::Sentinel;
use crate::range::{TargetSpec, Token};

/// How long the start record may take. A launcher may have an image to unpack.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// How long a launcher may take to end after its probe did.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);
/// How often the counters are read while a ceiling is tried.
const SAMPLE: Duration = Duration::from_millis(20);
/// How long a survivor is watched before the run is ended, so that it is there to be seen.
const SETTLE: Duration = Duration::from_millis(400);

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
    match (limiter, made) {
        (Err(error), _) => trial.fault("harness-failed", error.to_string()),
        (_, Err(error)) => trial.fault(
            "harness-failed",
            format!("make the trial's folder: {error}"),
        ),
        (Ok(_), Ok(())) => trial.run(&name, &folder).await,
    }
    trial.sweep(&folder);
    trial.seen.evidence.elapsed = started.elapsed();
    trial.seen
}

struct Trial<'a> {
    bench: &'a Bench,
    case: &'a Case,
    sandbox: &'a Sandbox,
    settings: &'a Settings,
    nonce: String,
    thread_name: String,
    token: Token,
    started: std::time::Instant,
    sentinels: Vec<Sentinel>,
    signal_value: i32,
    limiter: Option<Cgroup>,
    seen: Seen,
}

impl Trial<'_> {
    async fn run(&mut self, name: &str, folder: &std::path::Path) {
        let specs = self.bench.range.targets(&self.case.attempt);
        if let Err(error) = self.start_sentinels() {
            return self.fault("harness-failed", format!("start a sentinel: {error}"));
        }
        let dose = dose(self.case, &self.sandbox.policy, &self.given(&specs));
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
        let backend = backend(self.sandbox.backend);
        let host_folders: Vec<PathBuf> = self.bench.host_folders();
        let as_user = (self.sandbox.backend == BackendKind::Unsandboxed
            && self.bench.machine.root
            && self.case.needs.contains(&Need::NotRoot))
        .then_some(Settings::default().user);
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
                self.converse(&mut session, &dose, &specs, enforces).await;
                self.collect(session).await;
            }
            Err(error) => self.fault(error.code, error.to_string()),
        }
    }

    /// From the first line to the end of the run.
    async fn converse(
        &mut self,
        session: &mut Session,
        dose: &Dose,
        specs: &[TargetSpec],
        enforces: Enforces,
    ) {
        let hello = Message::new(&["hello"])
            .with("nonce", &self.nonce)
            .with("name", &self.thread_name);
        session.say(&[hello]).await;
        if !self.wait_for_start(session).await {
            return;
        }
        self.meet(session).await;
        let outside = |fault: &Fault| fault.code.starts_with("outside-");
        if self.seen.already_root || self.seen.evidence.faults.iter().any(outside) {
            session.running.stop(Stop::Sandbox);
            return;
        }
        let before = self.alive(specs).await;
        let mut meter = Meter::new(session.running.payload.clone());
        let go = Message::new(&["go"]);
        session.say(&[dose.message.clone(), go]).await;
        self.watch(session, dose, enforces, &mut meter).await;
        // The counters are there as long as the group is: even after the first process ended.
        meter.sample();
        let evidence = &mut self.seen.evidence;
        if meter.oom_kills() > 0
            && !session.records.inside.ended
            && let End::ByItself { .. } = evidence.end
        {
            let after_ms = millis(self.started.elapsed());
            evidence.end = End::BySandbox {
                cause: Cause::Memory,
                after_ms,
            };
        }
        session.drain().await;
        if let Some(measure) = &dose.measure {
            let count = meter.count(measure, &session.records.inside, &evidence.end);
            evidence.counts.extend(count);
        }
        let ended = std::time::Instant::now();
        self.watch_on(session, dose).await;
        let after = self.alive(specs).await;
        let evidence = &mut self.seen.evidence;
        for ((spec, before), after) in specs.iter().zip(before).zip(after) {
            evidence.targets.push(Target {
                canary: spec.canary,
                position: spec.position,
                address: spec.address.clone(),
                alive: before && after,
            });
        }
        evidence.touches = self
            .bench
            .range
            .touches(&self.token, self.started, Some(ended));
    }

    async fn wait_for_start(&mut self, session: &mut Session) -> bool {
        let mut until = Instant::now() + START_DEADLINE;
        loop {
            match session.next(until).await {
                Happening::Told(events) => {
                    if events.contains(&Event::Start) {
                        return true;
                    }
                }
                Happening::Noise => {}
                // A launcher may leave its program behind (`setsid`), which speaks later or never.
                Happening::Exited(_) if self.is_a_launcher() && session.hand_over() => {
                    until = Instant::now() + GRACE;
                }
                Happening::Exited(status) => {
                    session.drain().await;
                    self.seen.evidence.end = End::ByItself { status };
                    return false;
                }
                Happening::Late => {
                    session.running.stop(Stop::Group);
                    return false;
                }
            }
            if session.records.start == Start::NoInput {
                return false;
            }
        }
    }

    /// The host looks for the probe, and at what is in force around it.
    async fn meet(&mut self, session: &mut Session) {
        let mut pid = session.running.init;
        for _ in 0..10 {
            if pid.is_some() {
                break;
            }
            pid = proc::named(&self.thread_name).first().copied();
            sleep(Duration::from_millis(10)).await;
        }
        let witness = pid.and_then(|pid| proc::witness(pid, &self.bench.baseline(self.sandbox)));
        if self.sandbox.backend == BackendKind::Command {
            let launcher = session.running.child.id();
            let fault = self.out_of_bounds(witness.as_ref().map(|witness| witness.pid), launcher);
            self.seen.evidence.faults.extend(fault);
        }
        let Some(witness) = witness else { return };
        let ceilings = session
            .running
            .payload
            .as_ref()
            .map(Ceilings::read)
            .unwrap_or_default();
        let inside_uid = match session.records.start {
            Start::Seen { uid, .. } => uid,
            _ => witness.uid,
        };
        let needs_not_root = self.case.needs.contains(&Need::NotRoot);
        self.seen.already_root = needs_not_root && (witness.uid == 0 || inside_uid == 0);
        // Around a launcher the group is the limiter's, whose bounds are no promise of the sandbox.
        let ceilings_are_its_own = self.sandbox.backend == BackendKind::Oci;
        self.seen.in_force = observe::in_force(&witness, ceilings_are_its_own.then_some(&ceilings));
        self.seen.not_engaged = self.is_a_launcher() && self.bench.adds_nothing(&witness);
        self.seen.evidence.faults.extend(observe::differences(
            self.sandbox,
            self.settings,
            &witness,
            &ceilings,
            self.bench.counts_swap,
        ));
        self.seen.evidence.witness = Some(witness);
    }

    /// A launcher may hand the probe over to a daemon, which starts it outside the range and the limiter. There a silent
    /// canary proves nothing, a counter counts somebody else, and an attempt could leave the machine: it is not made.
    fn out_of_bounds(&self, probe: Option<i32>, launcher: Option<u32>) -> Option<Fault> {
        let launcher = launcher.and_then(|pid| i32::try_from(pid).ok());
        let held = |pid: i32| self.limiter.as_ref().is_some_and(|group| group.holds(pid));
        let ours = |pid: i32| held(pid) || launcher.is_some_and(|l| proc::descends(pid, l));
        let in_network = self.case.attempt.is_network()
            || self.case.attempt
                == Attempt::ConnectUnix {
                    to: UnixTarget::Abstract,
                };
        if in_network && !probe.is_some_and(|pid| self.bench.in_range(pid, ours(pid))) {
            return Some(Fault {
                code: "outside-range",
                text: "the probe was started by somebody else than the launcher, or was not seen by the host: where \
                       its network leads is not known, and nothing was sent"
                    .into(),
            });
        }
        let bounded = match &self.limiter {
            Some(_) => probe.is_some_and(held),
            None => probe.is_some_and(ours),
        };
        (self.case.danger >= Danger::Loads && !bounded).then(|| Fault {
            code: "outside-limiter",
            text: "the probe was started outside the group that bounds and counts it: no load was put on"
                .into(),
        })
    }

    /// Follows the attempt to the end of the run, and ends it where the sandbox, the case or the limiter has to.
    async fn watch(
        &mut self,
        session: &mut Session,
        dose: &Dose,
        enforces: Enforces,
        meter: &mut Meter,
    ) {
        let policy = &self.sandbox.policy;
        let begun = Instant::now();
        meter.begin();
        let promised = policy.timeout.filter(|_| self.tries_the_timeout());
        let sandbox_ends = policy
            .timeout
            .filter(|_| enforces.timeout)
            .map(|t| begun + t);
        let limiter_ends = match promised {
            Some(timeout) => begun + timeout + GRACE,
            None => begun + dose.deadline + EXIT_DEADLINE,
        };
        let mut trial_ends: Option<Instant> = None;
        let mut probe_ended: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if session.exited().is_none() && self.still_running() {
                if enforces.output
                    && policy
                        .output
                        .is_some_and(|most| session.records.inside.output_bytes > most)
                {
                    self.end_by_sandbox(session, Cause::Output, begun);
                } else if sandbox_ends.is_some_and(|at| now >= at) {
                    self.end_by_sandbox(session, Cause::Timeout, begun);
                } else if trial_ends.is_some_and(|at| now >= at) {
                    self.end_by_trial(session, dose.killed_by);
                } else if now >= limiter_ends && probe_ended.is_none() {
                    meter.sample();
                    self.end_by_limiter(session, promised.is_some());
                }
            }
            if !self.still_running() && now >= begun + dose.deadline + EXIT_DEADLINE {
                break;
            }
            if probe_ended.is_some_and(|at| now >= at + EXIT_DEADLINE) {
                self.fault(
                    "launcher-hangs",
                    format!("the launcher did not end within {EXIT_DEADLINE:?} of its probe"),
                );
                session.running.stop(Stop::Group);
                break;
            }
            let step = if dose.measure.is_some() {
                SAMPLE
            } else {
                SAMPLE * 5
            };
            match session.next(now + step).await {
                Happening::Told(events) => {
                    for event in events {
                        match event {
                            Event::Begin => meter.begin(),
                            Event::Hold => {
                                meter.sample();
                                self.look_while_held();
                                session
                                    .say(&[Message::new(&["next"]).with("id", "a")])
                                    .await;
                            }
                            Event::Step(what, Outcome::Ok)
                                if what == "detach"
                                    && dose.killed_by.is_some_and(|by| by != KilledBy::Timeout) =>
                            {
                                trial_ends = Some(Instant::now() + SETTLE);
                            }
                            Event::End => {
                                meter.sample();
                                session.hang_up();
                                probe_ended = Some(Instant::now());
                            }
                            _ => {}
                        }
                    }
                }
                Happening::Noise => {}
                Happening::Late => meter.sample(),
                Happening::Exited(status) => {
                    meter.sample();
                    if self.still_running() {
                        let ended = session.records.inside.ended;
                        self.seen.evidence.end =
                            ended_alone(status, promised, self.started.elapsed(), ended);
                    }
                    break;
                }
            }
            // What the sandbox or the limiter ended has a moment to be seen ending; a survivor's trial has its grace.
            if !self.still_running() && session.exited().is_none() {
                let until = Instant::now() + GRACE;
                while session.exited().is_none() && Instant::now() < until {
                    session.next(until).await;
                }
                break;
            }
        }
    }

    /// The name to look for among all processes. A launcher may have its payload started elsewhere, and a survivor is
    /// looked for everywhere; otherwise the group holds all that there is, and looking at every process costs more
    /// than the trial.
    fn searched_name(&self) -> Option<&str> {
        let may_be_elsewhere =
            self.is_a_launcher() || matches!(self.case.attempt, Attempt::Outlive { .. });
        may_be_elsewhere.then_some(self.thread_name.as_str())
    }

    fn is_a_launcher(&self) -> bool {
        self.sandbox.backend == BackendKind::Command
    }

    fn still_running(&self) -> bool {
        self.seen.evidence.end == End::Unknown
    }

    fn tries_the_timeout(&self) -> bool {
        matches!(
            self.case.attempt,
            Attempt::Spin {
                until: SpinUntil::Timeout
            } | Attempt::Outlive {
                killed_by: KilledBy::Timeout
            }
        )
    }

    fn end_by_sandbox(&mut self, session: &mut Session, cause: Cause, begun: Instant) {
        session.running.stop(Stop::Sandbox);
        self.seen.evidence.end = End::BySandbox {
            cause,
            after_ms: millis(begun.elapsed()),
        };
    }

    fn end_by_trial(&mut self, session: &mut Session, by: Option<KilledBy>) {
        session.running.stop(match by {
            Some(KilledBy::Group) => Stop::Group,
            Some(KilledBy::Terminate) => Stop::Terminate,
            _ => Stop::Launcher,
        });
        self.seen.evidence.end = End::ByTrial;
    }

    /// The promised timeout and the grace are over, or the attempt does not end: what is there now is a survivor.
    fn end_by_limiter(&mut self, session: &mut Session, timeout_was_promised: bool) {
        if timeout_was_promised {
            let payload = session.running.payload.as_ref();
            let survivors = observe::survivors(payload, self.searched_name());
            self.seen.evidence.survivors.extend(survivors);
        }
        self.seen.evidence.end = End::ByLimiter {
            cause: Cause::Timeout,
        };
        session.running.stop(Stop::Group);
    }

    /// What the host can see only while the probe waits.
    fn look_while_held(&mut self) {
        let scratch = WriteInto::Scratch;
        if self.case.attempt == (Attempt::WriteFile { into: scratch }) {
            // Promised scratch may be a folder of the host.
            return;
        }
        let token = self.token.as_str();
        self.seen
            .evidence
            .host_files
            .extend(self.bench.plants.host_files_with(token));
    }

    /// After the end of the run: late beacons and survivors count.
    async fn watch_on(&mut self, session: &mut Session, dose: &Dose) {
        session.running.after_end();
        let wait = dose.watch;
        sleep(wait).await;
        self.seen.evidence.watched = wait;
        let payload = session.running.payload.clone();
        let look = || observe::survivors(payload.as_ref(), self.searched_name());
        let mut survivors = look();
        // What is just being torn down gets the time that tearing down takes.
        for _ in 0..20 {
            if survivors.is_empty() || wait > Duration::ZERO {
                break;
            }
            sleep(Duration::from_millis(25)).await;
            survivors = look();
        }
        self.seen.evidence.survivors.extend(survivors);
    }

    /// What was told, what was found, and whether the sentinels are well.
    async fn collect(&mut self, mut session: Session) {
        session.hang_up();
        if let Some(limiter) = &self.limiter {
            // The embedded backend's helper deletes its container first, where it still lives.
            session.running.control = None;
            if session.exited().is_some() {
                session.running.wait(Duration::from_secs(5)).await;
            }
            limiter.kill();
        }
        session.running.end().await;
        let records = session.records;
        let evidence = &mut self.seen.evidence;
        evidence.start = records.start;
        evidence.contradictions = records.contradictions;
        evidence.inside = records.inside;
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

    async fn alive(&self, specs: &[TargetSpec]) -> Vec<bool> {
        let mut alive = Vec::with_capacity(specs.len());
        for spec in specs {
            alive.push(self.bench.range.alive(spec).await);
        }
        alive
    }

    fn given(&self, specs: &[TargetSpec]) -> Given {
        let addresses = || {
            specs
                .iter()
                .map(|spec| spec.address.clone())
                .collect::<Vec<_>>()
        };
        let outlive = matches!(self.case.attempt, Attempt::Outlive { .. });
        let paths = match &self.case.attempt {
            Attempt::ReadFile { paths } => paths
                .iter()
                .flat_map(|path| self.bench.plants.expand_path(path))
                .collect(),
            _ => Vec::new(),
        };
        Given {
            token: self.token.as_str().to_owned(),
            thread_name: self.thread_name.clone(),
            targets: if outlive { Vec::new() } else { addresses() },
            paths,
            host_folders: self
                .bench
                .plants
                .drop_dirs
                .iter()
                .map(|folder| folder.to_string_lossy().into_owned())
                .collect(),
            sentinels: self.sentinels.iter().map(Sentinel::pid).collect(),
            signal_value: self.signal_value,
            beacons: if outlive { addresses() } else { Vec::new() },
            helpers: self.bench.helpers(),
            cpus: self.bench.machine.cpus,
        }
    }

    fn fault(&mut self, code: &'static str, text: String) {
        self.seen.evidence.faults.push(Fault { code, text });
    }

    /// Nothing of the trial stays: its processes, its group, its folder.
    fn sweep(&mut self, folder: &std::path::Path) {
        self.sentinels.clear();
        self.bench.range.forget(&self.token);
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

/// A run that nobody here ended, after this time since the launcher was started, which is when its clock began too. A launcher that promised a timeout, and is gone about then without the probe's last
/// record, kept its promise; one that is gone much sooner proves nothing.
fn ended_alone(status: i32, promised: Option<Duration>, after: Duration, complete: bool) -> End {
    match promised {
        Some(promised) if !complete && after >= promised.mul_f64(0.8) => End::BySandbox {
            cause: Cause::Timeout,
            after_ms: millis(after),
        },
        _ => End::ByItself { status },
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn random_hex(bytes: usize) -> String {
    let mut rng = rand::rng();
    (0..bytes)
        .map(|_| format!("{:02x}", rng.random::<u8>()))
        .collect()
}
