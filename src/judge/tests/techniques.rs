//! Technique by technique: network, files, credentials, privileges.

use super::*;

fn egress(errno: i32) -> Evidence {
    able()
        .target(CanaryKind::Tcp, Position::Internet, INTERNET)
        .refused("connect", INTERNET, errno)
}

#[test]
fn the_errno_names_the_reason_and_silence_decides() {
    for (errno, reason) in [
        (libc::ECONNREFUSED, "rejected"),
        (libc::EPERM, "refused"),
        (libc::EACCES, "refused"),
        (libc::ENETUNREACH, "no-route"),
        (libc::EHOSTUNREACH, "no-route"),
        (libc::EINVAL, "no-route"),
        (libc::EAFNOSUPPORT, "family-absent"),
        (libc::EADDRNOTAVAIL, "family-absent"),
    ] {
        let judged = verdict(&connect(&[Position::Internet]), &egress(errno));
        assert_eq!(judged, (Verdict::Blocked, reason));
    }
    for errno in [libc::EMFILE, libc::ENOMEM, libc::EFAULT] {
        let judged = verdict(&connect(&[Position::Internet]), &egress(errno));
        assert_eq!(judged, (Verdict::Inconclusive, "not-refused"));
    }
}

#[test]
fn three_tries_must_time_out_before_a_firewall_is_believed() {
    let mut evidence = able().target(CanaryKind::Tcp, Position::Internet, INTERNET);
    for tries in 1..=3 {
        evidence = evidence.step("connect", INTERNET, Outcome::Timeout);
        let wanted = match tries {
            3 => (Verdict::Blocked, "dropped"),
            _ => (Verdict::Inconclusive, "too-few-tries"),
        };
        assert_eq!(verdict(&connect(&[Position::Internet]), &evidence), wanted);
    }
}

#[test]
fn datagrams_that_leave_take_three_of_them_and_two_seconds_of_silence() {
    let udp = "udp://203.0.113.10:4712";
    let case = case(
        Attempt::Connect {
            transport: Transport::Udp,
            positions: vec![Position::Internet],
        },
        &[Proof::Canary(CanaryKind::Udp)],
    );
    let two = able()
        .target(CanaryKind::Udp, Position::Internet, udp)
        .ok("send", udp)
        .ok("send", udp);
    assert_eq!(
        verdict(&case, &two),
        (Verdict::Inconclusive, "too-few-tries")
    );
    // The network's answer to an earlier datagram comes with a later one.
    let three = two.refused("send", udp, libc::ECONNREFUSED);
    assert_eq!(verdict(&case, &three), (Verdict::Blocked, "rejected"));
    let hasty = three.with(|e| e.watched = Duration::from_millis(1900));
    assert_eq!(
        verdict(&case, &hasty),
        (Verdict::Inconclusive, "watched-too-short")
    );
}

#[test]
fn with_a_route_the_internet_must_be_one_of_the_positions() {
    let case = connect(&[Position::Gateway, Position::Internet]);
    let gateway = "tcp://10.0.0.1:4711";
    for (no_route, wanted) in [
        (Some(true), (Verdict::Blocked, "rejected")),
        (Some(false), (Verdict::Inconclusive, "no-internet-canary")),
        (None, (Verdict::Inconclusive, "no-internet-canary")),
    ] {
        let evidence = able()
            .target(CanaryKind::Tcp, Position::Gateway, gateway)
            .refused("connect", gateway, libc::ECONNREFUSED)
            .with(|e| {
                let witness = e.witness.as_mut().unwrap();
                witness.no_route = no_route;
                witness.own_namespaces.retain(|name| name != "net");
            });
        assert_eq!(verdict(&case, &evidence), wanted);
        let both = evidence
            .target(CanaryKind::Tcp, Position::Internet, INTERNET)
            .refused("connect", INTERNET, libc::EPERM);
        assert_eq!(verdict(&case, &both), (Verdict::Blocked, "rejected"));
    }
}

/// A network without IPv6 needs no canary of the internet's: the host sees that there is no such family in it.
#[test]
fn without_the_family_nothing_goes_out_by_it() {
    let six = "tcp://[2001:db8::10]:4711";
    let of = |transport| {
        let attempt = Attempt::Connect {
            transport,
            positions: vec![Position::Gateway, Position::Internet],
        };
        case(attempt, &[Proof::Canary(CanaryKind::Tcp)])
    };
    let tried = |no_ipv6, errno| {
        able().refused("connect", six, errno).with(|e| {
            e.leads_to_range = true;
            let witness = e.witness.as_mut().unwrap();
            (witness.no_route, witness.no_ipv6) = (Some(false), no_ipv6);
        })
    };
    let judged = |transport, evidence: &Evidence| verdict(&of(transport), evidence);
    let absent = tried(Some(true), libc::EADDRNOTAVAIL);
    let held = (Verdict::Blocked, "family-absent");
    let no_target = (Verdict::Inconclusive, "target-not-alive");
    assert_eq!(judged(Transport::Tcp6, &absent), held);
    // By the probe's word alone, or by the other family's, it is not.
    assert_eq!(judged(Transport::Tcp, &absent), no_target);
    for unseen in [None, Some(false)] {
        let evidence = tried(unseen, libc::EADDRNOTAVAIL);
        assert_eq!(judged(Transport::Tcp6, &evidence), no_target);
        let gateway = evidence.target(CanaryKind::Tcp, Position::Gateway, six);
        let wanted = (Verdict::Inconclusive, "no-internet-canary");
        assert_eq!(judged(Transport::Tcp6, &gateway), wanted);
    }
    // Nor by what stands in for the probe, whose network stack is its own.
    let other = absent.clone();
    let other = other.with(|e| e.witness.as_mut().unwrap().stands_in = true);
    assert_eq!(judged(Transport::Tcp6, &other), no_target);
    // And nothing but a refusal holds.
    let unclear = tried(Some(true), libc::EIO);
    let wanted = (Verdict::Inconclusive, "not-refused");
    assert_eq!(judged(Transport::Tcp6, &unclear), wanted);
    let silent = able().with(|e| {
        let witness = e.witness.as_mut().unwrap();
        (witness.no_route, witness.no_ipv6) = (Some(false), Some(true));
    });
    let wanted = (Verdict::Inconclusive, "not-tried");
    assert_eq!(judged(Transport::Tcp6, &silent), wanted);
}

#[test]
fn what_another_network_says_proves_nothing_of_ours() {
    let case = connect(&[Position::Internet]);
    let routed =
        |evidence: Evidence| evidence.with(|e| e.witness.as_mut().unwrap().no_route = Some(false));
    let silent = (0..3).fold(
        able().target(CanaryKind::Tcp, Position::Internet, INTERNET),
        |evidence, _| evidence.step("connect", INTERNET, Outcome::Timeout),
    );
    let elsewhere = (Verdict::Inconclusive, "other-network");
    assert_eq!(verdict(&case, &silent), (Verdict::Blocked, "dropped"));
    assert_eq!(verdict(&case, &routed(silent.clone())), elsewhere);
    for errno in [libc::ECONNREFUSED, libc::ENETUNREACH] {
        assert_eq!(verdict(&case, &routed(egress(errno))), elsewhere);
    }
    // Of a sandbox that the host does not see nothing is known; where its way out is shown to lead here, silence counts.
    let unseen = silent.clone().with(|e| e.witness = None);
    assert_eq!(verdict(&case, &unseen), elsewhere);
    let leads_here = routed(silent.clone()).with(|e| e.leads_to_range = true);
    let beyond = (Verdict::Inconclusive, "no-internet-canary");
    assert_eq!(verdict(&case, &leads_here), beyond, "somebody passes it on");
    let heard = leads_here.clone().with(|e| e.targets[0].beyond = true);
    assert_eq!(verdict(&case, &heard), (Verdict::Blocked, "dropped"));
    let neighbours = leads_here.with(|e| e.witness.as_mut().unwrap().no_gateway = Some(true));
    assert_eq!(verdict(&case, &neighbours), (Verdict::Blocked, "dropped"));
    // What its own kernel says holds in any network, and so does its own loopback.
    let denied = routed(egress(libc::EPERM));
    assert_eq!(verdict(&case, &denied), (Verdict::Blocked, "refused"));
    let here = routed(silent).with(|e| {
        e.witness
            .as_mut()
            .unwrap()
            .own_namespaces
            .retain(|n| n != "net")
    });
    assert_eq!(verdict(&case, &here), (Verdict::Blocked, "dropped"));
    let own = "tcp://127.0.0.1:40001";
    let own = able()
        .target(CanaryKind::Tcp, Position::Loopback, own)
        .refused("connect", own, libc::ECONNREFUSED);
    let loopback = connect(&[Position::Loopback]);
    assert_eq!(
        verdict(&loopback, &routed(own)),
        (Verdict::Blocked, "rejected")
    );
}

#[test]
fn a_metadata_service_that_is_not_ours_is_no_proof() {
    let (case, _) = held_of("http");
    let service = "tcp://169.254.169.254:80";
    let answered = able()
        .ok("connect", service)
        .fact("reply", service, "120 bytes, hash");
    assert_eq!(
        verdict(&case, &answered),
        (Verdict::Inconclusive, "answered-by-another")
    );
}

#[test]
fn an_environment_comes_whole() {
    let (case, _) = held_of("environment");
    let two = able().fact("env-count", "", "2").fact("env", "A", "hash");
    assert_eq!(verdict(&case, &two), (Verdict::Inconclusive, "truncated"));
    let two = two.fact("env", "B", "hash");
    assert_eq!(verdict(&case, &two), (Verdict::Blocked, "absent"));
}

#[test]
fn what_lies_beyond_the_probes_bounds_is_not_known() {
    for (case, evidence) in held() {
        let cut = evidence.fact("truncated", "processes", "4096");
        assert_eq!(
            verdict(&case, &cut),
            (Verdict::Inconclusive, "truncated"),
            "{}",
            case.attempt.kind()
        );
    }
}

#[test]
fn a_target_that_was_not_tried_is_not_blocked() {
    let evidence = egress(libc::EPERM).target(CanaryKind::Tcp, Position::Host, "tcp://10.0.0.2:1");
    let judged = verdict(&connect(&[Position::Internet]), &evidence);
    assert_eq!(judged, (Verdict::Inconclusive, "not-tried"));
}

#[test]
fn a_connection_that_nobody_owns_up_to_is_undecided() {
    let accepted = able()
        .target(CanaryKind::Tcp, Position::Internet, INTERNET)
        .ok("connect", INTERNET);
    let case = connect(&[Position::Internet]);
    assert_eq!(
        verdict(&case, &accepted),
        (Verdict::Inconclusive, "connected-unseen")
    );
    let page = accepted.fact("reply", INTERNET, "HTTP/1.1 403 blocked by policy");
    // A proxy that says no to this may say yes to other words.
    assert_eq!(
        verdict(&case, &page),
        (Verdict::Inconclusive, "answered-by-another")
    );
}

/// A dns case whose direct ways are rejected, and what the sandbox's own resolver did.
fn resolver(outcomes: &[Outcome], answer: Option<(u8, u16)>, asks_us: bool) -> Evidence {
    const OWN: &str = "udp://127.0.0.11:53";
    let server = "udp://203.0.113.10:53";
    let mut evidence = able()
        .target(CanaryKind::Dns, Position::Internet, server)
        .refused("query", server, libc::ECONNREFUSED)
        .fact("resolver", OWN, "");
    for outcome in outcomes {
        evidence = evidence.step("query", OWN, *outcome);
    }
    if let Some((code, records)) = answer {
        evidence = evidence
            .fact("reply", OWN, "50 bytes, hash")
            .fact("dns-code", OWN, &code.to_string())
            .fact("dns-records", OWN, &records.to_string());
    }
    evidence.with(|e| {
        e.resolver_asks_us = asks_us;
        e.leads_to_range = true;
        let witness = e.witness.as_mut().unwrap();
        (witness.no_route, witness.no_gateway) = (Some(false), Some(true));
    })
}

#[test]
fn a_resolver_of_the_sandboxs_own_holds_only_where_it_is_known_whom_it_asks() {
    let (case, _) = held_of("dns");
    let silent = [Outcome::Timeout; 3];
    let blocked = |reason| (Verdict::Blocked, reason);
    let open = |reason| (Verdict::Inconclusive, reason);
    for (outcomes, answer, of_others, of_ours) in [
        // No such name, failed, refused, no data: where our name server is the only one that could have been asked.
        (
            &[Outcome::Ok][..],
            Some((3, 0)),
            open("resolver-elsewhere"),
            blocked("intercepted"),
        ),
        (
            &[Outcome::Ok],
            Some((2, 0)),
            open("resolver-elsewhere"),
            blocked("intercepted"),
        ),
        (
            &[Outcome::Ok],
            Some((5, 0)),
            open("resolver-elsewhere"),
            blocked("intercepted"),
        ),
        (
            &[Outcome::Ok],
            Some((0, 0)),
            open("resolver-elsewhere"),
            blocked("intercepted"),
        ),
        // A yes that is none of ours, and what is no answer at all.
        (
            &[Outcome::Ok],
            Some((0, 1)),
            open("answered-by-another"),
            open("answered-by-another"),
        ),
        (
            &[Outcome::Ok],
            None,
            open("answered-by-another"),
            open("answered-by-another"),
        ),
        // It took the question and says nothing.
        (
            &silent,
            None,
            open("resolver-elsewhere"),
            blocked("dropped"),
        ),
        (
            &silent[..2],
            None,
            open("resolver-elsewhere"),
            open("too-few-tries"),
        ),
        (
            &[Outcome::Errno(libc::EIO)],
            None,
            open("not-refused"),
            open("not-refused"),
        ),
        // Nobody took it.
        (
            &[Outcome::Errno(libc::ECONNREFUSED)],
            None,
            blocked("rejected"),
            blocked("rejected"),
        ),
        (
            &[Outcome::Errno(libc::EPERM)],
            None,
            blocked("rejected"),
            blocked("rejected"),
        ),
    ] {
        let name = format!("{outcomes:?} {answer:?}");
        let judged = |asks_us| verdict(&case, &resolver(outcomes, answer, asks_us));
        assert_eq!(judged(false), of_others, "{name}");
        assert_eq!(judged(true), of_ours, "{name}");
        let reached = resolver(outcomes, answer, true).with(|e| e.touches.push(touch()));
        assert_eq!(
            verdict(&case, &reached),
            (Verdict::Escaped, "canary-reached")
        );
    }
    // Whatever the settings say: one that is not the engine's asks whom it likes.
    let other = resolver(&[Outcome::Ok], Some((3, 0)), true).with(|e| {
        let steps = e.inside.steps.iter_mut().map(|step| &mut step.target);
        let facts = e.inside.facts.iter_mut().map(|fact| &mut fact.name);
        for name in steps.chain(facts) {
            *name = name.replace("127.0.0.11", "10.0.0.2");
        }
    });
    assert_eq!(verdict(&case, &other), open("resolver-elsewhere"));
}

/// Another name server than ours that answers in its place is somebody who takes questions.
#[test]
fn a_name_server_in_the_place_of_ours_is_no_proof() {
    let (case, _) = held_of("dns");
    let server = "udp://203.0.113.10:53";
    let answered = able()
        .target(CanaryKind::Dns, Position::Internet, server)
        .ok("query", server)
        .fact("reply", server, "50 bytes, hash")
        .with(|e| e.resolver_asks_us = true);
    assert_eq!(
        verdict(&case, &answered),
        (Verdict::Inconclusive, "answered-by-another")
    );
}

/// Targets are tried at once: the tries of one stand between those of another.
#[test]
fn tries_are_counted_by_their_target_in_whatever_order_they_come() {
    let gateway = "tcp://10.0.0.1:4711";
    let case = connect(&[Position::Gateway, Position::Internet]);
    let both = able()
        .target(CanaryKind::Tcp, Position::Internet, INTERNET)
        .target(CanaryKind::Tcp, Position::Gateway, gateway);
    let round = |evidence: Evidence| {
        evidence.step("connect", INTERNET, Outcome::Timeout).step(
            "connect",
            gateway,
            Outcome::Timeout,
        )
    };
    let two = round(round(both));
    assert_eq!(
        verdict(&case, &two),
        (Verdict::Inconclusive, "too-few-tries")
    );
    assert_eq!(verdict(&case, &round(two)), (Verdict::Blocked, "dropped"));
}

#[test]
fn a_filter_that_kills_at_the_first_socket_is_a_refusal() {
    let killed = able()
        .target(CanaryKind::Tcp, Position::Internet, INTERNET)
        .with(|e| e.inside.done = Some(Outcome::Signal(libc::SIGSYS)));
    let case = connect(&[Position::Internet]);
    assert_eq!(verdict(&case, &killed), (Verdict::Blocked, "killed"));
    let later = killed.refused("connect", INTERNET, libc::EPERM);
    assert_eq!(
        verdict(&case, &later),
        (Verdict::Inconclusive, "not-finished")
    );
}

#[test]
fn metadata_without_a_canary_is_decided_by_the_route_that_the_host_reads() {
    let (case, evidence) = held_of("http");
    assert_eq!(verdict(&case, &evidence), (Verdict::Blocked, "no-route"));
    let unknown = evidence.with(|e| e.witness = None);
    assert_eq!(
        verdict(&case, &unknown),
        (Verdict::Inconclusive, "target-not-alive")
    );
}

#[test]
fn the_hosts_loopback_always_takes_a_target() {
    let (case, evidence) = (connect(&[Position::Loopback]), held_of("connect").1);
    let none = evidence.with(|e| e.targets.clear());
    assert_eq!(
        verdict(&case, &none),
        (Verdict::Inconclusive, "target-not-alive")
    );
}

#[test]
fn a_planted_secret_counts_for_the_case_that_names_it() {
    let case = case(
        Attempt::Environment {
            names: vec!["GITHUB_TOKEN".into(), "ACTIONS_*".into()],
        },
        &[Proof::Secret],
    );
    let with = |name: &str, real| {
        able().fact("env-count", "", "0").with(|e| {
            e.secrets.push(SecretFound {
                name: name.into(),
                found_in: name.into(),
                real,
            });
        })
    };
    assert_eq!(
        verdict(&case, &with("ACTIONS_TOKEN", false)).0,
        Verdict::Escaped
    );
    assert_eq!(verdict(&case, &with("AWS_KEY", false)).0, Verdict::Blocked);
    assert_eq!(verdict(&case, &with("AWS_KEY", true)).0, Verdict::Escaped);
}

#[test]
fn process_environments_take_a_control() {
    let (case, _) = held_of("process-environment");
    let no_proc = able()
        .refused("control", "/proc/self/environ", libc::ENOENT)
        .refused("read", "/proc/1/environ", libc::ENOENT);
    assert_eq!(verdict(&case, &no_proc), (Verdict::Blocked, "absent"));
    let closed =
        able()
            .ok("control", "/proc/self/environ")
            .refused("read", "/proc/1/environ", libc::EACCES);
    assert_eq!(verdict(&case, &closed), (Verdict::Blocked, "permission"));
    let blind = able()
        .refused("control", "/proc/self/environ", libc::EACCES)
        .refused("read", "/proc/1/environ", libc::EACCES);
    assert_eq!(
        verdict(&case, &blind),
        (Verdict::Inconclusive, "control-failed")
    );
}

#[test]
fn a_path_of_the_case_that_was_not_tried_is_not_absent() {
    let (case, _) = held_of("read-file");
    let short = able().refused("read", PLANTED, libc::ENOENT);
    assert_eq!(verdict(&case, &short), (Verdict::Inconclusive, "not-tried"));
}

#[test]
fn a_file_that_takes_no_bytes_was_made_all_the_same() {
    let (case, evidence) = held_of("write-file");
    let made = evidence
        .ok("create", "/mnt/f")
        .refused("write", "/mnt/f", libc::ENOSPC);
    assert_eq!(
        verdict(&case, &made),
        (Verdict::Escaped, "written-outside-scratch")
    );
    let (case, evidence) = held_of("write-file");
    let full = evidence.refused("write", "/mnt/f", libc::ENOSPC);
    assert_eq!(
        verdict(&case, &full),
        (Verdict::Inconclusive, "not-refused")
    );
}

#[test]
fn the_kernels_own_file_systems_do_not_name_the_reason() {
    let (case, evidence) = held_of("write-file");
    let evidence =
        evidence
            .refused("write", "/proc/f", libc::ENOENT)
            .refused("write", "/sys/f", libc::EPERM);
    assert_eq!(verdict(&case, &evidence), (Verdict::Blocked, "refused"));
}

#[test]
fn a_sandbox_that_promises_no_scratch_needs_no_scratch() {
    let mut closed = sandbox();
    closed.policy.writable = vec!["/dev/shm".into(), "/dev/mqueue".into()];
    let (case, _) = held_of("write-file");
    let evidence = able().refused("write", "/f", libc::EROFS);
    assert_eq!(judge(&case, &closed, &evidence).verdict, Verdict::Blocked);
}

#[test]
fn capabilities_are_read_on_the_host() {
    let (case, evidence) = held_of("capabilities");
    let caps = |set, own| {
        evidence.clone().with(|e| {
            let witness = e.witness.as_mut().unwrap();
            (witness.cap_prm, witness.own_user_namespace) = (set, own);
        })
    };
    let admin = 1 << 21;
    assert_eq!(
        verdict(&case, &caps(admin, false)),
        (Verdict::Escaped, "breach")
    );
    assert_eq!(
        verdict(&case, &caps(admin, true)),
        (Verdict::Blocked, "confined")
    );
    for bit in [0, 3, 4, 6, 7] {
        assert_eq!(
            verdict(&case, &caps(1 << bit, false)),
            (Verdict::Escaped, "breach"),
            "{bit}"
        );
    }
    // CAP_NET_BIND_SERVICE alone reaches nothing.
    assert_eq!(
        verdict(&case, &caps(1 << 10, false)),
        (Verdict::Blocked, "absent")
    );
    // CAP_KILL reaches what can be named.
    let kill = caps(1 << 5, false);
    assert_eq!(verdict(&case, &kill), (Verdict::Blocked, "absent"));
    let here = kill.with(|e| e.witness.as_mut().unwrap().own_namespaces.clear());
    assert_eq!(verdict(&case, &here), (Verdict::Escaped, "breach"));
    let blind = |set: &str| {
        let evidence = evidence.clone().with(|e| e.witness = None);
        evidence.fact("cap-eff", "", set).fact("cap-prm", "", set)
    };
    assert_eq!(
        verdict(&case, &blind("0000000000000000")),
        (Verdict::Blocked, "absent")
    );
    assert_eq!(
        verdict(&case, &blind("0000000000200000")).0,
        Verdict::Inconclusive
    );
}

#[test]
fn a_set_uid_program_must_not_change_the_user() {
    let (case, _) = held_of("gain-privileges");
    let base = able().fact("euid", "self", "65534");
    let gained = base.clone().ok("exec", "/h").fact("euid", "/h", "0");
    assert_eq!(verdict(&case, &gained), (Verdict::Escaped, "breach"));
    let missing = base.refused("exec", "/h", libc::ENOENT);
    assert_eq!(
        verdict(&case, &missing),
        (Verdict::Inconclusive, "no-helper")
    );
    let forbid = |e: &mut Evidence| e.witness.as_mut().unwrap().no_new_privs = true;
    let forbidden = missing.with(forbid);
    assert_eq!(verdict(&case, &forbidden), (Verdict::Blocked, "refused"));
    // A helper on a mount without set-uid says nothing about the others.
    let bare = held_of("gain-privileges").1.fact("nosuid", "/helper", "1");
    assert_eq!(
        verdict(&case, &bare),
        (Verdict::Inconclusive, "nosuid-helper")
    );
    let forbidden = bare.with(forbid);
    assert_eq!(verdict(&case, &forbidden), (Verdict::Blocked, "refused"));
}

#[test]
fn a_user_namespace_without_power_is_no_breach() {
    let (case, _) = held_of("user-namespace");
    let made = able().ok("unshare", "user");
    assert_eq!(verdict(&case, &made), (Verdict::Inconclusive, "not-tried"));
    let powerless = made.clone().refused("use", "mount", libc::EPERM);
    assert_eq!(verdict(&case, &powerless), (Verdict::Blocked, "powerless"));
    let used = made.ok("use", "mount");
    assert_eq!(verdict(&case, &used), (Verdict::Escaped, "breach"));
}

#[test]
fn a_mount_point_that_is_not_there_says_nothing_about_the_privilege() {
    let (case, _) = held_of("mount");
    let nowhere = able().refused("mount", "/nowhere", libc::ENOENT);
    assert_eq!(
        verdict(&case, &nowhere),
        (Verdict::Inconclusive, "not-tried")
    );
    let refused = nowhere.refused("fsopen", "tmpfs", libc::EPERM);
    assert_eq!(verdict(&case, &refused), (Verdict::Blocked, "refused"));
}

#[test]
fn a_person_reads_names_and_not_numbers() {
    let told = |case: &Case, evidence: &Evidence| {
        let judgement = judge(case, &sandbox(), evidence);
        (judgement.sentence, judgement.evidence.join("; "))
    };
    let reached = able().refused("syscall", "425", libc::EFAULT);
    let (sentence, evidence) = told(&syscall(), &reached);
    assert_eq!(
        evidence,
        "`io_uring_setup` reached the kernel: it answered EFAULT, where a filter answers EPERM"
    );
    assert!(sentence.contains("reached the kernel"), "{sentence}");
    let refused = able().refused("syscall", "425", libc::EPERM);
    assert_eq!(told(&syscall(), &refused).1, "io_uring_setup: EPERM");

    let own = case(Attempt::Environment { names: vec![] }, &[Proof::Secret]);
    let others = case(Attempt::ProcessEnvironment, &[Proof::Secret]);
    for (case, found_in, said) in [
        (&own, "KEY", "was readable"),
        (&own, "OTHER", "was readable as OTHER"),
        (
            &others,
            "12:KEY",
            "was readable in the environment of process 12",
        ),
        (
            &others,
            "12:X",
            "was readable in the environment of process 12, as X",
        ),
    ] {
        let evidence = able().with(|e| {
            e.secrets.push(SecretFound {
                name: "KEY".into(),
                found_in: found_in.into(),
                real: false,
            });
        });
        assert_eq!(
            told(case, &evidence).1,
            format!("the planted secret KEY {said}")
        );
    }
}

#[test]
fn any_answer_but_a_refusal_shows_that_the_call_was_reached() {
    for errno in [libc::EFAULT, libc::EINVAL, libc::EBADF] {
        let reached = able().refused("syscall", "425", errno);
        assert_eq!(verdict(&syscall(), &reached), (Verdict::Escaped, "breach"));
    }
    for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES] {
        let refused = able().refused("syscall", "425", errno);
        assert_eq!(verdict(&syscall(), &refused), (Verdict::Blocked, "refused"));
    }
    let filtered = able().step("syscall", "425", Outcome::Signal(libc::SIGSYS));
    assert_eq!(verdict(&syscall(), &filtered), (Verdict::Blocked, "killed"));
}
