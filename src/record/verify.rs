//! Whether a record says what somebody wants to rely on: each question apart, and where it fails both values.

use std::time::Duration;

use serde_json::{Map, Value};

use super::canonical;
use super::configured::Configured;
use super::model::{Audited, Record, TestResult};
use super::time;
use crate::case::{Level, Library, Status};
use crate::diag::schema::Named as _;
use crate::report::decided::Waived;
use crate::verdict::Verdict;

/// What somebody wants to rely on.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The sandbox as it is configured.
    pub sandbox: &'a Configured,
    /// The image, SHA-256 in hexadecimal; `None` where the sandbox has none.
    pub image: Option<&'a str>,
    /// The lowest level that is enough.
    pub level: Level,
    /// The library that it has to have been audited by; `None`: any.
    pub library: Option<&'a Library>,
    /// SHA-256 of the project file, where there is one.
    pub project: Option<&'a str>,
    /// Seconds since 1970.
    pub now: u64,
    /// No older than this.
    pub max_age: Option<Duration>,
    /// A record of a part of the library is enough.
    pub allow_partial: bool,
    /// A record in which escapes are waived is enough, as long as the waivers count.
    pub allow_waived: bool,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was asked, one word.
    pub what: &'static str,
    /// Whether it is as it was wanted.
    pub holds: bool,
    /// What the record says, and what was wanted where that differs. It may hold text of strangers.
    pub text: String,
}

/// Asks every question. The record is good for what was wanted if all of them hold.
pub fn verify(record: &Record, wanted: &Wanted<'_>) -> Vec<Finding> {
    let name = &wanted.sandbox.name;
    let Some(audited) = record
        .sandboxes
        .iter()
        .find(|sandbox| sandbox.name == *name)
    else {
        let names: Vec<&str> = record
            .sandboxes
            .iter()
            .map(|sandbox| sandbox.name.as_str())
            .collect();
        let text = format!("audited: {}; wanted: {name}", list(&names));
        return vec![Finding {
            what: "sandbox",
            holds: false,
            text,
        }];
    };
    let mut findings = vec![yes("sandbox", name.clone())];
    findings.extend(image(record, audited, wanted));
    findings.extend(compared(
        "settings",
        &audited.settings,
        &wanted.sandbox.settings,
        &[],
    ));
    findings.extend(compared(
        "policy",
        &audited.policy,
        &wanted.sandbox.policy,
        &["level"],
    ));
    findings.push(level(audited, wanted.level));
    findings.push(project(record, wanted.project));
    findings.extend(library(record, audited, wanted));
    findings.push(result(record, audited, wanted));
    findings.push(age(record, wanted));
    findings
}

fn image(record: &Record, audited: &Audited, wanted: &Wanted<'_>) -> Option<Finding> {
    let image = wanted.image?;
    let audited_image = audited
        .in_force
        .digests
        .iter()
        .any(|digest| digest == image);
    let in_subject = record.subject.iter().any(|(_, digest)| digest == image);
    let text = match (audited_image, in_subject) {
        (true, true) => return Some(yes("image", format!("sha256:{image}"))),
        (false, _) => {
            let digests: Vec<String> = audited
                .in_force
                .digests
                .iter()
                .map(|digest| format!("sha256:{digest}"))
                .collect();
            format!("audited: {}; wanted: sha256:{image}", list(&digests))
        }
        (true, false) => {
            format!("sha256:{image} was audited, and is not a subject of the statement")
        }
    };
    Some(no("image", text))
}

/// A finding a member that differs, or one that says that none does.
fn compared(
    what: &'static str,
    audited: &Map<String, Value>,
    wanted: &Map<String, Value>,
    apart: &[&str],
) -> Vec<Finding> {
    let mut names: Vec<&String> = audited.keys().chain(wanted.keys()).collect();
    names.sort();
    names.dedup();
    let said = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), canonical::text);
    let differing: Vec<Finding> = names
        .into_iter()
        .filter(|name| !apart.contains(&name.as_str()))
        .map(|name| (name, said(audited.get(name)), said(wanted.get(name))))
        .filter(|(_, audited, wanted)| audited != wanted)
        .map(|(name, audited, wanted)| {
            no(
                what,
                format!("{name}: audited: {audited}; configured: {wanted}"),
            )
        })
        .collect();
    match differing.is_empty() {
        true => vec![yes(what, "as configured".into())],
        false => differing,
    }
}

fn level(audited: &Audited, wanted: Level) -> Finding {
    match audited.level() {
        Some(level) if level >= wanted => yes("level", level.word().to_owned()),
        level => {
            let said = level.map_or("none", Level::word);
            no(
                "level",
                format!("audited: {said}; wanted: {}", wanted.word()),
            )
        }
    }
}

/// The settings and the policy are what counts: a comment or another sandbox in the file may have changed.
fn project(record: &Record, wanted: Option<&str>) -> Finding {
    let text = match (&record.project, wanted) {
        (Some(audited), Some(wanted)) if audited == wanted => "the project file is the same".into(),
        (None, None) => "without a project file".into(),
        (audited, wanted) => {
            let said = |digest: Option<&str>| {
                digest.map_or("none".into(), |digest| format!("sha256:{digest}"))
            };
            format!(
                "another project file (audited: {}; here: {}); of this sandbox, settings and policy are what counts",
                said(audited.as_deref()),
                said(wanted)
            )
        }
    };
    yes("project", text)
}

fn library(record: &Record, audited: &Audited, wanted: &Wanted<'_>) -> Vec<Finding> {
    let said = format!(
        "{} cases, sha256:{}",
        record.library.cases, record.library.digest
    );
    let Some(library) = wanted.library else {
        return vec![yes("library", format!("{said} (any is enough)"))];
    };
    if library.digest != record.library.digest {
        let text = format!(
            "audited: {said}; here: {} cases, sha256:{}",
            library.cases.len(),
            library.digest
        );
        return vec![no("library", text)];
    }
    // What the record says of its own cases has to be true of the library that it names.
    let level = audited.level();
    let expected = library.cases.iter();
    let mut wrong: Vec<String> = expected
        .filter(|case| level.is_none_or(|level| case.level <= level))
        .filter(|case| match audited.verdicts.tried.get(&case.id) {
            Some(came) => came.gates != (case.status == Status::Stable),
            None => !audited.verdicts.left_out.contains(&case.id),
        })
        .map(|case| case.id.clone())
        .collect();
    let tried = audited.verdicts.tried.keys();
    wrong.extend(tried.filter(|id| library.get(id).is_none()).cloned());
    match wrong.is_empty() && record.library.cases == library.cases.len() {
        true => vec![yes("library", said)],
        false => vec![no(
            "library",
            format!(
                "{said}; it does not have these cases, or they count otherwise: {}",
                list(&wrong)
            ),
        )],
    }
}

fn result(record: &Record, audited: &Audited, wanted: &Wanted<'_>) -> Finding {
    let counts: Vec<String> = Verdict::ALL
        .into_iter()
        .rev()
        .map(|verdict| (audited.count(verdict), verdict.name().to_lowercase()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    let mut text = format!("{}: {}", record.deserves().name(), list(&counts));
    let left_out = &audited.verdicts.left_out;
    if !left_out.is_empty() {
        text.push_str(&format!(
            "; {} not asked for: {}",
            left_out.len(),
            list(left_out)
        ));
    }
    let failed = audited
        .verdicts
        .tried
        .iter()
        .filter(|(_, came)| came.gates && came.verdict > Verdict::Skipped && !came.is_waived());
    let failed: Vec<&str> = failed.map(|(case, _)| case.as_str()).collect();
    if !failed.is_empty() {
        text.push_str(&format!("; did not hold: {}", list(&failed)));
    }
    let waived: Vec<String> = waivers(audited)
        .map(|(case, waived)| format!("{case} {waived}"))
        .collect();
    if !waived.is_empty() {
        text.push_str(&format!("; {}", list(&waived)));
    }
    if let Some(why) = record
        .run
        .incomplete
        .as_ref()
        .or(audited.in_force.failed.as_ref())
    {
        text.push_str(&format!("; {why}"));
    }
    if record.run.exit_code != 0 {
        text.push_str(&format!("; it exited with {}", record.run.exit_code));
    }
    // Another sandbox of the same run may have failed, and then the run is no proof of anything.
    let mut missing = Vec::new();
    if record
        .sandboxes
        .iter()
        .any(|s| !s.verdicts.left_out.is_empty())
        && !wanted.allow_partial
    {
        missing.push("`--allow-partial`");
    }
    let mut waivers = record.sandboxes.iter().flat_map(waivers).peekable();
    if waivers.peek().is_some() && !wanted.allow_waived {
        missing.push("`--allow-waived`");
    }
    let today = time::day(wanted.now);
    let expired = waivers.any(|(_, waived)| waived.until < today);
    let holds = match record.deserves() {
        TestResult::Passed => true,
        TestResult::Warned => missing.is_empty() && !expired,
        TestResult::Failed => false,
    };
    if expired {
        text.push_str(&format!("; a waiver has expired by {today}"));
    }
    if record.deserves() == TestResult::Warned && !missing.is_empty() {
        text.push_str(&format!("; it would take {}", missing.join(" and ")));
    }
    Finding {
        what: "result",
        holds,
        text,
    }
}

fn waivers(audited: &Audited) -> impl Iterator<Item = (&String, &Waived)> {
    let tried = audited.verdicts.tried.iter();
    tried
        .filter(|(_, came)| came.is_waived())
        .filter_map(|(case, came)| Some((case, came.waived.as_ref()?)))
}

fn age(record: &Record, wanted: &Wanted<'_>) -> Finding {
    let started = &record.run.started;
    let Some(at) = time::seconds(started) else {
        return no("age", format!("`{started}` is no time"));
    };
    let Some(age) = wanted.now.checked_sub(at) else {
        return no(
            "age",
            format!(
                "audited at {started}, which is {} from now",
                time::age(at - wanted.now)
            ),
        );
    };
    let text = format!("audited {} ago, at {started}", time::age(age));
    match wanted.max_age {
        Some(most) if age > most.as_secs() => no(
            "age",
            format!("{text}; wanted: within {}", time::age(most.as_secs())),
        ),
        _ => yes("age", text),
    }
}

fn list<T: AsRef<str>>(items: &[T]) -> String {
    const SHOWN: usize = 12;
    let mut shown: Vec<&str> = items.iter().take(SHOWN).map(AsRef::as_ref).collect();
    let more = format!("and {} more", items.len().saturating_sub(SHOWN));
    if items.len() > SHOWN {
        shown.push(&more);
    }
    match shown.is_empty() {
        true => "nothing".into(),
        false => shown.join(", "),
    }
}

fn yes(what: &'static str, text: String) -> Finding {
    Finding {
        what,
        holds: true,
        text,
    }
}

fn no(what: &'static str, text: String) -> Finding {
    Finding {
        what,
        holds: false,
        text,
    }
}
