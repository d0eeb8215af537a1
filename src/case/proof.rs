//! Which proof fits which attempt, and how proofs are written.

use std::ops::Range;

use super::keys::KEYS;
use super::model::{
    Attempt, CanaryKind, Ceiling, MemoryDose, Proof, SpinUntil, Transport, WriteInto,
};
use crate::diag::schema::{Named, Reader, View};

/// The proofs of `[escaped]`, each with its place.
pub fn read(reader: &mut Reader<'_>, top: &View<'_, '_>) -> Vec<(Proof, Range<usize>)> {
    let Some((table, span)) = top.table("escaped") else {
        return Vec::new();
    };
    let view = reader.table(KEYS, "escaped", table, span);
    let mut proofs = Vec::new();
    for key in view.names() {
        let text = view.text(key).unwrap_or_default();
        let proof = match key {
            "canary" => CanaryKind::from_name(text).map(Proof::Canary),
            "secret" => Some(Proof::Secret),
            "file" if text == "host" => Some(Proof::FileOnHost),
            "file" => Some(Proof::FileOutsideScratch),
            "process" if text == "seen" => Some(Proof::ProcessSeen),
            "process" => Some(Proof::ProcessSignalled),
            "ceiling" => Ceiling::from_name(text).map(Proof::Ceiling),
            "survivor" => Some(Proof::Survivor),
            "breach" => Some(Proof::Breach),
            _ => None,
        };
        proofs.extend(proof.map(|proof| (proof, view.span_of(key))));
    }
    proofs
}

/// What can prove that this attempt got through; nothing for what must work.
pub fn of(attempt: &Attempt) -> Vec<Proof> {
    use CanaryKind::{Dns, Engine, Http, Tcp, Udp, Unix};
    match attempt {
        Attempt::Run
        | Attempt::WriteFile {
            into: WriteInto::Scratch,
        }
        | Attempt::Allocate {
            dose: MemoryDose::Half,
        } => vec![],
        Attempt::Environment { .. } | Attempt::ProcessEnvironment | Attempt::ReadFile { .. } => {
            vec![Proof::Secret]
        }
        Attempt::WriteFile {
            into: WriteInto::OutsideScratch,
        } => vec![Proof::FileOutsideScratch],
        Attempt::WriteFile {
            into: WriteInto::Host,
        } => vec![Proof::FileOnHost],
        Attempt::Connect { transport, .. } => vec![Proof::Canary(match transport {
            Transport::Tcp | Transport::Tcp6 => Tcp,
            Transport::Udp => Udp,
        })],
        Attempt::Http { .. } => vec![Proof::Canary(Http)],
        Attempt::Dns => vec![Proof::Canary(Dns)],
        Attempt::ConnectUnix { .. } => vec![Proof::Canary(Unix)],
        Attempt::EngineSocket { .. } => vec![Proof::Canary(Engine), Proof::Breach],
        Attempt::RawSocket => vec![Proof::Canary(Udp), Proof::Breach],
        Attempt::Spawn => vec![Proof::Ceiling(Ceiling::Pids)],
        Attempt::Allocate {
            dose: MemoryDose::Memory,
        } => vec![Proof::Ceiling(Ceiling::Memory)],
        Attempt::Allocate {
            dose: MemoryDose::MemoryAndSwap,
        } => vec![Proof::Ceiling(Ceiling::Swap)],
        Attempt::Spin {
            until: SpinUntil::Quota,
        } => vec![Proof::Ceiling(Ceiling::Cpu)],
        Attempt::Spin {
            until: SpinUntil::Timeout,
        } => vec![Proof::Survivor],
        Attempt::Fill => vec![Proof::Ceiling(Ceiling::Disk)],
        Attempt::Flood => vec![Proof::Ceiling(Ceiling::Output)],
        Attempt::ListProcesses => vec![Proof::ProcessSeen],
        Attempt::Signal => vec![Proof::ProcessSignalled],
        Attempt::Outlive { .. } => vec![Proof::Survivor, Proof::Canary(Tcp), Proof::Canary(Unix)],
        Attempt::Capabilities
        | Attempt::GainPrivileges
        | Attempt::UserNamespace
        | Attempt::Mount
        | Attempt::Syscall { .. } => vec![Proof::Breach],
    }
}

/// Whether this attempt is what a sandbox is for: it can be expected to work, and never to escape.
pub fn is_for_works(attempt: &Attempt) -> bool {
    of(attempt).is_empty()
}

/// The proof as it is written in a case file: `canary = "tcp"`.
pub fn toml(proof: Proof) -> String {
    let named = |key: &str, word: &str| format!("{key} = \"{word}\"");
    match proof {
        Proof::Canary(kind) => named("canary", kind.word()),
        Proof::Secret => "secret = true".into(),
        Proof::FileOutsideScratch => named("file", "outside-scratch"),
        Proof::FileOnHost => named("file", "host"),
        Proof::ProcessSeen => named("process", "seen"),
        Proof::ProcessSignalled => named("process", "signalled"),
        Proof::Ceiling(ceiling) => named("ceiling", ceiling.word()),
        Proof::Survivor => "survivor = true".into(),
        Proof::Breach => "breach = true".into(),
    }
}

/// The proof in words: what has to be seen.
pub fn words(proof: Proof) -> &'static str {
    match proof {
        Proof::Canary(CanaryKind::Tcp) => "a TCP listener of ours receives this trial's token",
        Proof::Canary(CanaryKind::Udp) => "a UDP listener of ours receives this trial's token",
        Proof::Canary(CanaryKind::Dns) => {
            "our name server is asked for a name that holds this trial's token"
        }
        Proof::Canary(CanaryKind::Http) => {
            "our HTTP server at that address receives the request, or the real service answers it, with whatever status"
        }
        Proof::Canary(CanaryKind::Unix) => {
            "a Unix socket of ours on the host receives this trial's token"
        }
        Proof::Canary(CanaryKind::Engine) => {
            "a socket of ours on the host that answers as a container engine does receives this trial's token"
        }
        Proof::Secret => {
            "a planted secret, or one of your own, is read: known by its hash, never printed"
        }
        Proof::FileOutsideScratch => "a file is made where the policy allows none",
        Proof::FileOnHost => "the host finds a file with this trial's token in a folder of its own",
        Proof::ProcessSeen => "the secret name of a process on the host is reported from inside",
        Proof::ProcessSignalled => "a process on the host receives this trial's signal",
        Proof::Ceiling(Ceiling::Pids) => "the host counts more processes than the ceiling",
        Proof::Ceiling(Ceiling::Memory) => "the host counts more memory in use than the ceiling",
        Proof::Ceiling(Ceiling::Swap) => {
            "the host counts more memory and swap in use than the ceiling"
        }
        Proof::Ceiling(Ceiling::Cpu) => "the host counts more CPU time a second than the ceiling",
        Proof::Ceiling(Ceiling::Disk) => "more bytes are written than the ceiling on scratch space",
        Proof::Ceiling(Ceiling::Output) => "more bytes arrive on standard output than the ceiling",
        Proof::Survivor => "a process of the sandbox is still there after its end and a grace",
        Proof::Breach => "it succeeds on the host's own kernel: doing it is the breach",
    }
}
