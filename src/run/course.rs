//! The course of one sandbox: from the probe's first line to the last look after the run's end. What happens is followed,
//! and ended where the sandbox, the case or the limiter has to; nothing is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use escape_audit_probe::wire::Message;
use futures_util::stream::{self, StreamExt};
use tokio::time::{Instant, sleep};

use super::dose::{Dose, GRACE};
use super::instance::Instance;
use super::observe::{self, Meter};
use super::records::Event;
use super::session::{Happening, Session};
use super::trial::millis;
use crate::backend::{Enforces, Stop};
use crate::case::CanaryKind;
use crate::evidence::{Cause, End, Fault, Start, Target};
use crate::range::TargetSpec;

/// How many canaries are touched at a time, by a helper that does one after the other.
const TOUCHES_AT_ONCE: usize = 8;
/// How long the start record may take. A launcher may have an image to unpack.
const START_DEADLINE: Duration = Duration::from_secs(20);

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
                .filter(|spec| {
                    let post = self.posts.is_some_and(|posts| posts.holds(&spec.address));
                    post || after.contains(&spec.address) || range.stands(spec)
                })
                .map(|spec| Target {
                    canary: spec.canary,
                    position: spec.position,
                    address: spec.address.clone(),
                    beyond: spec.beyond,
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

    /// The addresses of all targets that answer now.
    async fn alive(&self) -> BTreeSet<String> {
        let specs = self.trials.iter().flat_map(|trial| &trial.specs);
        let each: BTreeMap<&str, &TargetSpec> =
            specs.map(|spec| (spec.address.as_str(), spec)).collect();
        stream::iter(each.into_values())
            .map(|spec| async move { self.is_alive(spec).await.then(|| spec.address.clone()) })
            .buffer_unordered(TOUCHES_AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await
    }

    async fn is_alive(&self, spec: &TargetSpec) -> bool {
        let of_post = match self.posts {
            Some(posts) => posts.alive(&spec.address).await,
            None => None,
        };
        match of_post {
            Some(alive) => alive,
            None => {
                let range = self.order.bench.range_of(self.order.sandbox);
                range.alive(spec).await
            }
        }
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
