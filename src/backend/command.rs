//! Any launcher: its argument vector, with the probe's own command appended.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Backend, BackendError, Enforces, Launch, Pending, Running, launch};
use crate::config::{Sandbox, Settings};

/// In a launcher's arguments: the probe's path, so that a sandbox that shows no file of the host can be given this one.
pub const PLACEHOLDER: &str = "{probe}";

/// The `command` backend.
pub struct Command;

impl Backend for Command {
    fn start<'a>(&'a self, start: &'a Launch<'a>) -> Pending<'a, Result<Running, BackendError>> {
        Box::pin(async move {
            let (program, arguments) = start.sandbox.command.split_first().ok_or_else(|| {
                BackendError::new("launcher-missing", "the command is empty")
                    .help("write the launcher after `--`, for instance `-- bwrap --unshare-all …`")
            })?;
            let mut command = std::process::Command::new(program);
            command
                .args(filled_in(arguments, start.probe))
                .arg(start.probe)
                .envs(start.environment.iter().map(|(name, value)| (name, value)));
            let child = launch::spawn(command, start, start.limiter, true)?;
            Ok(launch::launched(child, start))
        })
    }

    /// A runner enforces its own promises.
    fn enforces(&self, _settings: &Settings) -> Enforces {
        Enforces {
            timeout: false,
            output: false,
        }
    }

    fn digest(&self, sandbox: &Sandbox) -> Option<String> {
        let path = find_program(sandbox.command.first()?)?;
        let bytes = fs::read(&path).ok()?;
        Some(format!(
            "{} sha256:{:x}",
            path.display(),
            Sha256::digest(bytes)
        ))
    }
}

/// The arguments with the probe's path where [`PLACEHOLDER`] stands, alone or as a part of an argument.
fn filled_in(arguments: &[String], probe: &Path) -> Vec<String> {
    let probe = probe.to_string_lossy();
    arguments
        .iter()
        .map(|argument| argument.replace(PLACEHOLDER, &probe))
        .collect()
}

/// Where the launcher stands, found as `execvp` would.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        let path = Path::new(name);
        return path.is_file().then(|| path.to_owned());
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_placeholder_becomes_the_probes_path() {
        let arguments = [
            "--ro-bind",
            "{probe}",
            "{probe}",
            "--volume={probe}:/p:ro",
            "{}",
        ];
        let filled = filled_in(&arguments.map(String::from), Path::new("/run/x/probe"));
        let expected = [
            "--ro-bind",
            "/run/x/probe",
            "/run/x/probe",
            "--volume=/run/x/probe:/p:ro",
            "{}",
        ];
        assert_eq!(filled, expected);
    }
}
