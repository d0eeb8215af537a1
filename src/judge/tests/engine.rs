//! The sockets of container engines: usable is root on the host, visible is nothing, and what is neither is undecided.

use super::*;

const SOCKET: &str = "/run/docker.sock";

/// The held example, in which this socket gives something else.
fn at(outcome: Outcome) -> (Case, Evidence) {
    let (case, evidence) = held_of("engine-socket");
    let evidence = evidence.with(|e| {
        let step = e.inside.steps.iter_mut().find(|step| step.target == SOCKET);
        step.unwrap().outcome = outcome;
    });
    (case, evidence)
}

/// An engine of this kind answered there, whose process has this number.
fn answered(kind: &str, peer: &str) -> (Case, Evidence) {
    let (case, evidence) = at(Outcome::Ok);
    let evidence = evidence
        .fact("peer", SOCKET, peer)
        .ok("ask", SOCKET)
        .fact("reply", SOCKET, "120 bytes, hash")
        .fact("engine", SOCKET, kind);
    (case, evidence)
}

#[test]
fn an_engine_that_answers_is_the_breach_on_any_kernel() {
    for (kind, said) in [
        ("docker", "a Docker engine answered at /run/docker.sock"),
        ("libpod", "a Podman engine answered at /run/docker.sock"),
        ("api", "a container engine answered at /run/docker.sock"),
        (
            "http2",
            "an engine that speaks gRPC (containerd, CRI-O, BuildKit) answered at /run/docker.sock",
        ),
    ] {
        let (case, evidence) = answered(kind, "0");
        let judged = judgement(&case, &evidence);
        assert_eq!(
            (judged.verdict, judged.reason),
            (Verdict::Escaped, "engine-answers")
        );
        assert_eq!(
            judged.evidence,
            [format!(
                "{said}, and its process is outside the sandbox's process namespace"
            )]
        );
        // It is the host's engine, whatever kernel asks it.
        let own = evidence
            .clone()
            .with(|e| e.own_kernel = Some("gVisor".into()));
        assert_eq!(verdict(&case, &own), (Verdict::Escaped, "engine-answers"));
        // Nobody saw it from outside: it counts all the same, and says what it rests on.
        let blind = judgement(&case, &evidence.with(|e| e.witness = None));
        assert_eq!((blind.verdict, blind.inside_only), (Verdict::Escaped, true));
    }
}

#[test]
fn the_canary_engine_speaks_for_itself() {
    let (case, evidence) = held_of("engine-socket");
    let reached = evidence.fact("engine", "/c/docker.sock", "api").with(|e| {
        e.touches.push(Touch {
            canary: CanaryKind::Engine,
            address: "path:/c/docker.sock".into(),
            late: false,
            ..touch()
        });
    });
    let judged = judgement(&case, &reached);
    assert_eq!(
        (judged.verdict, judged.reason),
        (Verdict::Escaped, "canary-reached")
    );
    let line = "the engine canary at path:/c/docker.sock saw this trial's token after 12 ms";
    assert_eq!(judged.evidence, [line]);
}

#[test]
fn an_engine_of_the_sandboxs_own_is_not_the_hosts_and_may_hand_on_to_it() {
    let (case, evidence) = answered("docker", "7");
    assert_eq!(
        verdict(&case, &evidence),
        (Verdict::Inconclusive, "answered-by-another")
    );
    // In a process namespace that is the host's, any number is a process of the host.
    let shared = evidence.with(|e| {
        e.witness
            .as_mut()
            .unwrap()
            .own_namespaces
            .retain(|name| name != "pid");
    });
    assert_eq!(
        verdict(&case, &shared),
        (Verdict::Escaped, "engine-answers")
    );
}

#[test]
fn what_is_not_usable_is_held_and_the_errno_says_why() {
    for (errno, reason) in [
        (libc::ENOENT, "absent"),
        (libc::ENOTDIR, "absent"),
        // A file, or a socket that nobody listens at.
        (libc::ECONNREFUSED, "absent"),
        (libc::EACCES, "permission"),
        (libc::EPERM, "permission"),
        (libc::ENOSYS, "refused"),
        (libc::EAFNOSUPPORT, "family-absent"),
    ] {
        let (case, evidence) = at(Outcome::Errno(errno));
        let judged = judgement(&case, &evidence);
        assert_eq!((judged.verdict, judged.reason), (Verdict::Blocked, reason));
    }
    for outcome in [
        Outcome::Timeout,
        Outcome::Errno(libc::EMFILE),
        Outcome::Errno(libc::EPROTOTYPE),
    ] {
        let (case, evidence) = at(outcome);
        assert_eq!(
            verdict(&case, &evidence),
            (Verdict::Inconclusive, "not-refused")
        );
    }
}

#[test]
fn a_refusal_at_a_path_where_nothing_is_says_nothing_of_sockets() {
    let (case, _) = held_of("engine-socket");
    let everywhere = |errno| {
        able()
            .target(CanaryKind::Engine, Position::Host, "path:/c/docker.sock")
            .refused("control", "socketpair", errno)
            .refused("nowhere", "/nowhere", errno)
            .refused("connect", "/c/docker.sock", errno)
            .refused("connect", SOCKET, errno)
    };
    for (errno, reason) in [
        (libc::EPERM, "refused"),
        (libc::EACCES, "refused"),
        (libc::EAFNOSUPPORT, "family-absent"),
    ] {
        assert_eq!(
            verdict(&case, &everywhere(errno)),
            (Verdict::Blocked, reason)
        );
    }
    let broken = (Verdict::Inconclusive, "control-failed");
    assert_eq!(verdict(&case, &everywhere(libc::EMFILE)), broken);
    let (case, evidence) = held_of("engine-socket");
    let blind = evidence.with(|e| e.inside.steps.retain(|step| step.what != "nowhere"));
    assert_eq!(verdict(&case, &blind), broken);
}

#[test]
fn a_connection_that_no_engine_owns_up_to_is_undecided() {
    let (case, evidence) = at(Outcome::Ok);
    let silent = evidence
        .fact("peer", SOCKET, "0")
        .step("ask", SOCKET, Outcome::Timeout);
    let unseen = (Verdict::Inconclusive, "connected-unseen");
    assert_eq!(verdict(&case, &silent), unseen);
    let stranger = silent.fact("reply", SOCKET, "80 bytes, hash");
    let another = (Verdict::Inconclusive, "answered-by-another");
    assert_eq!(verdict(&case, &stranger), another);
}

#[test]
fn every_path_of_the_case_and_every_canary_must_be_tried() {
    let (_, evidence) = held_of("engine-socket");
    let untried = (Verdict::Inconclusive, "not-tried");
    let named = case(
        Attempt::EngineSocket {
            paths: vec!["/run/other.sock".into()],
        },
        &[Proof::Canary(CanaryKind::Engine)],
    );
    assert_eq!(verdict(&named, &evidence), untried);
    let other = evidence
        .clone()
        .refused("connect", "/run/other.sock", libc::ENOENT);
    assert_eq!(verdict(&named, &other), (Verdict::Blocked, "absent"));
    let (case, _) = held_of("engine-socket");
    let short = evidence.with(|e| {
        e.inside
            .steps
            .retain(|step| step.target != "/c/docker.sock")
    });
    assert_eq!(verdict(&case, &short), untried);
}

#[test]
fn a_filter_that_kills_at_the_first_socket_is_a_refusal_of_engines_too() {
    let (case, evidence) = held_of("engine-socket");
    let killed = evidence.with(|e| {
        e.inside.steps.clear();
        e.inside.done = Some(Outcome::Signal(libc::SIGSYS));
    });
    assert_eq!(verdict(&case, &killed), (Verdict::Blocked, "killed"));
}

#[test]
fn what_names_the_reason_is_shown_first() {
    let (case, evidence) = held_of("engine-socket");
    let many = (0..20).fold(evidence, |evidence, n| {
        evidence.refused("connect", &format!("/run/{n}.sock"), libc::ENOENT)
    });
    let judged = judgement(
        &case,
        &many.refused("connect", "/run/last.sock", libc::EACCES),
    );
    assert_eq!(judged.reason, "permission");
    assert_eq!(judged.evidence[1], "connect /run/last.sock: EACCES");
}
