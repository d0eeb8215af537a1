//! `run`, `prove` and `clean`: from arguments to reports.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};

use super::args::{Prove, Run, Selection};
use super::attest::Attest;
use super::gating::{day_of, selected_by, today};
use super::outputs::Outputs;
use super::pin;
use super::proof::Proof;
use super::repeat;
use super::signals::{self, Signals};
use super::terminal;
use crate::backend::command::find_program;
use crate::backend::docker;
use crate::case::{Case, Expect, Library};
use crate::config::{self, BackendKind, Project, RangeConfig, Sandbox};
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::exit_code;
use crate::gate::{self, Interrupted, Rules};
use crate::host::hierarchy::Hierarchy;
use crate::plan::{self, Planned};
use crate::range::turn;
use crate::report::decided::Decided;
use crate::report::junit::Profile;
use crate::report::live::{Event, Live};
use crate::report::{Report, Style, Summary, Tool, human};
use crate::run::bench::{self, Bench};
use crate::run::{self, Audit, Happened};
use crate::safe_text::SafeText;

/// Audits, and gives back the exit code. An error means that nothing ran.
pub fn run(arguments: &Run) -> Result<i32> {
    let reports = &arguments.reports;
    let mut outputs = Outputs::claim(
        &reports.outputs(),
        reports.junit_profile.into(),
        arguments.attest.as_deref(),
    )?;
    let (library, cases) = select(&arguments.selection)?;
    let project = project(arguments.config.as_deref())?;
    let mut sandboxes = sandboxes(arguments, project.as_ref())?;
    for sandbox in &mut sandboxes {
        adjust(sandbox, arguments)?;
        try_what_was_named(sandbox, &arguments.selection, &cases);
        check(sandbox)?;
    }
    let attest = outputs
        .attest
        .take()
        .map(|file| Attest::take_down(file, &sandboxes, project.as_ref()))
        .transpose()?;
    let repeat = sandboxes
        .iter()
        .map(|sandbox| repeat::of_run(arguments, &sandbox.name))
        .collect();
    let quick = !arguments.launcher.is_empty();
    let rules = arguments.gating.rules(project.as_ref(), quick, &library)?;
    let range = project.map(|project| project.range).unwrap_or_default();
    let plan = Plan {
        attest,
        selection: selected_by(&arguments.selection),
        repeat,
        jobs: arguments.jobs.map(usize::from),
        fresh: arguments.fresh,
        retries: arguments.retries,
        outputs,
        ..Plan::new(library, cases, sandboxes, range)
    };
    let decide = |report: &mut Report, caught| gate::settle(report, &rules, caught);
    carry_out(plan, decide, human::write)
}

/// Tries every case in a sandbox that lacks just what the case names: each has to come out ESCAPED.
pub fn prove(arguments: &Prove) -> Result<i32> {
    let outputs = Outputs::claim(&arguments.outputs(), Profile::default(), None)?;
    let (library, cases) = select(&arguments.selection)?;
    let project = project(arguments.config.as_deref())?;
    let base = config::find(project.as_ref(), &arguments.sandbox)?;
    if !matches!(base.backend, BackendKind::Oci | BackendKind::Docker) {
        let backend = base.backend.name();
        let text = format!("nothing can be taken away from a sandbox of backend `{backend}`");
        let help = "name one of backend `oci` or `docker`";
        let diagnostics = Diagnostics::from(Diagnostic::new(Code::NotExpressible, text, help));
        return Err(diagnostics.into());
    }
    let sets: BTreeSet<BTreeSet<_>> = cases
        .iter()
        .filter(|case| case.expect == Expect::Blocked)
        .map(|case| {
            let set = case.weakened.for_backend(base.backend.name());
            set.iter().copied().collect::<BTreeSet<_>>()
        })
        .filter(|set| !set.is_empty())
        .collect();
    let mut sandboxes = Vec::new();
    for set in sets {
        let names: Vec<&str> = set.iter().map(|protection| protection.name()).collect();
        let mut sandbox = base.clone();
        sandbox.name = format!("{}-without-{}", base.name, names.join("-"));
        sandbox.without = set;
        sandbox.policy.level = match arguments.selection.level {
            Some(level) => level.into(),
            None => crate::case::Level::Hostile,
        };
        sandboxes.push(sandbox);
    }
    let repeat = sandboxes
        .iter()
        .map(|sandbox| repeat::of_prove(arguments, &sandbox.without))
        .collect();
    let range = project.map(|project| project.range).unwrap_or_default();
    let plan = Plan {
        selection: selected_by(&arguments.selection),
        repeat,
        only_weakened: true,
        outputs,
        ..Plan::new(library, cases, sandboxes, range)
    };
    // The gate speaks of sandboxes that are meant to hold; these are meant to fail.
    let decide = |report: &mut Report, caught: Option<Interrupted>| {
        gate::settle(report, &Rules::strict(today()), caught);
        if caught.is_none() {
            report.exit_code = Proof::of(report).exit_code();
            report.gate = Decided::without_gate(report.exit_code);
        }
    };
    carry_out(plan, decide, super::proof::write)
}

/// Removes what killed runs left.
pub fn clean() -> Result<i32> {
    let hierarchy = Hierarchy::find().ok();
    let mut reaped: BTreeSet<String> = bench::reap(hierarchy.as_ref()).into_iter().collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    match runtime.block_on(docker::sweep::clean()) {
        Ok(swept) => {
            let swept = swept.unwrap_or_default();
            (removed, left) = (swept.removed, swept.left);
        }
        Err(error) => left.push(format!("the container engine was not looked at: {error}")),
    }
    // A container that the engine was still starting has made its groups once more meanwhile.
    reaped.extend(bench::reap(hierarchy.as_ref()));
    if let Some(hierarchy) = hierarchy {
        hierarchy.tidy();
    }
    if !removed.is_empty() {
        let removed = SafeText::line(removed.join(", "));
        println!("removed from the container engine: {removed}");
    }
    for what in &left {
        eprintln!("warning: {}", SafeText::line(what));
    }
    match reaped.len() {
        0 if removed.is_empty() && left.is_empty() => println!("nothing was left behind"),
        0 => {}
        count => println!(
            "removed what {count} ended runs had left: {}",
            SafeText::line(reaped.into_iter().collect::<Vec<_>>().join(", "))
        ),
    }
    Ok(match left.is_empty() {
        true => exit_code::HELD,
        false => exit_code::UNDECIDED,
    })
}

/// Everything that is known before anything runs.
pub(crate) struct Plan {
    attest: Option<Attest>,
    library: Library,
    /// The cases that may be tried.
    pub(crate) cases: Vec<Case>,
    selection: Vec<String>,
    /// The sandboxes that they are tried in.
    pub(crate) sandboxes: Vec<Sandbox>,
    /// What to say so that each sandbox is audited again.
    pub(crate) repeat: Vec<Vec<String>>,
    range: RangeConfig,
    only_weakened: bool,
    /// Only these trials, by the names of sandbox and case; `None`: all.
    chosen: Option<BTreeSet<(String, String)>>,
    jobs: Option<usize>,
    fresh: bool,
    retries: Option<u32>,
    /// Nothing is told while it runs.
    pub(crate) quiet: bool,
    outputs: Outputs,
}

impl Plan {
    /// These cases in these sandboxes, and no report file.
    pub(crate) fn new(
        library: Library,
        cases: Vec<Case>,
        sandboxes: Vec<Sandbox>,
        range: RangeConfig,
    ) -> Self {
        Self {
            attest: None,
            library,
            cases,
            selection: Vec::new(),
            repeat: vec![Vec::new(); sandboxes.len()],
            sandboxes,
            range,
            only_weakened: false,
            chosen: None,
            jobs: None,
            fresh: false,
            retries: None,
            quiet: same_stream(),
            outputs: Outputs::default(),
        }
    }

    /// Only these trials, by the names of sandbox and case. Call it before `repeat` is set.
    pub(crate) fn choose(&mut self, chosen: BTreeSet<(String, String)>) {
        self.sandboxes
            .retain(|sandbox| chosen.iter().any(|(name, _)| *name == sandbox.name));
        self.cases
            .retain(|case| chosen.iter().any(|(_, id)| *id == case.id));
        self.chosen = Some(chosen);
    }

    /// The trials that would be made on this machine, and why some would not: it is measured as for an audit.
    pub(crate) fn planned(&self) -> Result<Vec<Planned>> {
        runtime()?.block_on(async {
            let bench = Bench::open(&self.cases, &self.sandboxes, &self.range)?;
            needs_a_cgroup(&self.sandboxes, &bench)?;
            Ok(plan::plan(&self.cases, &self.sandboxes, &bench.machine))
        })
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")
}

/// How long an audit waits for another one in the same network. Then it goes on, and says what it could not decide.
const TURN: Duration = Duration::from_secs(600);

/// Makes the audit, whose cases and sandboxes it takes, and gives back its report with what was decided by it.
pub(crate) fn perform(
    plan: &mut Plan,
    decide: impl FnOnce(&mut Report, Option<Interrupted>),
) -> Result<Report> {
    let runtime = runtime()?;
    let began = (SystemTime::now(), Instant::now());
    let report = runtime.block_on(async {
        let mut listening = Signals::listen().context("listen for signals")?;
        let mut before = None;
        let turn = async {
            match plan.sandboxes.iter().any(Sandbox::has_an_engines_network) {
                true => {
                    turn::wait(TURN, || {
                        eprintln!("waiting for the audit that is at work in this network")
                    })
                    .await
                }
                false => None,
            }
        };
        let _turn = tokio::select! {
            signal = listening.next() => { before = Some(signal); None }
            turn = turn => turn,
        };
        let bench = Bench::open(&plan.cases, &plan.sandboxes, &plan.range)?;
        needs_a_cgroup(&plan.sandboxes, &bench)?;
        let audit = Audit {
            jobs: plan.jobs.unwrap_or_else(|| run::default_jobs(&bench)),
            only_weakened: plan.only_weakened,
            fresh: plan.fresh,
            retries: plan.retries,
            chosen: plan.chosen.take(),
            cases: std::mem::take(&mut plan.cases),
            sandboxes: std::mem::take(&mut plan.sandboxes),
            range: std::mem::take(&mut plan.range),
        };
        let style = terminal::style(&io::stderr());
        let mut live = match plan.quiet {
            true => Live::quiet(),
            false => Live::new(io::stderr().is_terminal(), style),
        };
        live.event(Event::Started {
            sandbox: &names(&audit.sandboxes),
            total: audit.planned(&bench).len(),
        });
        let mut caught = None;
        let outcome = run::run(
            &audit,
            &bench,
            &mut |happened| {
                live.event(match happened {
                    Happened::Progress(text) => Event::Working(text),
                    Happened::Trial(trial) => Event::TrialDone(trial),
                });
            },
            listening.first(before, &mut caught),
        )
        .await?;
        live.finish();
        let mut report = report(
            outcome,
            &plan.library,
            std::mem::take(&mut plan.selection),
            std::mem::take(&mut plan.repeat),
            began,
        );
        decide(&mut report, caught);
        anyhow::Ok(report)
    })?;
    drop(runtime);
    Ok(report)
}

fn carry_out(
    mut plan: Plan,
    decide: impl FnOnce(&mut Report, Option<Interrupted>),
    tell: impl FnOnce(&Report, &mut dyn Write, Style) -> io::Result<()>,
) -> Result<i32> {
    let report = perform(&mut plan, decide)?;
    signals::leave_at_the_next("the sandboxes are gone, and not every report was written");
    let style = terminal::style(&io::stdout());
    let attested = plan
        .attest
        .map(|attest| attest.write(&report, &plan.library));
    let unwritten = plan
        .outputs
        .write(&report, |report, out| tell(report, out, style));
    let mut code = report.exit_code;
    for error in attested.and_then(Result::err).into_iter().chain(unwritten) {
        eprint!("{}", terminal::complaint(&error));
        // What was decided stands; but what nobody can read holds nothing.
        if code == exit_code::HELD {
            code = exit_code::UNDECIDED;
        }
    }
    Ok(code)
}

/// Progress and report in one file or pipe (`2>&1`) would tell every case twice; on a terminal the bar goes away.
fn same_stream() -> bool {
    let identity = |fd| {
        nix::sys::stat::fstat(fd)
            .ok()
            .map(|stat| (stat.st_dev, stat.st_ino))
    };
    !io::stderr().is_terminal() && identity(1) == identity(2)
}

fn report(
    mut outcome: run::Outcome,
    library: &Library,
    selection: Vec<String>,
    repeat: Vec<Vec<String>>,
    began: (SystemTime, Instant),
) -> Report {
    for (sandbox, words) in outcome.sandboxes.iter_mut().zip(repeat) {
        sandbox.repeat = words;
    }
    // Readers of reports know files by where they are in the repository, which is where an audit is started.
    if let Ok(here) = std::env::current_dir() {
        for trial in &mut outcome.trials {
            if let Ok(below) = trial.source.source.strip_prefix(&here) {
                trial.source.source = below.to_owned();
            }
        }
    }
    Report {
        schema: 1,
        tool: Tool {
            name: "escape-audit",
            version: env!("CARGO_PKG_VERSION"),
            library: library.digest.clone(),
            cases: library.cases.len(),
        },
        started: rfc3339(began.0),
        elapsed: began.1.elapsed(),
        incomplete: outcome
            .interrupted
            .then(|| "the audit was interrupted; only what was decided by then is here".to_owned()),
        selection,
        summary: Summary::of(&outcome.trials),
        sandboxes: outcome.sandboxes,
        trials: outcome.trials,
        gate: Decided::without_gate(exit_code::NOTHING_RAN),
        exit_code: exit_code::NOTHING_RAN,
    }
}

fn select(selection: &Selection) -> Result<(Library, Vec<Case>)> {
    let library = Library::load(&selection.folders)?;
    let cases: Vec<Case> = selection
        .filter()
        .select(&library)?
        .into_iter()
        .cloned()
        .collect();
    Ok((library, cases))
}

pub(super) fn project(given: Option<&Path>) -> Result<Option<Project>> {
    match given {
        Some(path) => Ok(Some(pin::load(path)?)),
        None if Path::new(config::FILE_NAME).is_file() => {
            Ok(Some(pin::load(Path::new(config::FILE_NAME))?))
        }
        None => Ok(None),
    }
}

fn sandboxes(arguments: &Run, project: Option<&Project>) -> Result<Vec<Sandbox>> {
    if !arguments.launcher.is_empty() {
        return Ok(vec![config::quick_command(arguments.launcher.clone())]);
    }
    if !arguments.sandboxes.is_empty() {
        let mut found = Vec::new();
        for name in &arguments.sandboxes {
            found.push(config::find(project, name)?);
        }
        return Ok(found);
    }
    match project {
        Some(project) if !project.sandboxes.is_empty() => Ok(project.sandboxes.clone()),
        _ => Ok(vec![config::find(None, "oci")?]),
    }
}

fn adjust(sandbox: &mut Sandbox, arguments: &Run) -> Result<()> {
    if !arguments.without.is_empty() {
        if !matches!(sandbox.backend, BackendKind::Oci | BackendKind::Docker) {
            bail!(
                "--without: the sandbox `{}` {}",
                sandbox.name,
                match sandbox.backend {
                    BackendKind::Unsandboxed =>
                        "has no protections to take away\nhelp: audit `--sandbox oci`",
                    _ =>
                        "has protections of its launcher's, which are not ours to take away\n\
                         help: change the launcher's own flags, or audit `--sandbox oci`",
                }
            );
        }
        sandbox.without.extend(&arguments.without);
    }
    if let Some(timeout) = arguments.timeout {
        sandbox.policy.timeout = Some(timeout);
    }
    let policy = &mut sandbox.policy;
    policy.output = arguments.output.or(policy.output);
    policy.pids = arguments.pids_limit.or(policy.pids);
    policy.cpus = arguments.cpus.or(policy.cpus);
    policy.memory = arguments.mem_limit.or(policy.memory);
    policy.memory_and_swap = arguments.mem_limit.or(policy.memory_and_swap);
    if !arguments.writable.is_empty() {
        policy.writable.retain(|place| place.starts_with("/dev/"));
        policy.writable.extend(arguments.writable.iter().cloned());
    }
    if let Some(level) = arguments.selection.level {
        policy.level = level.into();
    }
    Ok(())
}

/// A case that is asked for by name is tried, whatever the level: dropped in silence, it would look as if it held.
fn try_what_was_named(sandbox: &mut Sandbox, selection: &Selection, cases: &[Case]) {
    if selection.level.is_none() && !selection.cases.is_empty() {
        let highest = cases.iter().map(|case| case.level).max();
        sandbox.policy.level = sandbox
            .policy
            .level
            .max(highest.unwrap_or(sandbox.policy.level));
    }
}

/// What can be known to be missing before anything runs.
pub(crate) fn check(sandbox: &Sandbox) -> Result<()> {
    if let Some(rootfs) = &sandbox.settings.rootfs {
        check_rootfs(sandbox, rootfs)?;
    }
    if let Some(profile) = &sandbox.settings.seccomp_profile
        && !profile.is_file()
    {
        bail!(
            "the system call filter `{}` of the sandbox `{}` is not there\n\
             help: correct the path, which is below the project file's own folder",
            profile.display(),
            sandbox.name
        );
    }
    if sandbox.backend == BackendKind::Command {
        let program = sandbox.command.first().map_or("", String::as_str);
        if find_program(program).is_none() {
            bail!(
                "the launcher `{program}` of the sandbox `{}` was not found\n\
                 help: install it, or correct the command; nothing was run",
                sandbox.name
            );
        }
    }
    Ok(())
}

/// Nothing is made in a folder of the user's, so the places that something is mounted on have to be there.
fn check_rootfs(sandbox: &Sandbox, rootfs: &Path) -> Result<()> {
    let settings = &sandbox.settings;
    let tmpfs = settings.tmpfs.iter().map(|tmpfs| tmpfs.path.as_str());
    let volumes = settings.volumes.iter().map(|volume| volume.inside.as_str());
    let missing: Vec<&str> = ["/", "/proc", "/dev"]
        .into_iter()
        .chain(tmpfs)
        .chain(volumes)
        .filter(|place| !place.starts_with("/dev/"))
        .filter(|place| !rootfs.join(place.trim_start_matches('/')).exists())
        .collect();
    if !missing.is_empty() {
        bail!(
            "the root file system `{}` of the sandbox `{}` lacks {}\n\
             help: make these folders in it, or leave out what is mounted there",
            rootfs.display(),
            sandbox.name,
            missing.join(", ")
        );
    }
    Ok(())
}

/// Never a sandbox without ceilings.
fn needs_a_cgroup(sandboxes: &[Sandbox], bench: &Bench) -> Result<()> {
    let Some(why) = &bench.no_cgroup else {
        return Ok(());
    };
    if sandboxes
        .iter()
        .any(|sandbox| sandbox.backend == BackendKind::Oci)
    {
        bail!(
            "the embedded sandbox cannot be given ceilings here: {why}\n\
             help: run it with sudo, or inside `systemd-run --user --scope -p Delegate=yes -- escape-audit …`"
        );
    }
    Ok(())
}

fn names(sandboxes: &[Sandbox]) -> String {
    sandboxes
        .iter()
        .map(|sandbox| sandbox.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) fn all_of<E: std::fmt::Display>(errors: Vec<E>) -> anyhow::Error {
    let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
    anyhow!("{}", text.join("\nerror: "))
}

/// `2026-11-29T13:19:49Z`.
fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = since.as_secs() % 86_400;
    format!(
        "{}T{:02}:{:02}:{:02}Z",
        day_of(time),
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_958_389), "2026-11-29T13:19:49Z");
    }
}
