//! Technique by technique: ceilings, timeouts, other processes.

use super::*;

#[test]
fn a_ceiling_takes_the_hosts_count() {
    for kind in ["spawn", "allocate"] {
        let (case, evidence) = held_of(kind);
        let uncounted = evidence.with(|e| e.counts.clear());
        assert_eq!(
            verdict(&case, &uncounted),
            (Verdict::Inconclusive, "no-count"),
            "{kind}"
        );
    }
    let (case, evidence) = held_of("allocate");
    let idle = evidence.with(|e| e.counts[0].held = false);
    assert_eq!(
        verdict(&case, &idle),
        (Verdict::Inconclusive, "not-refused")
    );
    // The count of another ceiling is no count.
    let (case, evidence) = held_of("spawn");
    let other = evidence.with(|e| e.counts[0].what = Ceiling::Memory);
    assert_eq!(verdict(&case, &other), (Verdict::Inconclusive, "no-count"));
}

#[test]
fn an_end_for_want_of_memory_needs_no_record() {
    let (case, _) = held_of("allocate");
    let killed = able().no_done().ended(End::BySandbox {
        cause: Cause::Memory,
        after_ms: 100,
    });
    assert_eq!(verdict(&case, &killed), (Verdict::Blocked, "ceiling"));
    let wrong = killed.ended(End::BySandbox {
        cause: Cause::Timeout,
        after_ms: 100,
    });
    assert_eq!(verdict(&case, &wrong).0, Verdict::Inconclusive);
}

#[test]
fn one_process_that_is_stopped_is_no_ceiling_on_all() {
    for (what, dose) in [
        (Ceiling::Memory, MemoryDose::Memory),
        (Ceiling::Swap, MemoryDose::MemoryAndSwap),
    ] {
        let case = case(Attempt::Allocate { dose }, &[Proof::Ceiling(what)]);
        let stopped = |held| {
            able()
                .refused("allocate", "0", libc::ENOMEM)
                .count(what, 50e6, 134_217_728.0, held)
        };
        assert_eq!(
            verdict(&case, &stopped(false)),
            (Verdict::Inconclusive, "per-process")
        );
        assert_eq!(
            verdict(&case, &stopped(true)),
            (Verdict::Blocked, "ceiling")
        );
    }
}

#[test]
fn what_was_held_and_not_counted_went_to_swap() {
    let (case, _) = held_of("allocate");
    let swapped = able()
        .ok("allocate", "0")
        .fact("held", "", "92274688")
        .count(Ceiling::Memory, 67_108_864.0, 67_108_864.0, false);
    assert_eq!(
        verdict(&case, &swapped),
        (Verdict::Inconclusive, "swapped-out")
    );
}

#[test]
fn one_file_that_is_full_is_no_ceiling_on_all() {
    let (case, _) = held_of("fill");
    let full = able()
        .refused("write", "/scratch", libc::EFBIG)
        .fact("written", "/scratch", "3145728")
        .count(Ceiling::Disk, 3_145_728.0, 16_777_216.0, true);
    assert_eq!(verdict(&case, &full), (Verdict::Inconclusive, "per-file"));
}

#[test]
fn a_fork_that_is_forbidden_is_refused_and_one_that_stopped_early_is_not_a_ceiling() {
    let (case, _) = held_of("spawn");
    let forbidden = able()
        .refused("fork", "", libc::EPERM)
        .fact("made", "", "0");
    assert_eq!(verdict(&case, &forbidden), (Verdict::Blocked, "refused"));
    let slow = able()
        .step("fork", "", Outcome::Timeout)
        .fact("made", "", "40")
        .count(Ceiling::Pids, 42.0, 64.0, false);
    assert_eq!(
        verdict(&case, &slow),
        (Verdict::Inconclusive, "not-refused")
    );
}

#[test]
fn low_use_of_the_processor_proves_nothing() {
    let (case, evidence) = held_of("spin");
    let busy = evidence.with(|e| e.counts[0].held = false);
    assert_eq!(
        verdict(&case, &busy),
        (Verdict::Inconclusive, "not-throttled")
    );
}

fn spin_past_timeout() -> (Case, Evidence) {
    let attempt = Attempt::Spin {
        until: SpinUntil::Timeout,
    };
    let all = held();
    all.into_iter()
        .find(|(case, _)| case.attempt == attempt)
        .unwrap()
}

#[test]
fn a_spin_that_was_ended_takes_a_witness() {
    let (case, evidence) = spin_past_timeout();
    assert_eq!(verdict(&case, &evidence), (Verdict::Blocked, "killed"));
    let blind = evidence.clone().with(|e| e.witness = None);
    assert_eq!(
        verdict(&case, &blind),
        (Verdict::Inconclusive, "no-witness")
    );
    let died = evidence.ended(End::ByItself { status: 1 });
    assert_eq!(verdict(&case, &died), (Verdict::Inconclusive, "not-ended"));
}

#[test]
fn a_spin_that_ran_past_the_promise_is_an_escape() {
    let (case, evidence) = spin_past_timeout();
    let spun = able().ok("spin", "").fact("spun", "", "9000");
    assert_eq!(verdict(&case, &spun), (Verdict::Escaped, "timeout-passed"));
    let late = evidence.ended(End::BySandbox {
        cause: Cause::Timeout,
        after_ms: 20_000,
    });
    assert_eq!(verdict(&case, &late), (Verdict::Escaped, "timeout-passed"));
}

#[test]
fn filling_ends_at_a_ceiling_everywhere_and_below_the_promise() {
    let (case, evidence) = held_of("fill");
    let whole = evidence.clone().ok("write", "/dev/shm");
    assert_eq!(
        verdict(&case, &whole),
        (Verdict::Inconclusive, "not-refused")
    );
    let more = evidence.clone().fact("written", "/dev/shm", "67108864");
    assert_eq!(verdict(&case, &more), (Verdict::Escaped, "ceiling-passed"));
    let closed = evidence.clone().refused("write", "/", libc::EROFS);
    assert_eq!(verdict(&case, &closed), (Verdict::Blocked, "ceiling"));
    let masked = evidence.no_done().ended(End::BySandbox {
        cause: Cause::Memory,
        after_ms: 100,
    });
    assert_eq!(
        verdict(&case, &masked),
        (Verdict::Inconclusive, "masked-by-memory")
    );
}

#[test]
fn output_is_cut_by_the_sandbox_or_it_arrives() {
    let (case, _) = held_of("flood");
    let arrived = able()
        .ok("flood", "")
        .with(|e| e.inside.output_bytes = 8 << 20);
    assert_eq!(
        verdict(&case, &arrived),
        (Verdict::Escaped, "ceiling-passed")
    );
    let unknown = able().ok("flood", "");
    assert_eq!(
        verdict(&case, &unknown),
        (Verdict::Inconclusive, "no-count")
    );
    let stored = unknown.count(Ceiling::Output, 1e6, 1_048_576.0, true);
    assert_eq!(verdict(&case, &stored), (Verdict::Blocked, "ceiling"));
}

#[test]
fn a_host_process_is_absent_by_name_and_by_number() {
    let (case, evidence) = held_of("list-processes");
    let here = |e: &mut Evidence| e.witness.as_mut().unwrap().own_namespaces.clear();
    let same_number = evidence.clone().ok("probe", "4001");
    assert_eq!(verdict(&case, &same_number), (Verdict::Blocked, "absent"));
    // In the host's own process namespace that number is the host's process.
    assert_eq!(
        verdict(&case, &same_number.with(here)).0,
        Verdict::Inconclusive
    );
    let no_proc = evidence.clone().with(|e| {
        e.inside.facts.clear();
        e.inside.steps[0].outcome = Outcome::Errno(libc::ENOENT);
    });
    assert_eq!(verdict(&case, &no_proc), (Verdict::Blocked, "absent"));
    let blind = evidence.clone().with(|e| e.inside.facts.clear());
    assert_eq!(
        verdict(&case, &blind),
        (Verdict::Inconclusive, "not-refused")
    );
    let seen = evidence.with(|e| e.sentinel.seen = true);
    assert_eq!(verdict(&case, &seen), (Verdict::Escaped, "process-seen"));
}

#[test]
fn a_signal_that_hit_the_sandboxs_own_is_private() {
    let (case, evidence) = held_of("signal");
    let own = evidence.clone().ok("signal", "1");
    assert_eq!(verdict(&case, &own), (Verdict::Blocked, "private"));
    let here = own.with(|e| e.witness.as_mut().unwrap().own_namespaces.clear());
    assert_eq!(verdict(&case, &here).0, Verdict::Inconclusive);
    let hit = evidence.with(|e| e.sentinel.signalled = true);
    assert_eq!(
        verdict(&case, &hit),
        (Verdict::Escaped, "process-signalled")
    );
}

#[test]
fn a_survivor_has_to_have_lived_and_the_run_to_have_been_ended() {
    let (case, evidence) = held_of("outlive");
    let none = evidence.clone().with(|e| e.inside.steps.clear());
    assert_eq!(verdict(&case, &none), (Verdict::Inconclusive, "not-tried"));
    let refused = evidence
        .clone()
        .with(|e| e.inside.steps[0].outcome = Outcome::Errno(libc::EAGAIN));
    assert_eq!(verdict(&case, &refused), (Verdict::Blocked, "refused"));
    let hasty = evidence
        .clone()
        .with(|e| e.watched = Duration::from_secs(1));
    assert_eq!(
        verdict(&case, &hasty),
        (Verdict::Inconclusive, "watched-too-short")
    );
    let alone = evidence.ended(End::ByItself { status: 0 });
    assert_eq!(verdict(&case, &alone), (Verdict::Inconclusive, "not-ended"));
}

/// `RLIMIT_NPROC` answers as a ceiling on the sandbox would; only the host's own count of refusals tells them apart.
#[test]
fn a_limit_of_one_user_is_no_ceiling_on_processes() {
    let case = held_of("spawn").0;
    let limited = able()
        .refused("fork", "", libc::EAGAIN)
        .fact("made", "", "62")
        .count(Ceiling::Pids, 64.0, 64.0, false);
    assert_eq!(
        verdict(&case, &limited),
        (Verdict::Inconclusive, "per-user")
    );
}
