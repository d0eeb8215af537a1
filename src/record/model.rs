//! What a record says, and the one function that decides which result it deserves: by it a record is written, and by it
//! again a written one is doubted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::case::Level;
use crate::diag::schema::Named as _;
use crate::exit_code;
use crate::report::decided::Waived;
use crate::verdict::Verdict;

/// The version of everything below that is ours and not in-toto's.
pub const VERSION: u32 = 1;

/// What was audited, by what, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The artifacts that the record is about: name and SHA-256 in hexadecimal.
    pub subject: Vec<(String, String)>,
    /// The run.
    pub run: Run,
    /// The case library.
    pub library: LibraryFacts,
    /// SHA-256 of the project file, where there was one.
    pub project: Option<String>,
    /// The sandboxes, in the order of the report.
    pub sandboxes: Vec<Audited>,
}

/// One run of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The version of everything in a record that is ours and not in-toto's: 1.
    pub record: u32,
    /// This program's version.
    pub version: String,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// Seconds that it took.
    pub seconds: f64,
    /// What the gate decided, whatever the program was told to exit with.
    pub exit_code: i32,
    /// Why it came to no end, if it did not.
    pub incomplete: Option<String>,
}

/// A library of cases, by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryFacts {
    /// SHA-256 over the ids and digests of its cases.
    pub digest: String,
    /// How many it has.
    pub cases: usize,
}

/// One sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Audited {
    /// Its name.
    pub name: String,
    /// How it was configured: [`super::Configured::settings`].
    pub settings: Map<String, Value>,
    /// What it promised: [`super::Configured::policy`].
    pub policy: Map<String, Value>,
    /// What stood behind it and what was in force.
    pub in_force: InForce,
    /// What came of it.
    pub verdicts: Verdicts,
}

/// What stood behind a sandbox, and what the host read of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InForce {
    /// Every digest of what it was made of, SHA-256 in hexadecimal. Each is one of the subject's when it is written.
    pub digests: Vec<String>,
    /// Name and value, in the order of reading.
    pub read: Vec<(String, String)>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// It could not be audited at all.
    pub failed: Option<String>,
}

/// What came of one sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdicts {
    /// By case.
    pub tried: BTreeMap<String, Came>,
    /// The cases of the library at this level that were not asked for.
    pub left_out: Vec<String>,
}

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Came {
    /// Its verdict.
    #[serde(with = "by_name")]
    pub verdict: Verdict,
    /// Its reason code.
    pub reason: String,
    /// Whether it counts.
    pub gates: bool,
    /// By whose word it did not fail, escaped or broken as it is.
    pub waived: Option<Waived>,
}

/// `PASSED`, `WARNED` or `FAILED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TestResult {
    /// The whole library of the level was tried in the sandbox as it is configured, and held.
    Passed,
    /// What was tried held, but not everything was asked for, or what escaped is waived.
    Warned,
    /// Anything else.
    Failed,
}

impl TestResult {
    /// As in-toto writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Warned => "WARNED",
            Self::Failed => "FAILED",
        }
    }
}

impl Came {
    fn held(&self) -> bool {
        matches!(self.verdict, Verdict::Blocked | Verdict::Allowed)
    }

    /// Whether it escaped, and the team lives with it. What could not be decided nobody can waive.
    pub fn is_waived(&self) -> bool {
        let failed = matches!(self.verdict, Verdict::Escaped | Verdict::Broken);
        self.gates && failed && self.waived.is_some()
    }

    fn harmless(&self) -> bool {
        !self.gates || self.held() || self.verdict == Verdict::Skipped || self.is_waived()
    }
}

impl Audited {
    /// Which result this sandbox alone deserves. Verdicts are looked at anew: an exit code can be told to be 0, and an
    /// escape that a severity lets pass has escaped all the same.
    pub fn deserves(&self) -> TestResult {
        let tried = &self.verdicts.tried;
        let whole = self
            .settings
            .get("without")
            .is_some_and(|set| *set == Value::Array(Vec::new()));
        let held = tried.values().all(Came::harmless)
            && tried.values().any(|came| came.gates && came.held());
        if !whole || !held || self.in_force.failed.is_some() || self.in_force.digests.is_empty() {
            TestResult::Failed
        } else if !self.verdicts.left_out.is_empty() || tried.values().any(Came::is_waived) {
            TestResult::Warned
        } else {
            TestResult::Passed
        }
    }

    /// The level that it was audited at.
    pub fn level(&self) -> Option<Level> {
        Level::from_name(self.policy.get("level")?.as_str()?)
    }

    /// How many cases came to this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let tried = self.verdicts.tried.values();
        tried.filter(|came| came.verdict == verdict).count()
    }
}

impl Record {
    /// Which result the whole deserves: the worst of its sandboxes, and FAILED where the gate did not open.
    pub fn deserves(&self) -> TestResult {
        let worst = self.sandboxes.iter().map(Audited::deserves).max();
        match worst {
            Some(worst)
                if self.run.exit_code == exit_code::HELD && self.run.incomplete.is_none() =>
            {
                worst
            }
            _ => TestResult::Failed,
        }
    }

    /// The names of the tests that passed, of those that did not and do not count, and of those that failed. What was
    /// skipped is none of these.
    pub fn tests(&self) -> [Vec<String>; 3] {
        let mut lists = [const { Vec::new() }; 3];
        for sandbox in &self.sandboxes {
            for (case, came) in &sandbox.verdicts.tried {
                let list = match came {
                    _ if came.held() => 0,
                    _ if came.verdict == Verdict::Skipped => continue,
                    _ if !came.gates || came.is_waived() => 1,
                    _ => 2,
                };
                lists[list].push(test_name(&sandbox.name, case));
            }
        }
        lists
    }
}

/// The name of a case in a sandbox as a test: `agent::network/tcp-egress`.
pub fn test_name(sandbox: &str, case: &str) -> String {
    format!("{sandbox}::{case}")
}

mod by_name {
    use super::Verdict;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(verdict: &Verdict, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(verdict.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Verdict, D::Error> {
        let name = String::deserialize(from)?;
        let known = Verdict::ALL
            .into_iter()
            .find(|verdict| verdict.name() == name);
        known.ok_or_else(|| D::Error::custom("not a verdict"))
    }
}
