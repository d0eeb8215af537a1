//! What the gate decided beside the verdicts: what it excused and why, what it found missing, and its sentence. Data; the
//! gate fills it in.

use serde::{Deserialize, Serialize};

use crate::case::Severity;
use crate::config::Date;
use crate::exit_code;

/// What the gate decided, and by which rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decided {
    /// The day by which the waivers were held, in UTC; none where nobody asked the gate.
    pub today: Option<Date>,
    /// `--fail-on`: an escape below it is shown and does not fail.
    pub fail_on: Severity,
    /// `--no-fail`: the exit code is 0 whatever was found.
    pub no_fail: bool,
    /// The exit code, had there been no `--no-fail`.
    pub exit_code: i32,
    /// What the exit code says of this audit.
    pub sentence: String,
    /// What the gate has to say beside the verdicts, what fails first.
    pub remarks: Vec<Remark>,
}

impl Decided {
    /// This exit code and nothing more: where nobody asked the gate.
    pub fn without_gate(code: i32) -> Self {
        Self {
            today: None,
            fail_on: Severity::Info,
            no_fail: false,
            exit_code: code,
            sentence: exit_code::sentence(code).to_owned(),
            remarks: Vec::new(),
        }
    }
}

/// Something that the gate has to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// Whether it fails the build.
    pub weight: Weight,
    /// A stable kebab-case code: `waiver-expired`, `baseline-missing`.
    pub code: &'static str,
    /// The sandbox that it is about.
    pub sandbox: Option<String>,
    /// The case that it is about.
    pub case: Option<String>,
    /// One sentence or two for a person.
    pub sentence: String,
}

/// How much a remark weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// The build fails, with [`exit_code::UNDECIDED`] where nothing worse was found.
    Fails,
    /// Somebody should do something soon.
    Warning,
    /// Good to know.
    Note,
}

/// By whose word an escape does not fail the build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waived {
    /// The last day on which the waiver counts.
    pub until: Date,
    /// Why the team lives with it.
    pub reason: String,
    /// Where it is followed up.
    pub ticket: Option<String>,
}

impl std::fmt::Display for Waived {
    /// `waived until 2027-02-28 (SEC-7): a hardened kernel lands in February`.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "waived until {}", self.until)?;
        if let Some(ticket) = &self.ticket {
            write!(out, " ({ticket})")?;
        }
        write!(out, ": {}", self.reason)
    }
}
