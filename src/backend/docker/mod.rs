//! Docker Engine, and other engines that speak its interface.

use super::{Backend, BackendError, Enforces, Launch, Pending, Running};
use crate::config::{Sandbox, Settings};

/// The backend.
pub struct Docker;

impl Backend for Docker {
    fn start<'a>(&'a self, _launch: &'a Launch<'a>) -> Pending<'a, Result<Running, BackendError>> {
        Box::pin(async { Err(BackendError::new("backend-failed", "not built yet")) })
    }

    fn enforces(&self, settings: &Settings) -> Enforces {
        Enforces {
            timeout: settings.enforce_timeout,
            output: settings.enforce_output,
        }
    }

    fn digest(&self, _sandbox: &Sandbox) -> Option<String> {
        None
    }
}
