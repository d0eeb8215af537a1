//! The gate's options on real audits: what they let pass is said, and what is not known never passes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::support::{Audit, Seen, folder, have, text};

fn audit(arguments: &[&str]) -> Seen {
    Audit::run(arguments).finish()
}

const ESCAPES: [&str; 6] = [
    "--sandbox",
    "unsandboxed",
    "--case",
    "network/tcp-egress", // critical
    "--case",
    "kernel/io-uring", // high
];

#[test]
fn fail_on_lets_milder_escapes_pass_and_says_so_aloud() {
    if !have(&["root"]) {
        return;
    }
    let severity = |case: &str| -> String {
        let seen = audit(&["--sandbox", "unsandboxed", "--case", case]);
        text(&seen.trial(case)["definition"]["severity"]).to_owned()
    };
    assert_eq!(severity("network/tcp-egress"), "critical");
    let mild = severity("kernel/io-uring");
    assert_ne!(mild, "critical");
    let seen = audit(&[
        "--fail-on",
        "critical",
        "--sandbox",
        "unsandboxed",
        "--case",
        "kernel/io-uring",
    ]);
    assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
    let trial = seen.trial("kernel/io-uring");
    assert_eq!(
        (&trial["verdict"], &trial["tolerated"]),
        (&"ESCAPED".into(), &true.into())
    );
    for word in [
        "1 of them below --fail-on critical",
        "exit 0: everything that was tried held, but for 1 escaped below `--fail-on critical`",
    ] {
        assert!(seen.out.contains(word), "{word}\n{}", seen.out);
    }
    assert!(
        seen.junit
            .unwrap()
            .contains("<skipped>does not gate (below --fail-on): ESCAPED")
    );
    let both = audit(&[&ESCAPES[..], &["--fail-on", "critical"]].concat());
    assert_eq!(both.status, 1, "{}", both.out);
}

#[test]
fn no_fail_is_0_and_says_what_it_would_have_been_and_covers_no_mistake() {
    if !have(&["root"]) {
        return;
    }
    let seen = audit(&[&ESCAPES[..], &["--no-fail"]].concat());
    assert_eq!(
        (seen.status, &seen.report["gate"]["exit_code"]),
        (0, &1.into())
    );
    let sentence = "exit 0: nothing fails under `--no-fail`; without it exit 1: something escaped";
    assert!(seen.out.contains(sentence), "{}", seen.out);
    assert!(seen.junit.unwrap().contains("failures=\"2\""));
    let nothing = audit(&["--no-fail", "--case", "network/tcp-egress", "--", "false"]);
    assert_eq!(
        (nothing.status, &nothing.report["gate"]["exit_code"]),
        (0, &3.into())
    );
    audit(&["--no-fail", "--case", "nothing/like-it"]).expect_refusal(&["no case matches"]);
    let mut audit = Audit::run(&["--no-fail", "--sandbox", "unsandboxed"]);
    audit.until("a first verdict", |audit| audit.said().contains("ESCAPED"));
    audit.signal(nix::sys::signal::Signal::SIGINT);
    let (seen, _) = audit.finish_with_traces();
    assert_eq!(seen.status, 130, "{}", seen.out);
}

#[test]
fn an_empty_selection_is_4_unless_that_is_let_pass() {
    if !have(&["root"]) {
        return;
    }
    let empty = ["--case", "works/run", "--severity", "critical"];
    for (how, status, weight) in [
        (&[][..], 4, None),
        (&["--no-tests", "fail"], 4, None),
        (&["--no-tests", "warn"], 0, Some("warning")),
        (&["--no-tests", "pass"], 0, Some("note")),
    ] {
        let seen = audit(&[&empty[..], how].concat());
        assert_eq!(seen.status, status, "{}{}", seen.out, seen.err);
        let said = seen.report["gate"]["remarks"][0]["weight"].as_str();
        assert_eq!(said, weight);
        assert!(seen.out.contains("so nothing is proven"), "{}", seen.out);
    }
    // What was selected and skipped is no empty selection.
    let skipped = [
        "--case",
        "resources/cpu-spin",
        "--no-tests",
        "pass",
        "--",
        "env",
    ];
    let seen = audit(&skipped);
    assert_eq!(text(&seen.trials()[0]["verdict"]), "SKIPPED");
    assert_eq!(seen.status, 4, "{}", seen.out);
}

/// A launcher that does what `first` says the first time, and runs its program from then on.
fn flaky(place: &Path, first: &str) -> String {
    let script = place.join("launcher");
    let mark = place.join("was-here");
    let text = format!(
        "#!/bin/sh\nif ! [ -e {mark} ]; then : > {mark}; {first}; fi\necho x >> {calls}\nexec \"$@\"\n",
        mark = mark.display(),
        calls = place.join("calls").display(),
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script.to_str().unwrap().to_owned()
}

#[test]
fn only_what_could_not_be_decided_is_tried_again_and_that_is_said() {
    if !have(&["root"]) {
        return;
    }
    let with = |first: &str, case: &str, retries: &[&str]| {
        let place = folder();
        let launcher = flaky(place.path(), first);
        let seen = audit(&[&["--case", case], retries, &["--", &launcher]].concat());
        let attempts = seen.trial(case)["attempts"].clone();
        let verdict = text(&seen.trial(case)["verdict"]).to_owned();
        (seen, verdict, attempts)
    };
    // Once undecided, as by default; then it works, and the summary says that it took two.
    let (seen, verdict, attempts) = with("exit 0", "works/run", &[]);
    assert_eq!(
        (&*verdict, &attempts, seen.status),
        ("INCONCLUSIVE", &Value::from(1), 3)
    );
    let (seen, verdict, attempts) = with("exit 0", "works/run", &["--retries", "2"]);
    assert_eq!(
        (&*verdict, &attempts, seen.status),
        ("ALLOWED", &Value::from(2), 0)
    );
    assert!(seen.out.contains("1 needed a second try"), "{}", seen.out);
    assert_eq!(
        seen.err.matches("works/run").count(),
        1,
        "told once: {}",
        seen.err
    );
    let (_, verdict, attempts) = with("exit 0", "network/tcp-egress", &["--retries", "1"]);
    assert_eq!((&*verdict, &attempts), ("ESCAPED", &Value::from(2)));
    // What escaped at once is not tried away.
    let (seen, verdict, attempts) = with(":", "network/tcp-egress", &["--retries", "3"]);
    assert_eq!(
        (&*verdict, &attempts, seen.status),
        ("ESCAPED", &Value::from(1), 1)
    );
    // What stays undecided is undecided after so many.
    let seen = audit(&["--case", "works/run", "--retries", "2", "--", "true"]);
    assert_eq!(
        (seen.status, &seen.trial("works/run")["attempts"]),
        (3, &3.into())
    );
}

#[test]
fn two_audits_side_by_side_show_the_cause_and_the_effect() {
    if !have(&["root"]) {
        return;
    }
    let place = folder();
    let file = |name: &str, seen: &Seen| {
        let path = place.path().join(name);
        fs::write(&path, seen.report.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cases = ["--case", "network/tcp-egress", "--case", "works/*"];
    let (first, second) = (audit(&cases), audit(&cases));
    let weak = audit(&[&cases[..], &["--without", "network"]].concat());
    let less = audit(&["--case", "works/*"]);
    let [a, again, b, less] = [
        ("a", &first),
        ("again", &second),
        ("b", &weak),
        ("less", &less),
    ]
    .map(|(n, s)| file(n, s));
    let diff = |before: &str, after: &str, more: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_escape-audit"))
            .args([&["diff", before, after], more].concat())
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        let said =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        (output.status.code().unwrap(), said.concat())
    };
    let (code, said) = diff(&a, &again, &[]);
    assert_eq!(code, 0, "{said}");
    assert!(
        !said.contains("changed"),
        "two audits of one sandbox do not differ:\n{said}"
    );

    let (code, said) = diff(&a, &b, &[]);
    assert_eq!(code, 1, "{said}");
    for word in [
        "without: nothing",
        "network/tcp-egress  newly escaped, was BLOCKED",
        "exit 1",
    ] {
        assert!(said.contains(word), "{word}\n{said}");
    }
    assert!(
        said.find("without: nothing") < said.find("network/tcp-egress"),
        "{said}"
    );
    let (code, said) = diff(&b, &a, &["--json"]);
    assert_eq!(code, 0, "{said}");
    let value: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(value["worse"], false);
    assert_eq!(value["sandboxes"][0]["effects"][0]["kind"], "fixed");
    let (code, said) = diff(&a, &less, &[]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("VANISHED") && said.contains("restricted by"),
        "{said}"
    );
    let (code, said) = diff(&a, "/dev/null", &[]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("it ends in the middle") && said.contains("help: "),
        "{said}"
    );
}
