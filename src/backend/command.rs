//! Any launcher: its argument vector, with the probe's own command appended.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Backend, BackendError, Enforces, Launch, Pending, Running, launch};
use crate::config::{Sandbox, Settings};

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
                .args(arguments)
                .arg(start.probe)
                .envs(start.environment.iter().map(|(name, value)| (name, value)));
            let child = launch::spawn(command, start, start.limiter, true)?;
            Ok(launch::running(child, start.limiter.cloned()))
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
