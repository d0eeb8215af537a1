//! The complete result of an audit, from which every format is written.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::config::Sandbox;
use crate::evidence::Evidence;
use crate::verdict::{Judgement, Verdict};

use super::decided::{Decided, Waived};

/// The complete result of an audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Version of the JSON schema.
    pub schema: u32,
    /// This program.
    pub tool: Tool,
    /// When the audit began, RFC 3339 in UTC, whole seconds.
    pub started: String,
    /// How long it took.
    #[serde(serialize_with = "seconds")]
    pub elapsed: Duration,
    /// Not all trials were made: interrupted, or a sandbox could not be used. A sentence says why.
    pub incomplete: Option<String>,
    /// The options that chose among the cases, as they were given: `--case network/*`. None: every case.
    pub selection: Vec<String>,
    /// What was audited, in order.
    pub sandboxes: Vec<SandboxReport>,
    /// Every trial, in the library's order within its sandbox.
    pub trials: Vec<Trial>,
    /// How many trials came to each verdict.
    pub summary: Summary,
    /// What the gate decided beside the verdicts.
    pub gate: Decided,
    /// What the program exits with.
    pub exit_code: i32,
}

impl Report {
    /// The exit code by what was found, `--no-fail` or not.
    pub fn found(&self) -> i32 {
        match self.gate.no_fail {
            true => self.gate.exit_code,
            false => self.exit_code,
        }
    }

    /// The sandbox that a trial was made in.
    pub fn sandbox_of(&self, trial: &Trial) -> Option<&SandboxReport> {
        self.sandboxes
            .iter()
            .find(|sandbox| sandbox.sandbox.name == trial.sandbox)
    }
}

/// This program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tool {
    /// `escape-audit`.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// SHA-256 over the ids and digests of all cases of the library.
    pub library: String,
    /// How many cases the library has, whether selected or not.
    pub cases: usize,
}

/// What was audited.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SandboxReport {
    /// Its configuration.
    #[serde(flatten)]
    pub sandbox: Sandbox,
    /// What stands behind it: the root file system's digest, the launcher's path and hash.
    pub digest: Option<String>,
    /// What was in force, as the host read it: name and value, in the order of reading.
    pub in_force: Vec<(String, String)>,
    /// What a reader must know: "sandbox not engaged", a protection that this machine cannot give.
    pub notes: Vec<String>,
    /// It could not be audited at all.
    pub failed: Option<String>,
    /// The options of `escape-audit run` with which it is audited as it was, the launcher and the cases left out.
    pub repeat: Vec<String>,
}

/// One case in one sandbox, once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// The case's id.
    pub case: String,
    /// The sandbox's name.
    pub sandbox: String,
    /// The verdict with its reason.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Whether the verdict counts: false for experimental cases and cases above the policy's level.
    pub gates: bool,
    /// By whose word it does not fail the build, escaped or broken as it is.
    pub waived: Option<Waived>,
    /// It escaped, and its severity is below `--fail-on`: it does not fail the build.
    pub tolerated: bool,
    /// How often it was made until it came to this verdict: 0 where it was skipped.
    pub attempts: u32,
    /// How long it took, able trial not included.
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Everything observed.
    pub observed: Evidence,
    /// The case itself, so that a format needs nothing else.
    #[serde(rename = "definition")]
    pub source: Case,
}

impl Trial {
    /// Whether its verdict is among those by which the build fails or goes on.
    pub fn counts(&self) -> bool {
        self.gates && self.waived.is_none() && !self.tolerated
    }
}

/// How many trials came to each verdict; each trial counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Summary {
    pub total: usize,
    pub allowed: usize,
    pub blocked: usize,
    pub skipped: usize,
    pub inconclusive: usize,
    pub error: usize,
    pub broken: usize,
    pub escaped: usize,
}

impl Summary {
    /// Counts.
    pub fn of<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Self {
        Self::of_verdicts(trials.into_iter().map(|trial| trial.judgement.verdict))
    }

    /// Counts verdicts.
    pub fn of_verdicts(verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        let mut summary = Self::default();
        for verdict in verdicts {
            summary.total += 1;
            *summary.place(verdict) += 1;
        }
        summary
    }

    /// How many came to this verdict.
    pub fn count(mut self, verdict: Verdict) -> usize {
        *self.place(verdict)
    }

    fn place(&mut self, verdict: Verdict) -> &mut usize {
        match verdict {
            Verdict::Allowed => &mut self.allowed,
            Verdict::Blocked => &mut self.blocked,
            Verdict::Skipped => &mut self.skipped,
            Verdict::Inconclusive => &mut self.inconclusive,
            Verdict::Error => &mut self.error,
            Verdict::Broken => &mut self.broken,
            Verdict::Escaped => &mut self.escaped,
        }
    }
}

/// Seconds, to the millisecond.
pub(super) fn seconds<S: serde::Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_f64((value.as_secs_f64() * 1000.0).round() / 1000.0)
}
