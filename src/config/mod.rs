//! The project's file: sandboxes, their settings under Compose's names, and what they promise.

mod builtin;
mod compose;
mod compose_environment;
mod compose_forms;
pub mod compose_keys;
mod compose_limits;
mod compose_mounts;
mod compose_networks;
pub mod compose_project;
pub mod compose_service;
mod compose_table;
mod compose_variables;
mod compose_yaml;
mod date;
mod docker;
mod image;
pub mod keys;
pub mod model;
mod parse;
pub mod pins;
mod settings;
pub mod waiver;

pub use builtin::{BUILTINS, QUICK_COMMAND, builtin, quick_command};
pub use date::Date;
pub use model::{
    BackendKind, Image, NetworkMode, Policy, RangeConfig, RangeMode, Sandbox, Settings, Tmpfs,
    User, Volume, VolumeSource,
};
pub use parse::{FILE_NAME, Like, Look, Project, Unlike, find, load, load_with, parse, parse_with};
pub use waiver::Waiver;
