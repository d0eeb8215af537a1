//! The complete result, and one pure file a format.

pub mod advice;
pub mod decided;
pub mod format;
pub mod github;
pub mod html;
pub mod human;
pub mod json;
pub mod jsonl;
pub mod junit;
pub mod line;
pub mod live;
pub mod markdown;
pub mod model;
#[cfg(test)]
pub(crate) mod outside;
pub mod printed;
pub mod repeat;
#[cfg(test)]
pub(crate) mod sample;
pub mod sarif;
pub mod saved;
pub mod standing;
pub mod style;
pub mod tap;
pub mod write;

pub use model::{Report, SandboxReport, Summary, Tool, Trial};
pub use style::Style;
