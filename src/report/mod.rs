//! The complete result, and one pure file a format.

pub mod decided;
pub mod human;
pub mod json;
pub mod junit;
pub mod line;
pub mod live;
pub mod model;
#[cfg(test)]
pub(crate) mod sample;
pub mod saved;
pub mod style;
pub mod write;

pub use model::{Report, SandboxReport, Summary, Tool, Trial};
pub use style::Style;
