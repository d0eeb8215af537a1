//! Two audits side by side, by tables.

use super::*;
use crate::case::Level;
use crate::report::{Report, sample};
use Verdict::*;

/// Each case's hash is another one.
fn report(trials: &[(&str, Verdict)]) -> Report {
    let mut report = sample::empty();
    report.sandboxes = vec![sample::sandbox("a")];
    for (id, verdict) in trials {
        let mut trial = sample::trial("a", id, *verdict);
        trial.source.digest = (*id).into();
        report.trials.push(trial);
    }
    report
}

fn between(before: &Report, after: &Report) -> Diff {
    diff(&Saved::of(before), &Saved::of(after))
}

fn effects_of(diff: &Diff) -> Vec<(Kind, &str, bool)> {
    let sandboxes = diff.sandboxes.iter();
    let effects = sandboxes.flat_map(|sandbox| &sandbox.effects);
    effects
        .map(|e| (e.kind, e.case.as_str(), e.worse))
        .collect()
}

fn changes_of(diff: &Diff) -> Vec<(&str, Option<&str>, Option<&str>)> {
    let of_sandboxes = diff.sandboxes.iter().flat_map(|sandbox| &sandbox.changes);
    let all = diff.changes.iter().chain(of_sandboxes);
    all.map(|c| (c.what.as_str(), c.before.as_deref(), c.after.as_deref()))
        .collect()
}

#[test]
fn an_audit_does_not_differ_from_itself() {
    for report in [sample::report(), sample::waived(), sample::empty()] {
        let same = between(&report, &report);
        assert_eq!(
            (same.worse, &same.changes[..], &same.sandboxes[..]),
            (false, &[][..], &[][..])
        );
    }
}

#[test]
fn each_change_of_a_verdict_has_its_kind() {
    let table = [
        (Blocked, Escaped, Some((Kind::Escaped, true))),
        (Allowed, Broken, Some((Kind::Escaped, true))),
        (Skipped, Escaped, Some((Kind::Escaped, true))),
        (Error, Escaped, Some((Kind::Escaped, true))),
        (Escaped, Blocked, Some((Kind::Fixed, false))),
        (Broken, Allowed, Some((Kind::Fixed, false))),
        (Escaped, Inconclusive, Some((Kind::Better, false))),
        (Escaped, Skipped, Some((Kind::Better, false))),
        (Blocked, Inconclusive, Some((Kind::Worse, true))),
        (Blocked, Skipped, Some((Kind::Worse, true))),
        (Inconclusive, Error, Some((Kind::Worse, true))),
        (Inconclusive, Blocked, Some((Kind::Better, false))),
        (Blocked, Blocked, None),
        (Escaped, Escaped, None),
        (Allowed, Blocked, None),
    ];
    for (before, after, wanted) in table {
        let diff = between(&report(&[("a/a", before)]), &report(&[("a/a", after)]));
        let wanted: Vec<_> = wanted
            .map(|(kind, worse)| (kind, "a/a", worse))
            .into_iter()
            .collect();
        assert_eq!(effects_of(&diff), wanted, "{before:?} to {after:?}");
        assert_eq!(diff.worse, wanted.iter().any(|(_, _, worse)| *worse));
    }
}

#[test]
fn what_came_and_what_went() {
    let before = report(&[("a/a", Blocked), ("a/gone", Blocked), ("a/old", Blocked)]);
    let mut after = report(&[
        ("a/a", Blocked),
        ("a/bad", Escaped),
        ("a/good", Blocked),
        ("b/renamed", Blocked),
    ]);
    after.trials[3].source.digest = "a/old".into();
    let diff = between(&before, &after);
    let wanted = [
        (Kind::Escaped, "a/bad", true),
        (Kind::Vanished, "a/gone", true),
        (Kind::Renamed, "b/renamed", false),
        (Kind::New, "a/good", false),
    ];
    assert_eq!(effects_of(&diff), wanted);
    let renamed = &diff.sandboxes[0].effects[2];
    assert_eq!(renamed.renamed_from.as_deref(), Some("a/old"));
    // Renamed and worse is worse.
    after.trials[3].judgement.verdict = Error;
    assert!(effects_of(&between(&before, &after)).contains(&(Kind::Worse, "b/renamed", true)));
}

#[test]
fn what_never_counted_makes_nothing_worse_and_what_stops_counting_does() {
    let silent = |verdict| {
        let mut report = report(&[("a/a", verdict)]);
        report.trials[0].gates = false;
        report
    };
    let experimental = between(&silent(Blocked), &silent(Escaped));
    assert_eq!(effects_of(&experimental), [(Kind::Escaped, "a/a", false)]);
    let muted = between(&report(&[("a/a", Escaped)]), &silent(Escaped));
    assert_eq!(effects_of(&muted), [(Kind::NoLongerGates, "a/a", true)]);
}

#[test]
fn the_cause_is_told_beside_the_effect() {
    let before = report(&[("a/a", Blocked)]);
    let mut after = report(&[("a/a", Escaped)]);
    after.tool.library = "6".repeat(64);
    let sandbox = &mut after.sandboxes[0];
    sandbox.sandbox.settings.read_only = false;
    sandbox.sandbox.policy.pids = Some(7);
    sandbox.sandbox.without = [crate::protection::Protection::Network].into();
    sandbox.digest = None;
    sandbox.in_force[1].1 = "max".into();
    let diff = between(&before, &after);
    let digest = "sha256:".to_owned() + &"a".repeat(64);
    let (five, six) = ("5".repeat(64), "6".repeat(64));
    assert_eq!(
        changes_of(&diff),
        [
            ("library", Some(&*five), Some(&*six)),
            ("digest", Some(&*digest), None),
            ("in force: pids", Some("64"), Some("max")),
            ("policy.pids", Some("64"), Some("7")),
            ("read_only", Some("true"), Some("false")),
            ("without", None, Some("network")),
        ]
    );
    assert!(diff.worse);
}

#[test]
fn a_sandbox_that_is_lost_or_asked_less_of_is_worse() {
    let both = || {
        let mut both = report(&[("a/a", Blocked)]);
        both.sandboxes.push(sample::sandbox("b"));
        both
    };
    let with = |change: fn(&mut Report)| {
        let mut after = both();
        change(&mut after);
        between(&both(), &after).worse
    };
    assert!(!with(|_| {}));
    assert!(with(|after| drop(after.sandboxes.pop())));
    assert!(with(
        |after| after.sandboxes[1].failed = Some("no engine".into())
    ));
    assert!(with(|after| after.incomplete = Some("interrupted".into())));
    assert!(!with(|after| after.sandboxes.push(sample::sandbox("c"))));
    assert!(!with(
        |after| after.sandboxes[0].sandbox.policy.level = Level::Strict
    ));
    let mut strict = both();
    strict.sandboxes[0].sandbox.policy.level = Level::Strict;
    assert!(between(&strict, &both()).worse);
}
