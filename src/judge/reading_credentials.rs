//! Environments: the own one, and those of other processes. Values arrive as hashes; the runner compares them.

use escape_audit_probe::wire::Outcome;
use nix::libc;

use super::reading::{Finding, Technique, Through, View};
use super::{lines, reasons, refusal};

/// The own environment: it came whole, and no secret was in it.
pub fn environment(view: &View<'_>) -> Technique {
    let variables = view.evidence.inside.number("env-count");
    let told = view.evidence.inside.facts_of("env").count() as u64;
    Technique {
        through: Through::No,
        control: None,
        finding: match variables {
            Some(count) if count != told => Finding::undecided(
                "truncated",
                format!("There are {count} variables, and {told} of them were returned."),
            ),
            Some(count) => Finding::held(
                "absent",
                vec![format!(
                    "{count} variables were returned, and no secret of the host is among them"
                )],
            ),
            None => Finding::undecided("not-tried", "The environment was not returned."),
        },
    }
}

/// The environments of PID 1, of the ancestors, and of whatever else can be read.
pub fn process_environment(view: &View<'_>) -> Technique {
    let names = |outcome| match outcome {
        Outcome::Ok => Some("absent"),
        other => refusal::of_lookup(other),
    };
    let steps = view.steps("read");
    // Without /proc there is nothing to read and nothing to control.
    let no_proc = |outcome| matches!(outcome, Outcome::Errno(libc::ENOENT | libc::ENOTDIR));
    let control = match view.steps("control").first() {
        None => Some("The control is missing: the own environment was not read.".to_owned()),
        Some(own) if own.outcome == Outcome::Ok => None,
        Some(own) if no_proc(own.outcome) => None,
        Some(own) => Some(format!("The control failed: {}.", lines::of_step(own))),
    };
    let absent = view.steps("control").iter().any(|c| no_proc(c.outcome));
    let finding = if steps.is_empty() && absent {
        Finding::held("absent", vec!["there is no /proc in there".into()])
    } else if steps.is_empty() {
        Finding::undecided("not-tried", reasons::sentence("not-tried"))
    } else {
        refusal::all(steps, names)
    };
    Technique {
        through: Through::No,
        control,
        finding,
    }
}
