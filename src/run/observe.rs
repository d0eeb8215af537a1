//! What the host sees of a trial beside what the probe tells: counters, survivors, what was in force.

use std::time::{Duration, Instant};

use escape_audit_probe::wire::Outcome;
use nix::libc;

use super::dose::Measure;
use crate::backend::docker::engine::Engine;
use crate::case::Ceiling;
use crate::config::model::UNLIMITED;
use crate::config::{BackendKind, NetworkMode, Sandbox, Settings};
use crate::evidence::{Cause, Count, End, Fault, Inside, Witness};
use crate::host::cgroup::Cgroup;
use crate::host::counters::{Ceilings, Counters};
use crate::host::proc;

/// What is counted.
#[derive(Debug, Clone)]
pub enum Counted {
    /// A group, by the kernel's own counters.
    Group(Cgroup),
    /// A process and everything below it, added up.
    Tree(i32),
}

impl Counted {
    fn read(&self) -> Counters {
        match self {
            Self::Group(group) => Counters::read(group),
            Self::Tree(root) => Counters::of_tree(*root),
        }
    }
}

/// The counters of one trial over time.
#[derive(Debug)]
pub struct Meter {
    counted: Option<Counted>,
    measures: bool,
    highest: Counters,
    /// Threads that a runtime needs for itself, before anything was asked of it.
    idle: u64,
    first: Option<(Instant, Counters)>,
    last: Option<(Instant, Counters)>,
    both_peak: u64,
}

impl Meter {
    /// A meter of this; of nothing, it sees nothing. Where nothing is measured it looks only when asked for what ended
    /// the run. To be made before the attempt is asked for: word of its begin may come when all of it is done.
    pub fn new(counted: Option<Counted>, measures: bool) -> Self {
        let idle = match &counted {
            Some(tree @ Counted::Tree(_)) if measures => tree.read().pids.unwrap_or(0),
            _ => 0,
        };
        Self {
            counted,
            measures,
            highest: Counters::default(),
            idle,
            first: None,
            last: None,
            both_peak: 0,
        }
    }

    /// The attempt begins: rates count from here.
    pub fn begin(&mut self) {
        if let Some(counted) = self.counted.as_ref().filter(|_| self.measures) {
            self.first = Some((Instant::now(), counted.read()));
        }
        self.sample();
    }

    /// Looks once.
    pub fn sample(&mut self) {
        let Some(counted) = self.counted.as_ref().filter(|_| self.measures) else {
            return;
        };
        let now = counted.read();
        if now.pids.is_none() && now.memory.is_none() {
            return;
        }
        let both = now.memory.unwrap_or(0) + now.swap.unwrap_or(0);
        self.both_peak = self.both_peak.max(both);
        self.highest = self.highest.highest(now);
        // What has ended takes its time with it, where no group keeps it: then it was measured until now.
        let ended = |(_, last): &(Instant, Counters)| now.cpu_usec < last.cpu_usec;
        let of_tree = matches!(self.counted, Some(Counted::Tree(_)));
        if !(of_tree && self.last.as_ref().is_some_and(ended)) {
            self.last = Some((Instant::now(), now));
        }
    }

    fn threads(&self) -> Option<u64> {
        let most = self.highest.pids_peak.max(self.highest.pids)?;
        Some(most.saturating_sub(self.idle))
    }

    /// How often the ceiling on memory ended a process.
    pub fn oom_kills(&self) -> u64 {
        let now = self.counted.as_ref().map(Counted::read);
        let now = now.and_then(|counters| counters.oom_kills);
        self.highest.oom_kills.max(now).unwrap_or(0)
    }

    /// The count that the case asks for. `None` where the host has no such counter.
    pub fn count(&self, measure: &Measure, inside: &Inside, end: &End) -> Option<Count> {
        let count = |value: f64, held: bool, by_host: bool, source: &str| Count {
            what: measure.what,
            value,
            ceiling: measure.ceiling,
            passed_above: measure.passed_above,
            held,
            by_host,
            source: source.into(),
        };
        let (processes, memory, both, cpu) = match &self.counted {
            Some(Counted::Tree(_)) => (
                "threads of the sandbox's processes on the host",
                "memory of the sandbox's processes on the host, at its highest",
                "memory and swap of the sandbox's processes on the host, at their highest",
                "CPU time of the sandbox's processes over wall clock",
            ),
            _ => (
                "processes and threads in the cgroup",
                "the cgroup's memory, at its highest",
                "the cgroup's memory and swap, at their highest",
                "the cgroup's CPU time over wall clock",
            ),
        };
        let refused = |what: &str, errnos: &[i32]| {
            inside
                .steps_of(what)
                .any(|step| matches!(step.outcome, Outcome::Errno(n) if errnos.contains(&n)))
        };
        match measure.what {
            Ceiling::Pids => {
                let value = self.threads()? as f64;
                let held = self.highest.pids_refused.unwrap_or(0) > 0;
                Some(count(value, held, true, processes))
            }
            Ceiling::Memory => {
                let value = self.highest.memory_peak.max(self.highest.memory)? as f64;
                Some(count(value, self.oom_kills() > 0, true, memory))
            }
            Ceiling::Swap => {
                self.highest.memory?;
                let value = self.both_peak as f64;
                Some(count(value, self.oom_kills() > 0, true, both))
            }
            Ceiling::Cpu => {
                let ((begun, first), (looked, last)) = (self.first?, self.last?);
                let wall = looked.saturating_duration_since(begun).as_micros() as f64;
                let used = last.cpu_usec?.saturating_sub(first.cpu_usec?) as f64;
                let held = last.throttled > first.throttled;
                (wall > 0.0).then(|| count(used / wall, held, true, cpu))
            }
            Ceiling::Disk => {
                let written: u64 = inside
                    .facts_of("written")
                    .filter_map(|fact| std::str::from_utf8(&fact.value).ok()?.parse::<u64>().ok())
                    .sum();
                let held = refused("write", &[libc::ENOSPC, libc::EDQUOT]);
                Some(count(
                    written as f64,
                    held,
                    false,
                    "bytes written in all writable places",
                ))
            }
            Ceiling::Output => {
                let held = matches!(
                    end,
                    End::BySandbox {
                        cause: Cause::Output,
                        ..
                    }
                );
                let value = inside.output_bytes as f64;
                Some(count(
                    value,
                    held,
                    true,
                    "bytes that came out of the sandbox",
                ))
            }
        }
    }
}

/// What of the trial is still there: members of the payload's group and, where something may have left it, processes
/// with the trial's thread name. Zombies are gone.
pub fn survivors(group: Option<&Cgroup>, thread_name: Option<&str>) -> Vec<String> {
    let mut found: Vec<i32> = group.map(Cgroup::processes).unwrap_or_default();
    found.extend(thread_name.map(proc::named).unwrap_or_default());
    found.sort_unstable();
    found.dedup();
    found
        .into_iter()
        .filter(|pid| !matches!(proc::state(*pid), None | Some('Z' | 'X')))
        .map(|pid| {
            let name = proc::comm(pid).unwrap_or_default();
            let lives = proc::container(pid).map(|id| format!("{IN_CONTAINER}{id}"));
            format!("process {pid} ({name}){}", lives.unwrap_or_default())
        })
        .collect()
}

/// What stands before a container's id in a survivor's line.
const IN_CONTAINER: &str = " in container ";

/// Asks the engine which containers these survivors live in: its list shows what no argument of theirs does. Where no
/// engine answers, or another one than theirs, the id says it all.
pub async fn ask_the_engine(survivors: &mut [String]) {
    if !survivors.iter().any(|line| line.contains(IN_CONTAINER)) {
        return;
    }
    let Ok(engine) = Engine::open(None).await else {
        return;
    };
    for line in survivors {
        let Some((_, id)) = line.split_once(IN_CONTAINER) else {
            continue;
        };
        let asked = engine.docker.inspect_container(id, None);
        let Ok(Ok(known)) = tokio::time::timeout(ENGINE_ANSWERS, asked).await else {
            continue;
        };
        let name = known.name.unwrap_or_default();
        let image = known.config.and_then(|config| config.image);
        let (name, image) = (name.trim_start_matches('/'), image.unwrap_or_default());
        line.push_str(&format!(
            ", which the engine lists as {name} of image {image}"
        ));
    }
}

/// How long an engine may think about one container.
const ENGINE_ANSWERS: Duration = Duration::from_secs(5);

/// What was in force, for the report: rights and view as the host reads them, and the ceilings where they are known.
pub fn in_force(witness: &Witness, ceilings: Option<&Ceilings>) -> Vec<(String, String)> {
    let seccomp = match witness.seccomp {
        0 => "none",
        1 => "strict",
        _ => "filter",
    };
    let namespaces = match witness.own_namespaces.as_slice() {
        [] => "none of its own seen".into(),
        own => own.join(" "),
    };
    let rights: Vec<(&str, String)> = vec![
        ("user", witness.uid.to_string()),
        ("namespaces", namespaces),
        ("capabilities", format!("{:#x}", witness.cap_eff)),
        ("bounding-set", format!("{:#x}", witness.cap_bnd)),
        ("no-new-privileges", witness.no_new_privs.to_string()),
        ("seccomp", seccomp.into()),
    ];
    // Who stands in for the probe has rights of its own.
    let mut list = if witness.stands_in {
        Vec::new()
    } else {
        rights
    };
    if let Some(no_route) = witness.no_route {
        let network = if no_route {
            "loopback alone"
        } else {
            "has a route"
        };
        list.push(("network", network.into()));
    }
    if let Some(ceilings) = ceilings {
        let none = || "none".to_owned();
        list.extend([
            ("pids", ceilings.pids.map_or_else(none, |n| n.to_string())),
            ("memory", ceilings.memory.map_or_else(none, mebibytes)),
            (
                "memory-and-swap",
                ceilings.memory_and_swap.map_or_else(none, mebibytes),
            ),
            ("cpus", ceilings.cpus.map_or_else(none, |n| n.to_string())),
        ]);
    }
    list.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn mebibytes(bytes: u64) -> String {
    let mib = bytes as f64 / (1024.0 * 1024.0);
    format!("{} MiB", (mib * 10.0).round() / 10.0)
}

/// Differences between what was configured and what is in force, where they weaken the sandbox. Only a container's
/// settings say what to expect; a launcher has none. `ceilings`: those of the container's own group, where it is seen.
pub fn differences(
    sandbox: &Sandbox,
    settings: &Settings,
    witness: &Witness,
    ceilings: Option<&Ceilings>,
    counts_swap: bool,
) -> Vec<Fault> {
    if !is_a_container(sandbox) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            faults.push(Fault {
                code: "limit-not-applied",
                text: format!("{what} is configured and not in force"),
            });
        }
    };
    // Of another user's process the host may not tell an ordinary user which namespace it is in.
    let unseen = |name: &str| proc::namespace(&witness.pid.to_string(), name).is_none();
    let own = |name: &str| witness.own_namespaces.iter().any(|own| own == name) || unseen(name);
    let at_most = |have: Option<u64>, want: Option<u64>| match (have, want) {
        (_, None) => true,
        (Some(have), Some(want)) => have <= want,
        (None, Some(_)) => false,
    };
    if let Some(ceilings) = ceilings {
        let both = settings.memswap_limit.filter(|both| *both != UNLIMITED);
        let fits = at_most(ceilings.pids, settings.pids_limit);
        expect(fits, "the ceiling on processes");
        let fits = at_most(ceilings.memory, settings.mem_limit);
        expect(fits, "the ceiling on memory");
        let fits = !counts_swap || at_most(ceilings.memory_and_swap, both);
        expect(fits, "the ceiling on memory and swap");
        let fits = match (ceilings.cpus, settings.cpus) {
            (_, None) => true,
            (Some(have), Some(want)) => have <= want + 0.001,
            (None, Some(_)) => false,
        };
        expect(fits, "the ceiling on CPU time");
    }
    // Who stands in for the probe has rights and namespaces of its own.
    if witness.stands_in {
        return faults;
    }
    expect(
        !settings.no_new_privileges || witness.no_new_privs,
        "no-new-privileges",
    );
    expect(
        !settings.seccomp || witness.seccomp == 2,
        "the system call filter",
    );
    expect(
        settings.network_mode != NetworkMode::None || own("net"),
        "a network namespace of its own",
    );
    expect(
        settings.pid_host || own("pid"),
        "a process namespace of its own",
    );
    expect(
        settings.ipc_host || own("ipc"),
        "an IPC namespace of its own",
    );
    expect(
        settings.user.is_root()
            || witness.own_user_namespace
            || settings.user.uid().is_none_or(|uid| witness.uid == uid),
        "the unprivileged user",
    );
    let allowed = crate::backend::oci_helper::capability_bits(&settings.capabilities);
    expect(
        witness.own_user_namespace || (witness.cap_eff | witness.cap_bnd) & !allowed == 0,
        "the dropping of capabilities",
    );
    faults
}

/// Whether its settings are a container's, and the group that holds the payload is the container's own.
pub fn is_a_container(sandbox: &Sandbox) -> bool {
    matches!(sandbox.backend, BackendKind::Oci | BackendKind::Docker)
}
