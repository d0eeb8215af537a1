//! The main job: the embedded sandbox holds, no sandbox at all does not, and the machine is well after both.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::support::{Seen, alone, have, run};

/// The whole library in the embedded sandbox, once for all tests that read it.
pub static OCI: LazyLock<Seen> = LazyLock::new(|| by_itself(&[]));
/// The whole library without any sandbox.
pub static UNSANDBOXED: LazyLock<Seen> = LazyLock::new(|| by_itself(&["--sandbox", "unsandboxed"]));

fn by_itself(arguments: &[&str]) -> Seen {
    let _alone = alone();
    run(arguments)
}

/// How many trials came to each verdict.
pub fn counts(seen: &Seen) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for (verdict, _) in seen.verdicts().into_values() {
        *counts.entry(verdict).or_insert(0) += 1;
    }
    counts
}

#[test]
fn the_embedded_sandbox_holds_and_nothing_is_undecided() {
    if !have(&["root"]) {
        return;
    }
    let counts = counts(&OCI);
    let held = counts["BLOCKED"] + counts["ALLOWED"];
    assert!(held >= 30 && counts["ALLOWED"] >= 3, "{counts:?}");
    // What this machine lacks (swap, IPv6) may be skipped, and nothing else may happen.
    let skipped = counts.get("SKIPPED").copied().unwrap_or(0);
    assert!(skipped <= 2, "{}", OCI.out);
    assert_eq!(held + skipped, OCI.trials().len(), "{}", OCI.out);
    assert_eq!(OCI.status, 0, "{}{}", OCI.out, OCI.err);
    assert!(
        OCI.out.contains("exit 0: everything that was tried held"),
        "{}",
        OCI.out
    );
}

#[test]
fn every_blocked_of_the_embedded_sandbox_was_witnessed_by_the_host_and_able() {
    if !have(&["root"]) {
        return;
    }
    for trial in OCI.trials().iter().filter(|t| t["verdict"] == "BLOCKED") {
        let observed = &trial["observed"];
        let case = &trial["case"];
        assert_eq!(trial["inside_only"], false, "{case}");
        assert!(observed["witness"]["pid"].is_number(), "{case}: {observed}");
        assert!(
            observed["able"].to_string().contains("unsandboxed"),
            "{case}: {observed}"
        );
        for target in observed["targets"].as_array().unwrap() {
            assert_eq!(target["alive"], true, "{case}: {target}");
        }
    }
}

#[test]
fn without_a_sandbox_everything_that_can_exist_there_escapes_and_what_must_work_does() {
    if !have(&["root"]) {
        return;
    }
    for (case, (verdict, reason)) in UNSANDBOXED.verdicts() {
        let wanted: &[&str] = match case {
            _ if case.starts_with("works/") => &["ALLOWED"],
            "resources/memory-swap" | "network/ipv6-egress" => &["ESCAPED", "SKIPPED"],
            _ => &["ESCAPED"],
        };
        assert!(wanted.contains(&verdict), "{case}: {verdict} ({reason})");
    }
    assert_eq!(UNSANDBOXED.status, 1);
}

#[test]
fn the_sandbox_that_is_no_sandbox_leaves_the_machine_unharmed() {
    if !have(&["root"]) {
        return;
    }
    // The processes, groups, folders and plants of the run are counted by every audit; here is what else could suffer.
    let _ = &*UNSANDBOXED;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available = meminfo
        .lines()
        .find_map(|line| {
            line.strip_prefix("MemAvailable:")?
                .trim()
                .strip_suffix(" kB")
        })
        .unwrap();
    assert!(available.parse::<u64>().unwrap() > 256 * 1024, "{meminfo}");
    for place in ["/tmp", "/var/tmp", "/dev/shm"] {
        let stat = nix::sys::statvfs::statvfs(place).unwrap();
        assert!(stat.blocks_available() > 0, "{place} is full");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        !mounts.lines().any(|line| line.contains(" tmpfs ea-")),
        "{mounts}"
    );
    assert!(
        std::process::Command::new("true")
            .status()
            .unwrap()
            .success()
    );
}
