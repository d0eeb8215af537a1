//! A sandbox's audit as `cargo test`: each case in each sandbox is a test, named `<sandbox>::<category>/<case>`.
//!
//! In the repository of a sandbox, all that `main` does in `tests/sandbox.rs`, a test with `harness = false`:
//!
//! ```no_run
//! escape_audit::test::main("escape-audit.toml");
//! ```
//!
//! Under `cargo test` everything that is selected is one audit; under cargo-nextest, which runs each test in a process of
//! its own, each is an audit of one case. Skips are decided when tests are listed. It is a façade for people who work on a
//! sandbox: a test runner exits 0 where no test was selected. `escape-audit run` is the gate.

mod outcome;
mod selection;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};

use self::outcome::Outcomes;
use self::selection::Listed;
pub use crate::case::Level;
use crate::case::{Case, Filter, Library};
use crate::cli::audit::{self, Plan};
use crate::cli::gating::Gating;
use crate::cli::terminal;
use crate::config::{self, Sandbox};
use crate::diag::schema::Named as _;
use crate::exit_code;
use crate::gate;
use crate::safe_text::SafeText;

/// Runs the tests of every sandbox of a project file, and ends the process: [`Gate::main`].
pub fn main(project: impl Into<PathBuf>) -> ! {
    Gate::from_project(project).main()
}

/// Which sandboxes are tested, by which cases.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    project: PathBuf,
    sandboxes: Vec<String>,
    folders: Vec<PathBuf>,
    level: Option<Level>,
    filter: Filter,
}

impl Gate {
    /// Every sandbox of this project file, by the whole library at the sandbox's own level. A relative path is below
    /// where the test is started, which is the package's own folder under cargo.
    pub fn from_project(path: impl Into<PathBuf>) -> Self {
        Self {
            project: path.into(),
            ..Self::default()
        }
    }

    /// This sandbox, and those that are named besides, instead of all.
    pub fn sandbox(mut self, name: impl Into<String>) -> Self {
        self.sandboxes.push(name.into());
        self
    }

    /// More cases: a folder of `<category>/<name>.toml`.
    pub fn cases(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folders.push(folder.into());
        self
    }

    /// This level of paranoia instead of each sandbox's own.
    pub fn level(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }

    /// Only the cases whose id matches this glob, or another that is named so.
    pub fn only(mut self, glob: impl Into<String>) -> Self {
        self.filter.cases.push(glob.into());
        self
    }

    /// Not the cases whose id matches this glob.
    pub fn skip(mut self, glob: impl Into<String>) -> Self {
        self.filter.skips.push(glob.into());
        self
    }

    /// Does what a test binary does, by the arguments of this process, and ends it: 0 where no test failed, 101 where one
    /// did, 2 where nothing could be run, and as the gate on a signal.
    ///
    /// Call it first in `main`, before anything starts a thread: the process may be one of the audit's own helpers,
    /// which are the running program executed again.
    pub fn main(self) -> ! {
        if let Some(status) = crate::hidden::dispatch() {
            process::exit(status);
        }
        let status = self.run(&Arguments::from_args());
        process::exit(status.unwrap_or_else(|error| {
            eprint!("{}", terminal::complaint(&error));
            exit_code::USAGE
        }))
    }

    fn run(self, arguments: &Arguments) -> Result<i32> {
        let project = config::load(&self.project)?;
        let library = Library::load(&self.folders)?;
        let cases: Vec<Case> = self.filter.select(&library)?.into_iter().cloned().collect();
        let mut sandboxes = match &self.sandboxes[..] {
            [] => project.sandboxes.clone(),
            names => {
                let found = names.iter().map(|name| config::find(Some(&project), name));
                found.collect::<Result<Vec<Sandbox>, _>>()?
            }
        };
        for sandbox in &mut sandboxes {
            sandbox.policy.level = self.level.unwrap_or(sandbox.policy.level);
            audit::check(sandbox)?;
        }
        let rules = Gating::default().rules(Some(&project), false, &library)?;
        let mut plan = Plan::new(library, cases, sandboxes, project.range);
        plan.quiet = !io::stderr().is_terminal();

        let listed = Arc::new(Listed::of(&plan.planned()?, &plan.cases, &plan.sandboxes));
        let outcomes: Arc<OnceLock<Outcomes>> = Arc::default();
        let tests: Vec<Trial> = listed
            .tests()
            .map(|test| {
                let (outcomes, name) = (Arc::clone(&outcomes), test.name.clone());
                Trial::test(&test.name, move || match outcomes.get() {
                    Some(outcomes) => outcomes.get(&name).map_err(Failed::from),
                    None => Err("it was not audited".into()),
                })
                .with_ignored_flag(test.ignored.is_some())
            })
            .collect();
        if !arguments.list {
            let selected =
                |test: &&Trial| !arguments.is_filtered_out(test) && !arguments.is_ignored(test);
            let selected: Vec<&str> = tests.iter().filter(selected).map(Trial::name).collect();
            self.say(arguments, &tests, &listed, selected.len());
            let chosen = listed.trials(&selected);
            let report = match chosen.is_empty() {
                true => None,
                false => {
                    plan.choose(chosen);
                    plan.repeat = plan.sandboxes.iter().map(|s| self.repeat(s)).collect();
                    Some(audit::perform(&mut plan, |report, caught| {
                        gate::settle(report, &rules, caught);
                    })?)
                }
            };
            if let Some(report) = &report
                && report.exit_code >= exit_code::HUNG_UP
            {
                return Ok(report.exit_code);
            }
            for (name, waived) in outcome::waived(report.as_ref()) {
                eprintln!(
                    "{} escaped, {}",
                    SafeText::line(&name),
                    SafeText::line(&waived)
                );
            }
            // Nobody else sets it.
            let _ = outcomes.set(Outcomes::of(&listed, report.as_ref()));
        }
        let conclusion = libtest_mimic::run(arguments, tests);
        Ok(if conclusion.has_failed() {
            101
        } else {
            exit_code::HELD
        })
    }

    /// What to tell `escape-audit run` so that it audits this sandbox in the same way.
    fn repeat(&self, sandbox: &Sandbox) -> Vec<String> {
        let project = self.project.to_string_lossy();
        let mut words = vec!["--config", &project, "--sandbox", &sandbox.name];
        if let Some(level) = self.level {
            words.extend(["--level", level.word()]);
        }
        words.into_iter().map(str::to_owned).collect()
    }

    /// What the runner has no place for: why a test is ignored, and that there is none.
    fn say(&self, arguments: &Arguments, tests: &[Trial], listed: &Listed, selected: usize) {
        for test in tests
            .iter()
            .filter(|test| !arguments.is_filtered_out(test) && arguments.is_ignored(test))
        {
            if let Some(why) = listed.why_ignored(test.name()) {
                eprintln!(
                    "ignored {}: {}",
                    SafeText::line(test.name()),
                    SafeText::line(why)
                );
            }
        }
        if selected == 0 {
            eprintln!(
                "no test of {} is selected: nothing is audited, and nothing is proven",
                self.project.display()
            );
        }
    }
}
