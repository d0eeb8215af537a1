use super::*;

fn source(text: &str) -> Source {
    Source::new("network/x.toml", text)
}

#[test]
fn the_smallest_case_of_what_must_work() {
    let text = r#"
title = "Run"
severity = "high"
level = "standard"
expect = "allowed"
why = "w"
fix = "f"
[attempt.run]
"#;
    let case = parse("works/run", &source(text)).expect("valid");
    assert_eq!((case.attempt, case.danger), (Attempt::Run, Danger::Looks));
}
