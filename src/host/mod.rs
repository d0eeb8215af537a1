//! The host as the harness sees and bounds it: cgroups, `/proc`, the run's own folder, the probe's file.

pub mod cgroup;
pub mod counters;
pub mod engine;
pub mod mounts;
pub mod probe;
pub mod proc;
pub mod run_dir;
