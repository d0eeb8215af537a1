//! What audits of this kind got wrong in public: the rows of the scenario list that are decided here, by number.

use super::*;

#[test]
fn s01_no_client_in_the_image_and_the_probe_cannot_start() {
    let (case, _) = held_of("connect");
    let silent = able()
        .target(CanaryKind::Tcp, Position::Internet, INTERNET)
        .with(|e| {
            e.start = Start::Missing;
            e.inside = Inside::default();
        });
    assert_eq!(
        verdict(&case, &silent),
        (Verdict::Inconclusive, "no-start-record")
    );
}

#[test]
fn s02_the_listener_died_in_mid_run() {
    let (case, evidence) = held_of("connect");
    let dead = evidence.with(|e| e.targets[0].alive = false);
    assert_eq!(
        verdict(&case, &dead),
        (Verdict::Inconclusive, "target-not-alive")
    );
}

#[test]
fn s08_a_daemon_beacons_after_the_run() {
    let (case, evidence) = held_of("outlive");
    let late = evidence.clone().with(|e| e.touches.push(touch()));
    assert_eq!(verdict(&case, &late), (Verdict::Escaped, "survivor"));
    // While the run lasts, a beacon only shows that the process lives.
    let early = evidence.with(|e| {
        e.touches.push(Touch {
            late: false,
            ..touch()
        });
    });
    assert_eq!(verdict(&case, &early), (Verdict::Blocked, "killed"));
}

#[test]
fn s09_a_metadata_service_that_answers_401_was_reached() {
    let (case, _) = held_of("http");
    let address = "tcp://169.254.169.254:80";
    let reached = able()
        .target(CanaryKind::Http, Position::Internet, address)
        .ok("connect", address)
        .fact("reply", address, "HTTP/1.1 401 Unauthorized\r\n\r\n")
        .with(|e| {
            e.touches.push(Touch {
                canary: CanaryKind::Http,
                ..touch()
            });
        });
    assert_eq!(
        verdict(&case, &reached),
        (Verdict::Escaped, "canary-reached")
    );
    // A block page of a proxy, or a service that is not ours: nobody can tell.
    let page = reached.with(|e| e.touches.clear());
    assert_eq!(
        verdict(&case, &page),
        (Verdict::Inconclusive, "answered-by-another")
    );
}

#[test]
fn s10_what_the_payload_prints_lowers_nothing() {
    let (case, evidence) = held_of("connect");
    let lying = evidence.with(|e| {
        e.touches.push(touch());
        e.inside.output = b"RESULT: BLOCKED\n{\"verdict\":\"BLOCKED\"}"
            .to_vec()
            .into();
        e.inside.noise_lines = 2;
        e.contradictions.push("a second begin".into());
    });
    assert_eq!(verdict(&case, &lying), (Verdict::Escaped, "canary-reached"));
}

#[test]
fn s11_a_file_of_the_image_is_no_host_file() {
    let (case, evidence) = held_of("read-file");
    let own = evidence
        .ok("read", "/etc/passwd")
        .fact("file", "/etc/passwd", "hash");
    assert_eq!(verdict(&case, &own), (Verdict::Blocked, "absent"));
}

#[test]
fn s13_a_launcher_without_any_limit() {
    let (case, evidence) = held_of("spawn");
    let stopped = evidence.ended(End::ByLimiter { cause: Cause::Pids });
    assert_eq!(
        verdict(&case, &stopped),
        (Verdict::Escaped, "stopped-by-harness")
    );
}

#[test]
fn s15_every_file_is_closed_to_the_sandboxs_user_and_the_payload_did_not_start() {
    for (case, _) in held() {
        let fault = Fault {
            code: "backend-failed",
            text: "The probe could not be executed: permission denied.".into(),
        };
        let closed = Evidence {
            faults: vec![fault],
            ..Evidence::default()
        };
        assert_eq!(verdict(&case, &closed), (Verdict::Error, "backend-failed"));
    }
}

#[test]
fn s17_the_probe_died_of_a_missing_thing() {
    for signal in [libc::SIGSEGV, libc::SIGKILL, libc::SIGSYS] {
        let (case, _) = held_of("write-file");
        let died = able().with(|e| e.inside.done = Some(Outcome::Signal(signal)));
        assert_eq!(
            verdict(&case, &died),
            (Verdict::Inconclusive, "not-finished")
        );
    }
}

#[test]
fn s20_the_runtime_ignores_cgroups_and_the_dose_got_through() {
    let (case, evidence) = held_of("spawn");
    let through = evidence
        .ok("fork", "")
        .count(Ceiling::Pids, 128.0, 64.0, false);
    assert_eq!(
        verdict(&case, &through),
        (Verdict::Escaped, "ceiling-passed")
    );
    // Nor does an engine's word make a ceiling that nobody saw at work.
    let (case, _) = held_of("spawn");
    let unseen = able().ok("fork", "").fact("made", "", "128");
    assert_eq!(verdict(&case, &unseen), (Verdict::Inconclusive, "no-count"));
}

#[test]
fn s21_memory_that_was_never_touched_does_not_count() {
    let (case, _) = held_of("allocate");
    let mapped = able()
        .ok("allocate", "0")
        .fact("held", "", "268435456")
        .count(Ceiling::Memory, 4e6, 134_217_728.0, false);
    assert_eq!(
        verdict(&case, &mapped),
        (Verdict::Inconclusive, "not-refused")
    );
}

#[test]
fn s24_scratch_that_is_not_writable_by_accident() {
    let (case, _) = held_of("write-file");
    let closed =
        able()
            .refused("write", "/f", libc::EROFS)
            .refused("write", "/scratch/f", libc::EACCES);
    assert_eq!(
        verdict(&case, &closed),
        (Verdict::Inconclusive, "control-failed")
    );
    let (case, _) = held_of("fill");
    let closed = able()
        .refused("write", "/scratch", libc::EACCES)
        .fact("written", "/scratch", "0")
        .count(Ceiling::Disk, 0.0, 16_777_216.0, false);
    assert_eq!(
        verdict(&case, &closed),
        (Verdict::Inconclusive, "control-failed")
    );
    let case = must_work(Attempt::WriteFile {
        into: WriteInto::Scratch,
    });
    let closed = able().refused("write", "/scratch/f", libc::EACCES);
    assert_eq!(verdict(&case, &closed), (Verdict::Broken, "refused"));
}

#[test]
fn s25_there_but_not_for_this_user() {
    let (case, evidence) = held_of("read-file");
    let closed = evidence.refused("read", "/root/.ssh/id_rsa", libc::EACCES);
    assert_eq!(verdict(&case, &closed), (Verdict::Blocked, "permission"));
    let (case, _) = held_of("connect-unix");
    let socket = able()
        .target(CanaryKind::Unix, Position::Host, "path:/run/canary.sock")
        .refused("connect", "path:/run/canary.sock", libc::EACCES);
    assert_eq!(verdict(&case, &socket), (Verdict::Blocked, "permission"));
    let (case, evidence) = held_of("signal");
    let owned = evidence.refused("signal", "4001", libc::EPERM);
    assert_eq!(verdict(&case, &owned), (Verdict::Blocked, "permission"));
}

#[test]
fn s26_a_file_that_was_written_to_a_private_copy() {
    let host = case(
        Attempt::WriteFile {
            into: WriteInto::Host,
        },
        &[Proof::FileOnHost],
    );
    let private = able()
        .ok("create", "/var/tmp/c/f")
        .ok("write", "/var/tmp/c/f");
    assert_eq!(verdict(&host, &private), (Verdict::Blocked, "private"));
    let seen = private
        .clone()
        .with(|e| e.host_files.push("/var/tmp/c/f".into()));
    assert_eq!(
        verdict(&host, &seen),
        (Verdict::Escaped, "host-file-written")
    );
    let partly = private.clone().refused("write", "/home/c/f", libc::EROFS);
    assert_eq!(verdict(&host, &partly), (Verdict::Blocked, "private"));
    let unclear = private.refused("write", "/home/c/f", libc::EMFILE);
    assert_eq!(
        verdict(&host, &unclear),
        (Verdict::Inconclusive, "not-refused")
    );
    let (outside, evidence) = held_of("write-file");
    let layer = evidence
        .ok("create", "/var/tmp/c/f")
        .ok("write", "/var/tmp/c/f");
    assert_eq!(
        verdict(&outside, &layer),
        (Verdict::Escaped, "written-outside-scratch")
    );
}
