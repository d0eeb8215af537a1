//! A JSON report read back: what `baseline` and `diff` need of it. Strict: what is no whole report of this version is
//! refused, for whatever is missing in it would pass for something that vanished.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::decided::Waived;
use super::{Report, Summary};
use crate::case::{Level, Severity};
use crate::verdict::Verdict;

/// The version that is written and read.
pub const VERSION: u32 = 1;

/// A report that was written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Saved {
    /// The program that wrote it.
    pub tool: Tool,
    /// When the audit began.
    pub started: String,
    /// Why not all trials were made.
    pub incomplete: Option<String>,
    /// The options that chose among the cases.
    pub selection: Vec<String>,
    /// What was audited.
    pub sandboxes: Vec<Sandbox>,
    /// Every trial.
    pub trials: Vec<Trial>,
    /// How many trials came to each verdict.
    pub summary: Summary,
    /// What the gate decided.
    pub gate: Gate,
    /// What the program exited with.
    pub exit_code: i32,
}

/// The program that wrote a report.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tool {
    /// Its version.
    pub version: String,
    /// The library's hash.
    pub library: String,
}

/// What was audited.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Sandbox {
    /// Its name.
    pub name: String,
    /// The kind of sandbox.
    pub backend: String,
    /// How it was set up.
    pub settings: Value,
    /// What it promised.
    pub policy: Value,
    /// Protections that were taken away on purpose.
    pub without: Vec<String>,
    /// The launcher.
    pub command: Vec<String>,
    /// What stood behind it.
    pub digest: Option<String>,
    /// What was in force.
    pub in_force: Vec<(String, String)>,
    /// Why it could not be audited.
    pub failed: Option<String>,
}

impl Sandbox {
    /// The level at which it had to hold.
    pub fn level(&self) -> Option<Level> {
        serde_json::from_value(self.policy["level"].clone()).ok()
    }

    /// The ceilings that it promised, by the policy's own names.
    pub fn promises(&self) -> BTreeMap<String, f64> {
        const CEILINGS: [&str; 7] = [
            "pids",
            "memory",
            "memory_and_swap",
            "cpus",
            "scratch",
            "timeout",
            "output",
        ];
        let promised = CEILINGS.iter();
        promised
            .filter_map(|name| Some(((*name).to_owned(), self.policy[*name].as_f64()?)))
            .collect()
    }

    /// The places that might be written.
    pub fn writable(&self) -> BTreeSet<String> {
        let places = self.policy["writable"].as_array().into_iter().flatten();
        places
            .filter_map(|place| place.as_str().map(str::to_owned))
            .collect()
    }
}

/// One case in one sandbox.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Trial {
    /// The case's id.
    pub case: String,
    /// The sandbox's name.
    pub sandbox: String,
    /// What it came to.
    pub verdict: Verdict,
    /// The reason's code.
    pub reason: String,
    /// The reason for a person.
    pub sentence: String,
    /// Whether the verdict counts.
    pub gates: bool,
    /// By whose word it does not fail.
    pub waived: Option<Waived>,
    /// It escaped below `--fail-on`.
    pub tolerated: bool,
    /// The case.
    pub definition: Definition,
}

impl Trial {
    /// Whether its verdict is among those by which the build fails or goes on.
    pub fn counts(&self) -> bool {
        self.gates && self.waived.is_none() && !self.tolerated
    }
}

/// The case of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Definition {
    /// How bad an escape is.
    pub severity: Severity,
    /// The hash of its file.
    pub digest: String,
}

/// What the gate decided.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Gate {
    /// The exit code, had there been no `--no-fail`.
    pub exit_code: i32,
}

impl Saved {
    /// Reads a report. An error says in a sentence what is wrong with the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
            true => "it ends in the middle: it was not written or not copied to its end".to_owned(),
            false => format!("it is not JSON: {error}"),
        })?;
        if value["tool"]["name"] != "escape-audit" {
            return Err("it is JSON, and no report of escape-audit's".into());
        }
        match value["schema"].as_u64() {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => {
                return Err(format!(
                    "it is a report of version {version}, and this program reads version {VERSION}"
                ));
            }
            None => return Err("it does not say of which version it is".into()),
        }
        let saved: Self = serde_json::from_value(value)
            .map_err(|error| format!("it is no whole report of version {VERSION}: {error}"))?;
        saved.check()?;
        Ok(saved)
    }

    /// What is told twice has to agree.
    fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for sandbox in &self.sandboxes {
            if !names.insert(&sandbox.name) {
                return Err(format!("the sandbox `{}` stands in it twice", sandbox.name));
            }
            if sandbox.level().is_none() {
                return Err(format!("the level of `{}` is unknown", sandbox.name));
            }
        }
        let mut seen = BTreeSet::new();
        for trial in &self.trials {
            if !names.contains(&trial.sandbox) {
                return Err(format!(
                    "the sandbox `{}` of a trial is not in it",
                    trial.sandbox
                ));
            }
            if !seen.insert((&trial.sandbox, &trial.case)) {
                let (case, sandbox) = (&trial.case, &trial.sandbox);
                return Err(format!("`{case}` stands in it twice for `{sandbox}`"));
            }
        }
        let counted = Summary::of_verdicts(self.trials.iter().map(|trial| trial.verdict));
        match counted == self.summary {
            true => Ok(()),
            false => Err("its summary does not count the trials that are in it".into()),
        }
    }

    /// The same of a report that was not written yet.
    pub fn of(report: &Report) -> Self {
        let json = |value: Result<Value, serde_json::Error>| value.unwrap_or_default();
        let sandboxes = report.sandboxes.iter().map(|report| {
            let sandbox = &report.sandbox;
            Sandbox {
                name: sandbox.name.clone(),
                backend: sandbox.backend.name().to_owned(),
                settings: json(serde_json::to_value(&sandbox.settings)),
                policy: json(serde_json::to_value(&sandbox.policy)),
                without: sandbox
                    .without
                    .iter()
                    .map(|p| p.name().to_owned())
                    .collect(),
                command: sandbox.command.clone(),
                digest: report.digest.clone(),
                in_force: report.in_force.clone(),
                failed: report.failed.clone(),
            }
        });
        let trials = report.trials.iter().map(|trial| Trial {
            case: trial.case.clone(),
            sandbox: trial.sandbox.clone(),
            verdict: trial.judgement.verdict,
            reason: trial.judgement.reason.to_owned(),
            sentence: trial.judgement.sentence.clone(),
            gates: trial.gates,
            waived: trial.waived.clone(),
            tolerated: trial.tolerated,
            definition: Definition {
                severity: trial.source.severity,
                digest: trial.source.digest.clone(),
            },
        });
        Self {
            tool: Tool {
                version: report.tool.version.to_owned(),
                library: report.tool.library.clone(),
            },
            started: report.started.clone(),
            incomplete: report.incomplete.clone(),
            selection: report.selection.clone(),
            sandboxes: sandboxes.collect(),
            trials: trials.collect(),
            summary: report.summary,
            gate: Gate {
                exit_code: report.gate.exit_code,
            },
            exit_code: report.exit_code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{json, sample};

    fn written(report: &Report) -> Vec<u8> {
        let mut out = Vec::new();
        json::write(report, &mut out).expect("a Vec takes everything");
        out
    }

    #[test]
    fn what_is_written_is_read_back() {
        for report in [sample::report(), sample::waived(), sample::empty()] {
            assert_eq!(Saved::parse(&written(&report)), Ok(Saved::of(&report)));
        }
    }

    #[test]
    fn what_is_no_whole_report_is_refused_with_the_reason() {
        let whole = written(&sample::report());
        let changed = |change: fn(&mut Value)| {
            let mut value: Value = serde_json::from_slice(&whole).expect("JSON");
            change(&mut value);
            serde_json::to_vec(&value).expect("JSON")
        };
        let table: &[(Vec<u8>, &str)] = &[
            (Vec::new(), "ends in the middle"),
            (whole[..whole.len() / 2].to_vec(), "ends in the middle"),
            (b"<testsuites/>".to_vec(), "it is not JSON"),
            (
                b"{\"tool\": {\"name\": \"trivy\"}}".to_vec(),
                "no report of escape-audit's",
            ),
            (b"[1]".to_vec(), "no report of escape-audit's"),
            (
                changed(|v| v["schema"] = 2.into()),
                "version 2, and this program reads version 1",
            ),
            (
                changed(|v| v["schema"] = "1".into()),
                "does not say of which version",
            ),
            (changed(|v| v["trials"] = Value::Null), "no whole report"),
            (
                changed(|v| v["trials"][0]["verdict"] = "FINE".into()),
                "no whole report",
            ),
            (
                changed(|v| drop(v["trials"].as_array_mut().expect("a list").pop())),
                "summary does not count",
            ),
            (
                changed(|v| v["trials"][1] = v["trials"][0].clone()),
                "stands in it twice",
            ),
            (
                changed(|v| v["trials"][0]["sandbox"] = "other".into()),
                "`other` of a trial is not in it",
            ),
            (
                changed(|v| v["sandboxes"][0]["policy"]["level"] = "lax".into()),
                "the level of `oci` is unknown",
            ),
        ];
        for (bytes, reason) in table {
            let error = Saved::parse(bytes).expect_err(reason);
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
}
