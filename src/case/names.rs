//! The closed lists of words in a case file, each with the value it stands for.

use super::model::{
    CanaryKind, Ceiling, Expect, KilledBy, Level, MemoryDose, NEEDS, Need, Position, Severity,
    SpinUntil, Status, UnixTarget, WriteInto,
};
use crate::diag::schema::{Named, named};
use crate::protection::{PROTECTIONS, Protection};

named!(Severity: Info = "info", Low = "low", Medium = "medium", High = "high", Critical = "critical");
named!(Level: Standard = "standard", Strict = "strict", Hostile = "hostile");
named!(Status: Stable = "stable", Experimental = "experimental");
named!(Expect: Blocked = "blocked", Allowed = "allowed");
named!(Position: Loopback = "loopback", Gateway = "gateway", Host = "host", Sibling = "sibling", Internet = "internet");
named!(UnixTarget: Abstract = "abstract", Path = "path");
named!(WriteInto: OutsideScratch = "outside-scratch", Host = "host", Scratch = "scratch");
named!(MemoryDose: Memory = "memory", MemoryAndSwap = "memory-and-swap", Half = "half");
named!(SpinUntil: Quota = "quota", Timeout = "timeout");
named!(KilledBy: Timeout = "timeout", Launcher = "launcher", Group = "group", Terminate = "terminate");
named!(CanaryKind: Tcp = "tcp", Udp = "udp", Dns = "dns", Http = "http", Unix = "unix", Engine = "engine");
named!(Ceiling: Pids = "pids", Memory = "memory", Swap = "swap", Cpu = "cpu", Disk = "disk", Output = "output");

impl Named for Need {
    fn all() -> Vec<(Self, &'static str)> {
        NEEDS.to_vec()
    }
}

impl Named for Protection {
    fn all() -> Vec<(Self, &'static str)> {
        PROTECTIONS
            .iter()
            .map(|(protection, name, _)| (*protection, *name))
            .collect()
    }
}

/// Every tag that a case may carry, with its meaning: the closed list behind `--tag`.
pub const TAGS: &[(&str, &str)] = &[
    ("agent", "what an AI agent's code sandbox meets most often"),
    ("ci", "secrets and services of a CI runner"),
    ("cleanup", "what is still there after the run"),
    ("cloud", "credentials and services of a cloud"),
    ("dos", "takes resources from everybody else on the host"),
    ("exfiltration", "a way by which data leaves the sandbox"),
    ("host-state", "changes something that belongs to the host"),
    (
        "kernel-surface",
        "a part of the kernel that a sandbox has no use for",
    ),
    (
        "lateral",
        "a way to services and processes beside the sandbox",
    ),
    ("multi-tenant", "matters most where strangers share a host"),
    ("persistence", "something that a later run would find"),
    ("privilege", "a step towards root on the host"),
    ("secrets", "reads something that grants access elsewhere"),
    ("usability", "what honest code needs"),
];

/// The names of all tags.
pub fn tags() -> Vec<&'static str> {
    TAGS.iter().map(|(tag, _)| *tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same_as_json<T: Named + serde::Serialize>() {
        for (value, word) in T::all() {
            let json = serde_json::to_string(&value).expect("serialises");
            assert_eq!(json, format!("\"{word}\""));
            assert!(T::from_name(word) == Some(value) && value.word() == word);
        }
    }

    #[test]
    fn every_word_is_the_one_that_reports_use() {
        same_as_json::<Severity>();
        same_as_json::<Level>();
        same_as_json::<Status>();
        same_as_json::<Expect>();
        same_as_json::<Position>();
        same_as_json::<UnixTarget>();
        same_as_json::<WriteInto>();
        same_as_json::<MemoryDose>();
        same_as_json::<SpinUntil>();
        same_as_json::<KilledBy>();
        same_as_json::<CanaryKind>();
        same_as_json::<Ceiling>();
        same_as_json::<Need>();
        same_as_json::<Protection>();
    }

    #[test]
    fn tags_are_sorted_and_none_stands_twice() {
        assert!(TAGS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
