//! escape-audit: attack your sandbox on every commit, and prove that it holds.
//!
//! Data flows one way: [`case`] and [`config`] → [`plan`] → [`run`] ([`range`], [`backend`]) → [`evidence`] →
//! [`judge`] → [`report`] → formats, and, apart from them, [`gate`] → exit code. A test holds the imports to this order.

#[cfg(not(target_os = "linux"))]
compile_error!("escape-audit audits Linux sandboxes and runs on Linux only");

pub mod backend;
pub mod case;
pub mod cli;
pub mod config;
pub mod diag;
pub mod evidence;
pub mod exit_code;
pub mod gate;
pub mod hidden;
pub mod host;
pub mod judge;
pub mod plan;
pub mod protection;
pub mod range;
pub mod record;
pub mod report;
pub mod run;
pub mod safe_text;
pub mod secret_words;
pub mod test;
pub mod verdict;
