//! The gate's options on the command line, and the rules that they and the project file make.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::args::{Selection, SeverityName};
use crate::case::Library;
use crate::config::{Date, Project, waiver};
use crate::gate::{NoTests, Rules};

/// What fails the build.
#[derive(Debug, Default, Args)]
pub struct Gating {
    /// Escapes of a lower severity are shown and do not fail; what is broken or undecided always does
    #[arg(long, value_enum, value_name = "SEVERITY")]
    pub fail_on: Option<SeverityName>,
    /// What held before, as `baseline write` wrote it: whatever of it is worse, missing or skipped now fails
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Where no case is selected for a sandbox: exit 4, or go on
    #[arg(long, value_enum, value_name = "HOW", default_value = "fail")]
    pub no_tests: NoTestsName,
    /// Exit 0 whatever is found; not where nothing could be run, nor on a signal
    #[arg(long)]
    pub no_fail: bool,
}

/// What becomes of an empty selection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum NoTestsName {
    #[default]
    Fail,
    Warn,
    Pass,
}

impl From<NoTestsName> for NoTests {
    fn from(name: NoTestsName) -> Self {
        match name {
            NoTestsName::Fail => Self::Fail,
            NoTestsName::Warn => Self::Warn,
            NoTestsName::Pass => Self::Pass,
        }
    }
}

impl Gating {
    /// The rules of one audit. The project's waivers have to name cases that exist; a launcher of the command line is no
    /// sandbox of the project, and nothing is waived in it.
    pub fn rules(
        &self,
        project: Option<&Project>,
        quick: bool,
        library: &Library,
    ) -> Result<Rules> {
        let waivers = match project {
            Some(project) if !quick => project.waivers.clone(),
            _ => Vec::new(),
        };
        waiver::check_cases(&waivers, library)?;
        let baseline = match &self.baseline {
            Some(path) => Some(super::baseline::load(path)?),
            None => None,
        };
        let strict = Rules::strict(today());
        Ok(Rules {
            waivers,
            baseline,
            fail_on: self.fail_on.map_or(strict.fail_on, Into::into),
            no_tests: self.no_tests.into(),
            no_fail: self.no_fail,
            ..strict
        })
    }
}

/// Today, in UTC. The one place that reads the clock for the gate.
pub fn today() -> Date {
    day_of(SystemTime::now())
}

/// The day of this moment, in UTC.
pub fn day_of(time: SystemTime) -> Date {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    Date::from_days(i64::try_from(seconds / 86_400).unwrap_or(0))
}

/// What the selection leaves out, as it was asked for; nothing where every case is tried.
pub fn selected_by(selection: &Selection) -> Vec<String> {
    let filter = selection.filter();
    let severity = filter.severity.map(|least| least.name().to_owned());
    let level = filter.level.map(|level| level.name().to_owned());
    let partition = filter.partition.map(|part| part.to_string());
    let options = [
        ("--case", filter.cases),
        ("--skip", filter.skips),
        ("--tag", filter.tags),
        ("--severity", severity.into_iter().collect()),
        ("--level", level.into_iter().collect()),
        ("--partition", partition.into_iter().collect()),
    ];
    let said = |(option, values): (&str, Vec<String>)| {
        let words = values.into_iter().map(|value| format!("{option} {value}"));
        words.collect::<Vec<_>>()
    };
    options.into_iter().flat_map(said).collect()
}
