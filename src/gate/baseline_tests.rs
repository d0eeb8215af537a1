//! An audit held against what was known, by a table: then, now, what it comes to.

use super::*;
use crate::case::Severity;
use crate::config::Date;
use crate::config::model::Policy;
use crate::gate::{Rules, check_saved, settle};
use crate::report::{Report, SandboxReport, sample};
use Verdict::*;

fn report(trials: &[(&str, Verdict)]) -> Report {
    let mut report = sample::empty();
    report.sandboxes = vec![sample::sandbox("a")];
    for (id, verdict) in trials {
        report.trials.push(trial(id, *verdict));
    }
    report.summary = crate::report::Summary::of(&report.trials);
    report
}

/// A case's hash is another one for each id, as it is for real ones.
fn trial(id: &str, verdict: Verdict) -> crate::report::Trial {
    let mut trial = sample::trial("a", id, verdict);
    trial.source.digest = format!(
        "{:0<64}",
        id.replace('/', "")
            .replace(|c: char| !c.is_ascii_hexdigit(), "0")
    );
    trial
}

fn baseline(report: &Report) -> Baseline {
    Baseline::of(&Saved::of(report)).expect("a baseline")
}

fn settled(then: &Report, now: &Report, rules: Rules) -> Report {
    let mut now = now.clone();
    let baseline = Some(baseline(then));
    settle(&mut now, &Rules { baseline, ..rules }, None);
    now
}

fn strict() -> Rules {
    Rules::strict("2026-11-29".parse::<Date>().expect("a day"))
}

fn codes(report: &Report) -> Vec<&'static str> {
    report
        .gate
        .remarks
        .iter()
        .map(|remark| remark.code)
        .collect()
}

/// Beside `z/z`, which held and holds.
fn beside(trials: &[(&str, Verdict)]) -> Report {
    report(&[trials, &[("z/z", Blocked)]].concat())
}

#[test]
fn each_change_of_a_verdict() {
    let table: &[(Verdict, Verdict, i32, &[&str])] = &[
        (Blocked, Blocked, 0, &[]),
        (Allowed, Allowed, 0, &[]),
        (Blocked, Escaped, 1, &["baseline-worse"]),
        (Allowed, Broken, 1, &["baseline-worse"]),
        (Blocked, Inconclusive, 3, &[]),
        (Blocked, Error, 3, &[]),
        (Blocked, Skipped, 3, &["baseline-skipped"]),
        (Allowed, Skipped, 3, &["baseline-skipped"]),
        (Escaped, Skipped, 3, &["baseline-skipped"]),
        (Inconclusive, Skipped, 3, &["baseline-skipped"]),
        (Skipped, Skipped, 0, &[]),
        (Blocked, Allowed, 3, &["baseline-other-meaning"]),
        (Escaped, Escaped, 1, &["baseline-known"]),
        (Broken, Broken, 1, &["baseline-known"]),
        (Escaped, Blocked, 0, &["baseline-better"]),
        (Skipped, Blocked, 0, &["baseline-better"]),
        (Skipped, Escaped, 1, &[]),
        (Inconclusive, Escaped, 1, &[]),
    ];
    for (then, now, exit_code, remarks) in table {
        let settled = settled(
            &beside(&[("a/a", *then)]),
            &beside(&[("a/a", *now)]),
            strict(),
        );
        assert_eq!(settled.exit_code, *exit_code, "{then:?} to {now:?}");
        assert_eq!(codes(&settled), *remarks, "{then:?} to {now:?}");
    }
}

#[test]
fn what_shrinks_in_silence_fails_and_says_how() {
    let then = beside(&[("a/a", Blocked), ("a/b", Skipped)]);
    let with = |change: fn(&mut Report)| {
        let mut now = then.clone();
        change(&mut now);
        let settled = settled(&then, &now, strict());
        let said: Vec<&str> = settled
            .gate
            .remarks
            .iter()
            .map(|r| r.sentence.as_str())
            .collect();
        (settled.exit_code, codes(&settled), said.join("\n"))
    };
    let check = |change, wanted: &[&str], words: &str| {
        let (exit_code, codes, said) = with(change);
        assert_eq!((exit_code, &codes[..]), (3, wanted), "{said}");
        assert!(said.contains(words), "{said}");
    };
    check(
        |now| drop(now.trials.remove(0)),
        &["baseline-missing"],
        "`a/a` is in the baseline",
    );
    // One that was skipped was known, too.
    check(
        |now| drop(now.trials.remove(1)),
        &["baseline-missing"],
        "`a/b` is in the baseline",
    );
    check(
        |now| now.trials[0].case = "b/new-name".into(),
        &["baseline-renamed", "baseline-new"],
        "`a/a` was renamed to `b/new-name`",
    );
    check(
        |now| now.trials[0].gates = false,
        &["baseline-no-longer-gates"],
        "`a/a` counted",
    );
    check(
        |now| {
            now.trials.truncate(1);
            now.selection = vec!["--case a/a".into()];
        },
        &["baseline-not-covered"],
        "2 of 3 that the baseline knows were not tried, for the audit was restricted by --case a/a: `a/b`, `z/z`.",
    );
    check(
        |now| {
            now.trials.truncate(1);
            now.incomplete = Some("interrupted".into());
        },
        &["baseline-not-covered"],
        "the audit did not come to its end",
    );
    check(
        |now| now.sandboxes[0].sandbox.name = "b".into(),
        &["baseline-not-audited"],
        "`a` is in the baseline and was not audited",
    );
    let mut strict_then = then.clone();
    strict_then.sandboxes[0].sandbox.policy.level = Level::Strict;
    let lowered = settled(&strict_then, &then, strict());
    assert_eq!(
        (lowered.exit_code, codes(&lowered)),
        (3, vec!["baseline-level-lowered"])
    );
    let raised = settled(&then, &strict_then, strict());
    assert_eq!((raised.exit_code, codes(&raised)), (0, vec![]));
    // A ceiling that was raised, one that is gone, and a place more that may be written; the other way round all is well.
    let mut tight = then.clone();
    let policy = &mut tight.sandboxes[0].sandbox.policy;
    (policy.pids, policy.memory) = (Some(64), Some(1 << 26));
    let weaken: [fn(&mut Policy); 3] = [
        |policy| policy.pids = Some(400),
        |policy| policy.memory = None,
        |policy| policy.writable.push("/work".into()),
    ];
    for weaken in weaken {
        let mut weak = tight.clone();
        weaken(&mut weak.sandboxes[0].sandbox.policy);
        let weaker = settled(&tight, &weak, strict());
        assert_eq!(
            (weaker.exit_code, codes(&weaker)),
            (3, vec!["baseline-promise-weaker"])
        );
        assert_eq!(settled(&weak, &tight, strict()).exit_code, 0);
    }
}

#[test]
fn what_changed_and_what_is_new_is_noted_and_fails_nothing() {
    let then = beside(&[]);
    let mut now = beside(&[("a/new", Blocked)]);
    now.trials[1].source.digest = "e".repeat(64);
    now.tool.library = "6".repeat(64);
    now.sandboxes[0].digest = Some("sha256:b".into());
    let settled = settled(&then, &now, strict());
    assert_eq!(settled.exit_code, 0);
    assert_eq!(
        codes(&settled),
        [
            "baseline-digest",
            "baseline-changed",
            "baseline-new",
            "baseline-library"
        ]
    );
}

/// Each part of an audit is held to its own part of the memory; nothing else lets a case go.
#[test]
fn a_part_answers_for_its_part() {
    let ids: Vec<String> = (0..40).map(|n| format!("a/{n}")).collect();
    let trials: Vec<(&str, Verdict)> = ids.iter().map(|id| (id.as_str(), Blocked)).collect();
    let then = report(&trials);
    let mut missing = 0;
    for part in ["hash:1/2", "hash:2/2"] {
        let parsed: Partition = part.parse().expect("a part");
        let mut now = then.clone();
        now.selection = vec![format!("--partition {part}")];
        now.trials.retain(|trial| parsed.has(&trial.case));
        missing += now.trials.len();
        let whole = settled(&then, &now, strict());
        assert_eq!(
            (whole.exit_code, codes(&whole)),
            (0, vec!["baseline-other-part"])
        );
        now.trials.remove(0);
        let cut = settled(&then, &now, strict());
        assert_eq!(cut.exit_code, 3);
        assert_eq!(codes(&cut), ["baseline-not-covered", "baseline-other-part"]);
    }
    assert_eq!(missing, 40);
}

#[test]
fn a_waiver_excuses_what_got_worse_and_fail_on_does_not() {
    let then = beside(&[("a/a", Blocked)]);
    let mut now = beside(&[("a/a", Escaped)]);
    now.trials[0].source.severity = Severity::Low;
    let fail_on = Severity::Critical;
    let milder = settled(
        &then,
        &now,
        Rules {
            fail_on,
            ..strict()
        },
    );
    assert_eq!(
        (milder.exit_code, codes(&milder)),
        (1, vec!["baseline-worse"])
    );
    let waiver = crate::config::Waiver {
        case: "a/a".into(),
        sandbox: "a".into(),
        until: "2027-02-28".parse().expect("a day"),
        reason: "known".into(),
        ticket: None,
        place: None,
    };
    let waivers = vec![waiver];
    let waived = settled(
        &then,
        &now,
        Rules {
            waivers,
            ..strict()
        },
    );
    assert_eq!((waived.exit_code, codes(&waived)), (0, vec![]));
    // What escaped when the baseline was written is milder than `--fail-on` all the same.
    let known = settled(
        &now,
        &now,
        Rules {
            fail_on,
            ..strict()
        },
    );
    assert_eq!((known.exit_code, codes(&known)), (0, vec![]));
}

#[test]
fn a_report_that_was_saved_is_held_to_the_same() {
    let then = beside(&[("a/a", Blocked)]);
    let check = |now: &Report, rules: Rules| {
        let mut now = now.clone();
        settle(&mut now, &rules, None);
        check_saved(&baseline(&then), &Saved::of(&now)).0
    };
    let mut milder = beside(&[("a/a", Escaped)]);
    assert_eq!(check(&then, strict()), 0);
    assert_eq!(check(&milder, strict()), 1);
    assert_eq!(check(&beside(&[]), strict()), 3);
    let no_fail = Rules {
        no_fail: true,
        ..strict()
    };
    assert_eq!(check(&milder, no_fail.clone()), 1);
    assert_eq!(check(&beside(&[("a/a", Error)]), no_fail), 3);
    // It was below `--fail-on` when it was made, without a baseline.
    milder.trials[0].source.severity = Severity::Low;
    let fail_on = Severity::Critical;
    assert_eq!(
        check(
            &milder,
            Rules {
                fail_on,
                ..strict()
            }
        ),
        1
    );
    let mut cut = then.clone();
    cut.incomplete = Some("interrupted".into());
    assert_eq!(check(&cut, strict()), 3);
}

#[test]
fn what_is_no_whole_audit_cannot_become_a_baseline() {
    let good = beside(&[]);
    let refused = |change: fn(&mut Report), reason: &str| {
        let mut report = good.clone();
        change(&mut report);
        let reasons = Baseline::of(&Saved::of(&report)).expect_err(reason);
        assert!(
            reasons.iter().any(|said| said.contains(reason)),
            "{reasons:?}"
        );
    };
    refused(
        |report| report.incomplete = Some("interrupted".into()),
        "not complete: interrupted",
    );
    refused(
        |report| report.sandboxes[0].sandbox.without = [crate::protection::Protection::Pids].into(),
        "`a` was audited without pids",
    );
    refused(
        |report| report.sandboxes[0].failed = Some("no engine".into()),
        "could not be audited",
    );
    refused(|report| report.trials.clear(), "nothing was tried in `a`");
    refused(|report| report.sandboxes.clear(), "nothing was audited");
    let other: fn(&mut Report) = |report| {
        let other: SandboxReport = sample::sandbox("b");
        report.sandboxes.push(other);
    };
    refused(other, "nothing was tried in `b`");
}
