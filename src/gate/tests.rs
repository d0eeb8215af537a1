//! The gate by tables: verdicts, waivers, options; and by property: what is not known is never green.

use proptest::prelude::*;

use super::*;
use crate::report::decided::Waived;
use crate::report::sample;
use Verdict::*;

fn day(text: &str) -> Date {
    text.parse().expect(text)
}

fn rules() -> Rules {
    Rules::strict(day("2026-11-29"))
}

fn waiver(case: &str, sandbox: &str, until: &str) -> Waiver {
    Waiver {
        case: case.into(),
        sandbox: sandbox.into(),
        until: day(until),
        reason: "a hardened kernel lands in February".into(),
        ticket: Some("SEC-7".into()),
        place: None,
    }
}

fn settled(report: &Report, rules: &Rules, interrupted: Option<Interrupted>) -> Report {
    let mut report = report.clone();
    settle(&mut report, rules, interrupted);
    report
}

fn code(trials: &[(&str, Verdict, bool)]) -> i32 {
    settled(&report(trials), &rules(), None).exit_code
}

/// Two sandboxes, `a` and `b`; `b` held unless it is named.
fn report(trials: &[(&str, Verdict, bool)]) -> Report {
    let mut report = sample::empty();
    report.sandboxes = vec![sample::sandbox("a"), sample::sandbox("b")];
    for (sandbox, verdict, gates) in trials {
        let mut trial = sample::trial(sandbox, "network/tcp", *verdict);
        trial.gates = *gates;
        report.trials.push(trial);
    }
    if !trials.iter().any(|(sandbox, ..)| *sandbox == "b") {
        report
            .trials
            .push(sample::trial("b", "network/tcp", Blocked));
    }
    report
}

/// The remarks, as code and weight.
fn said(report: &Report) -> Vec<(&'static str, Weight)> {
    let remarks = report.gate.remarks.iter();
    remarks.map(|remark| (remark.code, remark.weight)).collect()
}

#[test]
fn the_worst_verdict_decides() {
    let table: &[(&[Verdict], i32)] = &[
        (&[Blocked], 0),
        (&[Allowed], 0),
        (&[Blocked, Skipped, Allowed], 0),
        (&[Escaped], 1),
        (&[Broken], 1),
        (&[Escaped, Error, Inconclusive, Skipped, Blocked], 1),
        (&[Broken, Error], 1),
        (&[Inconclusive], 3),
        (&[Error], 3),
        (&[Blocked, Inconclusive], 3),
        (&[Skipped, Error], 3),
        (&[Skipped], 4),
        (&[Skipped, Skipped], 4),
        (&[], 4),
    ];
    for (verdicts, expected) in table {
        let trials: Vec<_> = verdicts.iter().map(|v| ("a", *v, true)).collect();
        assert_eq!(code(&trials), *expected, "{verdicts:?}");
        let reversed: Vec<_> = trials.into_iter().rev().collect();
        assert_eq!(code(&reversed), *expected, "{verdicts:?}, reversed");
    }
}

#[test]
fn what_does_not_gate_neither_fails_nor_counts_as_run() {
    for verdict in Verdict::ALL {
        assert_eq!(code(&[("a", Blocked, true), ("a", verdict, false)]), 0);
        assert_eq!(code(&[("a", verdict, false)]), 4);
    }
}

#[test]
fn one_sandbox_does_not_hide_another() {
    assert_eq!(code(&[("a", Blocked, true), ("b", Skipped, true)]), 4);
    assert_eq!(code(&[("a", Blocked, true), ("b", Escaped, true)]), 1);
    let mut failed = report(&[("a", Blocked, true)]);
    failed.sandboxes[1].failed = Some("runsc is not registered".into());
    assert_eq!(settled(&failed, &rules(), None).exit_code, 3);
    failed.trials[0].judgement.verdict = Escaped;
    assert_eq!(settled(&failed, &rules(), None).exit_code, 1);
}

#[test]
fn a_report_without_sandboxes_or_without_an_end_is_never_green() {
    assert_eq!(settled(&sample::empty(), &rules(), None).exit_code, 4);
    let mut cut = report(&[("a", Blocked, true)]);
    cut.incomplete = Some("the daemon went away".into());
    assert_eq!(settled(&cut, &rules(), None).exit_code, 3);
}

#[test]
fn an_interruption_outranks_every_verdict_and_every_option() {
    for (interrupted, expected) in [
        (Interrupted::HangUp, 129),
        (Interrupted::Interrupt, 130),
        (Interrupted::Terminate, 143),
    ] {
        for (verdict, no_fail) in Verdict::ALL.into_iter().zip([false, true].repeat(4)) {
            let report = report(&[("a", verdict, true)]);
            let rules = Rules { no_fail, ..rules() };
            let settled = settled(&report, &rules, Some(interrupted));
            assert_eq!(settled.exit_code, expected);
            assert_eq!(settled.gate.sentence, exit_code::sentence(expected));
        }
    }
}

#[test]
fn a_waiver_excuses_escaped_and_broken_and_nothing_else() {
    use Weight::{Fails, Warning};
    let far = "2027-02-28";
    let (expired, unused) = (("waiver-expired", Fails), ("waiver-unused", Warning));
    let soon = ("waiver-ends-soon", Warning);
    let no_help = ("waiver-no-help", Warning);
    // Verdict of the case in `a`, end of its waiver → exit code, what is said.
    type Said<'a> = &'a [(&'a str, Weight)];
    let table: &[(Verdict, &str, i32, Said<'_>)] = &[
        (Escaped, far, 0, &[]),
        (Broken, far, 0, &[]),
        (Escaped, "2026-12-14", 0, &[]),
        (Escaped, "2026-12-13", 0, &[soon]),
        (Escaped, "2026-11-29", 0, &[soon]),
        (Escaped, "2026-11-28", 1, &[expired]),
        (Broken, "2026-11-28", 1, &[expired]),
        (Blocked, "2026-11-28", 3, &[expired]),
        (Skipped, "2026-11-28", 3, &[expired]),
        (Blocked, far, 0, &[unused]),
        (Allowed, far, 0, &[unused]),
        (Inconclusive, far, 3, &[no_help]),
        (Error, far, 3, &[no_help]),
        (Skipped, far, 4, &[]),
    ];
    for (verdict, until, exit_code, remarks) in table {
        let rules = Rules {
            waivers: vec![waiver("network/tcp", "a", until)],
            ..rules()
        };
        let settled = settled(&report(&[("a", *verdict, true)]), &rules, None);
        assert_eq!(settled.exit_code, *exit_code, "{verdict:?} until {until}");
        assert_eq!(said(&settled), *remarks, "{verdict:?} until {until}");
        let is_waived = *exit_code == 0 && matches!(verdict, Escaped | Broken);
        let trial = &settled.trials[0];
        assert_eq!(
            trial.waived.is_some(),
            is_waived,
            "{verdict:?} until {until}"
        );
        assert_eq!(trial.judgement.verdict, *verdict, "the verdict stands");
    }
}

#[test]
fn a_waiver_has_its_scope() {
    let escaped = report(&[("a", Escaped, true)]);
    let exit_code = |case: &str, sandbox: &str| {
        let waivers = vec![waiver(case, sandbox, "2027-02-28")];
        settled(&escaped, &Rules { waivers, ..rules() }, None).exit_code
    };
    assert_eq!(exit_code("network/tcp", "a"), 0);
    assert_eq!(exit_code("network/tcp", "b"), 1);
    assert_eq!(exit_code("network/tcp", "elsewhere"), 1);
    assert_eq!(exit_code("network/udp", "a"), 1);
    // In the other sandbox the same escape counts.
    let both = report(&[("a", Escaped, true), ("b", Escaped, true)]);
    let waivers = vec![waiver("network/tcp", "a", "2027-02-28")];
    let settled = settled(&both, &Rules { waivers, ..rules() }, None);
    assert_eq!((settled.exit_code, settled.trials[1].counts()), (1, true));
}

#[test]
fn a_waiver_that_the_selection_leaves_out_is_not_unused() {
    let waivers = vec![waiver("network/udp", "a", "2027-02-28")];
    let rules = Rules { waivers, ..rules() };
    let mut held = report(&[("a", Blocked, true)]);
    let unused = [("waiver-unused", Weight::Warning)];
    assert_eq!(said(&settled(&held, &rules, None)), unused);
    held.selection = vec!["--case network/tcp".into()];
    assert_eq!(said(&settled(&held, &rules, None)), []);
    // One that waives what does not gate is of no use either.
    let silent = report(&[("a", Blocked, true), ("a", Escaped, false)]);
    let mut rules = rules;
    rules.waivers[0].case = "network/tcp".into();
    let mut silent = silent;
    silent.trials.remove(0);
    let settled = settled(&silent, &rules, None);
    assert_eq!((said(&settled), settled.exit_code), (unused.to_vec(), 4));
}

#[test]
fn what_is_excused_is_said() {
    let mut both = report(&[("a", Escaped, true), ("b", Escaped, true)]);
    both.trials[1].source.severity = Severity::Low;
    let rules = Rules {
        waivers: vec![waiver("network/tcp", "a", "2027-02-28")],
        fail_on: Severity::High,
        ..rules()
    };
    let settled = settled(&both, &rules, None);
    assert_eq!(settled.exit_code, 0);
    assert_eq!(
        settled.gate.sentence,
        "everything that was tried held, but for 1 waived and 1 escaped below `--fail-on high`"
    );
    let waived = Waived {
        until: day("2027-02-28"),
        reason: "a hardened kernel lands in February".into(),
        ticket: Some("SEC-7".into()),
    };
    assert_eq!(settled.trials[0].waived, Some(waived));
    assert_eq!(
        (settled.trials[0].tolerated, settled.trials[1].tolerated),
        (false, true)
    );
}

#[test]
fn fail_on_lets_milder_escapes_pass_and_nothing_else() {
    let table = [
        (Escaped, Severity::Medium, Severity::High, 0),
        (Escaped, Severity::High, Severity::High, 1),
        (Escaped, Severity::Critical, Severity::High, 1),
        (Broken, Severity::Info, Severity::Critical, 1),
        (Inconclusive, Severity::Info, Severity::Critical, 3),
        (Error, Severity::Info, Severity::Critical, 3),
    ];
    for (verdict, severity, fail_on, exit_code) in table {
        let mut report = report(&[("a", verdict, true)]);
        report.trials[0].source.severity = severity;
        let settled = settled(&report, &Rules { fail_on, ..rules() }, None);
        assert_eq!(settled.exit_code, exit_code, "{verdict:?} {severity:?}");
    }
}

#[test]
fn an_empty_selection_passes_where_that_was_asked_for_and_skips_do_not() {
    let nothing_in_a = report(&[]);
    let mut all_skipped = report(&[("a", Skipped, true)]);
    let mut failed = nothing_in_a.clone();
    failed.sandboxes[0].failed = Some("no engine".into());
    for (no_tests, exit_code, remarks) in [
        (NoTests::Fail, 4, vec![]),
        (
            NoTests::Warn,
            0,
            vec![("nothing-selected", Weight::Warning)],
        ),
        (NoTests::Pass, 0, vec![("nothing-selected", Weight::Note)]),
    ] {
        let rules = Rules {
            no_tests,
            ..rules()
        };
        let settled_empty = settled(&nothing_in_a, &rules, None);
        assert_eq!(
            (settled_empty.exit_code, said(&settled_empty)),
            (exit_code, remarks)
        );
        assert_eq!(settled(&all_skipped, &rules, None).exit_code, 4);
        assert_eq!(settled(&failed, &rules, None).exit_code, 3);
        assert_eq!(settled(&sample::empty(), &rules, None).exit_code, 4);
    }
    all_skipped.trials.clear();
    let rules = Rules {
        no_tests: NoTests::Pass,
        ..rules()
    };
    let nothing = settled(&all_skipped, &rules, None);
    assert_eq!(
        nothing.gate.sentence,
        "no case was selected, so nothing is proven"
    );
}

#[test]
fn no_fail_exits_0_and_says_what_it_would_have_been() {
    let rules = Rules {
        no_fail: true,
        ..rules()
    };
    for (verdict, decided) in [(Escaped, 1), (Error, 3), (Skipped, 4), (Blocked, 0)] {
        let settled = settled(&report(&[("a", verdict, true)]), &rules, None);
        assert_eq!((settled.exit_code, settled.gate.exit_code), (0, decided));
        let said = format!("nothing fails under `--no-fail`; without it exit {decided}: ");
        assert_eq!(settled.gate.sentence.starts_with(&said), decided != 0);
    }
}

fn verdict() -> impl Strategy<Value = Verdict> {
    proptest::sample::select(Verdict::ALL.to_vec())
}

fn severity() -> impl Strategy<Value = Severity> {
    let all = [
        Severity::Info,
        Severity::Low,
        Severity::Medium,
        Severity::High,
        Severity::Critical,
    ];
    proptest::sample::select(all.to_vec())
}

const CASES: [&str; 3] = ["network/tcp", "network/udp", "kernel/bpf"];

prop_compose! {
    fn any_rules()(
        waived in proptest::collection::vec((0..3usize, prop::bool::ANY, -20..90i64), 0..6),
        fail_on in severity(),
        no_tests in proptest::sample::select(vec![NoTests::Fail, NoTests::Warn, NoTests::Pass]),
        before in proptest::option::of(any_report()),
    ) -> Rules {
        let today = day("2026-11-29");
        let waivers = waived.into_iter().map(|(case, in_a, left)| Waiver {
            until: Date::from_days(today.days() + left),
            ..waiver(CASES[case], if in_a { "a" } else { "b" }, "2027-01-01")
        });
        let baseline = before.and_then(|report| Baseline::of(&Saved::of(&report)).ok());
        Rules { waivers: waivers.collect(), baseline, fail_on, no_tests, ..Rules::strict(today) }
    }
}

prop_compose! {
    fn any_report()(
        trials in proptest::collection::vec((0..3usize, prop::bool::ANY, verdict(), severity()), 0..8),
    ) -> Report {
        let mut report = sample::empty();
        report.sandboxes = vec![sample::sandbox("a"), sample::sandbox("b")];
        for (case, in_a, verdict, severity) in trials {
            let mut trial = sample::trial(if in_a { "a" } else { "b" }, CASES[case], verdict);
            trial.source.severity = severity;
            report.trials.push(trial);
        }
        report
    }
}

proptest! {
    #[test]
    fn nothing_turns_what_is_not_known_green(report in any_report(), rules in any_rules()) {
        let settled = settled(&report, &rules, None);
        let any = |wanted: &[Verdict]| {
            report.trials.iter().any(|trial| wanted.contains(&trial.judgement.verdict))
        };
        if any(&[Inconclusive, Error]) {
            prop_assert!(matches!(settled.exit_code, 1 | 3), "{}", settled.exit_code);
        }
        for (before, after) in report.trials.iter().zip(&settled.trials) {
            prop_assert_eq!(&before.judgement, &after.judgement);
            let verdict = after.judgement.verdict;
            prop_assert!(after.waived.is_none() || matches!(verdict, Escaped | Broken));
            prop_assert!(!after.tolerated || verdict == Escaped);
        }
        // An escape is green by a waiver that counts or by its severity, and by nothing else.
        let is_excused = |trial: &Trial| {
            let waived = rules.waivers.iter().any(|waiver| {
                (&waiver.case, &waiver.sandbox) == (&trial.case, &trial.sandbox)
                    && waiver.until >= rules.today
            });
            let mild = trial.judgement.verdict == Escaped && trial.source.severity < rules.fail_on;
            let held = (rules.baseline.as_ref())
                .is_some_and(|baseline| baseline.held(&trial.sandbox, &trial.case));
            waived || (mild && !held)
        };
        let counted = |trial: &&Trial| {
            matches!(trial.judgement.verdict, Escaped | Broken) && !is_excused(trial)
        };
        prop_assert_eq!(settled.exit_code == 1, report.trials.iter().any(|t| counted(&t)));
    }
}
