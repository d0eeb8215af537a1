//! What makes an ESCAPED: seen from outside, or done inside where doing it is the breach. Nothing lowers it.

use crate::case::{Attempt, Expect, Proof};
use crate::evidence::{Cause, End, SecretFound};
use crate::verdict::{Judgement, Verdict};

use super::reading::{Aim, Reading, Through, View, aim};
use super::{lines, reading_privileges, reasons};

/// A canary shows this trial's token, the host counted more than the ceiling, or something outlived the run.
pub fn seen_from_outside(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    let mut seen: Vec<(&'static str, String)> = Vec::new();
    canaries(view, &mut seen);
    processes(view, &mut seen);
    ceilings(view, &mut seen);
    let by_host = !seen.is_empty();
    if let Through::Promise { reason, lines } = &reading.through
        && view.case.expect == Expect::Blocked
    {
        seen.extend(lines.iter().map(|line| (*reason, line.clone())));
    }
    let (reason, _) = seen.first()?;
    let sentence = reasons::sentence(reason);
    let lines = seen.iter().map(|(_, line)| line.clone()).collect();
    let mut judgement = view.conclude(Verdict::Escaped, reason, sentence, lines);
    judgement.inside_only = !by_host && view.evidence.probe().is_none();
    Some(judgement)
}

fn canaries(view: &View<'_>, seen: &mut Vec<(&'static str, String)>) {
    let evidence = view.evidence;
    // A survivor's beacon counts when the run had ended; until then it only shows that it lives.
    let survivor = matches!(view.case.attempt, Attempt::Outlive { .. });
    // What must be reached may be reached.
    let wanted = view.case.expect == Expect::Allowed && aim(&view.case.attempt) == Aim::Target;
    for touch in &evidence.touches {
        match (survivor, wanted) {
            (true, _) if touch.late => {
                seen.push(("survivor", lines::of_touch(touch, &evidence.targets)))
            }
            (false, false) => {
                seen.push(("canary-reached", lines::of_touch(touch, &evidence.targets)))
            }
            _ => {}
        }
    }
    for secret in evidence.secrets.iter().filter(|s| is_meant(view, s)) {
        let whose = if secret.real {
            "the user's own"
        } else {
            "the planted"
        };
        let place = place(&view.case.attempt, secret);
        let line = format!("{whose} secret {} {place}", secret.name);
        seen.push(("secret-read", line));
    }
    for file in &evidence.host_files {
        seen.push((
            "host-file-written",
            format!("the host found this trial's file {file}"),
        ));
    }
}

/// Where a secret was, for a person. Variables of other processes are told as `PID:NAME`.
fn place(attempt: &Attempt, secret: &SecretFound) -> String {
    let SecretFound { name, found_in, .. } = secret;
    let of_process = match attempt {
        Attempt::ProcessEnvironment => found_in.split_once(':'),
        _ => None,
    };
    match (attempt, of_process) {
        (_, Some((pid, variable))) if variable == name => {
            format!("was readable in the environment of process {pid}")
        }
        (_, Some((pid, variable))) => {
            format!("was readable in the environment of process {pid}, as {variable}")
        }
        (Attempt::Environment { .. }, _) if found_in == name => "was readable".into(),
        (Attempt::Environment { .. }, _) => format!("was readable as {found_in}"),
        _ => format!("was found in {found_in}"),
    }
}

/// A case about some variables is not about the others. Real secrets always count.
fn is_meant(view: &View<'_>, secret: &SecretFound) -> bool {
    let Attempt::Environment { names } = &view.case.attempt else {
        return true;
    };
    let fits = |pattern: &String| match globset::Glob::new(pattern) {
        Ok(glob) => {
            let glob = glob.compile_matcher();
            glob.is_match(&secret.name) || glob.is_match(&secret.found_in)
        }
        // A pattern that cannot be read leaves nothing out.
        Err(_) => true,
    };
    secret.real || names.is_empty() || names.iter().any(fits)
}

fn processes(view: &View<'_>, seen: &mut Vec<(&'static str, String)>) {
    let evidence = view.evidence;
    let proves = |proof| view.case.escaped.contains(&proof);
    if evidence.sentinel.signalled && proves(Proof::ProcessSignalled) {
        let line = "the host's process got this trial's signal";
        seen.push(("process-signalled", line.into()));
    }
    if evidence.sentinel.seen && proves(Proof::ProcessSeen) {
        let line = "the secret name of the host's process was reported from inside";
        seen.push(("process-seen", line.into()));
    }
    for survivor in &evidence.survivors {
        seen.push(("survivor", format!("still there after the run: {survivor}")));
    }
}

fn ceilings(view: &View<'_>, seen: &mut Vec<(&'static str, String)>) {
    let passed = view.evidence.counts.iter().filter(|count| count.passed());
    for count in passed.filter(|count| count.by_host) {
        seen.push(("ceiling-passed", lines::of_count(count)));
    }
}

/// The probe did what is itself the breach, on the host's own kernel and over its initial user namespace.
pub fn breach(view: &View<'_>, reading: &Reading) -> Option<Judgement> {
    if view.evidence.own_kernel.is_some() {
        return None;
    }
    let own_users = view
        .evidence
        .probe()
        .is_some_and(|witness| witness.own_user_namespace);
    let done = match &reading.through {
        Through::Breach { lines, confinable } if !(own_users && *confinable) => lines.clone(),
        _ => Vec::new(),
    };
    let mut seen = Vec::new();
    if view.case.attempt == Attempt::Capabilities {
        seen.extend(reading_privileges::held_on_host(view));
    }
    seen.extend(done);
    if seen.is_empty() {
        return None;
    }
    let sentence = match view.case.attempt {
        Attempt::Syscall { .. } => "A system call that a sandbox refuses reached the kernel.",
        _ => reasons::sentence("breach"),
    };
    let mut judgement = view.conclude(Verdict::Escaped, "breach", sentence, seen);
    judgement.inside_only = view.evidence.probe().is_none();
    Some(judgement)
}

/// Our outer limiter, not the sandbox, had to stop it. A launcher that hangs and never ran the probe proves nothing.
pub fn stopped_by_harness(view: &View<'_>, _: &Reading) -> Option<Judgement> {
    let End::ByLimiter { cause } = view.evidence.end else {
        return None;
    };
    if cause == Cause::Timeout && !view.started() {
        return None;
    }
    let what = match cause {
        Cause::Timeout => "it ran past every deadline",
        Cause::Output => "it printed past every bound",
        Cause::Memory => "it took memory past every bound",
        Cause::Pids => "it started processes past every bound",
    };
    let reason = "stopped-by-harness";
    let sentence = format!("{what}, and the harness's limiter, not the sandbox, stopped it.");
    let evidence = vec![format!("stopped by the harness: {what}")];
    Some(view.conclude(Verdict::Escaped, reason, capitalised(&sentence), evidence))
}

fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
