//! What a cgroup counts, read the same way from both versions, and what it was told to allow.

use std::collections::BTreeMap;

use super::cgroup::{Cgroup, Version};
use super::proc;

/// One reading of a group's counters. What a kernel does not count is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Processes and threads now.
    pub pids: Option<u64>,
    /// Processes and threads at the highest.
    pub pids_peak: Option<u64>,
    /// How often the ceiling on processes refused one.
    pub pids_refused: Option<u64>,
    /// Bytes of memory now, page cache included.
    pub memory: Option<u64>,
    /// Bytes of memory at the highest.
    pub memory_peak: Option<u64>,
    /// Bytes of swap now.
    pub swap: Option<u64>,
    /// How often the ceiling on memory ended a process.
    pub oom_kills: Option<u64>,
    /// CPU time used, in microseconds.
    pub cpu_usec: Option<u64>,
    /// How often the ceiling on CPU time held it back.
    pub throttled: Option<u64>,
}

impl Counters {
    /// Reads them now; all `None` once the group is gone.
    pub fn read(group: &Cgroup) -> Self {
        let number = |controller, file| group.read(controller, file).and_then(|t| t.parse().ok());
        let entry = |controller, file, key: &str| {
            group
                .read(controller, file)?
                .lines()
                .find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
        };
        let common = Self {
            pids: number("pids", "pids.current"),
            pids_peak: number("pids", "pids.peak"),
            pids_refused: group.sum_below("pids", "pids.events", "max "),
            throttled: entry("cpu", "cpu.stat", "nr_throttled "),
            ..Self::default()
        };
        match group.version() {
            Version::V1 => {
                let memory = number("memory", "memory.usage_in_bytes");
                let both = number("memory", "memory.memsw.usage_in_bytes");
                Self {
                    memory,
                    memory_peak: number("memory", "memory.max_usage_in_bytes"),
                    swap: both
                        .zip(memory)
                        .map(|(b, m): (u64, u64)| b.saturating_sub(m)),
                    oom_kills: entry("memory", "memory.oom_control", "oom_kill "),
                    cpu_usec: number("cpuacct", "cpuacct.usage").map(|ns: u64| ns / 1000),
                    ..common
                }
            }
            Version::V2 => Self {
                memory: number("memory", "memory.current"),
                memory_peak: number("memory", "memory.peak"),
                swap: number("memory", "memory.swap.current"),
                oom_kills: entry("memory", "memory.events", "oom_kill "),
                cpu_usec: entry("cpu", "cpu.stat", "usage_usec "),
                ..common
            },
        }
    }

    /// Adds up what a process and everything below it takes: where a runtime makes no group, there is nothing better. No
    /// ceiling is seen at work that way. All `None` once it is gone.
    pub fn of_tree(root: i32) -> Self {
        let (mut all, mut cpu) = (proc::Taken::default(), 0);
        let mut found = false;
        let mut unnamed = BTreeMap::new();
        for pid in proc::tree(root) {
            let Some(taken) = proc::taken(pid) else {
                continue;
            };
            found = true;
            all.threads += taken.threads;
            all.memory += taken.memory;
            all.shared += taken.shared;
            unnamed.extend(proc::open_memory(pid));
            all.swap += taken.swap;
            cpu += proc::cpu_usec(pid).unwrap_or(0);
        }
        let seen = |value| found.then_some(value);
        Self {
            pids: seen(all.threads),
            memory: seen(all.memory + all.shared.max(unnamed.into_values().sum())),
            swap: seen(all.swap),
            cpu_usec: seen(cpu),
            ..Self::default()
        }
    }

    /// Both readings together: the highest of each.
    pub fn highest(self, other: Self) -> Self {
        Self {
            pids: self.pids.max(other.pids),
            pids_peak: self.pids_peak.max(other.pids_peak),
            pids_refused: self.pids_refused.max(other.pids_refused),
            memory: self.memory.max(other.memory),
            memory_peak: self.memory_peak.max(other.memory_peak),
            swap: self.swap.max(other.swap),
            oom_kills: self.oom_kills.max(other.oom_kills),
            cpu_usec: self.cpu_usec.max(other.cpu_usec),
            throttled: self.throttled.max(other.throttled),
        }
    }
}

/// The ceilings that a group has in force. `None`: no ceiling.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ceilings {
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of memory and swap together.
    pub memory_and_swap: Option<u64>,
    /// CPUs' worth of time.
    pub cpus: Option<f64>,
}

impl Ceilings {
    /// Reads what the kernel enforces.
    pub fn read(group: &Cgroup) -> Self {
        let number = |controller, file| {
            group
                .read(controller, file)
                .and_then(|text| text.parse::<u64>().ok())
                .filter(|bytes| *bytes < UNLIMITED)
        };
        let pids = number("pids", "pids.max");
        match group.version() {
            Version::V1 => {
                let period = number("cpu", "cpu.cfs_period_us");
                let quota = number("cpu", "cpu.cfs_quota_us");
                Self {
                    pids,
                    memory: number("memory", "memory.limit_in_bytes"),
                    memory_and_swap: number("memory", "memory.memsw.limit_in_bytes"),
                    cpus: ratio(quota, period),
                }
            }
            Version::V2 => {
                let memory = number("memory", "memory.max");
                let swap = number("memory", "memory.swap.max");
                let quota = group.read("cpu", "cpu.max").unwrap_or_default();
                let mut quota = quota.split(' ').map(|part| part.parse().ok());
                Self {
                    pids,
                    memory,
                    memory_and_swap: memory.zip(swap).map(|(m, s)| m + s),
                    cpus: ratio(quota.next().flatten(), quota.next().flatten()),
                }
            }
        }
    }
}

/// Version 1 writes "no ceiling" as the largest number of pages, in bytes.
const UNLIMITED: u64 = 1 << 62;

fn ratio(quota: Option<u64>, period: Option<u64>) -> Option<f64> {
    quota
        .zip(period)
        .filter(|(_, period)| *period > 0)
        .map(|(quota, period)| quota as f64 / period as f64)
}
