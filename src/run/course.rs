//! The course of one sandbox: from the probe's first line to the last look after the run's end. What happens is followed,
//! and ended where the sandbox, the case or the limiter has to; nothing is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use escape_audit_probe::wire::{Message, Outcome};
use futures_util::stream::{self, StreamExt};
use tokio::time::{Instant, sleep};

use super::dose::{Dose, GRACE};
use super::instance::Instance;
use super::observe::{self, Counted, Meter};
use super::records::Event;
use super::session::{Happening, Session};
use super::trial::millis;
use crate::backend::{Enforces, Stop};
use crate::case::{
    Attempt, CanaryKind, Case, Danger, KilledBy, Need, SpinUntil, UnixTarget, WriteInto,
};
use crate::config::BackendKind;
use crate::evidence::{Cause, End, Fault, Start, Target};
use crate::host::counters::Ceilings;
use crate::host::mounts::Translator;
use crate::host::proc;
use crate::host::routes;
use crate::range::TargetSpec;

/// How many canaries are touched at a time, by a helper that does one after the other.
const TOUCHES_AT_ONCE: usize = 8;
/// How long the start record may take. A launcher may have an image to unpack.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// How long a launcher may take to end after its probe did.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);
/// How often the counters are read while a ceiling is tried.
const SAMPLE: Duration = Duration::from_millis(20);
/// How long a survivor is watched before the run is ended, so that it is there to be seen.
const SETTLE: Duration = Duration::from_millis(400);
/// How long a network that comes up after the program has started is waited for.
const NETWORK_SETTLES: Duration = Duration::from_secs(1);

impl Instance<'_> {
    /// From the first line to the end of the run.
    pub(super) async fn converse(&mut self, session: &mut Session, enforces: Enforces) {
        let hello = Message::new(&["hello"])
            .with("nonce", &self.nonce)
            .with("name", &self.thread_name);
        session.say(&[hello]).await;
        if !self.wait_for_start(session).await {
            return;
        }
        self.meet(session).await;
        let outside = |fault: &Fault| fault.code.starts_with("outside-");
        let for_nothing = self.trials.iter().all(|trial| trial.already_root);
        if (for_nothing && !self.trials.is_empty()) || self.common.faults.iter().any(outside) {
            session.running.life.stop(Stop::Sandbox).await;
            return;
        }
        // Where the host's files appear inside is known only now.
        let doses = self.doses(&self.translator());
        let before = self.alive().await;
        let measures = doses.iter().any(|dose| dose.measure.is_some());
        let mut meter = Meter::new(self.counted(session), measures);
        let mut list: Vec<Message> = doses.iter().map(|dose| dose.message.clone()).collect();
        list.push(Message::new(&["go"]));
        session.say(&list).await;
        self.watch(session, &doses, enforces, &mut meter).await;
        // The counters are there as long as the group is: even after the first process ended.
        meter.sample();
        if !session.records.ended()
            && meter.oom_kills() > 0
            && let End::ByItself { .. } = self.common.end
        {
            let after_ms = millis(self.started.elapsed());
            self.common.end = End::BySandbox {
                cause: Cause::Memory,
                after_ms,
            };
        }
        session.drain().await;
        for (id, (trial, dose)) in self.trials.iter_mut().zip(&doses).enumerate() {
            if let Some(measure) = &dose.measure {
                let inside = session.records.inside(id);
                let count = meter.count(measure, &inside, &self.common.end);
                trial.evidence.counts.extend(count);
            }
        }
        let ended = std::time::Instant::now();
        self.watch_on(session, &doses).await;
        let after = self.alive().await;
        let range = self.order.bench.range_of(self.order.sandbox);
        let name_servers = &self.order.settings.dns;
        for trial in &mut self.trials {
            trial.evidence.targets = trial
                .specs
                .iter()
                .filter(|spec| spec.ours)
                // A network that somebody removed meanwhile is nobody's any more, and no sandbox's way out.
                .filter(|spec| after.contains(&spec.address) || range.stands(spec))
                .map(|spec| Target {
                    canary: spec.canary,
                    position: spec.position,
                    address: spec.address.clone(),
                    alive: before.contains(&spec.address) && after.contains(&spec.address),
                })
                .collect();
            trial.evidence.resolver_asks_us = !name_servers.is_empty()
                && name_servers.iter().all(|server| {
                    let mut targets = trial.evidence.targets.iter();
                    targets.any(|t| t.alive && is_name_server(t, server))
                });
            trial.evidence.touches = range.touches(&trial.token, self.started, Some(ended));
        }
    }

    /// Whose use is counted: the group that was made for the sandbox, else what its first process started.
    fn counted(&self, session: &Session) -> Option<Counted> {
        let tree = session.running.init.map(Counted::Tree);
        match &session.running.payload {
            Some(group) => Some(Counted::Group(group.clone())),
            None if self.order.sandbox.backend == BackendKind::Docker => tree,
            None => None,
        }
    }

    /// The addresses of all targets that answer now.
    async fn alive(&self) -> BTreeSet<String> {
        let specs = self.trials.iter().flat_map(|trial| &trial.specs);
        let each: BTreeMap<&str, &TargetSpec> =
            specs.map(|spec| (spec.address.as_str(), spec)).collect();
        stream::iter(each.into_values())
            .map(|spec| async move {
                let range = self.order.bench.range_of(self.order.sandbox);
                let alive = range.alive(spec).await;
                alive.then(|| spec.address.clone())
            })
            .buffer_unordered(TOUCHES_AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await
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
                    self.common.end = End::ByItself { status };
                    return false;
                }
                Happening::Late => {
                    session.running.life.stop(Stop::Group).await;
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
        let witness =
            pid.and_then(|pid| proc::witness(pid, &self.order.bench.baseline(self.order.sandbox)));
        if self.order.sandbox.backend == BackendKind::Command {
            let launcher = session.running.life.launcher();
            let fault = self.out_of_bounds(witness.as_ref().map(|witness| witness.pid), launcher);
            self.common.faults.extend(fault);
        }
        let Some(mut witness) = witness else { return };
        self.seen_by_name = proc::comm(witness.pid).as_deref() == Some(&self.thread_name);
        self.common.leads_to_range = self.order.sandbox.backend == BackendKind::Docker
            && self.order.bench.leads_here(witness.pid);
        witness.stands_in = !self.seen_by_name;
        // Around a launcher the group is the limiter's, whose bounds are no promise of the sandbox.
        let own_group = session.running.payload.as_ref();
        let own_group = own_group.filter(|_| observe::is_a_container(self.order.sandbox));
        let ceilings = own_group.map(Ceilings::read);
        let inside_uid = match session.records.start {
            Start::Seen { uid, .. } => uid,
            _ => witness.uid,
        };
        for trial in &mut self.trials {
            let needs_not_root = trial.case.needs.contains(&Need::NotRoot);
            // A runtime's own process has a user of its own.
            let seen_as_root = witness.uid == 0 && !witness.stands_in;
            trial.already_root = needs_not_root && (seen_as_root || inside_uid == 0);
        }
        self.in_force = observe::in_force(&witness, ceilings.as_ref());
        self.not_engaged = self.is_a_launcher() && self.order.bench.adds_nothing(&witness);
        self.common.faults.extend(observe::differences(
            self.order.sandbox,
            self.order.settings,
            &witness,
            ceilings.as_ref(),
            self.order.bench.counts_swap,
        ));
        self.common.witness = Some(witness);
    }

    /// A launcher may hand the probe over to a daemon, which starts it outside the range and the limiter. There a silent
    /// canary proves nothing, a counter counts somebody else, and an attempt could leave the machine: it is not made.
    fn out_of_bounds(&self, probe: Option<i32>, launcher: Option<i32>) -> Option<Fault> {
        let held = |pid: i32| self.limiter.as_ref().is_some_and(|group| group.holds(pid));
        let ours = |pid: i32| held(pid) || launcher.is_some_and(|l| proc::descends(pid, l));
        let abstract_socket = Attempt::ConnectUnix {
            to: UnixTarget::Abstract,
        };
        let in_network =
            self.any(|case| case.attempt.is_network() || case.attempt == abstract_socket);
        if in_network && !probe.is_some_and(|pid| self.order.bench.in_range(pid)) {
            return Some(Fault {
                code: "outside-range",
                text: "the probe is in another network than the range, or was not seen by the host: where its packets \
                       would go is not known, and nothing was sent"
                    .into(),
            });
        }
        let bounded = match &self.limiter {
            Some(_) => probe.is_some_and(held),
            None => probe.is_some_and(ours),
        };
        // A survivor puts no load on and ends by its own clock; where it is seen, root can end it wherever it was started.
        let can_be_ended = probe.is_some() && self.order.bench.machine.root;
        let loads = |case: &Case| {
            let survivor = matches!(case.attempt, Attempt::Outlive { .. });
            case.danger >= Danger::Loads && !(survivor && can_be_ended)
        };
        (self.any(loads) && !bounded).then(|| Fault {
            code: "outside-limiter",
            text: "the probe was started outside the group that bounds and counts it: no load was put on"
                .into(),
        })
    }

    /// Follows the attempt to the end of the run, and ends it where the sandbox, the case or the limiter has to.
    async fn watch(
        &mut self,
        session: &mut Session,
        doses: &[Dose],
        enforces: Enforces,
        meter: &mut Meter,
    ) {
        let policy = &self.order.sandbox.policy;
        let promised = policy.timeout.filter(|_| self.tries_the_timeout());
        // Whatever ends the run or is measured has its sandbox to itself.
        let killed_by = doses.iter().find_map(|dose| dose.killed_by);
        let measures = doses.iter().any(|dose| dose.measure.is_some());
        let mut deadline = doses.first().map_or(GRACE, |dose| dose.deadline);
        // Clocks run from the begin of an attempt: what shares a sandbox shares no timeout.
        let mut begun = Instant::now();
        meter.begin();
        let mut trial_ends: Option<Instant> = None;
        let mut probe_ended: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let sandbox_ends = policy
                .timeout
                .filter(|_| enforces.timeout)
                .map(|timeout| begun + timeout);
            let limiter_ends = match promised {
                Some(timeout) => begun + timeout + GRACE,
                None => begun + deadline + EXIT_DEADLINE,
            };
            if session.exited().is_none() && self.still_running() {
                if enforces.output
                    && policy
                        .output
                        .is_some_and(|most| session.records.output_bytes() > most)
                {
                    self.end_by_sandbox(session, Cause::Output, begun).await;
                } else if sandbox_ends.is_some_and(|at| now >= at) {
                    self.end_by_sandbox(session, Cause::Timeout, begun).await;
                } else if trial_ends.is_some_and(|at| now >= at) {
                    self.end_by_trial(session, killed_by).await;
                } else if now >= limiter_ends && probe_ended.is_none() {
                    meter.sample();
                    self.end_by_limiter(session, promised.is_some()).await;
                }
            }
            if !self.still_running() && now >= begun + deadline + EXIT_DEADLINE {
                break;
            }
            if probe_ended.is_some_and(|at| now >= at + EXIT_DEADLINE) {
                self.fault(
                    "launcher-hangs",
                    format!("the launcher did not end within {EXIT_DEADLINE:?} of its probe"),
                );
                session.running.life.stop(Stop::Group).await;
                break;
            }
            let step = if measures { SAMPLE } else { SAMPLE * 5 };
            match session.next(now + step).await {
                Happening::Told(events) => {
                    for event in events {
                        match event {
                            Event::Begin(id) => {
                                begun = Instant::now();
                                self.note_time(id, true);
                                deadline = doses.get(id).map_or(deadline, |dose| dose.deadline);
                                meter.begin();
                            }
                            Event::Hold(id) => {
                                meter.sample();
                                self.look_while_held(id);
                                self.wait_for_a_late_network().await;
                                let next = Message::new(&["next"]).with("id", id.to_string());
                                session.say(&[next]).await;
                            }
                            Event::Step(what, Outcome::Ok)
                                if what == "detach"
                                    && killed_by.is_some_and(|by| by != KilledBy::Timeout) =>
                            {
                                trial_ends = Some(Instant::now() + SETTLE);
                            }
                            Event::Done(id) => self.note_time(id, false),
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
                        let ended = session.records.ended();
                        self.common.end =
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
    pub(super) fn searched_name(&self) -> Option<&str> {
        let may_be_elsewhere = self.is_a_launcher()
            || self.any(|case| matches!(case.attempt, Attempt::Outlive { .. }));
        may_be_elsewhere.then_some(self.thread_name.as_str())
    }

    fn is_a_launcher(&self) -> bool {
        self.order.sandbox.backend == BackendKind::Command
    }

    fn still_running(&self) -> bool {
        self.common.end == End::Unknown
    }

    fn tries_the_timeout(&self) -> bool {
        self.any(|case| {
            matches!(
                case.attempt,
                Attempt::Spin {
                    until: SpinUntil::Timeout
                } | Attempt::Outlive {
                    killed_by: KilledBy::Timeout
                }
            )
        })
    }

    async fn end_by_sandbox(&mut self, session: &mut Session, cause: Cause, begun: Instant) {
        session.running.life.stop(Stop::Sandbox).await;
        if cause == Cause::Output {
            session.cut_off();
        }
        self.common.end = End::BySandbox {
            cause,
            after_ms: millis(begun.elapsed()),
        };
    }

    async fn end_by_trial(&mut self, session: &mut Session, by: Option<KilledBy>) {
        session
            .running
            .life
            .stop(match by {
                Some(KilledBy::Group) => Stop::Group,
                Some(KilledBy::Terminate) => Stop::Terminate,
                _ => Stop::Launcher,
            })
            .await;
        self.common.end = End::ByTrial;
    }

    /// The promised timeout and the grace are over, or the attempt does not end: what is there now is a survivor.
    async fn end_by_limiter(&mut self, session: &mut Session, timeout_was_promised: bool) {
        if timeout_was_promised {
            let payload = session.running.payload.as_ref();
            let survivors = observe::survivors(payload, self.searched_name());
            self.common.survivors.extend(survivors);
        }
        self.common.end = End::ByLimiter {
            cause: Cause::Timeout,
        };
        session.running.life.stop(Stop::Group).await;
    }

    fn note_time(&mut self, id: usize, begins: bool) {
        if let Some(trial) = self.trials.get_mut(id) {
            let time = if begins {
                &mut trial.began
            } else {
                &mut trial.ended
            };
            *time = Some(std::time::Instant::now());
        }
    }

    /// What the host can see only while the probe waits.
    fn look_while_held(&mut self, id: usize) {
        let scratch = WriteInto::Scratch;
        // Promised scratch may be a folder of the host.
        let may_be_found = |case: &Case| match case.attempt {
            Attempt::WriteFile { into } => into != scratch,
            _ => false,
        };
        let plants = &self.order.bench.plants;
        if let Some(trial) = self
            .trials
            .get_mut(id)
            .filter(|trial| may_be_found(trial.case))
        {
            let found = plants.host_files_with(trial.token.as_str());
            trial.evidence.host_files.extend(found);
        }
    }

    /// A launcher may start the program first and connect its network afterwards. Where that happens, what was refused
    /// before proves nothing.
    async fn wait_for_a_late_network(&mut self) {
        let witness = self.common.witness.as_ref();
        let Some(witness) = witness.filter(|witness| witness.no_route == Some(true)) else {
            return;
        };
        if !self.is_a_launcher() || !self.any(|case| case.attempt.is_network()) {
            return;
        }
        let pid = witness.pid;
        sleep(NETWORK_SETTLES).await;
        if routes::no_route(pid) != Some(true) {
            self.fault(
                "network-changed",
                "the sandbox had no network when the attempt was made, and has one now".to_owned(),
            );
        }
    }

    fn translator(&self) -> Translator {
        let about_files = self.any(|case| {
            matches!(
                case.attempt,
                Attempt::ReadFile { .. }
                    | Attempt::WriteFile {
                        into: WriteInto::Host
                    }
                    | Attempt::ConnectUnix {
                        to: UnixTarget::Path
                    }
                    | Attempt::EngineSocket { .. }
            )
        });
        match &self.common.witness {
            Some(witness) if about_files => Translator::of(witness.pid),
            _ => Translator::default(),
        }
    }

    /// After the end of the run: late beacons and survivors count.
    async fn watch_on(&mut self, session: &mut Session, doses: &[Dose]) {
        session.running.life.after_end();
        let longest = doses.iter().map(|dose| dose.watch).max();
        let wait = longest.filter(|_| self.order.watches).unwrap_or_default();
        sleep(wait).await;
        self.common.watched = wait;
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
        if self.is_a_launcher() {
            observe::ask_the_engine(&mut survivors).await;
        }
        self.common.survivors.extend(survivors);
    }
}

/// Whether this canary is the name server at this address, where resolvers ask.
fn is_name_server(target: &Target, server: &str) -> bool {
    let Ok(ip) = server.parse::<std::net::IpAddr>() else {
        return false;
    };
    let address = format!("udp://{}", std::net::SocketAddr::new(ip, 53));
    target.canary == CanaryKind::Dns && target.address == address
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
