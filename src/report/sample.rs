//! A report that holds every verdict, for tests.

use std::time::Duration;

use escape_audit_probe::wire::Outcome;

use crate::case::{
    Attempt, CanaryKind, Case, Ceiling, Danger, Expect, Level, Position, Proof, Severity, Status,
    Weakened,
};
use crate::config::{BackendKind, Policy, RangeMode, Sandbox, Settings};
use crate::evidence::{
    Able, Cause, Count, End, Evidence, Fact, Fault, SecretFound, Start, Step, Target, Touch,
    Witness,
};
use crate::protection::Protection;
use crate::verdict::{Judgement, Verdict};

use super::decided::{Decided, Remark, Waived, Weight};
use super::{Report, SandboxReport, Summary, Tool, Trial};

/// The sample report with an escape that is waived, one that is below `--fail-on`, one that needed a second try, and what
/// the gate says of a waiver that ended.
pub(crate) fn waived() -> Report {
    let mut report = report();
    report.trials[6].waived = Some(Waived {
        until: "2027-02-28".parse().expect("a day"),
        reason: "a hardened kernel lands in February".into(),
        ticket: Some("SEC-7".into()),
    });
    report.trials[6].attempts = 2;
    report.trials[9].tolerated = true;
    report.gate.fail_on = Severity::Critical;
    report.gate.remarks = vec![Remark {
        weight: Weight::Fails,
        code: "waiver-expired",
        sandbox: Some("oci".into()),
        case: Some("network/tcp".into()),
        sentence: "The waiver for `network/tcp` in `oci` ended on 2026-11-28.".into(),
    }];
    report
}

/// What a payload prints to get out of a report.
pub(crate) fn hostile() -> Vec<u8> {
    let mut bytes =
        b"]]></system-out></testcase><testcase name=\"ok\"/>\n::error::x\n  ::stop-commands::y\n\
          ##[error]x ##vso[task.complete result=Succeeded] ##teamcity[x]\n[[ATTACHMENT|/etc/passwd]]\n\
          \x1b[2J\x1b[31mred\x1b[0m <script>alert(1)</script> <img src=x onerror=document.body.dataset.owned=1>\n\
          <script>document.body.dataset.owned=1</script> <svg onload=document.body.dataset.owned=1> \"onload=alert(1) ' \n\
          | a | b |\n`` ` ](javascript:alert(1)) [x](javascript:alert(1)) **b** # h\n---\n  ...\n\
          \xef\xbf\xbe \xe2\x80\xae\n"
            .to_vec();
    bytes.extend(0x00..=0xffu8);
    bytes
}

/// As text: what is no UTF-8 stands as U+FFFD.
pub(crate) fn hostile_text() -> String {
    String::from_utf8_lossy(&hostile()).into_owned()
}

/// The report of a stranger: hostile text for the names of sandbox, case, category, file and technique, in the title,
/// why and fix, in settings, notes and evidence, and longer output than is kept. One trial of each verdict.
pub(crate) fn hostile_report() -> Report {
    let text = hostile_text();
    let mut report = empty();
    let mut sandbox = sandbox(&text);
    sandbox.sandbox.backend = BackendKind::Command;
    sandbox.sandbox.command = vec![text.clone()];
    sandbox.digest = Some(text.clone());
    sandbox.in_force = vec![(text.clone(), text.clone())];
    sandbox.notes = vec![text.clone()];
    sandbox.repeat = vec!["--sandbox".into(), text.clone()];
    let mut lost = sandbox.clone();
    lost.sandbox.name = format!("lost {text}");
    lost.failed = Some(text.clone());
    report.sandboxes = vec![sandbox, lost];
    for verdict in Verdict::ALL {
        let mut trial = trial(&text, &format!("{text}/{verdict:?} {text}"), verdict);
        trial.judgement.sentence.clone_from(&text);
        trial.judgement.evidence = vec![text.clone(); 3];
        let case = &mut trial.source;
        for place in [&mut case.title, &mut case.why, &mut case.fix] {
            place.clone_from(&text);
        }
        case.techniques = vec![text.clone()];
        case.references = vec![text.clone(), "javascript:alert(1)".into()];
        case.source = format!("{text}.toml").into();
        trial.observed.inside.output = hostile().repeat(250).into();
        trial.observed.inside.error = hostile().into();
        report.trials.push(trial);
    }
    report.summary = Summary::of(&report.trials);
    report.incomplete = Some(text);
    report.exit_code = 130;
    report.gate = Decided::without_gate(130);
    report
}

/// Nothing was audited.
pub(crate) fn empty() -> Report {
    Report {
        schema: 1,
        tool: Tool {
            name: "escape-audit",
            version: "0.0.0",
            library: "5".repeat(64),
            cases: 57,
        },
        started: "2026-11-29T13:40:12Z".into(),
        elapsed: Duration::from_millis(4210),
        incomplete: None,
        selection: Vec::new(),
        sandboxes: Vec::new(),
        trials: Vec::new(),
        summary: Summary::default(),
        gate: Decided::without_gate(4),
        exit_code: 4,
    }
}

/// A sandbox as it is configured by default.
pub(crate) fn sandbox(name: &str) -> SandboxReport {
    SandboxReport {
        sandbox: Sandbox {
            name: name.into(),
            backend: BackendKind::Oci,
            settings: Settings::default(),
            policy: Policy::default(),
            without: [].into(),
            command: Vec::new(),
            range: RangeMode::Own,
            notes: Vec::new(),
        },
        digest: Some("sha256:".to_owned() + &"a".repeat(64)),
        in_force: vec![
            ("memory".into(), "128 MiB".into()),
            ("pids".into(), "64".into()),
            ("cpus".into(), "0.5".into()),
        ],
        notes: Vec::new(),
        failed: None,
        repeat: vec!["--sandbox".into(), name.into()],
    }
}

/// A case in a sandbox that came to `verdict`.
pub(crate) fn trial(sandbox: &str, id: &str, verdict: Verdict) -> Trial {
    let (reason, sentence) = match verdict {
        Verdict::Allowed => ("worked", "It worked."),
        Verdict::Blocked => ("no-route", "There is no way out but loopback."),
        Verdict::Skipped => ("not-applicable", "This machine has no swap."),
        Verdict::Inconclusive => ("target-not-alive", "The canary did not answer the host."),
        Verdict::Error => (
            "limit-not-applied",
            "The ceiling on processes is not in force.",
        ),
        Verdict::Broken => ("refused", "Scratch cannot be written."),
        Verdict::Escaped => (
            "canary",
            "The canary at 10.0.0.1:80 saw this trial's token.",
        ),
    };
    Trial {
        case: id.into(),
        sandbox: sandbox.into(),
        judgement: Judgement {
            verdict,
            reason,
            sentence: sentence.into(),
            evidence: vec!["tcp 10.0.0.1:80 saw the token after 3 ms".into()],
            inside_only: false,
        },
        gates: true,
        waived: None,
        tolerated: false,
        attempts: u32::from(verdict != Verdict::Skipped),
        duration: Duration::from_micros(12_345),
        observed: Evidence::default(),
        source: case(id),
    }
}

fn case(id: &str) -> Case {
    Case {
        id: id.into(),
        title: "Open a TCP connection to a host outside the sandbox".into(),
        severity: Severity::Critical,
        level: Level::Standard,
        status: Status::Stable,
        expect: Expect::Blocked,
        techniques: vec!["T1048".into()],
        references: vec!["https://attack.mitre.org/techniques/T1048/".into()],
        tags: vec!["network".into()],
        why: "A script that can reach the network can post any secret that it can read.".into(),
        fix: "Run without a network: `network_mode: none`.".into(),
        attempt: Attempt::Dns,
        escaped: vec![Proof::Canary(CanaryKind::Tcp), Proof::Survivor],
        weakened: Weakened {
            remove: vec![Protection::Network],
            by_backend: Vec::new(),
            fixtures: Vec::new(),
        },
        needs: Vec::new(),
        danger: Danger::Looks,
        source: format!("escapes/{id}.toml").into(),
        digest: "d".repeat(64),
    }
}

/// Something of everything that can be observed.
fn evidence() -> Evidence {
    let mut evidence = Evidence {
        start: Start::Seen {
            uid: 65534,
            boot: "b".repeat(36),
        },
        contradictions: vec!["a second `begin`".into()],
        witness: Some(Witness {
            pid: 4711,
            no_route: Some(false),
            ..Witness::default()
        }),
        targets: vec![Target {
            canary: CanaryKind::Tcp,
            position: Position::Gateway,
            address: "10.0.0.1:80".into(),
            beyond: false,
            alive: true,
        }],
        touches: vec![Touch {
            canary: CanaryKind::Tcp,
            address: "10.0.0.1:80".into(),
            at_ms: 3,
            late: false,
            saw: hostile(),
        }],
        secrets: vec![SecretFound {
            name: "DEPLOY_TOKEN".into(),
            found_in: "environment".into(),
            real: false,
        }],
        host_files: vec!["/var/tmp/canary".into()],
        counts: vec![Count {
            what: Ceiling::Pids,
            value: 100.0,
            ceiling: 64.0,
            passed_above: 66.0,
            held: false,
            by_host: true,
            source: "pids.peak".into(),
        }],
        survivors: vec!["pid 4712".into()],
        end: End::BySandbox {
            cause: Cause::Timeout,
            after_ms: 3000,
        },
        able: Able::Proven {
            by: "unsandboxed".into(),
        },
        faults: vec![Fault {
            code: "limit-not-applied",
            text: "pids.max is `max`".into(),
        }],
        watched: Duration::from_millis(1500),
        elapsed: Duration::from_millis(4500),
        ..Evidence::default()
    };
    evidence.inside.steps = vec![Step {
        what: "connect".into(),
        target: "10.0.0.1:80".into(),
        outcome: Outcome::Ok,
    }];
    evidence.inside.facts = vec![Fact {
        key: "peer".into(),
        name: "tcp".into(),
        value: hostile(),
    }];
    evidence.inside.done = Some(Outcome::Ok);
    evidence
}

/// Every verdict, one sandbox that could not be audited, one that is not engaged, one case that does not gate,
/// and hostile text wherever text of a stranger can stand.
pub(crate) fn report() -> Report {
    let mut report = empty();
    let mut weak = sandbox("runner");
    weak.sandbox.backend = BackendKind::Command;
    weak.sandbox.command = vec!["nice".into(), "-n".into(), "5".into()];
    weak.digest = None;
    weak.notes = vec!["sandbox not engaged: the launcher adds no isolation".into()];
    let mut lost = sandbox("lost");
    lost.failed = Some("The launcher `bwrap` is not there.".into());
    report.sandboxes = vec![sandbox("oci"), weak, lost];

    for verdict in Verdict::ALL {
        let id = format!("network/{}", verdict.name().to_lowercase());
        report.trials.push(trial("oci", &id, verdict));
    }
    report.trials[6].observed = evidence();
    report
        .trials
        .push(trial("runner", "network/tcp", Verdict::Blocked));
    report.trials[7].judgement.inside_only = true;
    let mut experimental = trial("runner", "kernel/new", Verdict::Escaped);
    experimental.gates = false;
    experimental.source.status = Status::Experimental;
    report.trials.push(experimental);
    let mut nasty = trial("runner", "processes/nasty", Verdict::Escaped);
    let text = String::from_utf8_lossy(&hostile()).into_owned();
    nasty.judgement.sentence.clone_from(&text);
    nasty.judgement.evidence = vec![text.clone(); 9];
    nasty.source.title = text;
    nasty.observed.inside.output = hostile().into();
    nasty.observed.inside.output_bytes = 5_000_000;
    nasty.observed.inside.error = hostile().into();
    report.trials.push(nasty);

    report.summary = Summary::of(&report.trials);
    report.exit_code = 1;
    report.gate = Decided::without_gate(1);
    report
}
