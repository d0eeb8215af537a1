//! Docker Engine, and what speaks its interface: the sandbox that most people have.

pub mod call;
pub mod container;
pub mod endpoint;
pub mod engine;
pub mod image;
pub mod owner;
pub mod streams;
pub mod sweep;

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
