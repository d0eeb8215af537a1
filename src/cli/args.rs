//! The command line, as clap reads it. Doc comments are the help texts.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::gating::Gating;
use super::outputs::{self, Output};
use crate::case::{Filter, Level, Partition, Severity};
use crate::config::Date;
use crate::config::model::CANARY_PORT;
use crate::protection::{PROTECTIONS, Protection};
use crate::report::junit::Profile;

/// Attack your sandbox on every commit, and prove that it holds.
#[derive(Debug, Parser)]
#[command(name = "escape-audit", version, about, disable_help_subcommand = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Audit sandboxes: the embedded one, those of the project file, or any launcher after `--`
    Run(Box<Run>),
    /// Show that every case can fail: without the protections that it names, its attempt must get through
    Prove(Prove),
    /// Show the cases
    List(List),
    /// Show one case: what is tried, what proves it, why it matters, what to do
    Explain(Explain),
    /// Check case files, and say everything that is wrong with them
    Lint(Lint),
    /// Remember what held, and hold a later audit against it
    #[command(subcommand)]
    Baseline(Baseline),
    /// Compare two JSON reports: what escaped, what was fixed, what vanished, and what had changed
    Diff(Diff),
    /// Waive an escape in one sandbox until a day: append `[[gate.waiver]]` to the project file
    Waive(Waive),
    /// Say whether a record of `run --attest` is about this image and this configuration, and held
    Verify(Verify),
    /// Remove what killed runs left behind
    Clean,
    /// Play the internet for the audits of another machine: run it on a host out there, and name that in `[range] internet`
    Canary(Canary),
    /// Write a project file for what is here: Compose files, Dockerfiles, engines
    Init(Init),
    /// Say what can be isolated and limited on this machine, by doing it
    Doctor(Doctor),
    /// Write the digest of each image that is named by a tag into the project file
    Pin(Pin),
    /// Print the completions for a shell
    Completions(Completions),
    /// Print the manual page, or write one for each command
    Man(Man),
    /// Explain: `help exit-codes`, `help verdicts`, `help protections`
    Help(Help),
}

/// `init`.
#[derive(Debug, Args)]
pub struct Init {
    /// The folder that is looked at, and that the file is written to
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// Replace a project file that is there
    #[arg(long)]
    pub force: bool,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `pin`.
#[derive(Debug, Args)]
pub struct Pin {
    /// The project file [default: escape-audit.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only this sandbox
    #[arg(long, value_name = "NAME")]
    pub sandbox: Option<String>,
    /// Write nothing; exit with 1 where there is something to write
    #[arg(long)]
    pub check: bool,
}

/// `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Write one page a command into this folder
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// `help`.
#[derive(Debug, Args)]
pub struct Help {
    /// A topic or a command
    #[arg(value_name = "TOPIC")]
    pub topic: Option<String>,
}

/// `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// A sandbox: `oci`, `unsandboxed`, or one of the project file; may be given more than once
    #[arg(long = "sandbox", value_name = "NAME", conflicts_with = "launcher")]
    pub sandboxes: Vec<String>,
    /// The project file [default: escape-audit.toml, where there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Protections to take away, to see what each one holds: `network`, `pids`, …
    #[arg(long, value_name = "PROTECTION", value_delimiter = ',', value_parser = protection)]
    pub without: Vec<Protection>,
    /// What the sandbox promises: it ends what runs longer
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// What the sandbox promises: a ceiling on output, `1m`
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub output: Option<u64>,
    /// What the sandbox promises: a ceiling on memory, `512m`
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub mem_limit: Option<u64>,
    /// What the sandbox promises: a ceiling on processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4000))]
    pub pids_limit: Option<u64>,
    /// What the sandbox promises: a ceiling on CPU time, in CPUs
    #[arg(long, value_name = "N", value_parser = cpus)]
    pub cpus: Option<f64>,
    /// What the launcher promises: a folder that may be written; may be given more than once [default: /tmp]
    #[arg(long, value_name = "DIR", requires = "launcher")]
    pub writable: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reports: Reports,
    /// Write a record of what was audited with which result: an in-toto statement, for others to sign
    #[arg(long, value_name = "FILE")]
    pub attest: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub selection: Selection,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub gating: Gating,
    /// How many short trials at a time [default: twice the CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// A sandbox of its own for every case, also for those that only look
    #[arg(long)]
    pub fresh: bool,
    /// How often a trial that could not be decided is made again, alone [default: once for a ceiling on CPU time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10))]
    pub retries: Option<u32>,
    /// Any launcher, with its arguments; the probe's own command is appended, and `{probe}` in an argument stands for
    /// its path
    #[arg(last = true, value_name = "LAUNCHER")]
    pub launcher: Vec<String>,
}

/// `prove`.
#[derive(Debug, Args)]
pub struct Prove {
    /// The project file that `--sandbox` is in
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The sandbox that protections are taken away from: one of backend `oci` or `docker`
    #[arg(long, value_name = "NAME", default_value = "oci")]
    pub sandbox: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub selection: Selection,
    /// Write a report, as `json` or `jsonl`: in the others an escape would be a failure, and here it is the proof
    #[arg(long = "format", value_name = "FORMAT=PATH", value_parser = neutral)]
    pub formats: Vec<Output>,
    /// Short for `--format json=FILE`
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Prove {
    /// Every report that is asked for.
    pub fn outputs(&self) -> Vec<Output> {
        outputs(&self.formats, &[("json", &self.json)])
    }
}

/// Which reports.
#[derive(Debug, Default, Args)]
pub struct Reports {
    #[arg(long = "format", value_name = "FORMAT=PATH", value_parser = outputs::parse, help = outputs::help())]
    #[allow(missing_docs)]
    pub formats: Vec<Output>,
    /// Short for `--format junit=FILE`
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Short for `--format json=FILE`
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// `rich` has files, lines and properties of testcases; `strict` has nothing that a published schema refuses
    #[arg(long, value_enum, value_name = "PROFILE", default_value = "rich")]
    pub junit_profile: ProfileName,
}

impl Reports {
    /// Every report that is asked for.
    pub fn outputs(&self) -> Vec<Output> {
        outputs(
            &self.formats,
            &[("json", &self.json), ("junit", &self.junit)],
        )
    }
}

fn outputs(formats: &[Output], short: &[(&str, &Option<PathBuf>)]) -> Vec<Output> {
    let short = short
        .iter()
        .filter_map(|(format, path)| Output::file(format, path.as_deref()?));
    formats.iter().cloned().chain(short).collect()
}

/// A JUnit profile on the command line.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
#[allow(missing_docs)]
pub enum ProfileName {
    Strict,
    #[default]
    Rich,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::Strict => Self::Strict,
            ProfileName::Rich => Self::Rich,
        }
    }
}

/// `list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub selection: Selection,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The case's id, `<category>/<name>`
    pub case: String,
    /// More cases: a folder of `<category>/<name>.toml`; may be given more than once
    #[arg(long = "cases", value_name = "DIR")]
    pub folders: Vec<PathBuf>,
}

/// `lint`.
#[derive(Debug, Args)]
pub struct Lint {
    /// A folder of `<category>/<name>.toml` [default: the library itself]
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// `verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// The record: what `run --attest FILE` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The image that has to have been audited: `sha256:…` or `NAME@sha256:…` [default: the one that the project file pins]
    #[arg(long, value_name = "DIGEST")]
    pub image: Option<String>,
    /// The project file whose settings and policy have to have been audited [default: escape-audit.toml, where there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The sandbox of the project file [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub sandbox: Option<String>,
    /// The lowest level that is enough [default: the sandbox's own]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub level: Option<LevelName>,
    /// By which library: this program's, or any
    #[arg(long, value_enum, value_name = "WHICH", default_value = "current")]
    pub library: LibraryName,
    /// More cases that belong to the library: a folder of `<category>/<name>.toml`; may be given more than once
    #[arg(long = "cases", value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// No longer ago than this: `7d`, `12h`, `30m`
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub max_age: Option<Duration>,
    /// Take a record for which not all cases of the level were asked for
    #[arg(long)]
    pub allow_partial: bool,
    /// Take a record in which escapes are waived, until the waivers expire
    #[arg(long)]
    pub allow_waived: bool,
}

/// Which library is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum LibraryName {
    Current,
    Any,
}

/// `baseline`.
#[derive(Debug, Subcommand)]
pub enum Baseline {
    /// Write a baseline from a JSON report, to be committed
    Write {
        /// A report that `run --json FILE` wrote
        #[arg(value_name = "REPORT")]
        report: PathBuf,
        /// The baseline's file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Hold a JSON report against a baseline
    Check {
        /// A file that `baseline write` made
        #[arg(value_name = "BASELINE")]
        baseline: PathBuf,
        /// A report that `run --json FILE` wrote
        #[arg(value_name = "REPORT")]
        report: PathBuf,
    },
}

/// `diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// The earlier report, as `run --json FILE` wrote it
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The later one
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `waive`.
#[derive(Debug, Args)]
pub struct Waive {
    /// The case's id; a pattern would also excuse cases that nobody has written yet
    pub case: String,
    /// The sandbox in which it is waived, and no other
    #[arg(long, value_name = "NAME")]
    pub sandbox: String,
    /// The last day on which the waiver counts
    #[arg(long, value_name = "DATE")]
    pub until: Date,
    /// Why you live with it; it stands in every report
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Where it is followed up
    #[arg(long, value_name = "TEXT")]
    pub ticket: Option<String>,
    /// The project file [default: escape-audit.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// More cases: a folder of `<category>/<name>.toml`; may be given more than once
    #[arg(long = "cases", value_name = "DIR")]
    pub folders: Vec<PathBuf>,
}

/// `canary`.
#[derive(Debug, Args)]
pub struct Canary {
    /// Ports for connections; 0 is any free one. What another program of that host has is left to it, and said
    #[arg(
        long,
        value_name = "PORTS",
        value_delimiter = ',',
        default_value = "22,80,443,853,3128,8080,8443,0"
    )]
    pub tcp: Vec<u16>,
    /// Ports for datagrams
    #[arg(
        long,
        value_name = "PORTS",
        value_delimiter = ',',
        default_value = "123,443,51820,0"
    )]
    pub udp: Vec<u16>,
    /// Ports for questions about names, over both
    #[arg(
        long,
        value_name = "PORTS",
        value_delimiter = ',',
        default_value = "53"
    )]
    pub dns: Vec<u16>,
    /// The port on which audits ask what was heard
    #[arg(long, value_name = "PORT", default_value_t = CANARY_PORT)]
    pub control: u16,
}

/// Which cases.
#[derive(Debug, Default, Args)]
pub struct Selection {
    /// More cases: a folder of `<category>/<name>.toml`; may be given more than once
    #[arg(long = "cases", value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// Only the cases whose id matches
    #[arg(long = "case", value_name = "GLOB")]
    pub cases: Vec<String>,
    /// Not the cases whose id matches
    #[arg(long = "skip", value_name = "GLOB")]
    pub skips: Vec<String>,
    /// Only the cases with this tag
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Only the cases of at least this severity
    #[arg(long, value_enum, value_name = "SEVERITY")]
    pub severity: Option<SeverityName>,
    /// The level of paranoia: what must hold [default: the sandbox's own]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub level: Option<LevelName>,
    /// Only this part of the cases, for audits that share the work: `hash:1/3`
    #[arg(long, value_name = "hash:M/N")]
    pub partition: Option<Partition>,
}

impl Selection {
    /// As the library takes it.
    pub fn filter(&self) -> Filter {
        Filter {
            cases: self.cases.clone(),
            skips: self.skips.clone(),
            tags: self.tags.clone(),
            severity: self.severity.map(Severity::from),
            level: self.level.map(Level::from),
            partition: self.partition,
        }
    }
}

/// A severity on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[allow(missing_docs)]
pub enum SeverityName {
    Info,
    Low,
    Medium,
    High,
    Critical,
}

impl From<SeverityName> for Severity {
    fn from(name: SeverityName) -> Self {
        match name {
            SeverityName::Info => Self::Info,
            SeverityName::Low => Self::Low,
            SeverityName::Medium => Self::Medium,
            SeverityName::High => Self::High,
            SeverityName::Critical => Self::Critical,
        }
    }
}

/// A level on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[allow(missing_docs)]
pub enum LevelName {
    Standard,
    Strict,
    Hostile,
}

impl From<LevelName> for Level {
    fn from(name: LevelName) -> Self {
        match name {
            LevelName::Standard => Self::Standard,
            LevelName::Strict => Self::Strict,
            LevelName::Hostile => Self::Hostile,
        }
    }
}

/// A launcher without `--` before it is taken for a mistake, and told what is missing.
pub fn with_tip(mut error: clap::Error) -> clap::Error {
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => word.clone(),
        _ => return error,
    };
    let command = error.get(ContextKind::Usage).map(ToString::to_string);
    let of_run = command.is_some_and(|usage| usage.contains("<LAUNCHER>"));
    if error.kind() == ErrorKind::UnknownArgument && of_run {
        let word = crate::safe_text::SafeText::line_within(word, 60);
        let tip = format!("write the launcher after `--`: escape-audit run -- {word} …");
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
    error
}

fn protection(text: &str) -> Result<Protection, String> {
    let names: Vec<&str> = PROTECTIONS.iter().map(|(_, name, _)| *name).collect();
    Protection::from_name(text)
        .ok_or_else(|| format!("no such protection; {}", crate::diag::suggest(text, &names)))
}

/// A format in which an escape is not a failure.
fn neutral(text: &str) -> Result<Output, String> {
    let output = outputs::parse(text)?;
    match output.format.neutral {
        true => Ok(output),
        false => Err("here an escape is the proof, and this format would call it a failure: write `json` or `jsonl`".into()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    crate::diag::schema::bytes(text)
        .filter(|bytes| (1024..=1 << 40).contains(bytes))
        .ok_or_else(|| "write it as `512m` or `1g`".into())
}

fn cpus(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|cpus| (0.01..=1024.0).contains(cpus))
        .ok_or_else(|| "write a number of CPUs, as `0.5`".into())
}

fn age(text: &str) -> Result<Duration, String> {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    units
        .iter()
        .find_map(|(unit, seconds)| {
            let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
            count.checked_mul(*seconds)
        })
        .map(Duration::from_secs)
        .ok_or_else(|| "write it as `7d`, `12h`, `30m` or `90s`".into())
}

fn duration(text: &str) -> Result<Duration, String> {
    let number = |unit: &str| {
        text.strip_suffix(unit)
            .and_then(|n| n.trim().parse::<f64>().ok())
    };
    number("ms")
        .map(|n| n / 1000.0)
        .or_else(|| number("s"))
        .or_else(|| number("m").map(|n| n * 60.0))
        .filter(|seconds| (0.1..=3600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "write it as `10s`, `1500ms` or `2m`, from 0.1 seconds to an hour".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_launcher_without_its_dashes_gets_a_tip() {
        let said = |words: &[&str]| {
            let error = Arguments::try_parse_from(words).expect_err("refused");
            with_tip(error).to_string()
        };
        let launcher = said(&["escape-audit", "run", "bwrap", "--unshare-all"]);
        assert!(
            launcher.contains("tip: write the launcher after `--`: escape-audit run -- bwrap …"),
            "{launcher}"
        );
        assert!(!said(&["escape-audit", "run", "--nope"]).contains("after `--`:"));
        assert!(!said(&["escape-audit", "clean", "bwrap"]).contains("launcher"));
    }

    #[test]
    fn ages() {
        assert_eq!(age("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(age("90s"), Ok(Duration::from_secs(90)));
        for wrong in [
            "",
            "7",
            "d",
            "-1d",
            "1.5d",
            "99999999999999999999d",
            "999999999999999999d",
        ] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("10").is_err() && duration("-1s").is_err() && duration("9h").is_err());
    }
}
