//! What was seen of a sandbox over all its trials, for the report.

use super::bench::Bench;
use super::runner::Opened;
use crate::config::Sandbox;
use crate::report::SandboxReport;

/// What was seen of a sandbox over all its trials.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// As the host read it.
    pub(super) in_force: Vec<(String, String)>,
    /// The launcher added no isolation at all.
    pub(super) not_engaged: bool,
    /// What could not be removed.
    pub(super) left: Vec<String>,
}

impl Facts {
    pub(super) fn report(
        self,
        sandbox: &Sandbox,
        backend: &Opened,
        bench: &Bench,
    ) -> SandboxReport {
        let mut notes = sandbox.notes.clone();
        if self.not_engaged {
            notes.push(
                "sandbox not engaged: the launcher ran the probe with every right and view of the harness itself"
                    .to_owned(),
            );
        }
        notes.extend(self.left.iter().map(|what| format!("left behind: {what}")));
        let mut in_force = self.in_force;
        in_force.extend(backend.iter().flat_map(|backend| backend.facts()));
        // A launcher may have been given a secret as an argument.
        let mut shown = sandbox.clone();
        for argument in &mut shown.command {
            *argument = bench.without_secrets(argument);
        }
        let opened = backend.as_ref();
        SandboxReport {
            sandbox: shown,
            digest: opened.ok().and_then(|backend| backend.digest(sandbox)),
            in_force,
            notes,
            failed: opened.err().map(|error| bench.without_secrets(&error.text)),
            repeat: Vec::new(), // known where the command line was read
        }
    }
}
