//! Cases of what must work.

use super::*;

fn scratch() -> Case {
    must_work(Attempt::WriteFile {
        into: WriteInto::Scratch,
    })
}

#[test]
fn what_works_is_allowed_and_needs_no_able() {
    let ran = able().ok("run", "").with(|e| e.able = Able::NotTried);
    let judged = judgement(&must_work(Attempt::Run), &ran);
    assert_eq!(
        (judged.verdict, judged.reason),
        (Verdict::Allowed, "worked")
    );
    assert!(!judged.inside_only);
    let blind = judgement(&must_work(Attempt::Run), &ran.with(|e| e.witness = None));
    assert!(blind.verdict == Verdict::Allowed && blind.inside_only);
}

#[test]
fn what_was_refused_is_broken() {
    let refused = able()
        .ok("create", "/scratch/f")
        .refused("write", "/scratch/f", libc::ENOSPC);
    assert_eq!(verdict(&scratch(), &refused), (Verdict::Broken, "refused"));
    let half = must_work(Attempt::Allocate {
        dose: MemoryDose::Half,
    });
    let killed = able().no_done().ended(End::BySandbox {
        cause: Cause::Memory,
        after_ms: 20,
    });
    assert_eq!(verdict(&half, &killed), (Verdict::Broken, "refused"));
    let killed = able().step("allocate", "0", Outcome::Signal(libc::SIGKILL));
    assert_eq!(verdict(&half, &killed), (Verdict::Broken, "refused"));
}

#[test]
fn nobody_promised_shared_memory() {
    let written = able()
        .ok("create", "/scratch/f")
        .ok("write", "/scratch/f")
        .refused("write", "/dev/shm/f", libc::ENOENT);
    assert_eq!(verdict(&scratch(), &written), (Verdict::Allowed, "worked"));
    let elsewhere = able().ok("write", "/dev/shm/f");
    assert_eq!(verdict(&scratch(), &elsewhere).0, Verdict::Inconclusive);
}

#[test]
fn what_is_not_known_is_neither_broken_nor_allowed() {
    let run = must_work(Attempt::Run);
    assert_eq!(
        verdict(&run, &Evidence::default()),
        (Verdict::Inconclusive, "no-start-record")
    );
    let lost = able().ok("run", "").no_done();
    assert_eq!(
        verdict(&run, &lost),
        (Verdict::Inconclusive, "not-finished")
    );
    assert_eq!(
        verdict(&run, &able()),
        (Verdict::Inconclusive, "not-finished")
    );
    let slow = able().step("run", "", Outcome::Timeout);
    assert_eq!(
        verdict(&run, &slow),
        (Verdict::Inconclusive, "not-finished")
    );
    let failed = able().ok("run", "").with(|e| {
        e.faults.push(Fault {
            code: "backend-failed",
            text: "x".into(),
        });
    });
    assert_eq!(verdict(&run, &failed), (Verdict::Error, "backend-failed"));
}

#[test]
fn what_is_left_behind_is_an_escape_here_too() {
    let run = must_work(Attempt::Run);
    let left = able()
        .ok("run", "")
        .with(|e| e.survivors.push("pid 7".into()));
    assert_eq!(verdict(&run, &left), (Verdict::Escaped, "survivor"));
}

#[test]
fn a_canary_that_must_be_reached_may_be_reached() {
    let case = must_work(Attempt::Connect {
        transport: Transport::Tcp,
        positions: vec![Position::Internet],
    });
    let reached = able()
        .ok("connect", INTERNET)
        .with(|e| e.touches.push(touch()));
    assert_eq!(verdict(&case, &reached), (Verdict::Allowed, "worked"));
}
