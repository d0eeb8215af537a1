//! The sockets of container engines. Who may speak to an engine of the host is root there: an answer is the breach.
//! A socket that is seen and may not be used is none.

use escape_audit_probe::wire::Outcome;
use nix::libc;

use crate::evidence::Step;

use super::reading::{Finding, Technique, Through, View};
use super::{lines, reading_network, reasons, refusal};

/// Connecting to engines, and asking them.
pub fn engine_socket(view: &View<'_>, paths: &[String]) -> Technique {
    let filter = filter(view);
    Technique {
        through: Through::promise("engine-answers", engines(view)),
        control: reading_network::control(view).or_else(|| filter.clone().err()),
        finding: held(view, paths, filter == Ok(true)),
    }
}

/// Whether connecting as such is refused, by the path at which nothing is; else why that is not known.
fn filter(view: &View<'_>) -> Result<bool, String> {
    match view.steps("nowhere").first() {
        None if view.killed_by_filter() => Ok(true),
        None => Err("The control is missing: no path was tried at which nothing is.".into()),
        Some(step) => match step.outcome {
            Outcome::Errno(libc::ENOENT | libc::ENOTDIR) => Ok(false),
            outcome if refusal::of_socket(outcome).is_some_and(|r| r != "rejected") => Ok(true),
            _ => Err(format!(
                "The control failed: {}. The probe's own client may not work in there.",
                lines::of_step(step)
            )),
        },
    }
}

/// The engines that answered and that are not the sandbox's own.
fn engines(view: &View<'_>) -> Vec<String> {
    let answers = view.evidence.inside.facts_of("engine");
    answers
        .filter(|engine| !is_inside(view, &engine.name) && !is_touched(view, &engine.name))
        .map(|engine| {
            let kind = match &engine.value[..] {
                b"docker" => "a Docker engine",
                b"libpod" => "a Podman engine",
                b"http2" => "an engine that speaks gRPC (containerd, CRI-O, BuildKit)",
                _ => "a container engine",
            };
            let whose = match peer(view, &engine.name) {
                Some(0) => ", and its process is outside the sandbox's process namespace",
                _ => "",
            };
            format!("{kind} answered at {}{whose}", engine.name)
        })
        .collect()
}

/// Our own canary stands there, and told of it itself.
fn is_touched(view: &View<'_>, path: &str) -> bool {
    let mut touches = view.evidence.touches.iter();
    touches.any(|touch| touch.address.strip_prefix("path:") == Some(path))
}

/// Who listens there is numbered in a process namespace that is the sandbox's own: a process of the sandbox. It may be
/// an engine that runs inside, or one that hands everything on.
fn is_inside(view: &View<'_>, path: &str) -> bool {
    view.has_own("pid") && peer(view, path).is_some_and(|pid| pid > 0)
}

fn peer(view: &View<'_>, path: &str) -> Option<i32> {
    let mut peers = view.evidence.inside.facts_of("peer");
    let peer = peers.find(|peer| peer.name == path)?;
    std::str::from_utf8(&peer.value).ok()?.parse().ok()
}

/// Held if every target of ours and every path of the case was tried, and each was refused or is absent.
fn held(view: &View<'_>, paths: &[String], filtered: bool) -> Finding {
    let tries = view.steps("connect");
    if view.killed_by_filter() && tries.is_empty() {
        let line = "the attempt's process was ended by SIGSYS when it asked for a socket";
        return Finding::held("killed", vec![line.into()]);
    }
    let targets = view.evidence.targets.iter();
    let targets = targets.filter_map(|target| target.address.strip_prefix("path:"));
    let mut wanted = targets.chain(paths.iter().map(String::as_str));
    let untried = wanted.find(|path| !tries.iter().any(|step| step.target == *path));
    if let Some(path) = untried {
        return Finding::undecided("not-tried", format!("{path} was not tried."));
    }
    let mut named: Vec<(&'static str, &Step)> = Vec::new();
    for step in tries {
        match why(step, filtered) {
            Some(reason) => named.push((reason, step)),
            None => return unclear(view, step),
        }
    }
    let Some(reason) = refusal::weakest(named.iter().map(|(reason, _)| *reason)) else {
        return Finding::undecided("not-tried", reasons::sentence("not-tried"));
    };
    // What names the reason comes first: of many steps, a few are shown.
    named.sort_by_key(|(of_step, _)| *of_step != reason);
    let mut evidence: Vec<String> = view.evidence.targets.iter().map(lines::of_target).collect();
    evidence.extend(lines::of_steps(named.into_iter().map(|(_, step)| step)));
    Finding::held(reason, evidence)
}

/// Why no connection came about. A refusal says that a socket is there only where not every connection is refused.
fn why(step: &Step, filtered: bool) -> Option<&'static str> {
    match step.outcome {
        Outcome::Errno(libc::EPERM | libc::EACCES) if filtered => Some("refused"),
        Outcome::Errno(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT) => {
            Some("family-absent")
        }
        // A file that nobody listens at.
        Outcome::Errno(libc::ECONNREFUSED) => Some("absent"),
        other => refusal::of_lookup(other),
    }
}

/// It connected, or failed in a way that proves nothing.
fn unclear(view: &View<'_>, step: &Step) -> Finding {
    let path = &step.target;
    let mut replies = view.evidence.inside.facts_of("reply");
    if step.outcome != Outcome::Ok {
        let sentence = format!(
            "{} is neither a refusal nor a proven absence.",
            lines::of_step(step)
        );
        return Finding::undecided("not-refused", sentence);
    }
    if is_inside(view, path) {
        let sentence = format!(
            "At {path} a process of the sandbox listens: what it gives to others, and whether it hands on to the \
             host's engine, is not known."
        );
        return Finding::undecided("answered-by-another", sentence);
    }
    if replies.any(|reply| reply.name == *path && !reply.value.is_empty()) {
        let sentence = format!(
            "At {path} something answered that does not look like a container engine: who it is, and what it would \
             give to others, is not known."
        );
        return Finding::undecided("answered-by-another", sentence);
    }
    let sentence = format!("{path} accepted the connection, and nothing answered.");
    Finding::undecided("connected-unseen", sentence)
}
