//! A baseline is a memory of what held: id → verdict, for each sandbox. A later audit is held against it.
//!
//! It makes an audit stricter and never milder: what shrank in silence fails, and what escaped when the baseline was
//! written fails all the same, for a waiver excuses that and a baseline does not.

use std::collections::{BTreeMap, BTreeSet};

use crate::case::{Level, Partition};
use crate::report::decided::{Remark, Weight};
use crate::report::saved::{Saved, Trial};
use crate::verdict::Verdict;

/// How much of a case's hash is kept: enough to know it again under another name.
const HASH: usize = 16;
/// The code of a remark about a case that held and does not.
pub const WORSE: &str = "baseline-worse";
/// Ids that are named in one remark.
const NAMED: usize = 8;

/// What was known when the baseline was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    /// The version of the program.
    pub tool: String,
    /// The hash of the case library.
    pub library: String,
    /// What was audited, by name.
    pub sandboxes: BTreeMap<String, Audited>,
}

/// One sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Audited {
    /// The level at which it had to hold.
    pub level: Level,
    /// What stood behind it.
    pub digest: Option<String>,
    /// The ceilings that it promised, under the policy's own names. What is not there was not promised.
    pub promises: BTreeMap<String, f64>,
    /// The places that might be written.
    pub writable: BTreeSet<String>,
    /// The cases, by id.
    pub cases: BTreeMap<String, Known>,
}

/// One case in one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// What it came to.
    pub verdict: Verdict,
    /// Whether the verdict counted.
    pub gates: bool,
    /// The first digits of its file's hash.
    pub definition: String,
}

impl Baseline {
    /// What this audit came to, as a memory. An error gives every reason why it cannot be one.
    pub fn of(report: &Saved) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        if let Some(why) = &report.incomplete {
            wrong.push(format!("it is not complete: {why}"));
        }
        for sandbox in &report.sandboxes {
            let name = &sandbox.name;
            if !sandbox.without.is_empty() {
                let without = sandbox.without.join(", ");
                wrong.push(format!(
                    "`{name}` was audited without {without}, and not as it is"
                ));
            }
            if let Some(why) = &sandbox.failed {
                wrong.push(format!("`{name}` could not be audited: {why}"));
            }
            if !report.trials.iter().any(|trial| trial.sandbox == *name) {
                wrong.push(format!("nothing was tried in `{name}`"));
            }
        }
        if report.sandboxes.is_empty() {
            wrong.push("nothing was audited".into());
        }
        match wrong.is_empty() {
            true => Ok(Self::remember(report)),
            false => Err(wrong),
        }
    }

    fn remember(report: &Saved) -> Self {
        let mut sandboxes = BTreeMap::new();
        for sandbox in &report.sandboxes {
            let of_this = report
                .trials
                .iter()
                .filter(|trial| trial.sandbox == sandbox.name);
            let cases = of_this.map(|trial| (trial.case.clone(), Known::of(trial)));
            let audited = Audited {
                level: sandbox.level().unwrap_or(Level::Standard),
                digest: sandbox.digest.clone(),
                promises: sandbox.promises(),
                writable: sandbox.writable(),
                cases: cases.collect(),
            };
            sandboxes.insert(sandbox.name.clone(), audited);
        }
        Self {
            tool: report.tool.version.clone(),
            library: report.tool.library.clone(),
            sandboxes,
        }
    }

    /// Whether this case held in this sandbox, and counted.
    pub fn held(&self, sandbox: &str, case: &str) -> bool {
        let known = self.sandboxes.get(sandbox).and_then(|s| s.cases.get(case));
        known.is_some_and(|known| known.gates && known.verdict.holds())
    }

    /// Holds an audit against the baseline: everything that is to be said of it.
    pub fn check(&self, report: &Saved) -> Vec<Remark> {
        let mut remarks = Vec::new();
        for (name, audited) in &self.sandboxes {
            Comparison {
                name,
                known: audited,
                report,
                remarks: &mut remarks,
            }
            .write();
        }
        if report.tool.library != self.library {
            let sentence =
                "The library of cases is another one than when the baseline was written.";
            remarks.push(note("baseline-library", None, sentence.into()));
        }
        remarks
    }
}

impl Known {
    fn of(trial: &Trial) -> Self {
        Self {
            verdict: trial.verdict,
            gates: trial.gates,
            definition: trial.definition.digest.chars().take(HASH).collect(),
        }
    }
}

/// One sandbox, then and now.
struct Comparison<'a> {
    name: &'a str,
    known: &'a Audited,
    report: &'a Saved,
    remarks: &'a mut Vec<Remark>,
}

impl Comparison<'_> {
    fn write(&mut self) {
        let name = self.name;
        let Some(sandbox) = self.report.sandboxes.iter().find(|s| s.name == name) else {
            let sentence = format!("`{name}` is in the baseline and was not audited.");
            return self.fails("baseline-not-audited", None, sentence);
        };
        if sandbox.failed.is_some() {
            return; // which fails by itself, and says why
        }
        let then = self.known.level;
        let lowered = sandbox.level().filter(|now| *now < then);
        if let Some(now) = lowered {
            let sentence = format!(
                "`{name}` was audited at level {}, and at {} when the baseline was written.",
                now.name(),
                then.name()
            );
            self.fails("baseline-level-lowered", None, sentence);
        }
        self.promises(&sandbox.promises(), &sandbox.writable());
        if sandbox.digest != self.known.digest {
            let said = |digest: &Option<String>| digest.clone().unwrap_or("nothing".into());
            let (then, now) = (said(&self.known.digest), said(&sandbox.digest));
            let sentence = format!("What stands behind `{name}` was {then}, and is {now}.");
            self.remarks
                .push(note("baseline-digest", Some(name), sentence));
        }
        let trials = self
            .report
            .trials
            .iter()
            .filter(|trial| trial.sandbox == name);
        let now: BTreeMap<&str, &Trial> = trials.map(|t| (t.case.as_str(), t)).collect();
        self.cases(&now, lowered.is_some());
    }

    /// A promise that is weaker is kept more easily: what held then would not show that it does now.
    fn promises(&mut self, now: &BTreeMap<String, f64>, writable: &BTreeSet<String>) {
        let name = self.name;
        for (what, then) in &self.known.promises {
            let sentence = match now.get(what) {
                Some(now) if now <= then => continue,
                Some(now) => format!(
                    "`{name}` promised `{what}` {then}, and promises {now}: write the baseline anew if that is meant."
                ),
                None => format!(
                    "`{name}` promised `{what}` {then}, and promises nothing of it any more."
                ),
            };
            self.fails("baseline-promise-weaker", None, sentence);
        }
        let new: Vec<&str> = writable
            .difference(&self.known.writable)
            .map(String::as_str)
            .collect();
        if !new.is_empty() {
            let sentence = format!(
                "In `{name}` more may be written than in the baseline: {}.",
                named(&new)
            );
            self.fails("baseline-promise-weaker", None, sentence);
        }
    }

    fn cases(&mut self, now: &BTreeMap<&str, &Trial>, lowered: bool) {
        let known = self.known;
        let explained =
            lowered || !self.report.selection.is_empty() || self.report.incomplete.is_some();
        let part = self.part();
        let (mut left_out, mut elsewhere) = (Vec::new(), Vec::new());
        let (mut better, mut changed) = (Vec::new(), Vec::new());
        let mut missing = BTreeMap::new();
        for (id, then) in &known.cases {
            match now.get(id.as_str()) {
                Some(trial) => {
                    self.case(id, then, trial);
                    if !then.verdict.holds() && trial.verdict.holds() {
                        better.push(id.as_str());
                    }
                    if then.definition != Known::of(trial).definition {
                        changed.push(id.as_str());
                    }
                }
                None if part.is_some_and(|part| !part.has(id)) => elsewhere.push(id.as_str()),
                None => drop(missing.insert(id, then)),
            }
        }
        let mut fresh: BTreeMap<&str, &Trial> = now.clone();
        fresh.retain(|id, _| !known.cases.contains_key(*id));
        for (id, then) in missing {
            let renamed = fresh
                .iter()
                .find(|(_, trial)| Known::of(trial).definition == then.definition);
            match renamed {
                Some((to, _)) => {
                    let sentence = format!(
                        "`{id}` was renamed to `{to}`: nothing shows that what the baseline knows as `{id}` holds in `{}`.",
                        self.name
                    );
                    self.fails("baseline-renamed", Some(id), sentence);
                }
                None if explained => left_out.push(id.as_str()),
                None => {
                    let sentence = format!(
                        "`{id}` is in the baseline of `{}`, and there is no such case any more.",
                        self.name
                    );
                    self.fails("baseline-missing", Some(id), sentence);
                }
            }
        }
        self.left_out(&left_out);
        let name = self.name;
        let fresh: Vec<&str> = fresh.keys().copied().collect();
        for (code, ids, says) in [
            (
                "baseline-other-part",
                elsewhere,
                "not of this part of the library, and were not tried here",
            ),
            (
                "baseline-better",
                better,
                "better than in the baseline: write it anew, so that this is remembered",
            ),
            (
                "baseline-changed",
                changed,
                "not defined as they were: see whether they still ask what they asked",
            ),
            (
                "baseline-new",
                fresh,
                "not in the baseline: write it anew, so that they are remembered",
            ),
        ] {
            if !ids.is_empty() {
                let sentence = format!("In `{name}`, {} are {says}: {}.", count(&ids), named(&ids));
                self.remarks.push(note(code, Some(name), sentence));
            }
        }
    }

    /// Known cases that a filter, a lower level or an early end left out.
    fn left_out(&mut self, ids: &[&str]) {
        if ids.is_empty() {
            return;
        }
        let why = match (&self.report.incomplete, &self.report.selection[..]) {
            (Some(_), _) => "the audit did not come to its end".to_owned(),
            (None, []) => "the level is lower".to_owned(),
            (None, options) => format!("the audit was restricted by {}", options.join(" ")),
        };
        let sentence = format!(
            "In `{}`, {} of {} that the baseline knows were not tried, for {why}: {}.",
            self.name,
            ids.len(),
            self.known.cases.len(),
            named(ids)
        );
        self.fails("baseline-not-covered", None, sentence);
    }

    /// A case that was tried, or skipped.
    fn case(&mut self, id: &str, then: &Known, now: &Trial) {
        let name = self.name;
        let (was, is) = (then.verdict, now.verdict);
        if then.gates && !now.gates {
            let sentence = format!("`{id}` counted in `{name}`, and does not any more.");
            return self.fails("baseline-no-longer-gates", Some(id), sentence);
        }
        if !then.gates {
            return;
        }
        let was = was.name();
        if then.verdict != Verdict::Skipped && is == Verdict::Skipped {
            let sentence = format!(
                "`{id}` was {was} in `{name}`, and was skipped now: it cannot be shown to hold. {}",
                now.sentence
            );
            self.fails("baseline-skipped", Some(id), sentence);
        } else if then.verdict.holds() && is.escapes() && now.waived.is_none() {
            let sentence = format!("`{id}` was {was} in `{name}`, and is {} now.", is.name());
            self.fails(WORSE, Some(id), sentence);
        } else if then.verdict.holds() && is.holds() && then.verdict != is {
            let sentence = format!(
                "`{id}` was {was} in `{name}`, and is {}: it does not ask the same any more.",
                is.name()
            );
            self.fails("baseline-other-meaning", Some(id), sentence);
        } else if then.verdict.escapes() && is.escapes() && now.counts() {
            let sentence = format!(
                "`{id}` was {was} in `{name}` when the baseline was written, too. That excuses nothing: a waiver does."
            );
            self.remarks.push(Remark {
                case: Some(id.to_owned()),
                ..note("baseline-known", Some(name), sentence)
            });
        }
    }

    /// The part of the library that this audit was about, if it was about one.
    fn part(&self) -> Option<Partition> {
        let options = self.report.selection.iter();
        options
            .filter_map(|option| option.strip_prefix("--partition "))
            .find_map(|part| part.parse().ok())
    }

    fn fails(&mut self, code: &'static str, case: Option<&str>, sentence: String) {
        self.remarks.push(Remark {
            weight: Weight::Fails,
            code,
            sandbox: Some(self.name.to_owned()),
            case: case.map(str::to_owned),
            sentence,
        });
    }
}

fn note(code: &'static str, sandbox: Option<&str>, sentence: String) -> Remark {
    Remark {
        weight: Weight::Note,
        code,
        sandbox: sandbox.map(str::to_owned),
        case: None,
        sentence,
    }
}

fn count(ids: &[&str]) -> String {
    match ids.len() {
        1 => "1 case".into(),
        n => format!("{n} cases"),
    }
}

/// The first few ids, and how many more there are.
fn named(ids: &[&str]) -> String {
    let shown: BTreeSet<String> = ids.iter().take(NAMED).map(|id| format!("`{id}`")).collect();
    let shown: Vec<String> = shown.into_iter().collect();
    match ids.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
#[path = "baseline_tests.rs"]
mod tests;
