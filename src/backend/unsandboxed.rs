//! No sandbox at all: the control that must come out ESCAPED, inside the range and the limiter.

use super::{Backend, BackendError, Enforces, Launch, Pending, Running, launch};
use crate::config::{Sandbox, Settings};

/// The `unsandboxed` backend.
pub struct Unsandboxed;

impl Backend for Unsandboxed {
    fn start<'a>(&'a self, start: &'a Launch<'a>) -> Pending<'a, Result<Running, BackendError>> {
        Box::pin(async move {
            let mut command = std::process::Command::new(start.probe);
            command
                .envs(start.environment.iter().map(|(name, value)| (name, value)))
                .env("HOME", start.home);
            let child = launch::spawn(command, start, start.limiter, start.may_mount)?;
            let mut running = launch::launched(child, start);
            running.init = running.life.launcher();
            Ok(running)
        })
    }

    fn enforces(&self, _settings: &Settings) -> Enforces {
        Enforces {
            timeout: false,
            output: false,
        }
    }

    fn digest(&self, _sandbox: &Sandbox) -> Option<String> {
        None
    }
}
