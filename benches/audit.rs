//! What the harness costs, as ratios taken in one run: the library against a bare loop of containers, `list`, memory.
//!
//! `cargo bench` (as root, or with a delegated cgroup). The bare loop makes as many empty containers with the same
//! settings at the same parallelism: created, started, waited for, deleted. Everything above a ratio of 1 is what
//! canaries, controls, evidence and cleanup cost.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use escape_audit::backend::{Backend, Launch, oci};
use escape_audit::case::{Case, Library};
use escape_audit::config::{BackendKind, RangeConfig, Sandbox};
use escape_audit::run::bench::Bench;
use escape_audit::run::{self, Audit};
use futures_util::stream::{self, StreamExt};

const ROUNDS: usize = 5;
const PROGRAM: &str = env!("CARGO_BIN_EXE_escape-audit");

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
    list();
    memory();
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
        jobs: run::default_jobs(&bench),
        fresh: true,
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
    ratios.sort_by(f64::total_cmp);
    println!(
        "library / bare loop: median {:.2}, from {:.2} to {:.2} (aim: at most 1.3)",
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1]
    );
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
        .map(|number| one(bench, sandbox, format!("bare-{round}-{number}")))
        .buffer_unordered(jobs)
        .collect::<Vec<()>>()
        .await;
    begun.elapsed()
}

async fn one(bench: &Bench, sandbox: &Sandbox, name: String) {
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
        host_folders: &[],
        as_user: None,
        may_mount: false,
    };
    let mut running = oci::Oci.start(&launch).await.expect("the container starts");
    running.stdin = None;
    running.life.ended().await;
    running.life.end().await;
    limiter.remove().unwrap();
    fs::remove_dir_all(&folder).unwrap();
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
fn memory() {
    let mut child = Command::new(PROGRAM)
        .arg("run")
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
        "harness over a whole audit: {:.1} MiB resident at most (aim: at most 64)",
        f64::from(peak) / 1024.0
    );
}
