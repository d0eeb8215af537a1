//! The project's file: sandboxes, their settings under Compose's names, and what they promise.

pub mod model;

pub use model::{BackendKind, NetworkMode, Policy, RangeMode, Sandbox, Settings, Tmpfs, Volume};
