//! Privileges: here doing it is itself the breach, and what kind of kernel and user namespace it was done in decides.

use escape_audit_probe::wire::Outcome;
use nix::libc;

use crate::evidence::{Start, Step, outcome_name};

use super::reading::{Finding, Technique, Through, View};
use super::{lines, reading_network, reasons, refusal};

/// Capabilities that reach past the sandbox when they are held over the host's first user namespace, with their bits
/// (`linux/capability.h`).
pub const DANGEROUS: &[(u32, &str)] = &[
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (2, "CAP_DAC_READ_SEARCH"),
    (3, "CAP_FOWNER"),
    (4, "CAP_FSETID"),
    KILL,
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (9, "CAP_LINUX_IMMUTABLE"),
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (15, "CAP_IPC_OWNER"),
    (16, "CAP_SYS_MODULE"),
    (17, "CAP_SYS_RAWIO"),
    (18, "CAP_SYS_CHROOT"),
    (19, "CAP_SYS_PTRACE"),
    (20, "CAP_SYS_PACCT"),
    (21, "CAP_SYS_ADMIN"),
    (22, "CAP_SYS_BOOT"),
    (23, "CAP_SYS_NICE"),
    (24, "CAP_SYS_RESOURCE"),
    (25, "CAP_SYS_TIME"),
    (26, "CAP_SYS_TTY_CONFIG"),
    (27, "CAP_MKNOD"),
    (30, "CAP_AUDIT_CONTROL"),
    (31, "CAP_SETFCAP"),
    (32, "CAP_MAC_OVERRIDE"),
    (33, "CAP_MAC_ADMIN"),
    (34, "CAP_SYSLOG"),
    (37, "CAP_AUDIT_READ"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
    (40, "CAP_CHECKPOINT_RESTORE"),
];

/// Who sees none of the host's processes has nobody to kill.
const KILL: (u32, &str) = (5, "CAP_KILL");

fn dangerous(view: &View<'_>, set: u64) -> Vec<&'static str> {
    let harmless = |bit: u32| bit == KILL.0 && view.has_own("pid");
    let held = DANGEROUS
        .iter()
        .filter(|(bit, _)| set >> bit & 1 == 1 && !harmless(*bit));
    held.map(|(_, name)| *name).collect()
}

fn succeeded<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Vec<String> {
    let ok = steps.into_iter().filter(|step| step.outcome == Outcome::Ok);
    lines::of_steps(ok)
}

/// Dangerous capabilities that the host saw on the probe, over its first user namespace.
pub fn held_on_host(view: &View<'_>) -> Option<String> {
    let witness = view.evidence.probe()?;
    let held = dangerous(view, witness.cap_eff | witness.cap_prm);
    (!held.is_empty() && !witness.own_user_namespace).then(|| {
        format!(
            "the host sees on process {}: {}",
            witness.pid,
            held.join(", ")
        )
    })
}

/// Capabilities: the host reads the sets; without its sight every use has to fail and the probe's own sets be empty.
pub fn capabilities(view: &View<'_>) -> Technique {
    let uses = view.steps("use");
    let own_sets: Vec<u64> = ["cap-eff", "cap-prm"]
        .into_iter()
        .filter_map(|key| {
            let set = view.evidence.inside.facts_of(key).last()?;
            u64::from_str_radix(std::str::from_utf8(&set.value).ok()?, 16).ok()
        })
        .collect();
    let finding = match view.evidence.probe() {
        Some(witness) if witness.own_user_namespace => Finding::held(
            "confined",
            vec!["the host sees that the probe lives in a user namespace of its own".into()],
        ),
        Some(witness) if dangerous(view, witness.cap_eff | witness.cap_prm).is_empty() => {
            Finding::held(
                "absent",
                vec![format!(
                    "the host sees no dangerous capability on process {} (effective {:x}, permitted {:x})",
                    witness.pid, witness.cap_eff, witness.cap_prm
                )],
            )
        }
        None if own_sets.len() == 2
            && own_sets.iter().all(|set| dangerous(view, *set).is_empty()) =>
        {
            let mut evidence = vec!["the probe sees no dangerous capability on itself".to_owned()];
            evidence.extend(lines::of_steps(uses.iter().copied()));
            Finding::held("absent", evidence)
        }
        _ => Finding::undecided(
            "not-refused",
            "A dangerous capability is there, and no use of it worked.",
        ),
    };
    Technique {
        through: Through::breach(succeeded(uses), true),
        control: None,
        finding,
    }
}

/// A set-uid program must not change the effective user.
pub fn gain(view: &View<'_>) -> Technique {
    let inside = &view.evidence.inside;
    let (own, helpers): (Vec<_>, Vec<_>) = inside
        .facts_of("euid")
        .partition(|fact| fact.name == "self");
    let before = match (own.first(), &view.evidence.start) {
        (Some(fact), _) => Some(fact.value.clone()),
        (None, Start::Seen { uid, .. }) => Some(uid.to_string().into_bytes()),
        (None, _) => None,
    };
    let ran_as = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let gained: Vec<String> = helpers
        .iter()
        .filter(|fact| before.as_ref().is_some_and(|before| *before != fact.value))
        .map(|fact| format!("{} ran as user {}", fact.name, ran_as(&fact.value)))
        .collect();
    let forbidden = view
        .evidence
        .probe()
        .is_some_and(|witness| witness.no_new_privs);
    // What lies on a mount without set-uid says nothing about the files that lie elsewhere.
    let is_bare = |path: &str| {
        inside
            .facts_of("nosuid")
            .any(|fact| fact.name == path && fact.value == b"1")
    };
    let proving: Vec<_> = helpers.iter().filter(|f| !is_bare(&f.name)).collect();
    let finding = if before.is_some() && !proving.is_empty() {
        let unchanged = proving
            .iter()
            .map(|fact| format!("{} ran as user {} still", fact.name, ran_as(&fact.value)));
        Finding::held("refused", unchanged.collect())
    } else if forbidden {
        Finding::held(
            "refused",
            vec!["the host sees no_new_privs on the probe".into()],
        )
    } else if before.is_some() && !helpers.is_empty() {
        Finding::undecided("nosuid-helper", reasons::sentence("nosuid-helper"))
    } else {
        Finding::undecided("no-helper", reasons::sentence("no-helper"))
    };
    Technique {
        through: Through::breach(gained, true),
        control: None,
        finding,
    }
}

/// A user namespace that was made, and a capability that was used in it: the first step of most kernel exploits.
pub fn user_namespace(view: &View<'_>) -> Technique {
    let make = |step: &&Step| {
        matches!(step.what.as_str(), "unshare" | "clone" | "clone3") && step.target == "user"
    };
    let steps = &view.evidence.inside.steps;
    let ways: Vec<&Step> = steps.iter().filter(make).collect();
    let made = succeeded(ways.iter().copied());
    let uses = view.steps("use");
    let used = succeeded(uses.iter().copied());
    let breach = match (made.is_empty(), used.is_empty()) {
        (false, false) => made.iter().chain(&used).cloned().collect(),
        _ => Vec::new(),
    };
    let names = |outcome| match outcome {
        // No more of them for this user, or a kernel without them.
        Outcome::Errno(libc::ENOSPC | libc::EUSERS | libc::EINVAL) => Some("refused"),
        other => refusal::of_call(other),
    };
    let finding = if made.is_empty() {
        refusal::all(ways, names)
    } else {
        match refusal::all(uses, refusal::of_call) {
            Finding::Held { lines, .. } => Finding::held("powerless", lines),
            undecided @ Finding::Undecided { .. } => undecided,
        }
    };
    Technique {
        through: Through::breach(breach, false),
        control: None,
        finding,
    }
}

/// A mount, by either interface. A folder that is not there says nothing about the privilege.
pub fn mount(view: &View<'_>) -> Technique {
    let steps = &view.evidence.inside.steps;
    let tries = || {
        steps
            .iter()
            .filter(|step| matches!(step.what.as_str(), "mount" | "fsopen"))
    };
    let there = tries()
        .filter(|step| !matches!(step.outcome, Outcome::Errno(libc::ENOENT | libc::ENOTDIR)));
    Technique {
        through: Through::breach(succeeded(tries()), true),
        control: None,
        finding: refusal::all(there, refusal::of_call),
    }
}

/// A raw socket, by either family.
pub fn raw_socket(view: &View<'_>) -> Technique {
    let sockets = view.steps("socket");
    let names = |outcome| match refusal::of_socket(outcome) {
        Some("no-route" | "rejected") | None => refusal::of_call(outcome),
        known => known,
    };
    Technique {
        through: Through::breach(succeeded(sockets.iter().copied()), true),
        control: reading_network::control(view),
        finding: refusal::all(sockets, names),
    }
}

/// One system call with harmless arguments: any answer but a refusal shows that the kernel's code was reached. A user
/// namespace does not keep an attacker from that code.
pub fn syscall(view: &View<'_>, name: &str) -> Technique {
    // The probe knows its number alone, which says nothing to a person.
    let named = |step: &Step| Step {
        what: name.to_owned(),
        target: String::new(),
        outcome: step.outcome,
    };
    let calls: Vec<Step> = view.steps("syscall").into_iter().map(named).collect();
    let reached = calls
        .iter()
        .filter(|step| refusal::of_call(step.outcome).is_none())
        .filter_map(|step| match step.outcome {
            Outcome::Ok => Some(format!(
                "`{name}` reached the kernel and worked, where a filter answers EPERM"
            )),
            Outcome::Errno(_) => Some(format!(
                "`{name}` reached the kernel: it answered {}, where a filter answers EPERM",
                outcome_name(step.outcome)
            )),
            _ => None,
        })
        .collect();
    let finding = if calls.is_empty() && view.killed_by_filter() {
        let line = "the attempt's process was ended by SIGSYS";
        Finding::held("killed", vec![line.into()])
    } else {
        refusal::all(&calls, refusal::of_call)
    };
    Technique {
        through: Through::breach(reached, false),
        control: None,
        finding,
    }
}
