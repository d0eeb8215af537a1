//! The sandboxes that need no project file.

use std::collections::BTreeSet;

use super::model::{BackendKind, NetworkMode, Policy, RangeMode, Sandbox, Settings};
use crate::case::Level;
use crate::protection::PROTECTIONS;

/// The names that [`builtin`] knows.
pub const BUILTINS: [&str; 2] = ["oci", "unsandboxed"];

/// The name of a launcher that the command line gave.
pub const QUICK_COMMAND: &str = "command";

/// `oci`: the embedded sandbox, hardened. `unsandboxed`: nothing, judged by what `oci` promises.
pub fn builtin(name: &str) -> Option<Sandbox> {
    match name {
        "oci" => Some(Sandbox::new(name, BackendKind::Oci)),
        "unsandboxed" => Some(Sandbox::new(name, BackendKind::Unsandboxed)),
        _ => None,
    }
}

/// Any launcher, from the command line alone: `run -- LAUNCHER ARGS…`.
///
/// It is held to the ceilings of the embedded sandbox. A timeout and a ceiling on output are not asked of it: few
/// launchers promise them, and none says so.
pub fn quick_command(argv: Vec<String>) -> Sandbox {
    Sandbox {
        command: argv,
        ..Sandbox::new(QUICK_COMMAND, BackendKind::Command)
    }
}

/// What the embedded sandbox promises, with scratch space where every machine has it.
fn promised_by_nothing() -> Policy {
    let mut policy = Policy::default();
    for place in &mut policy.writable {
        if place == "/scratch" {
            *place = "/tmp".into();
        }
    }
    policy
}

impl Sandbox {
    /// A sandbox of this kind with nothing configured.
    pub fn new(name: &str, backend: BackendKind) -> Self {
        let (settings, policy) = match backend {
            BackendKind::Oci => (Settings::default(), Policy::default()),
            BackendKind::Docker => {
                let settings = Settings::docker();
                let policy = Policy::from_settings(&settings, backend, Level::Standard);
                (settings, policy)
            }
            BackendKind::Command => (unprotected(), promised_by_a_launcher()),
            BackendKind::Unsandboxed => (unprotected(), promised_by_nothing()),
        };
        Self {
            name: name.to_owned(),
            backend,
            settings,
            policy,
            without: BTreeSet::new(),
            command: Vec::new(),
            range: RangeMode::Own,
            notes: Vec::new(),
        }
    }

    /// Its canaries stand in a network that other audits stand in, too, and that may lead beyond this machine.
    pub fn has_an_engines_network(&self) -> bool {
        self.backend == BackendKind::Docker
            && self.settings_in_force().network_mode != NetworkMode::None
    }

    /// The settings after what is taken away on purpose. The policy stays: what was promised is what is judged.
    pub fn settings_in_force(&self) -> Settings {
        let mut settings = self.settings.clone();
        for protection in &self.without {
            settings.remove(*protection);
        }
        settings
    }
}

/// What the harness itself sets up for a launcher or for no sandbox: nothing.
fn unprotected() -> Settings {
    let mut settings = Settings::default();
    for (protection, _, _) in PROTECTIONS {
        settings.remove(*protection);
    }
    settings.tmpfs.clear();
    settings
}

/// `bwrap … --tmpfs /tmp` and its like give these places to write, and nothing on disk.
fn promised_by_a_launcher() -> Policy {
    Policy {
        level: Level::Standard,
        writable: ["/tmp", "/dev/shm", "/dev/mqueue"]
            .map(String::from)
            .to_vec(),
        timeout: None,
        output: None,
        ..Policy::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protection::Protection;

    #[test]
    fn every_builtin_exists_under_its_name() {
        for name in BUILTINS {
            assert_eq!(builtin(name).map(|s| s.name), Some(name.to_owned()));
        }
        assert_eq!(builtin("docker"), None);
    }

    #[test]
    fn taking_a_protection_away_changes_the_settings_and_not_the_promise() {
        let mut sandbox = Sandbox::new("oci", BackendKind::Oci);
        sandbox.without.insert(Protection::Pids);
        assert_eq!(sandbox.settings_in_force().pids_limit, None);
        assert_eq!(sandbox.policy.pids, Settings::default().pids_limit);
    }

    #[test]
    fn a_launcher_promises_ceilings_but_no_timeout() {
        let sandbox = quick_command(vec!["bwrap".into()]);
        assert!(sandbox.policy.pids.is_some() && sandbox.policy.timeout.is_none());
        assert!(sandbox.policy.may_write("/tmp/x") && !sandbox.policy.may_write("/var/tmp/x"));
    }
}
