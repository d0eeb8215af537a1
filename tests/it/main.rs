//! The integration tests: one binary, one file a subject. Most of them run the program itself, as root; for an ordinary
//! user they say that they are skipped.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod action;
mod bad_input;
mod baseline;
mod bubblewrap;
mod cargo_test;
mod compose;
mod docker;
mod docker_networks;
mod docker_posts;
mod docker_sandboxes;
mod engine;
mod engine_faults;
mod fake_engine;
mod first_steps;
mod gate_options;
mod hostile;
mod imports;
mod leftovers;
mod main_job;
mod never_green;
mod not_engaged;
mod pages;
mod proof;
mod range;
mod readme;
mod record;
mod reports;
mod scenarios;
mod signals;
mod support;
mod survivors;
mod waivers;
mod workflows;
