//! What the harness costs, as ratios taken in one run: the library against a bare loop of containers, the library on a
//! container engine against a fresh container a case, `list`, memory.
//!
//! `cargo bench` (as root, or with a delegated cgroup; with the range's engine: `fixtures/range/enter cargo bench`). The
//! bare loop makes as many empty containers with the same settings at the same parallelism: created, started, waited for,
//! deleted. Everything above a ratio of 1 is what canaries, controls, evidence and cleanup cost. An engine takes a tenth
//! of a second and more for a container, so there the library is measured by what it saves: one after the other, a
//! container for every case.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use escape_audit::backend::{self, Backend, Launch, oci};
use escape_audit::case::{Case, Library};
use escape_audit::config::{self, BackendKind, RangeConfig, Sandbox};
use escape_audit::run::bench::Bench;
use escape_audit::run::{self, Audit};
use futures_util::stream::{self, StreamExt};

const ROUNDS: usize = 5;
const ENGINE_ROUNDS: usize = 3;
const PROGRAM: &str = env!("CARGO_BIN_EXE_escape-audit");
const SANDBOXES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/sandboxes.toml");
const HARDENED: &str = "docker-hardened";

fn main() {
    // The embedded backend and the range execute this very program again.
    if let Some(status) = escape_audit::hidden::dispatch() {
        std::process::exit(status);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(library_against_bare_loop());
    let docker = runtime.block_on(library_against_fresh_containers());
    list();
    memory("oci", &["run"]);
    if docker {
        let hardened = ["run", "--config", SANDBOXES, "--sandbox", HARDENED];
        memory(HARDENED, &hardened);
    }
}

async fn library_against_bare_loop() {
    let library = Library::load(&[]).expect("the library is valid");
    let cases: Vec<Case> = library.cases.into_iter().filter(run::is_instant).collect();
    let sandbox = Sandbox::new("oci", BackendKind::Oci);
    let range = RangeConfig::default();
    let bench =
        Bench::open(&cases, std::slice::from_ref(&sandbox), &range).expect("the bench opens");
    let audit = Audit {
        range: RangeConfig::default(),
        cases,
        sandboxes: vec![sandbox],
        only_weakened: false,
        chosen: None,
        jobs: run::default_jobs(&bench),
        fresh: true,
        retries: None,
    };
    let count = audit.planned(&bench).len();
    let mut ratios = Vec::new();
    println!(
        "{count} instant cases, {} at a time, {ROUNDS} rounds",
        audit.jobs
    );
    for round in 0..=ROUNDS {
        let bare = bare_loop(&bench, &audit.sandboxes[0], count, audit.jobs, round).await;
        let begun = Instant::now();
        let outcome = run::run(&audit, &bench, &mut |_| {}, std::future::pending())
            .await
            .expect("the audit runs");
        let whole = begun.elapsed();
        assert!(
            outcome
                .trials
                .iter()
                .all(|trial| trial.observed.faults.is_empty())
        );
        if round > 0 {
            ratios.push(whole.as_secs_f64() / bare.as_secs_f64());
            println!(
                "  library {whole:>8.1?}   bare loop {bare:>8.1?}   ratio {:.2}",
                ratios[round - 1]
            );
        }
    }
    summarise("library / bare loop", ratios, "1.3");
}

fn summarise(what: &str, mut ratios: Vec<f64>, aim: &str) {
    ratios.sort_by(f64::total_cmp);
    println!(
        "{what}: median {:.2}, from {:.2} to {:.2} (aim: at most {aim})",
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1]
    );
}

/// Whether there is an engine to measure with.
async fn library_against_fresh_containers() -> bool {
    let skipped = |why: String| {
        println!("library on {HARDENED}: SKIPPED: {why}");
        false
    };
    // The range's own alone: no other engine on this machine is used.
    if std::env::var_os("ESCAPE_AUDIT_RANGE_IMAGES").is_none() {
        return skipped("no engine of the range is here (fixtures/range/enter cargo bench)".into());
    }
    let library = Library::load(&[]).expect("the library is valid");
    let cases: Vec<Case> = library.cases.into_iter().filter(run::is_instant).collect();
    let project = config::load(Path::new(SANDBOXES)).expect("the project file is valid");
    let found = project
        .sandboxes
        .iter()
        .find(|known| known.name == HARDENED);
    let sandbox = found.expect("it is there").clone();
    let bench = Bench::open(&cases, std::slice::from_ref(&sandbox), &project.range)
        .expect("the bench opens");
    let engine = match backend::open(&sandbox, &bench.opening(&|_| {})).await {
        Ok(engine) => engine,
        Err(error) => return skipped(error.to_string()),
    };
    let audit = Audit {
        range: project.range,
        cases,
        sandboxes: vec![sandbox],
        only_weakened: false,
        chosen: None,
        jobs: run::default_jobs(&bench),
        fresh: false,
        retries: None,
    };
    let count = audit
        .planned(&bench)
        .iter()
        .filter(|trial| trial.skip.is_none())
        .count();
    println!("{count} instant cases on {HARDENED}, {ENGINE_ROUNDS} rounds");
    let mut ratios = Vec::new();
    for round in 0..ENGINE_ROUNDS {
        let begun = Instant::now();
        for number in 0..count {
            let name = format!("fresh-{round}-{number}");
            one(&bench, &*engine, &audit.sandboxes[0], name).await;
        }
        let fresh = begun.elapsed();
        let begun = Instant::now();
        let outcome = run::run(&audit, &bench, &mut |_| {}, std::future::pending())
            .await
            .expect("the audit runs");
        let whole = begun.elapsed();
        let faults = outcome
            .trials
            .iter()
            .flat_map(|trial| &trial.observed.faults);
        assert_eq!(faults.count(), 0);
        ratios.push(whole.as_secs_f64() / fresh.as_secs_f64());
        println!(
            "  library {whole:>8.1?}   a container a case {fresh:>8.1?}   ratio {:.2}",
            ratios[round]
        );
    }
    assert_eq!(engine.close().await, Vec::<String>::new());
    summarise("library / a container a case", ratios, "0.25");
    true
}

/// As many containers, with nothing but the probe's start and end in them.
async fn bare_loop(
    bench: &Bench,
    sandbox: &Sandbox,
    count: usize,
    jobs: usize,
    round: usize,
) -> Duration {
    let begun = Instant::now();
    stream::iter(0..count)
        .map(|number| one(bench, &oci::Oci, sandbox, format!("bare-{round}-{number}")))
        .buffer_unordered(jobs)
        .collect::<Vec<()>>()
        .await;
    begun.elapsed()
}

async fn one(bench: &Bench, backend: &dyn Backend, sandbox: &Sandbox, name: String) {
    let folder = bench.run_dir().join(&name);
    let limiter = bench.limiter(&name).unwrap().expect("cgroups can be made");
    let launch = Launch {
        trial: &name,
        sandbox,
        settings: &sandbox.settings,
        probe: &bench.probe,
        folder: &folder,
        entry: bench.entry(sandbox),
        limiter: Some(&limiter),
        environment: &[],
        home: Path::new("/"),
        exposed: &[],
        gains: false,
        set_uid: None,
        as_user: None,
        may_mount: false,
    };
    let mut running = backend.start(&launch).await.expect("the container starts");
    running.stdin = None;
    running.life.ended().await;
    running.life.end().await;
    limiter.remove().unwrap();
    // Not every backend makes one.
    let _ = fs::remove_dir_all(&folder);
}

fn list() {
    let mut times: Vec<Duration> = (0..21)
        .map(|_| {
            let begun = Instant::now();
            let status = Command::new(PROGRAM)
                .arg("list")
                .stdout(Stdio::null())
                .status()
                .unwrap();
            assert!(status.success());
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "list: median {:.1?}, from {:.1?} to {:.1?} (aim: at most 20 ms)",
        times[10], times[0], times[20]
    );
}

/// The harness's own highest resident memory over a whole audit; what its attempts use is not its own.
fn memory(sandbox: &str, arguments: &[&str]) {
    let mut child = Command::new(PROGRAM)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let now = status.lines().find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        });
        peak = peak.max(now.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    println!(
        "harness over a whole audit of {sandbox}: {:.1} MiB resident at most (aim: at most 64)",
        f64::from(peak) / 1024.0
    );
}
