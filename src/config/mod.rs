//! The project's file: sandboxes, their settings under Compose's names, and what they promise.

mod builtin;
mod compose;
pub mod keys;
pub mod model;
mod parse;

pub use builtin::{BUILTINS, QUICK_COMMAND, builtin, quick_command};
pub use model::{BackendKind, NetworkMode, Policy, RangeMode, Sandbox, Settings, Tmpfs, Volume};
pub use parse::{FILE_NAME, Project, find, load, parse};
