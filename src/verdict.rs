//! What a trial comes to: a verdict, a stable reason code, and a sentence for a person.

use serde::{Deserialize, Serialize};

/// The verdict of one trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// A case of what must work: it worked.
    Allowed,
    /// Proven: the attempt was made, was refused or found nothing, its target was alive, and it is able.
    Blocked,
    /// It was not tried, for a reason that is known beforehand.
    Skipped,
    /// Nothing is proven either way. Fails the gate.
    Inconclusive,
    /// The harness or the backend failed, or what was in force was not what was configured. Fails the gate.
    Error,
    /// A case of what must work: it did not.
    Broken,
    /// Proven: it got through.
    Escaped,
}

impl Verdict {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "ALLOWED",
            Self::Blocked => "BLOCKED",
            Self::Skipped => "SKIPPED",
            Self::Inconclusive => "INCONCLUSIVE",
            Self::Error => "ERROR",
            Self::Broken => "BROKEN",
            Self::Escaped => "ESCAPED",
        }
    }

    /// Proven to be as it should.
    pub fn holds(self) -> bool {
        matches!(self, Self::Allowed | Self::Blocked)
    }

    /// Proven not to be as it should.
    pub fn escapes(self) -> bool {
        matches!(self, Self::Broken | Self::Escaped)
    }

    /// All verdicts, best first.
    pub const ALL: [Self; 7] = [
        Self::Allowed,
        Self::Blocked,
        Self::Skipped,
        Self::Inconclusive,
        Self::Error,
        Self::Broken,
        Self::Escaped,
    ];
}

/// A verdict with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// A stable kebab-case code: `refused`, `target-not-alive`, `limit-not-applied`.
    pub reason: &'static str,
    /// One sentence for a person. It may hold text that came out of a sandbox: it goes through `SafeText` to be shown.
    pub sentence: String,
    /// What the verdict rests on, one line each, strongest first.
    pub evidence: Vec<String>,
    /// No host-side witness: the verdict rests on what was said inside alone.
    pub inside_only: bool,
}

impl Judgement {
    /// A trial that is not made, for a reason that is known beforehand. `judge::reasons` lists the codes.
    pub fn skipped(reason: &'static str, sentence: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Skipped,
            reason,
            sentence: sentence.into(),
            evidence: Vec::new(),
            inside_only: false,
        }
    }
}
