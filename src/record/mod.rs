//! The record of an audit: what exactly was audited, with which result. Written as an in-toto statement for others to sign,
//! and verified against an image and a project file. Pure.

pub mod canonical;
mod configured;
mod model;
mod of_report;
mod parse;
mod statement;
#[cfg(test)]
mod tests;
mod time;
mod verify;

pub use configured::Configured;
pub use model::{
    Audited, Came, InForce, LibraryFacts, Record, Run, TestResult, Verdicts, test_name,
};
pub use of_report::of_report;
pub use parse::LARGEST;
pub use statement::{Malformed, PREDICATE, STATEMENT, is_hex, write};
pub use verify::{Finding, Wanted, verify};

/// The record in a file, if the file holds a statement of ours that agrees with itself.
pub fn read(bytes: &[u8]) -> Result<Record, Malformed> {
    statement::read(parse::parse(bytes)?)
}
