//! What to say on the command line so that a sandbox is audited once more as it was.

use std::collections::BTreeSet;

use super::args::{LevelName, Prove, Run};
use crate::case::Level;
use crate::protection::Protection;
use crate::report::style::word;

/// The options of `run` for one of its sandboxes; the cases and the launcher are not among them.
pub fn of_run(arguments: &Run, sandbox: &str) -> Vec<String> {
    let mut words = Words::default();
    words.option(
        "--config",
        arguments.config.as_deref().map(|path| path.display()),
    );
    if arguments.launcher.is_empty() {
        words.option("--sandbox", Some(sandbox));
    }
    words.without(&arguments.without.iter().copied().collect());
    let timeout = arguments
        .timeout
        .map(|timeout| format!("{}ms", timeout.as_millis()));
    words.option("--timeout", timeout);
    words.option("--output", arguments.output);
    words.option("--mem-limit", arguments.mem_limit);
    words.option("--pids-limit", arguments.pids_limit);
    words.option("--cpus", arguments.cpus);
    for place in &arguments.writable {
        words.option("--writable", Some(place));
    }
    words.level(arguments.selection.level.map(Level::from));
    if arguments.fresh {
        words.0.push("--fresh".into());
    }
    words.0
}

/// The options of `run` for a sandbox that `prove` took this set of protections away from.
pub fn of_prove(arguments: &Prove, without: &BTreeSet<Protection>) -> Vec<String> {
    let mut words = Words::default();
    words.option(
        "--config",
        arguments.config.as_deref().map(|path| path.display()),
    );
    words.option("--sandbox", Some(&arguments.sandbox));
    words.without(without);
    words.level(Some(
        arguments
            .selection
            .level
            .map_or(Level::Hostile, LevelName::into),
    ));
    words.0
}

#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    fn option(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.0.extend([name.to_owned(), value.to_string()]);
        }
    }

    fn without(&mut self, protections: &BTreeSet<Protection>) {
        let names: Vec<&str> = protections.iter().map(|one| one.name()).collect();
        self.option("--without", (!names.is_empty()).then(|| names.join(",")));
    }

    fn level(&mut self, level: Option<Level>) {
        self.option("--level", level.map(word));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::{Arguments, Command};

    fn run(line: &[&str]) -> Box<Run> {
        let words = ["escape-audit", "run"].iter().chain(line);
        match Arguments::try_parse_from(words).expect("it parses").command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    /// What is said again is read as it was, and said the same once more.
    #[test]
    fn it_is_read_as_the_first_one_was() {
        let lines: [&[&str]; 3] = [
            &[
                "--config",
                "a b.toml",
                "--sandbox",
                "agent",
                "--without",
                "network,pids",
                "--level",
                "strict",
                "--fresh",
            ],
            &[
                "--timeout",
                "1.5s",
                "--mem-limit",
                "512m",
                "--pids-limit",
                "9",
                "--cpus",
                "0.5",
                "--output",
                "1m",
            ],
            &["--writable", "/a", "--writable", "/b", "--", "bwrap"],
        ];
        for line in lines {
            let first = run(line);
            let mut words = of_run(&first, "agent");
            words.push("--".into());
            words.extend(first.launcher.clone());
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let again = run(&words);
            let told = |run: &Run| {
                format!(
                    "{:?}",
                    (
                        &run.config,
                        &run.without,
                        run.timeout,
                        run.output,
                        run.mem_limit,
                        run.pids_limit
                    )
                ) + &format!(
                    "{:?}",
                    (run.cpus, &run.writable, run.selection.level, run.fresh)
                )
            };
            assert_eq!(told(&again), told(&first));
            assert_eq!(of_run(&again, "agent"), of_run(&first, "agent"));
        }
        assert_eq!(of_run(&run(&["--", "bwrap"]), "command"), [""; 0]);
        assert_eq!(of_run(&run(&[]), "oci"), ["--sandbox", "oci"]);
    }
}
