//! The integration tests: one binary, one file a subject.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pages;
mod range;
mod readme;
