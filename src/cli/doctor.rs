//! `doctor`: what can be isolated and limited on this machine, proven by doing it, and what follows for an audit.
//!
//! It makes what an audit makes, a range, a group with each ceiling, one embedded sandbox, and removes all of it.

use std::collections::BTreeMap;
use std::future::pending;
use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::Result;
use nix::sched::{CloneFlags, unshare};
use serde::Serialize;

use super::args::Doctor;
use super::pin::on_a_runtime;
use super::terminal;
use crate::backend::BackendError;
use crate::backend::docker::engine::{Engine, Kind};
use crate::case::{Case, Level, Library};
use crate::config::{self, RangeConfig, Sandbox};
use crate::exit_code;
use crate::host::cgroup::{Bounds, Cgroup, Version};
use crate::range::{Mode, myself};
use crate::report::style::{Ink, Style};
use crate::run::bench::Bench;
use crate::run::{self, Audit};
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// The case that starts a sandbox and asks nothing of it.
const SMALLEST: &str = "works/run";

/// What was found out about one thing.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// What was tried.
    what: &'static str,
    /// It is there, and works.
    ok: bool,
    /// What was seen, or why it is not there.
    seen: String,
    /// What to do about it; only where it is missing.
    help: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, seen: impl Into<String>) -> Self {
        Self {
            what,
            ok: true,
            seen: seen.into(),
            help: None,
        }
    }

    fn missing(what: &'static str, why: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            what,
            ok: false,
            seen: why.into(),
            help: Some(help.into()),
        }
    }
}

/// Cases that will be skipped here, for one reason.
#[derive(Debug, Serialize)]
struct Skipped {
    reason: &'static str,
    sentence: String,
    cases: Vec<String>,
}

/// Everything.
#[derive(Debug, Serialize)]
struct Findings {
    /// An audit of the embedded sandbox can run here.
    embedded: bool,
    /// An audit of an engine's containers can run here.
    engine: bool,
    findings: Vec<Finding>,
    /// In the embedded sandbox at level `hostile`, which tries every case.
    skipped: Vec<Skipped>,
}

/// Looks, says what was found, and gives back the exit code: 3 where no sandbox can be audited.
pub fn doctor(arguments: &Doctor) -> Result<i32> {
    let found = look()?;
    let able = found.embedded || found.engine;
    super::print(|out| match arguments.json {
        true => {
            serde_json::to_writer_pretty(&mut *out, &found).map_err(io::Error::other)?;
            writeln!(out)
        }
        false => page(&found, terminal::style(&io::stdout()), out),
    })?;
    Ok(match able {
        true => exit_code::HELD,
        false => exit_code::UNDECIDED,
    })
}

fn look() -> Result<Findings> {
    let library = Library::load(&[])?;
    let mut sandbox = config::find(None, "oci")?;
    sandbox.policy.level = Level::Hostile;
    on_a_runtime(async {
        let mut findings = vec![user(), user_namespace()];
        let everything = library.cases.clone();
        let bench = Bench::open(
            &everything,
            std::slice::from_ref(&sandbox),
            &RangeConfig::default(),
        )?;
        findings.push(range(&bench));
        findings.extend(ceilings(&bench));
        let started = start(&bench, &library, &sandbox).await;
        let embedded = started.ok;
        findings.push(started);
        let skipped = skipped(&bench, everything, &sandbox);
        drop(bench);
        let engines = engine().await;
        let engine = engines.iter().all(|finding| finding.ok);
        findings.extend(engines);
        Ok(Findings {
            embedded,
            engine,
            findings,
            skipped,
        })
    })?
}

fn user() -> Finding {
    match nix::unistd::geteuid() {
        root if root.is_root() => Finding::ok("user", "root"),
        other => Finding::ok(
            "user",
            format!("uid {other}: an ordinary user, as on most CI runners"),
        ),
    }
}

/// Made by a process of its own, which ends at once.
fn user_namespace() -> Finding {
    let what = "user namespace";
    let mut command = Command::new(myself());
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: one system call in the child, and nothing is allocated.
    unsafe {
        command.pre_exec(|| Ok(unshare(CloneFlags::CLONE_NEWUSER)?));
    }
    match command.status() {
        Ok(status) if status.success() => Finding::ok(what, "can be made"),
        Ok(status) => Finding::missing(
            what,
            format!("a program in it ends with {status}"),
            NAMESPACES,
        ),
        Err(error) => Finding::missing(what, error.to_string(), NAMESPACES),
    }
}

const NAMESPACES: &str = "see `sysctl user.max_user_namespaces kernel.apparmor_restrict_unprivileged_userns \
                          kernel.unprivileged_userns_clone`; root needs none of them";

fn range(bench: &Bench) -> Finding {
    let what = "network namespace";
    match bench.range.mode() {
        Mode::Own if bench.machine.ipv6 => {
            Finding::ok(what, "made without an uplink, with IPv4 and IPv6")
        }
        Mode::Own => Finding::ok(what, "made without an uplink, with IPv4 alone"),
        Mode::LoopbackOnly { why } => Finding::missing(
            what,
            format!("{why}; attempts go to loopback alone"),
            "run as root, or where an ordinary user may make user namespaces",
        ),
        Mode::Here => Finding::missing(
            what,
            "the canaries stand in this machine's network",
            NAMESPACES,
        ),
    }
}

/// A group with each ceiling; its own, and removed.
fn ceilings(bench: &Bench) -> Vec<Finding> {
    const HELP: &str = "run it with sudo, or inside `systemd-run --user --scope -p Delegate=yes -- escape-audit …`";
    let group = match (&bench.no_cgroup, bench.limiter("doctor")) {
        (Some(why), _) => return vec![Finding::missing("cgroup", why.clone(), HELP)],
        (None, Ok(Some(group))) => group,
        (None, Ok(None)) => return vec![Finding::missing("cgroup", "none can be made", HELP)],
        (None, Err(error)) => return vec![Finding::missing("cgroup", error.to_string(), HELP)],
    };
    let version = match group.version() {
        Version::V1 => "version 1",
        Version::V2 => "version 2",
    };
    let mut found = vec![Finding::ok("cgroup", format!("{version}, a group made"))];
    let pids = Bounds {
        pids: Some(64),
        memory: None,
    };
    found.push(ceiling(
        "ceiling on processes",
        &group,
        "64",
        group.bound(pids).err(),
        ("pids", "pids.max"),
    ));
    let memory = Bounds {
        pids: None,
        memory: Some(64 << 20),
    };
    let file = if group.version() == Version::V1 {
        "memory.limit_in_bytes"
    } else {
        "memory.max"
    };
    found.push(ceiling(
        "ceiling on memory",
        &group,
        "67108864",
        group.bound(memory).err(),
        ("memory", file),
    ));
    let file = if group.version() == Version::V1 {
        "cpu.cfs_quota_us"
    } else {
        "cpu.max"
    };
    found.push(match group.read("cpu", file) {
        Some(_) => Finding::ok(
            "ceiling on CPU time",
            "the controller is there; the embedded sandbox sets it",
        ),
        None => Finding::missing(
            "ceiling on CPU time",
            format!("the group has no {file}"),
            HELP,
        ),
    });
    let swap = bench.machine.swap;
    found.push(match (bench.counts_swap, swap) {
        (true, 0) => Finding::missing(
            "ceiling on swap",
            "this machine has no free swap, so none can be filled",
            "give it swap to try it: `fallocate`, `mkswap`, `swapon`",
        ),
        (true, bytes) => Finding::ok(
            "ceiling on swap",
            format!("counted; {} MiB free", bytes >> 20),
        ),
        (false, _) => Finding::missing(
            "ceiling on swap",
            "the kernel does not count swap by group",
            "boot with `swapaccount=1`, or use cgroup version 2",
        ),
    });
    let _ = group.remove();
    found
}

fn ceiling(
    what: &'static str,
    group: &Cgroup,
    asked: &str,
    failed: Option<crate::host::cgroup::CgroupError>,
    (controller, file): (&str, &str),
) -> Finding {
    let have = group.read(controller, file).unwrap_or_default();
    match failed {
        Some(error) => {
            Finding::missing(what, error.to_string(), "see who else uses this hierarchy")
        }
        None if have.trim() == asked => {
            Finding::ok(what, format!("set, and read back from {file}"))
        }
        None => Finding::missing(
            what,
            format!("{file} holds `{}`, and {asked} was set", have.trim()),
            "see who else uses this hierarchy",
        ),
    }
}

/// The embedded sandbox, started once with a probe that only says that it is there.
async fn start(bench: &Bench, library: &Library, sandbox: &Sandbox) -> Finding {
    let what = "embedded sandbox";
    let cases: Vec<Case> = library
        .cases
        .iter()
        .filter(|case| case.id == SMALLEST)
        .cloned()
        .collect();
    if let Some(why) = &bench.no_cgroup {
        return Finding::missing(
            what,
            format!("it cannot be given ceilings: {why}"),
            "make a cgroup possible, as above; or audit an engine's containers or a launcher",
        );
    }
    let audit = Audit {
        chosen: None,
        cases,
        sandboxes: vec![sandbox.clone()],
        range: RangeConfig::default(),
        only_weakened: false,
        jobs: 1,
        fresh: true,
        retries: None,
    };
    let help = "`escape-audit run --case works/run` says more";
    match run::run(&audit, bench, &mut |_| {}, pending()).await {
        Err(error) => Finding::missing(what, format!("{error:#}"), help),
        Ok(outcome) => match outcome.trials.first() {
            Some(trial) if trial.judgement.verdict == Verdict::Allowed => {
                Finding::ok(what, "started, and the probe in it answered")
            }
            Some(trial) => Finding::missing(what, trial.judgement.sentence.clone(), help),
            None => Finding::missing(what, "the case that starts it is not in the library", help),
        },
    }
}

fn skipped(bench: &Bench, cases: Vec<Case>, sandbox: &Sandbox) -> Vec<Skipped> {
    let audit = Audit {
        chosen: None,
        cases,
        sandboxes: vec![sandbox.clone()],
        range: RangeConfig::default(),
        only_weakened: false,
        jobs: 1,
        fresh: false,
        retries: None,
    };
    let mut all: BTreeMap<(&'static str, String), Vec<String>> = BTreeMap::new();
    for planned in audit.planned(bench) {
        if let Some(skip) = planned.skip {
            let id = audit.cases[planned.case].id.clone();
            all.entry((skip.reason, skip.sentence))
                .or_default()
                .push(id);
        }
    }
    let told = all.into_iter().map(|((reason, sentence), cases)| Skipped {
        reason,
        sentence,
        cases,
    });
    told.collect()
}

/// The engine that an audit would speak to, and no other.
async fn engine() -> Vec<Finding> {
    let what = "container engine";
    let engine = match Engine::open(None).await {
        Ok(engine) => engine,
        Err(BackendError { text, help, .. }) => {
            let help = help.unwrap_or_else(|| "name one in DOCKER_HOST".into());
            return vec![Finding::missing(what, text, help)];
        }
    };
    let facts = &engine.facts;
    let kind = facts.kind.as_ref().map(Kind::to_string).unwrap_or_default();
    let seen = format!(
        "{kind} {}, API {}, at {} ({})",
        facts.version, facts.api, engine.endpoint.address, engine.endpoint.named_by
    );
    let runtimes = match facts.own_kernels.is_empty() {
        true => format!(
            "{}; none brings a kernel of its own",
            facts.runtimes.join(", ")
        ),
        false => format!(
            "{}; with a kernel of their own: {}",
            facts.runtimes.join(", "),
            facts.own_kernels.join(", ")
        ),
    };
    let mut found = vec![
        Finding::ok(what, seen),
        Finding::ok("engine's runtimes", runtimes),
    ];
    if !facts
        .security
        .iter()
        .any(|option| option.contains("seccomp"))
    {
        found.push(Finding::missing(
            "engine's filter",
            "it applies no system call filter",
            "use an engine that is built with seccomp, on a kernel that has it",
        ));
    }
    found
}

fn page(found: &Findings, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let width = found
        .findings
        .iter()
        .map(|finding| finding.what.len())
        .max()
        .unwrap_or(0);
    for finding in &found.findings {
        let (ink, word) = match finding.ok {
            true => (Ink::Green, "ok     "),
            false => (Ink::Yellow, "missing"),
        };
        let seen = SafeText::line(&finding.seen);
        writeln!(
            out,
            "  {}  {:width$}  {seen}",
            style.paint(ink, word),
            finding.what
        )?;
        if let Some(help) = &finding.help {
            writeln!(
                out,
                "           {:width$}  help: {}",
                "",
                SafeText::line(help)
            )?;
        }
    }
    writeln!(out)?;
    for skipped in &found.skipped {
        let sentence = SafeText::line(skipped.sentence.trim_end_matches('.'));
        writeln!(
            out,
            "  {} skipped, {}: {sentence}",
            cases(&skipped.cases),
            skipped.reason
        )?;
    }
    let able = match (found.embedded, found.engine) {
        (true, true) => {
            "the embedded sandbox, an engine's containers, and any launcher can be audited here"
        }
        (true, false) => {
            "the embedded sandbox and any launcher can be audited here; containers cannot"
        }
        (false, true) => "an engine's containers can be audited here; the embedded sandbox cannot",
        (false, false) => {
            "neither the embedded sandbox nor an engine's containers can be audited here"
        }
    };
    writeln!(out, "{able}")
}

fn cases(ids: &[String]) -> String {
    match ids {
        [one] => format!("`{one}` is"),
        [one, two] => format!("`{one}` and `{two}` are"),
        [one, rest @ ..] => format!("`{one}` and {} more are", rest.len()),
        [] => "nothing is".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_is_missing_and_what_to_do() {
        let found = Findings {
            embedded: false,
            engine: true,
            findings: vec![
                Finding::ok("user", "root"),
                Finding::missing("cgroup", "\x1b[31mread-only", "mount it"),
            ],
            skipped: vec![Skipped {
                reason: "needs-limiter",
                sentence: "No limiter.".into(),
                cases: vec!["a/b".into(), "a/c".into(), "a/d".into()],
            }],
        };
        let mut out = Vec::new();
        page(&found, Style::default(), &mut out).expect("written");
        let said = String::from_utf8(out).expect("text");
        assert!(said.contains("ok       user"), "{said}");
        assert!(
            said.contains("missing  cgroup  \\x1b[31mread-only\n"),
            "{said}"
        );
        assert!(said.contains("help: mount it"), "{said}");
        assert!(
            said.contains("`a/b` and 2 more are skipped, needs-limiter: No limiter\n"),
            "{said}"
        );
        assert!(said.ends_with("the embedded sandbox cannot\n"), "{said}");
    }
}
