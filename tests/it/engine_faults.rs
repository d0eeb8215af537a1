//! An engine that hangs, hangs up, speaks nonsense or restarts, in every phase: an error with its reason within the
//! phase's deadline, a report, exit code 3, nothing left, and never a verdict that something held.

use std::time::Duration;

use escape_audit::backend::docker::{call::Phase, owner};

use crate::fake_engine::{FakeEngine, Fault, IMAGE, Rule, WILD};
use crate::support::{Audit, Seen, have, text};

const CASES: [&str; 2] = ["works/run", "credentials/environment-dump"];

/// Starts an audit through this engine.
pub fn audit(engine: &FakeEngine, more: &[&str]) -> Audit {
    let config = engine.socket.with_file_name("escape-audit.toml");
    // What a process of this machine has: the containers are no more than that.
    let project = format!(
        "[sandbox.agent]\nbackend = \"docker\"\ndocker_host = \"unix://{}\"\nimage_id = \"{IMAGE}\"\nnetwork_mode = \"none\"\n\
         user = \"0:0\"\ncap_add = [\"ALL\"]\nsecurity_opt = [\"seccomp=unconfined\"]\npid = \"host\"\nipc = \"host\"\n",
        engine.socket.display()
    );
    std::fs::write(&config, project).unwrap();
    let mut arguments = vec!["--config", config.to_str().unwrap()];
    arguments.extend(CASES.iter().flat_map(|case| ["--case", case]));
    arguments.extend(more);
    Audit::run(&arguments)
}

/// Cleans up on this engine, which is well again.
pub fn clean(engine: &FakeEngine) -> Seen {
    engine.heal();
    let host = format!("unix://{}", engine.socket.display());
    let seen = Audit::start_in("clean", &[], |command| {
        command.env("DOCKER_HOST", host);
    })
    .finish();
    assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
    seen
}

/// The control of all that follows: without a fault, everything holds.
#[test]
fn an_engine_without_a_fault_is_audited() {
    if !have(&["root"]) {
        return;
    }
    let engine = FakeEngine::start(None);
    let seen = audit(&engine, &[]).finish();
    let held = [
        ("works/run", "ALLOWED", "worked"),
        ("credentials/environment-dump", "BLOCKED", "absent"),
    ];
    seen.expect(0, &held);
    assert_eq!(engine.containers(), Vec::<String>::new());
}

/// What an engine calls the things that it holds is printed by `clean`, and commands nobody's terminal.
#[test]
fn the_names_that_an_engine_tells_are_not_for_a_terminal() {
    let engine = FakeEngine::start(None);
    let mut owner: Vec<String> = owner::own().split(':').map(str::to_owned).collect();
    owner[1] = "1".to_owned(); // a process of this number that started at another time: dead
    engine.plant(WILD, &owner.join(":"));
    let seen = clean(&engine);
    assert!(seen.out.contains("owned"), "{}", seen.out);
    for page in [&*seen.out, &*seen.err] {
        unarmed(page);
    }
    assert_eq!(engine.containers(), Vec::<String>::new());
}

/// A phase, the requests that belong to it, and how many of them are answered before: the first container is not a
/// trial's.
type Place = (Phase, &'static [&'static str], usize);

const PLACES: [Place; 12] = [
    (Phase::Connect, &["GET /version"], 0),
    (Phase::Identify, &["GET /info"], 0),
    (Phase::List, &["GET /containers/json"], 0),
    (Phase::InspectImage, &["GET /images/"], 0),
    (Phase::Create, &["-sight&"], 0),
    (Phase::Download, &["/archive"], 0),
    (Phase::Create, &["POST /containers/create"], 1),
    (Phase::Attach, &["/attach"], 0),
    (Phase::Start, &["/start"], 0),
    (Phase::Inspect, &["GET /containers/escape-audit"], 1),
    (Phase::Wait, &["/wait"], 0),
    (Phase::Remove, &["DELETE "], 1),
];

/// What an audit may take beside the phase's own deadline, on a busy machine and beside two dozen others: the 20 s for a
/// first record, and the removal of what was made.
const BESIDE: Duration = Duration::from_secs(75);

/// These faults in these phases, all at once. Each has to come out as an error with one of the codes.
fn all_come_out(rows: &[(Fault, &[Phase])], codes: &[&str]) {
    if !have(&["root"]) {
        return;
    }
    let places = rows.iter().flat_map(|(fault, phases)| {
        let places = PLACES.iter().filter(|(phase, ..)| phases.contains(phase));
        places.map(move |place| (*fault, *place))
    });
    let all: Vec<_> = places
        .map(|(fault, (phase, words, after))| {
            let engine = FakeEngine::start(Some(Rule {
                words,
                after,
                fault,
            }));
            let audit = audit(&engine, &[]);
            (format!("{fault:?} at {words:?}"), phase, engine, audit)
        })
        .collect();
    let mut wrong = Vec::new();
    for (place, phase, engine, audit) in all {
        let seen = audit.finish();
        let wait = match phase {
            // Waiting is bounded by the trial, and then by how long the engine may take to end what it runs.
            Phase::Wait => Phase::Kill.deadline(),
            phase => phase.deadline(),
        };
        let took = Duration::from_secs_f64(seen.report["elapsed"].as_f64().unwrap());
        let verdicts = seen.verdicts();
        let fails = |(verdict, code): &(&str, &str)| *verdict == "ERROR" && codes.contains(code);
        // Where the wait broke off, the engine is asked how the container is: if it has ended, nothing was lost.
        let holds = |(verdict, _): &(&str, &str)| {
            phase == Phase::Wait && matches!(*verdict, "BLOCKED" | "ALLOWED")
        };
        let well = verdicts
            .values()
            .all(|came_out| fails(came_out) || holds(came_out));
        let status = if verdicts.values().any(fails) { 3 } else { 0 };
        if !well
            || verdicts.len() != CASES.len()
            || seen.status != status
            || took > wait + BESIDE
            || !engine.has_failed()
        {
            wrong.push(format!(
                "{place}: exit {} after {took:?}, {verdicts:?}",
                seen.status
            ));
        }
        safe(&seen);
        clean(&engine);
        assert_eq!(engine.containers(), Vec::<String>::new(), "{place}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const ALL: [Phase; 11] = [
    Phase::Connect,
    Phase::Identify,
    Phase::List,
    Phase::InspectImage,
    Phase::Create,
    Phase::Download,
    Phase::Attach,
    Phase::Start,
    Phase::Inspect,
    Phase::Wait,
    Phase::Remove,
];

/// Nothing of what an engine says commands a terminal, a CI system or a reader of XML.
#[track_caller]
fn safe(seen: &Seen) {
    let junit = seen.junit.as_deref().unwrap();
    quick_junit::Report::deserialize_from_str(junit).unwrap();
    for page in [&*seen.out, &*seen.err, junit] {
        unarmed(page);
    }
    for trial in seen.trials() {
        assert!(!text(&trial["sentence"]).is_empty());
    }
}

#[track_caller]
fn unarmed(page: &str) {
    let wild = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{202e}');
    assert!(!page.contains(wild), "{:?} in {page}", page.find(wild));
    for words in ["##vso[", "\n::error"] {
        assert!(!page.contains(words), "{words} in {page}");
    }
}

const HTML: Fault = Fault::Says(b"<html><body>\x1b[31m502 Bad Gateway</body></html>");
const BYTES: Fault = Fault::Raw(b"\x00\xff\x1b[2J\x16\x03\x01\r\n\r\n");

/// Whoever waits for ever: for an answer, for its end, or for what was said to be done.
#[test]
fn it_keeps_an_audit_waiting() {
    use Phase::*;
    let rows: [(Fault, &[Phase]); 7] = [
        (Fault::Hang, &ALL),
        (Fault::DoesAndHangs, &[Create, Start, Remove]),
        (Fault::TooShort, &[Connect, Download, Inspect]),
        (Fault::Endless(16), &[Connect, Inspect, Wait]),
        // It says that it is done, and nothing was.
        (HTML, &[Start, Remove]),
        (Fault::Deep, &[Start]),
        (Fault::HangUp, &[Start, Remove]),
    ];
    all_come_out(&rows, &["engine-timeout", "left-behind"]);
}

#[test]
fn it_speaks_nonsense_or_not_at_all() {
    use Phase::*;
    let asked = [
        Connect,
        Identify,
        List,
        InspectImage,
        Create,
        Attach,
        Inspect,
        Wait,
    ];
    let rows: [(Fault, &[Phase]); 6] = [
        (Fault::HangUp, &asked),
        (HTML, &asked),
        (BYTES, &ALL),
        (
            Fault::HugeHeader,
            &[Connect, InspectImage, Create, Start, Wait, Remove],
        ),
        (Fault::Deep, &asked),
        (Fault::Refuses, &ALL),
    ];
    // A probe that cannot be read back is brought in a volume, which this engine does not have.
    let codes = [
        "engine-gone",
        "engine-failed",
        "left-behind",
        "container-gone",
    ];
    for row in rows {
        all_come_out(&[row], &codes);
    }
}

#[test]
fn it_is_restarted_and_its_containers_with_it() {
    let codes = [
        "engine-gone",
        "engine-missing",
        "engine-refused",
        "container-gone",
    ];
    all_come_out(&[(Fault::Restarts(300), &ALL)], &codes);
}
