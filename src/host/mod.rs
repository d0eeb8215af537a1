//! The host as the harness sees and bounds it: cgroups, `/proc`, the run's own folder, the probe's file.

pub mod cgroup;
mod cgroup_mounts;
pub mod counters;
pub mod engine;
pub mod hierarchy;
pub mod mounts;
pub mod probe;
pub mod proc;
pub mod routes;
pub mod rules;
pub mod run_dir;
pub mod written;
