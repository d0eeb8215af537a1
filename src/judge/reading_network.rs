//! Targets of ours, over the network and over Unix sockets: the canary decides, the errno names the reason.

use std::time::Duration;

use escape_audit_probe::wire::Outcome;
use nix::libc;

use crate::case::{Attempt, Position, Transport};
use crate::evidence::{Step, Target};

use super::reading::{Finding, Technique, Through, View};
use super::{lines, reasons, refusal};

/// One lost datagram, or one connection that timed out, can be chance.
const TRIES: usize = 3;

/// So long must the canaries be watched after a datagram was sent that nobody refused.
const WATCH: Duration = Duration::from_secs(2);

/// TCP and UDP.
pub fn connect(view: &View<'_>, positions: &[Position]) -> Technique {
    over_network(view, positions.contains(&Position::Internet))
}

/// HTTP: a metadata service stands at one address, and that one decides.
pub fn http(view: &View<'_>) -> Technique {
    over_network(view, false)
}

/// DNS, whose servers are everywhere.
pub fn dns(view: &View<'_>) -> Technique {
    over_network(view, true)
}

/// Unix sockets.
pub fn unix(view: &View<'_>) -> Technique {
    let names = |outcome| match refusal::of_socket(outcome) {
        // Of a path that is too long, or no path at all: the probe's own failure.
        _ if matches!(outcome, Outcome::Errno(libc::EINVAL | libc::ENAMETOOLONG)) => None,
        // No such name in this network namespace.
        Some("rejected") => Some("absent"),
        Some("refused") => Some("permission"),
        Some(other) => Some(other),
        None => refusal::of_lookup(outcome),
    };
    Technique {
        through: Through::No,
        control: control(view),
        finding: targets(view, names, false).unwrap_or_else(|undecided| undecided),
    }
}

/// Whether the sandbox has no way out, by the host's own sight, and the attempt goes out: it needs no canary then.
pub fn needs_no_target(view: &View<'_>) -> bool {
    let goes_out = match &view.case.attempt {
        Attempt::Connect { positions, .. } => !positions.contains(&Position::Loopback),
        Attempt::Http { .. } | Attempt::Dns => true,
        _ => false,
    };
    goes_out && (no_route(view) || no_family(view))
}

fn no_route(view: &View<'_>) -> bool {
    let witness = view.evidence.witness.as_ref();
    witness.and_then(|witness| witness.no_route) == Some(true)
}

/// The attempt speaks IPv6, and the host sees that the sandbox has no such thing. A runtime that brings a network stack of
/// its own takes the addresses out of the namespace that the host sees: what stands in for the probe says nothing here.
fn no_family(view: &View<'_>) -> bool {
    let Attempt::Connect { transport, .. } = &view.case.attempt else {
        return false;
    };
    let witness = view.evidence.probe();
    *transport == Transport::Tcp6 && witness.and_then(|witness| witness.no_ipv6) == Some(true)
}

fn over_network(view: &View<'_>, egress: bool) -> Technique {
    let held = targets(view, refusal::of_socket, true).and_then(|held| route(view, egress, held));
    Technique {
        through: Through::No,
        control: control(view),
        finding: held.unwrap_or_else(|undecided| undecided),
    }
}

/// The sandbox has, or may have, a network of its own with a way out, and nothing shows that the way leads to our
/// canaries. Of a sandbox that the host does not see, an engine on another machine, nothing is known.
fn may_lead_elsewhere(view: &View<'_>) -> bool {
    let unseen = view.evidence.witness.is_none();
    (unseen || view.has_own("net")) && !no_route(view) && !view.evidence.leads_to_range
}

/// What the network said, and not the sandbox's own kernel: another network may say it, where no canary stands.
fn is_of_network(reason: &str) -> bool {
    matches!(reason, "dropped" | "rejected" | "intercepted" | "no-route")
}

/// Somebody passes on what leaves the sandbox's own network. What a firewall lets go beyond this machine it decides
/// elsewhere (`FORWARD`, and not `INPUT`), and only a canary on another machine hears of it.
fn is_passed_on(view: &View<'_>) -> bool {
    let witness = view.evidence.witness.as_ref();
    view.has_own("net") && witness.and_then(|witness| witness.no_gateway) != Some(true)
}

/// Where there may be a way out, closed positions say nothing about the others: the internet has to be one of them.
fn route(view: &View<'_>, egress: bool, held: Finding) -> Result<Finding, Finding> {
    let internet = |target: &Target| target.position == Position::Internet;
    let closed = no_route(view) || no_family(view);
    let by_network = matches!(&held, Finding::Held { reason, .. } if is_of_network(reason));
    let stands = match by_network && is_passed_on(view) {
        true => view.evidence.targets.iter().any(|target| target.beyond),
        false => view.evidence.targets.iter().any(internet),
    };
    if egress && !closed && !stands {
        let reason = "no-internet-canary";
        return Err(Finding::undecided(reason, reasons::sentence(reason)));
    }
    Ok(held)
}

/// A control that the kernel refuses is evidence of a sandbox without sockets; any other failure may be the client's.
pub fn control(view: &View<'_>) -> Option<String> {
    let failed = view.steps("control").into_iter().find(|step| {
        step.outcome != Outcome::Ok
            && matches!(refusal::of_socket(step.outcome), None | Some("rejected"))
    })?;
    Some(format!(
        "The control failed: {}. The probe's own client may not work in there.",
        lines::of_step(failed)
    ))
}

/// Held if every target of ours was tried and every address that was tried was held.
fn targets(view: &View<'_>, names: refusal::Names, by_network: bool) -> Result<Finding, Finding> {
    let inside = &view.evidence.inside;
    let tries: Vec<&Step> = inside
        .steps
        .iter()
        .filter(|step| matches!(step.what.as_str(), "connect" | "send" | "query"))
        .collect();
    if view.killed_by_filter() && tries.is_empty() {
        let line = "the attempt's process was ended by SIGSYS when it asked for a socket";
        return Ok(Finding::held("killed", vec![line.into()]));
    }
    if view.killed_by_filter() {
        let reason = "not-finished";
        return Err(Finding::undecided(reason, reasons::sentence(reason)));
    }
    let untried = view
        .evidence
        .targets
        .iter()
        .find(|target| !tries.iter().any(|step| is_same(&step.target, target)));
    if tries.is_empty() || untried.is_some() {
        let which = untried.map_or_else(String::new, |target| format!(" ({})", target.address));
        let sentence = format!("A target of ours was not tried{which}.");
        return Err(Finding::undecided("not-tried", sentence));
    }
    let mut addresses: Vec<&str> = tries.iter().map(|step| step.target.as_str()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let mut reasons = Vec::new();
    for address in addresses {
        let of_address: Vec<&Step> = tries
            .iter()
            .copied()
            .filter(|step| step.target == address)
            .collect();
        let reason = match is_own_resolver(view, address) {
            true => resolver_held(view, &of_address, names)?,
            false => address_held(view, &of_address, names)?,
        };
        // Loopback is in every network namespace its own.
        let goes_out = by_network && !is_loopback(view, address);
        if goes_out && may_lead_elsewhere(view) && is_of_network(reason) {
            let reason = "other-network";
            return Err(Finding::undecided(reason, reasons::sentence(reason)));
        }
        reasons.push(reason);
    }
    let mut evidence: Vec<String> = view.evidence.targets.iter().map(lines::of_target).collect();
    if no_route(view) {
        evidence.push("the host sees no way out of the sandbox's network but loopback".into());
    }
    if no_family(view) {
        evidence.push("the host sees no IPv6 address in the sandbox's network".into());
    }
    evidence.extend(lines::of_steps(tries));
    match refusal::weakest(reasons) {
        Some(reason) => Ok(Finding::held(reason, evidence)),
        None => Err(Finding::undecided(
            "not-tried",
            reasons::sentence("not-tried"),
        )),
    }
}

/// Why one address was held, given that no canary saw anything.
fn address_held(
    view: &View<'_>,
    tries: &[&Step],
    names: refusal::Names,
) -> Result<&'static str, Finding> {
    let undecided = |reason| Finding::undecided(reason, reasons::sentence(reason));
    let address = tries.first().map_or("", |step| step.target.as_str());
    let datagrams = tries.iter().all(|step| step.what == "send");
    let went_out = tries.iter().any(|step| step.outcome == Outcome::Ok);
    let answered = view
        .evidence
        .inside
        .facts_of("reply")
        .any(|reply| reply.name == address && !reply.value.is_empty());
    if datagrams && went_out {
        let sent = |step: &&&Step| step.outcome == Outcome::Ok || names(step.outcome).is_some();
        return if tries.iter().filter(sent).count() < TRIES {
            Err(undecided("too-few-tries"))
        } else if view.evidence.watched < WATCH {
            Err(undecided("watched-too-short"))
        } else {
            // What the network says of one datagram comes with the next, or instead of an answer.
            let replies = view.steps("reply").into_iter();
            let replies = replies.filter(|step| step.target == address);
            let told = tries.iter().copied().chain(replies);
            let told = told.filter_map(|step| names(step.outcome));
            Ok(refusal::weakest(told).unwrap_or("dropped"))
        };
    }
    if answered {
        // Our canary would have told of it. Who else it is (a metadata service, a proxy, a resolver) and what it passes
        // on for others is not known.
        return Err(undecided("answered-by-another"));
    }
    if went_out {
        return Err(undecided("connected-unseen"));
    }
    let unanswered = tries.iter().filter(|step| timed_out(step.outcome)).count();
    let refused: Vec<&'static str> = tries
        .iter()
        .filter_map(|step| names(step.outcome))
        .collect();
    if let Some(unclear) = tries
        .iter()
        .find(|step| names(step.outcome).is_none() && !timed_out(step.outcome))
    {
        let sentence = format!(
            "{} may be the probe's own failure.",
            lines::of_step(unclear)
        );
        return Err(Finding::undecided("not-refused", sentence));
    }
    // A clear refusal after a time-out is an answer: the kernel took its time.
    match refusal::weakest(refused) {
        Some(reason) => Ok(reason),
        None if unanswered >= TRIES => Ok("dropped"),
        None => Err(undecided("too-few-tries")),
    }
}

/// The resolver that an engine puts into every network of a user's own: it asks the name servers that the container is
/// configured with, on behalf of whoever asks it.
const ENGINES_RESOLVER: &str = "udp://127.0.0.11:53";

/// The sandbox is configured with this name server, and it is none of ours.
fn is_own_resolver(view: &View<'_>, address: &str) -> bool {
    let mut targets = view.evidence.targets.iter();
    let mut resolvers = view.evidence.inside.facts_of("resolver");
    resolvers.any(|resolver| resolver.name == address)
        && !targets.any(|target| is_same(address, target))
}

/// Why the sandbox's own resolver let nothing through, given that no name server of ours saw anything. Where it passes
/// questions on to somebody else, our silent name server says nothing about it: a question that it takes, or swallows,
/// may be out already, and "no such name" may be the answer of the whole internet.
fn resolver_held(
    view: &View<'_>,
    tries: &[&Step],
    names: refusal::Names,
) -> Result<&'static str, Finding> {
    let undecided = |reason| Finding::undecided(reason, reasons::sentence(reason));
    let address = tries.first().map_or("", |step| step.target.as_str());
    // Nobody took the question.
    let mut refused = Vec::new();
    for step in tries {
        match names(step.outcome) {
            Some(reason) => refused.push(reason),
            None if step.outcome == Outcome::Ok || timed_out(step.outcome) => {}
            None => return Err(undecided("not-refused")),
        }
    }
    if refused.len() == tries.len() {
        return refusal::weakest(refused).ok_or_else(|| undecided("not-tried"));
    }
    let number = |key| {
        let of_address = view.evidence.inside.facts_of(key);
        let last = of_address.filter(|fact| fact.name == address).last();
        last.and_then(|fact| std::str::from_utf8(&fact.value).ok()?.parse::<u64>().ok())
    };
    let answered = tries.iter().any(|step| step.outcome == Outcome::Ok);
    let says_no = match (number("dns-code"), number("dns-records")) {
        (Some(code), Some(records)) => code != 0 || records == 0,
        _ => false,
    };
    if answered && !says_no {
        return Err(undecided("answered-by-another"));
    }
    if !view.evidence.resolver_asks_us || address != ENGINES_RESOLVER {
        return Err(undecided("resolver-elsewhere"));
    }
    match answered {
        true => Ok("intercepted"),
        false if tries.len() < TRIES => Err(undecided("too-few-tries")),
        false => Ok("dropped"),
    }
}

fn is_loopback(view: &View<'_>, address: &str) -> bool {
    let mut targets = view.evidence.targets.iter();
    targets.any(|target| target.position == Position::Loopback && is_same(address, target))
}

fn timed_out(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Timeout | Outcome::Errno(nix::libc::ETIMEDOUT)
    )
}

/// The same address, whichever of the two names its protocol (or a path below it).
fn is_same(tried: &str, target: &Target) -> bool {
    let bare = |address: &str| {
        let bare = address.split_once("://").map(|(_, rest)| rest);
        bare.map_or_else(
            || address.to_owned(),
            |rest| rest.split('/').next().unwrap_or_default().to_owned(),
        )
    };
    tried == target.address || bare(tried) == bare(&target.address)
}
