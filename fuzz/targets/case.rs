//! Any text as a case file: the parser and the renderer of its mistakes never panic, every mistake is somewhere in the
//! file, and a text means the same twice.

#![no_main]

use escape_audit::case::parse;
use escape_audit::diag::Source;
use libfuzzer_sys::fuzz_target;

#[path = "mistakes.rs"]
mod mistakes;

fuzz_target!(|text: &str| {
    // What must be blocked and what must work are read by different rules.
    for id in ["network/fuzzed", "works/fuzzed"] {
        let source = Source::new("fuzzed.toml", text);
        let read = parse::parse(id, &source);
        match &read {
            Ok(case) => {
                assert_eq!(case.id, id);
                // A comment at the end says nothing.
                let same = format!("{text}\n# the end\n");
                let again = parse::parse(id, &Source::new("fuzzed.toml", &same));
                let again = again.expect("a comment at its end makes a case wrong");
                assert_eq!(again.attempt, case.attempt);
                assert_eq!(again.weakened, case.weakened);
                assert_eq!(
                    (again.title, again.why, again.fix),
                    (case.title.clone(), case.why.clone(), case.fix.clone())
                );
            }
            Err(mistakes) => mistakes::check(mistakes, text),
        }
    }
});
