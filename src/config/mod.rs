//! The project's file: sandboxes, their settings under Compose's names, and what they promise.

mod builtin;
mod compose;
mod date;
mod docker;
mod image;
pub mod keys;
pub mod model;
mod parse;
mod settings;
pub mod waiver;

pub use builtin::{BUILTINS, QUICK_COMMAND, builtin, quick_command};
pub use date::Date;
pub use model::{
    BackendKind, Image, NetworkMode, Policy, RangeConfig, RangeMode, Sandbox, Settings, Tmpfs,
    User, Volume, VolumeSource,
};
pub use parse::{FILE_NAME, Project, find, load, parse};
pub use waiver::Waiver;
