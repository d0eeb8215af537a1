//! An attempt followed to the end of the run, and ended where the sandbox, the case or the limiter has to.

use std::time::Duration;

use escape_audit_probe::wire::{Message, Outcome};
use tokio::time::{Instant, sleep};

use super::dose::{Dose, GRACE};
use super::instance::Instance;
use super::observe::{self, Meter};
use super::records::Event;
use super::session::{Happening, Session};
use super::trial::millis;
use crate::backend::{Enforces, Stop};
use crate::case::{Attempt, Case, KilledBy, SpinUntil, WriteInto};
use crate::evidence::{Cause, End};
use crate::host::routes;

/// How long a launcher may take to end after its probe did.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);
/// How often the counters are read while a ceiling is tried.
const SAMPLE: Duration = Duration::from_millis(20);
/// How long a survivor is watched before the run is ended, so that it is there to be seen.
const SETTLE: Duration = Duration::from_millis(400);
/// How long a network that comes up after the program has started is waited for.
const NETWORK_SETTLES: Duration = Duration::from_secs(1);

impl Instance<'_> {
    /// Follows the attempt to the end of the run, and ends it where the sandbox, the case or the limiter has to.
    pub(super) async fn watch(
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

    pub(super) fn still_running(&self) -> bool {
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
