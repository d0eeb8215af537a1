//! The table of design §4, row by row, over every kind of attempt.

use super::*;

/// Judges the held evidence of every kind of attempt after a change.
fn every(change: impl Fn(&mut Evidence)) -> Vec<(Case, (Verdict, &'static str))> {
    held()
        .into_iter()
        .map(|(case, evidence)| {
            let judged = verdict(&case, &evidence.with(&change));
            (case, judged)
        })
        .collect()
}

fn every_is(wanted: (Verdict, &'static str), change: impl Fn(&mut Evidence)) {
    for (case, judged) in every(change) {
        assert_eq!(judged, wanted, "{:?}", case.attempt);
    }
}

#[test]
fn what_holds_is_blocked_for_every_kind_of_attempt() {
    for (case, evidence) in held() {
        let judged = judgement(&case, &evidence);
        assert_eq!(
            judged.verdict,
            Verdict::Blocked,
            "{:?}: {judged:?}",
            case.attempt
        );
        assert!(
            !judged.inside_only && !judged.evidence.is_empty(),
            "{judged:?}"
        );
    }
}

#[test]
fn a_canary_shows_this_trials_token_whatever_the_inside_says() {
    for (case, (verdict, _)) in every(|e| e.touches.push(touch())) {
        assert_eq!(verdict, Verdict::Escaped, "{:?}", case.attempt);
    }
    let (case, evidence) = held_of("connect");
    let judged = judgement(&case, &evidence.with(|e| e.touches.push(touch())));
    assert_eq!(judged.reason, "canary-reached");
    assert_eq!(
        judged.evidence[0],
        "the TCP canary at 203.0.113.10:4711 saw this trial's token after 12 ms, when the run had ended"
    );
}

#[test]
fn the_host_counted_more_than_the_ceiling() {
    every_is((Verdict::Escaped, "ceiling-passed"), |e| {
        *e = std::mem::take(e).count(Ceiling::Pids, 200.0, 64.0, true);
    });
    // What the probe counted on its own does not decide.
    let (case, evidence) = held_of("spawn");
    let evidence = evidence
        .count(Ceiling::Pids, 200.0, 64.0, false)
        .with(|e| e.counts[1].by_host = false);
    assert_eq!(
        verdict(&case, &evidence),
        (Verdict::Inconclusive, "not-refused")
    );
}

#[test]
fn state_or_a_process_outlived_the_run() {
    every_is((Verdict::Escaped, "survivor"), |e| {
        e.survivors.push("pid 77".into())
    });
    every_is((Verdict::Escaped, "host-file-written"), |e| {
        e.host_files.push("/var/tmp/canary/f".into());
    });
}

#[test]
fn a_secret_counts_whether_it_was_planted_or_the_users_own() {
    for real in [true, false] {
        every_is((Verdict::Escaped, "secret-read"), |e| {
            e.secrets.push(SecretFound {
                name: "AWS_SECRET_ACCESS_KEY".into(),
                found_in: "AWS_SECRET_ACCESS_KEY".into(),
                real,
            });
        });
    }
}

#[test]
fn the_probe_did_what_is_itself_the_breach() {
    let breaches = [
        ("raw-socket", "socket", "raw-udp"),
        ("mount", "mount", "/scratch"),
        ("capabilities", "use", "CAP_NET_RAW"),
        ("syscall", "syscall", "425"),
    ];
    for (kind, what, target) in breaches {
        let (case, evidence) = held_of(kind);
        let evidence = evidence.ok(what, target);
        assert_eq!(
            verdict(&case, &evidence),
            (Verdict::Escaped, "breach"),
            "{kind}"
        );
        // An inside claim without a witness is still a breach, and says what it rests on.
        let blind = judgement(&case, &evidence.clone().with(|e| e.witness = None));
        assert_eq!((blind.verdict, blind.inside_only), (Verdict::Escaped, true));
    }
}

#[test]
fn a_breach_over_a_user_namespace_of_its_own_is_confined() {
    let own = |e: &mut Evidence| e.witness.as_mut().unwrap().own_user_namespace = true;
    for (kind, what) in [
        ("raw-socket", "socket"),
        ("mount", "mount"),
        ("capabilities", "use"),
    ] {
        let (case, evidence) = held_of(kind);
        let evidence = evidence.ok(what, "x").with(own);
        assert_eq!(
            verdict(&case, &evidence),
            (Verdict::Blocked, "confined"),
            "{kind}"
        );
        let lost = evidence.with(|e| e.able = Able::NotTried);
        assert_eq!(
            verdict(&case, &lost),
            (Verdict::Inconclusive, "not-able"),
            "{kind}"
        );
    }
    // The kernel's code is reached all the same.
    let (case, evidence) = held_of("syscall");
    let reached = evidence.refused("syscall", "425", libc::EFAULT).with(own);
    assert_eq!(verdict(&case, &reached), (Verdict::Escaped, "breach"));
    let (case, evidence) = held_of("user-namespace");
    let nested = evidence.ok("unshare", "user").ok("use", "mount").with(own);
    assert_eq!(verdict(&case, &nested), (Verdict::Escaped, "breach"));
}

#[test]
fn our_outer_limiter_had_to_stop_it() {
    for cause in [Cause::Timeout, Cause::Output, Cause::Memory, Cause::Pids] {
        every_is((Verdict::Escaped, "stopped-by-harness"), |e| {
            e.end = End::ByLimiter { cause };
        });
    }
    // A launcher that hangs and never ran the probe proves nothing.
    let hung = Evidence {
        end: End::ByLimiter {
            cause: Cause::Timeout,
        },
        ..Evidence::default()
    };
    for (case, _) in held() {
        assert_eq!(
            verdict(&case, &hung),
            (Verdict::Inconclusive, "no-start-record")
        );
    }
}

#[test]
fn backend_or_harness_failed() {
    for (code, reason) in [
        ("limit-not-applied", "limit-not-applied"),
        ("launcher-missing", "launcher-missing"),
        ("some-new-code", "harness-failed"),
    ] {
        every_is((Verdict::Error, reason), |e| {
            e.faults.push(Fault {
                code,
                text: "It failed.".into(),
            });
        });
    }
}

#[test]
fn two_records_contradict_each_other() {
    every_is((Verdict::Error, "contradiction"), |e| {
        e.contradictions.push("two begin records".into());
    });
    every_is((Verdict::Error, "contradiction"), |e| {
        e.inside.begun = false;
        e.inside.done = Some(Outcome::Ok);
    });
    every_is((Verdict::Error, "harness-failed"), |e| {
        *e = std::mem::take(e).refused("malformed", "x", libc::EINVAL);
    });
}

#[test]
fn not_able() {
    every_is((Verdict::Inconclusive, "not-able"), |e| {
        e.able = Able::NotTried
    });
    every_is((Verdict::Inconclusive, "not-able"), |e| {
        e.able = Able::NotProven {
            why: "timed out".into(),
        };
    });
}

#[test]
fn no_start_record_a_malformed_or_foreign_one() {
    every_is((Verdict::Inconclusive, "no-start-record"), |e| {
        e.start = Start::Missing
    });
    every_is((Verdict::Inconclusive, "no-input"), |e| {
        e.start = Start::NoInput
    });
    every_is((Verdict::Inconclusive, "foreign-record"), |e| {
        e.start = Start::Foreign("hello".into());
    });
    every_is((Verdict::Inconclusive, "not-begun"), |e| {
        e.inside = Inside::default();
    });
    let (case, evidence) = held_of("connect");
    let docker = judgement(&case, &evidence.with(|e| e.start = Start::NoInput));
    assert!(
        docker.sentence.contains("docker run -i"),
        "{}",
        docker.sentence
    );
}

#[test]
fn the_target_not_alive_during_the_attempt() {
    for (case, judged) in every(|e| {
        e.sentinel.alive = false;
        e.targets.iter_mut().for_each(|target| target.alive = false);
    }) {
        let targeted = matches!(
            case.attempt,
            Attempt::Connect { .. }
                | Attempt::Dns
                | Attempt::ConnectUnix { .. }
                | Attempt::EngineSocket { .. }
                | Attempt::ListProcesses
                | Attempt::Signal
        );
        let wanted = (Verdict::Inconclusive, "target-not-alive");
        assert_eq!(judged == wanted, targeted, "{:?}: {judged:?}", case.attempt);
    }
    // No target at all, and a way out: the same.
    for kind in ["connect", "http", "dns", "connect-unix", "engine-socket"] {
        let (case, evidence) = held_of(kind);
        let evidence = evidence.with(|e| {
            e.targets.clear();
            e.witness.as_mut().unwrap().no_route = Some(false);
        });
        assert_eq!(
            verdict(&case, &evidence),
            (Verdict::Inconclusive, "target-not-alive")
        );
    }
}

#[test]
fn a_control_that_failed_in_a_way_that_could_be_the_clients_fault() {
    for kind in [
        "connect",
        "connect-unix",
        "engine-socket",
        "raw-socket",
        "signal",
        "process-environment",
    ] {
        let (case, evidence) = held_of(kind);
        let evidence = evidence.with(|e| {
            e.inside.steps.retain(|step| step.what != "control");
            e.inside.steps.insert(
                0,
                Step {
                    what: "control".into(),
                    target: String::new(),
                    outcome: Outcome::Errno(libc::EMFILE),
                },
            );
        });
        let judged = verdict(&case, &evidence);
        assert_eq!(judged, (Verdict::Inconclusive, "control-failed"), "{kind}");
    }
}

#[test]
fn a_control_that_the_kernel_refuses_is_evidence_for_blocked() {
    for errno in [
        libc::EPERM,
        libc::ENETUNREACH,
        libc::EADDRNOTAVAIL,
        libc::EAFNOSUPPORT,
    ] {
        let (case, _) = held_of("connect");
        let evidence = able()
            .target(CanaryKind::Tcp, Position::Internet, INTERNET)
            .refused("control", "loopback", errno)
            .refused("connect", INTERNET, errno);
        assert_eq!(verdict(&case, &evidence).0, Verdict::Blocked, "{errno}");
    }
}

#[test]
fn an_attempt_whose_end_is_lost_is_undecided_unless_its_end_is_the_evidence() {
    for (case, (verdict, reason)) in every(|e| *e = std::mem::take(e).no_done()) {
        let ends = matches!(
            case.attempt,
            Attempt::Spawn
                | Attempt::Allocate { .. }
                | Attempt::Spin { .. }
                | Attempt::Flood
                | Attempt::Outlive { .. }
        );
        if ends {
            assert_eq!(verdict, Verdict::Blocked, "{:?}", case.attempt);
        } else {
            assert_eq!(
                (verdict, reason),
                (Verdict::Inconclusive, "not-finished"),
                "{:?}",
                case.attempt
            );
        }
    }
}

#[test]
fn nothing_tried_is_nothing_proven() {
    for (case, (verdict, reason)) in every(|e| {
        e.inside.steps.clear();
        e.inside.facts.clear();
        e.counts.clear();
        e.end = End::ByItself { status: 0 };
        e.inside.done = Some(Outcome::Ok);
    }) {
        // The host alone sees what these are about.
        if !matches!(case.attempt, Attempt::Capabilities) {
            assert_eq!(
                verdict,
                Verdict::Inconclusive,
                "{:?}: {reason}",
                case.attempt
            );
        }
    }
}

#[test]
fn it_succeeded_against_a_kernel_that_is_not_the_hosts() {
    let own = |e: &mut Evidence| {
        e.own_kernel = Some("the engine says runsc, the boot id is absent".into())
    };
    for (kind, what, target) in [
        ("mount", "mount", "/scratch"),
        ("raw-socket", "socket", "packet"),
        ("spawn", "fork", ""),
        ("syscall", "syscall", "425"),
    ] {
        let (case, evidence) = held_of(kind);
        let evidence = evidence.ok(what, target).with(own);
        assert_eq!(
            verdict(&case, &evidence),
            (Verdict::Blocked, "own-kernel"),
            "{kind}"
        );
        let touched = evidence.clone().with(|e| e.touches.push(touch()));
        assert_eq!(verdict(&case, &touched).0, Verdict::Escaped, "{kind}");
        // Of processes that nobody counted on the host it is not known whose they are.
        let uncounted = evidence.with(|e| e.counts.clear());
        let counts = if kind == "spawn" {
            Verdict::Inconclusive
        } else {
            Verdict::Blocked
        };
        assert_eq!(verdict(&case, &uncounted).0, counts, "{kind}");
    }
}

#[test]
fn without_a_witness_blocked_says_inside_only() {
    for (case, evidence) in held() {
        let judged = judgement(&case, &evidence.with(|e| e.witness = None));
        assert!(
            judged.verdict != Verdict::Blocked || judged.inside_only,
            "{:?}",
            case.attempt
        );
    }
}

#[test]
fn every_reason_is_registered_once() {
    let mut codes: Vec<&str> = reasons::REASONS.iter().map(|(_, code, _)| *code).collect();
    codes.sort_unstable();
    let all = codes.len();
    codes.dedup();
    assert_eq!(codes.len(), all);
    for (_, code, sentence) in reasons::REASONS {
        assert!(
            code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
            "{code}"
        );
        assert!(sentence.ends_with('.'), "{code}");
    }
}
