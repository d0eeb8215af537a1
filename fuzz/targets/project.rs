//! Any text as a project file: parser and renderer never panic, every mistake is somewhere in the file, and a text
//! means the same twice.

#![no_main]

use escape_audit::config;
use escape_audit::diag::Source;
use libfuzzer_sys::fuzz_target;

#[path = "mistakes.rs"]
mod mistakes;

fuzz_target!(|text: &str| {
    let source = Source::new("fuzzed.toml", text);
    match config::parse(&source) {
        Ok(project) => {
            let same = format!("{text}\n# the end\n");
            let again = config::parse(&Source::new("fuzzed.toml", &same));
            assert_eq!(
                again.expect("a comment at its end makes a project wrong"),
                project
            );
        }
        Err(mistakes) => mistakes::check(&mistakes, text),
    }
});
