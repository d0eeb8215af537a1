//! What the host sees of a sandbox that has just begun to speak: who is in there, what is in force around it, and whether it
//! stands where it can be bounded, counted and watched.

use std::time::Duration;

use tokio::time::sleep;

use super::instance::Instance;
use super::observe::{self, Counted};
use super::session::Session;
use crate::case::{Attempt, Case, Danger, Need, UnixTarget, WriteInto};
use crate::config::BackendKind;
use crate::config::model::{Volume, VolumeSource};
use crate::evidence::{Fault, Start};
use crate::host::counters::Ceilings;
use crate::host::mounts::Translator;
use crate::host::proc;

impl Instance<'_> {
    /// The host looks for the probe, and at what is in force around it.
    pub(super) async fn meet(&mut self, session: &mut Session) {
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
        let inside_as_root = matches!(session.records.start, Start::Seen { uid: 0, .. });
        for trial in &mut self.trials {
            trial.already_root = inside_as_root && trial.case.needs.contains(&Need::NotRoot);
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
        // A runtime's own process has a user of its own.
        let seen_as_root = witness.uid == 0 && !witness.stands_in;
        for trial in &mut self.trials {
            trial.already_root |= seen_as_root && trial.case.needs.contains(&Need::NotRoot);
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

    /// Whose use is counted: the group that was made for the sandbox, else what its first process started.
    pub(super) fn counted(&self, session: &Session) -> Option<Counted> {
        let tree = session.running.init.map(Counted::Tree);
        match &session.running.payload {
            Some(group) => Some(Counted::Group(group.clone())),
            None if self.order.sandbox.backend == BackendKind::Docker => tree,
            None => None,
        }
    }

    pub(super) fn translator(&self) -> Translator {
        let about_files = self.any(|case| {
            matches!(
                case.attempt,
                Attempt::ListProcesses
                    | Attempt::ProcessEnvironment
                    | Attempt::ReadFile { .. }
                    | Attempt::WriteFile {
                        into: WriteInto::Host
                    }
                    | Attempt::ConnectUnix {
                        to: UnixTarget::Path
                    }
                    | Attempt::EngineSocket { .. }
            )
        });
        if !about_files {
            return Translator::default();
        }
        let seen = match &self.common.witness {
            Some(witness) if !witness.stands_in => Translator::of(witness.pid),
            _ => Translator::default(),
        };
        let bind = |volume: &Volume| match &volume.source {
            VolumeSource::Host(path) => {
                let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                Some((path, volume.inside.clone().into()))
            }
            _ => None,
        };
        seen.with_binds(self.order.settings.volumes.iter().filter_map(bind))
    }

    /// The name to look for among all processes. A launcher may have its payload started elsewhere, and a survivor is
    /// looked for everywhere; otherwise the group holds all that there is, and looking at every process costs more
    /// than the trial.
    pub(super) fn searched_name(&self) -> Option<&str> {
        let may_be_elsewhere = self.is_a_launcher()
            || self.any(|case| matches!(case.attempt, Attempt::Outlive { .. }));
        may_be_elsewhere.then_some(self.thread_name.as_str())
    }

    pub(super) fn is_a_launcher(&self) -> bool {
        self.order.sandbox.backend == BackendKind::Command
    }
}
