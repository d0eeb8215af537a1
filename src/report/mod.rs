//! The complete result, and one pure file a format.

pub mod model;

pub use model::{Report, SandboxReport, Summary, Tool, Trial};
