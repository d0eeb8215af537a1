use super::*;
use crate::case::{CanaryKind, Position, Transport};

const GOOD: &str = r#"
title    = "Open a connection"
severity = "high"
level    = "standard"
why      = "w"
fix      = "f"
needs    = ["ipv6"]

[attempt.connect]
to        = "tcp://{position}"
positions = ["host", "internet"]

[escaped]
canary = "tcp"

[weakened]
remove = ["network"]

[weakened.docker]
remove = ["network", "user"]
"#;

fn read(id: &str, text: &str) -> Result<Case, Diagnostics> {
    parse(id, &Source::new("x.toml", text))
}

/// The codes of the mistakes in the good case after one change.
fn codes(from: &str, to: &str) -> Vec<&'static str> {
    assert!(GOOD.contains(from), "{from}");
    match read("network/x", &GOOD.replace(from, to)) {
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes.iter().map(|mistake| mistake.code.name()).collect(),
    }
}

#[test]
fn a_good_case_reads_as_it_is_written() {
    let case = read("network/x", GOOD).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(case.category(), "network");
    assert_eq!(
        (case.status, case.expect, case.danger),
        (Status::Stable, Expect::Blocked, Danger::Looks)
    );
    assert_eq!(
        case.needs,
        [Need::Ipv6, Need::Range],
        "the attempt's own needs and the file's"
    );
    assert_eq!(case.escaped, [Proof::Canary(CanaryKind::Tcp)]);
    assert_eq!(case.weakened.for_backend("oci"), [Protection::Network]);
    assert_eq!(
        case.weakened.for_backend("docker"),
        [Protection::Network, Protection::User]
    );
    let positions = vec![Position::Host, Position::Internet];
    assert_eq!(
        case.attempt,
        Attempt::Connect {
            transport: Transport::Tcp,
            positions
        }
    );
    assert_eq!(case.digest.len(), 64);
}

#[test]
fn one_change_is_one_mistake() {
    for (from, to, code) in [
        ("title ", "titel ", "unknown-key"),
        ("\"high\"", "3", "wrong-type"),
        ("\"high\"", "\"hi\"", "wrong-value"),
        ("\"w\"", "\" \"", "empty-text"),
        ("\"w\"", "\"a\\u202eb\"", "wrong-value"),
        ("Open a", "Open\\na", "wrong-value"),
        (
            "[attempt.connect]",
            "[attempt.run]\n[attempt.connect]",
            "two-attempts",
        ),
        ("\"host\", ", "\"hots\", ", "wrong-value"),
        ("\"host\", ", "\"internet\", ", "repeated"),
        ("[\"host\", \"internet\"]", "[]", "empty-text"),
        ("canary = \"tcp\"", "canary = \"udp\"", "proof-misfit"),
        ("canary = \"tcp\"", "survivor = true", "proof-misfit"),
        ("canary = \"tcp\"", "breach = false", "wrong-value"),
        ("canary = \"tcp\"", "", "proof-missing"),
        ("[escaped]", "[escape]", "unknown-key"),
        (
            "remove = [\"network\"]\n\n",
            "remove = []\n\n",
            "empty-text",
        ),
        ("[\"ipv6\"]", "[\"ipv7\"]", "wrong-value"),
        ("[weakened.docker]", "[weakened.dokcer]", "unknown-key"),
        ("needs ", "danger = -1\nneeds ", "wrong-value"),
        ("needs ", "techniques = [\"T1\"]\nneeds ", "bad-technique"),
        (
            "needs ",
            "references = [\"ftp://x.y/\"]\nneeds ",
            "bad-reference",
        ),
        (
            "needs ",
            "expect = \"allowed\"\nneeds ",
            "expect-misfit expect-misfit",
        ),
        ("\"w\"", "w", "syntax"),
    ] {
        assert_eq!(codes(from, to).join(" "), code, "{from} -> {to}");
    }
}

#[test]
fn danger_can_be_raised_and_never_lowered() {
    let raised = GOOD.replace("needs ", "danger = 3\nneeds ");
    assert_eq!(
        read("network/x", &raised).map(|case| case.danger),
        Ok(Danger::Hurts)
    );
    let spawn = GOOD
        .replace("needs ", "danger = 1\nneeds ")
        .replace("[attempt.connect]\nto        = \"tcp://{position}\"\npositions = [\"host\", \"internet\"]", "[attempt.spawn]")
        .replace("canary = \"tcp\"", "ceiling = \"pids\"");
    let mistakes = read("network/x", &spawn).expect_err("refused");
    assert_eq!(
        mistakes.iter().map(|m| m.code.name()).collect::<Vec<_>>(),
        ["danger-lowered"]
    );
}

#[test]
fn an_experimental_case_may_leave_its_teeth_for_later_but_not_its_proof() {
    let text = GOOD.replace("needs ", "status = \"experimental\"\nneeds ");
    let weakened = text.find("[weakened]").expect("there");
    assert!(read("network/x", &text[..weakened]).is_ok());
    let escaped = text.find("[escaped]").expect("there");
    assert!(read("network/x", &text[..escaped]).is_err());
}

#[test]
fn no_text_makes_the_parser_panic() {
    use proptest::prelude::*;
    proptest!(|(cut in 0..GOOD.len(), noise in "\\PC{0,12}")| {
        let cut = (0..=cut).rev().find(|at| GOOD.is_char_boundary(*at)).unwrap_or(0);
        let text = format!("{}{noise}{}", &GOOD[..cut], &GOOD[cut..]);
        if let Err(mistakes) = read("network/x", &text) {
            prop_assert!(mistakes.to_string().contains("help: "));
        }
    });
}
