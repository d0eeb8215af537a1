//! Two audits side by side: for each sandbox what changed in it, and what came of that.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::report::saved::{Sandbox, Saved, Trial};
use crate::verdict::Verdict;

/// What is different between two audits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Version of the JSON layout.
    pub version: u32,
    /// Whether anything is worse than before.
    pub worse: bool,
    /// What is different about the audits themselves: program, library, selection.
    pub changes: Vec<Change>,
    /// The sandboxes in which anything is different, by name.
    pub sandboxes: Vec<SandboxDiff>,
}

/// One sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxDiff {
    /// Its name.
    pub name: String,
    /// Settings, promises, what stood behind it, what was in force.
    pub changes: Vec<Change>,
    /// What came of it, the worst first.
    pub effects: Vec<Effect>,
}

/// One thing that is different. `None`: it was not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Change {
    pub what: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// One case that came to something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// What kind of difference it is.
    pub kind: Kind,
    /// Whether it is worse, and its verdict counts.
    pub worse: bool,
    /// The case's id; after, where it has another one.
    pub case: String,
    /// The id that it had before, where that was another one.
    pub renamed_from: Option<String>,
    /// What it came to before.
    pub before: Option<Verdict>,
    /// What it comes to after.
    pub after: Option<Verdict>,
    /// The reason's code, after; before, where there is no after.
    pub reason: String,
    /// The same for a person. It may hold what a sandbox printed.
    pub sentence: String,
}

/// What kind of difference it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It escapes or is broken, and did not before, or was not tried.
    Escaped,
    /// It was tried before, and is not there any more.
    Vanished,
    /// It counted, and does not any more.
    NoLongerGates,
    /// It came to something worse in another way: undecided, failed, skipped.
    Worse,
    /// It came to something better in another way.
    Better,
    /// It escaped or was broken, and holds.
    Fixed,
    /// It has another name.
    Renamed,
    /// It was not tried before.
    New,
}

/// Compares two audits.
pub fn diff(before: &Saved, after: &Saved) -> Diff {
    let mut changes = Vec::new();
    let mut note = |what: &str, before: &str, after: &str| {
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        changes.extend(change(what, said(before), said(after)));
    };
    note("escape-audit", &before.tool.version, &after.tool.version);
    note("library", &before.tool.library, &after.tool.library);
    let options = |saved: &Saved| saved.selection.join(" ");
    note("restricted by", &options(before), &options(after));
    let cut = |saved: &Saved| saved.incomplete.clone().unwrap_or_default();
    note("incomplete", &cut(before), &cut(after));

    let names: BTreeSet<&str> = [before, after]
        .into_iter()
        .flat_map(|saved| &saved.sandboxes)
        .map(|sandbox| sandbox.name.as_str())
        .collect();
    let mut worse = after.incomplete.is_some() && before.incomplete.is_none();
    let mut sandboxes = Vec::new();
    for name in names {
        let find = |saved: &'_ Saved| saved.sandboxes.iter().find(|s| s.name == name).cloned();
        let (was, is) = (find(before), find(after));
        worse |= is_lost(was.as_ref(), is.as_ref());
        let effects = effects(&trials(before, name), &trials(after, name));
        worse |= effects.iter().any(|effect| effect.worse);
        let changes = of_sandbox(was.as_ref(), is.as_ref());
        if !changes.is_empty() || !effects.is_empty() {
            sandboxes.push(SandboxDiff {
                name: name.to_owned(),
                changes,
                effects,
            });
        }
    }
    Diff {
        version: 1,
        worse,
        changes,
        sandboxes,
    }
}

/// It was audited and is not any more, or no longer at the same level.
fn is_lost(was: Option<&Sandbox>, is: Option<&Sandbox>) -> bool {
    match (was, is) {
        (Some(was), Some(is)) => {
            is.level() < was.level() || (is.failed.is_some() && was.failed.is_none())
        }
        (Some(_), None) => true,
        (None, Some(is)) => is.failed.is_some(),
        (None, None) => false,
    }
}

fn change(what: &str, before: Option<String>, after: Option<String>) -> Option<Change> {
    (before != after).then(|| Change {
        what: what.to_owned(),
        before,
        after,
    })
}

fn of_sandbox(was: Option<&Sandbox>, is: Option<&Sandbox>) -> Vec<Change> {
    let there = |sandbox: Option<&Sandbox>| sandbox.map(|_| "audited".to_owned());
    let (Some(was), Some(is)) = (was, is) else {
        return change("sandbox", there(was), there(is))
            .into_iter()
            .collect();
    };
    let (was, is) = (flat(was), flat(is));
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    names
        .into_iter()
        .filter_map(|name| change(name, was.get(name).cloned(), is.get(name).cloned()))
        .collect()
}

/// Everything that is known of a sandbox, by name.
fn flat(sandbox: &Sandbox) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        if !value.is_empty() {
            all.insert(name.to_owned(), value);
        }
    };
    put("backend", sandbox.backend.clone());
    put("without", sandbox.without.join(", "));
    put("command", sandbox.command.join(" "));
    put("digest", sandbox.digest.clone().unwrap_or_default());
    put(
        "could not be audited",
        sandbox.failed.clone().unwrap_or_default(),
    );
    for (prefix, members) in [("", &sandbox.settings), ("policy.", &sandbox.policy)] {
        for (name, value) in members.as_object().into_iter().flatten() {
            put(&format!("{prefix}{name}"), shown(value));
        }
    }
    for (name, value) in &sandbox.in_force {
        put(&format!("in force: {name}"), value.clone());
    }
    all
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn trials<'a>(saved: &'a Saved, sandbox: &str) -> BTreeMap<&'a str, &'a Trial> {
    let here = saved.trials.iter().filter(|trial| trial.sandbox == sandbox);
    here.map(|trial| (trial.case.as_str(), trial)).collect()
}

fn effects(before: &BTreeMap<&str, &Trial>, after: &BTreeMap<&str, &Trial>) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut found = BTreeSet::new();
    for (id, was) in before {
        let renamed = || {
            let mut fresh = after.iter().filter(|(id, _)| !before.contains_key(*id));
            fresh.find(|(_, is)| is.definition.digest == was.definition.digest)
        };
        let is = after.get_key_value(id).or_else(renamed);
        if let Some((id, _)) = is {
            found.insert(*id);
        }
        effects.extend(effect(Some(was), is.map(|(_, is)| *is)));
    }
    for (id, is) in after {
        if !found.contains(id) {
            effects.extend(effect(None, Some(is)));
        }
    }
    effects.sort_by(|a, b| (a.kind, &a.case).cmp(&(b.kind, &b.case)));
    effects
}

/// What became of one case, if anything did.
fn effect(was: Option<&Trial>, is: Option<&Trial>) -> Option<Effect> {
    let told = is.or(was)?;
    let (before, after) = (was.map(|t| t.verdict), is.map(|t| t.verdict));
    let gated = |trial: Option<&Trial>| trial.is_some_and(|trial| trial.gates);
    let renamed_from = was
        .filter(|was| was.case != told.case)
        .map(|was| was.case.clone());
    let kind = match (before, after) {
        (_, None) => Kind::Vanished,
        (None, Some(after)) if after.escapes() => Kind::Escaped,
        (None, Some(_)) => Kind::New,
        (Some(before), Some(after)) if after.escapes() && !before.escapes() => Kind::Escaped,
        _ if gated(was) && !gated(is) => Kind::NoLongerGates,
        (Some(before), Some(after)) if before.escapes() && after.holds() => Kind::Fixed,
        (Some(before), Some(after)) if before.holds() && after.holds() => Kind::Renamed,
        (Some(before), Some(after)) if after > before => Kind::Worse,
        (Some(before), Some(after)) if after < before => Kind::Better,
        _ => Kind::Renamed,
    };
    if kind == Kind::Renamed && renamed_from.is_none() {
        return None; // the same as before, under the same name
    }
    let counts = match kind {
        Kind::Escaped | Kind::Worse => gated(is),
        Kind::Vanished | Kind::NoLongerGates => gated(was),
        Kind::Better | Kind::Fixed | Kind::Renamed | Kind::New => false,
    };
    Some(Effect {
        kind,
        worse: counts,
        case: told.case.clone(),
        renamed_from,
        before,
        after,
        reason: told.reason.clone(),
        sentence: told.sentence.clone(),
    })
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
