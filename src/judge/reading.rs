//! What the records of one attempt come to, technique by technique: the words that the table of rows is written in.

use escape_audit_probe::wire::Outcome;
use nix::libc;

use crate::case::{Attempt, Case};
use crate::config::Policy;
use crate::evidence::{Evidence, Start, Step, Witness};
use crate::verdict::{Judgement, Verdict};

use super::{
    reading_credentials, reading_engine, reading_files, reading_network, reading_privileges,
    reading_processes, reading_resources, reading_works,
};

/// What is judged.
pub struct View<'a> {
    pub case: &'a Case,
    pub policy: &'a Policy,
    pub evidence: &'a Evidence,
}

impl<'a> View<'a> {
    /// The steps of one kind.
    pub fn steps(&self, what: &str) -> Vec<&'a Step> {
        let steps = self.evidence.inside.steps.iter();
        steps.filter(|step| step.what == what).collect()
    }

    /// The sandbox differs from the host in this namespace, as the host saw.
    pub fn has_own(&self, namespace: &str) -> bool {
        let own = |witness: &Witness| witness.own_namespaces.iter().any(|name| name == namespace);
        self.evidence.witness.as_ref().is_some_and(own)
    }

    /// The probe ran in there, as it said or as the host saw.
    pub fn started(&self) -> bool {
        matches!(self.evidence.start, Start::Seen { .. })
            || self.evidence.inside.begun
            || self.evidence.witness.is_some()
    }

    /// A system call filter ended the attempt.
    pub fn killed_by_filter(&self) -> bool {
        self.evidence.inside.done == Some(Outcome::Signal(libc::SIGSYS))
    }

    /// A judgement; without a witness it rests on what was said inside.
    pub fn conclude(
        &self,
        verdict: Verdict,
        reason: &'static str,
        sentence: impl Into<String>,
        evidence: Vec<String>,
    ) -> Judgement {
        let claims = matches!(verdict, Verdict::Blocked | Verdict::Allowed);
        Judgement {
            verdict,
            reason,
            sentence: sentence.into(),
            evidence,
            inside_only: claims && self.evidence.probe().is_none(),
        }
    }
}

/// What an attempt is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// A target of ours that stayed silent.
    Target,
    /// A refusal or an absence.
    Refusal,
    /// A ceiling, a timeout, an end.
    End,
}

/// What the records come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// What decides.
    pub aim: Aim,
    /// What got through, by the probe's word.
    pub through: Through,
    /// Why a control that failed could be the probe's own fault.
    pub control: Option<String>,
    /// Whether it was held.
    pub finding: Finding,
    /// Of a case of what must work: what the sandbox refused.
    pub refusal: Option<String>,
    /// Of a case of what must work: everything worked.
    pub worked: bool,
}

/// What got through, by the probe's word.
#[derive(Debug, Clone, PartialEq)]
pub enum Through {
    /// Nothing.
    No,
    /// Doing it is itself the breach.
    Breach {
        lines: Vec<String>,
        /// Over a user namespace of the sandbox's own it gives no power.
        confinable: bool,
    },
    /// The sandbox broke its own promise, or gave away what is worth as much on any kernel.
    Promise {
        reason: &'static str,
        lines: Vec<String>,
    },
    /// It worked inside; only what the host saw decides whether that is an escape.
    Claim(Vec<String>),
}

impl Through {
    /// A breach if there is any line of it.
    pub fn breach(lines: Vec<String>, confinable: bool) -> Self {
        if lines.is_empty() {
            Self::No
        } else {
            Self::Breach { lines, confinable }
        }
    }

    /// A broken promise if there is any line of it.
    pub fn promise(reason: &'static str, lines: Vec<String>) -> Self {
        if lines.is_empty() {
            Self::No
        } else {
            Self::Promise { reason, lines }
        }
    }

    /// A claim if there is any line of it.
    pub fn claim(lines: Vec<String>) -> Self {
        if lines.is_empty() {
            Self::No
        } else {
            Self::Claim(lines)
        }
    }

    /// What got through.
    pub fn lines(&self) -> Option<&[String]> {
        match self {
            Self::No => None,
            Self::Breach { lines, .. } | Self::Promise { lines, .. } | Self::Claim(lines) => {
                Some(lines)
            }
        }
    }
}

/// Whether it was held.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// A refusal, an absence, a ceiling.
    Held {
        reason: &'static str,
        lines: Vec<String>,
    },
    /// Not proven.
    Undecided {
        reason: &'static str,
        sentence: String,
    },
}

impl Finding {
    /// Held.
    pub fn held(reason: &'static str, lines: Vec<String>) -> Self {
        Self::Held { reason, lines }
    }

    /// Not proven.
    pub fn undecided(reason: &'static str, sentence: impl Into<String>) -> Self {
        Self::Undecided {
            reason,
            sentence: sentence.into(),
        }
    }
}

/// One technique's reading, before what all have in common.
pub struct Technique {
    pub through: Through,
    pub control: Option<String>,
    pub finding: Finding,
}

/// Reads.
pub fn read(view: &View<'_>) -> Reading {
    let Technique {
        through,
        control,
        finding,
    } = technique(view);
    Reading {
        aim: aim(&view.case.attempt),
        through,
        control,
        finding,
        refusal: reading_works::refusal(view),
        worked: reading_works::worked(view),
    }
}

/// What an attempt is decided by.
pub fn aim(attempt: &Attempt) -> Aim {
    match attempt {
        Attempt::Connect { .. }
        | Attempt::Http { .. }
        | Attempt::Dns
        | Attempt::ConnectUnix { .. }
        | Attempt::EngineSocket { .. } => Aim::Target,
        Attempt::Run
        | Attempt::Environment { .. }
        | Attempt::ProcessEnvironment
        | Attempt::ReadFile { .. }
        | Attempt::WriteFile { .. }
        | Attempt::RawSocket
        | Attempt::ListProcesses
        | Attempt::Signal
        | Attempt::Capabilities
        | Attempt::GainPrivileges
        | Attempt::UserNamespace
        | Attempt::Mount
        | Attempt::Syscall { .. } => Aim::Refusal,
        Attempt::Spawn
        | Attempt::Allocate { .. }
        | Attempt::Spin { .. }
        | Attempt::Fill
        | Attempt::Flood
        | Attempt::Outlive { .. } => Aim::End,
    }
}

fn technique(view: &View<'_>) -> Technique {
    match &view.case.attempt {
        Attempt::Run => Technique {
            through: Through::No,
            control: None,
            finding: Finding::undecided("not-refused", "Running is nothing that could be refused."),
        },
        Attempt::Environment { .. } => reading_credentials::environment(view),
        Attempt::ProcessEnvironment => reading_credentials::process_environment(view),
        Attempt::ReadFile { paths } => reading_files::read(view, paths),
        Attempt::WriteFile { into } => reading_files::write(view, *into),
        Attempt::Fill => reading_files::fill(view),
        Attempt::Connect { positions, .. } => reading_network::connect(view, positions),
        Attempt::Http { .. } => reading_network::http(view),
        Attempt::Dns => reading_network::dns(view),
        Attempt::ConnectUnix { .. } => reading_network::unix(view),
        Attempt::EngineSocket { paths } => reading_engine::engine_socket(view, paths),
        Attempt::RawSocket => reading_privileges::raw_socket(view),
        Attempt::Spawn => reading_resources::spawn(view),
        Attempt::Allocate { dose } => reading_resources::allocate(view, *dose),
        Attempt::Spin { until } => reading_resources::spin(view, *until),
        Attempt::Flood => reading_resources::flood(view),
        Attempt::ListProcesses => reading_processes::list(view),
        Attempt::Signal => reading_processes::signal(view),
        Attempt::Outlive { killed_by } => reading_processes::outlive(view, *killed_by),
        Attempt::Capabilities => reading_privileges::capabilities(view),
        Attempt::GainPrivileges => reading_privileges::gain(view),
        Attempt::UserNamespace => reading_privileges::user_namespace(view),
        Attempt::Mount => reading_privileges::mount(view),
        Attempt::Syscall { name, .. } => reading_privileges::syscall(view, name),
    }
}
