//! One case in one sandbox: its token, its sentinels, and what was seen of it alone.

use std::fs;
use std::path::Path;
use std::time::Duration;

use escape_audit_probe::wire::Outcome;
use rand::Rng;
use tokio::time::{Instant, sleep};

use super::bench::Bench;
use super::dose::{GRACE, Given};
use super::instance::Seen;
use crate::case::{Attempt, Case};
use crate::config::BackendKind;
use crate::evidence::{Evidence, Inside, SecretFound};
use crate::host::engine;
use crate::host::mounts::Translator;
use crate::host::written;
use crate::range::posts::Posts;
use crate::range::sentinel::Sentinel;
use crate::range::{Range, TargetSpec, Token};

/// One trial in the making.
pub(super) struct Trial<'a> {
    pub(super) case: &'a Case,
    pub(super) token: Token,
    /// The targets that the attempt aims at.
    pub(super) specs: Vec<TargetSpec>,
    /// The attempt is made for nothing: the sandbox's user is root already.
    pub(super) already_root: bool,
    /// What is evidence in this trial alone.
    pub(super) evidence: Evidence,
    /// When the attempt began and ended.
    pub(super) began: Option<std::time::Instant>,
    pub(super) ended: Option<std::time::Instant>,
    sentinels: Vec<Sentinel>,
    signal_value: i32,
}

impl<'a> Trial<'a> {
    pub(super) fn new(case: &'a Case, range: &Range, posts: Option<&Posts>) -> Self {
        let here = range.targets(&case.attempt);
        Self {
            case,
            token: range.watch(),
            specs: match posts {
                Some(posts) => posts.targets(&case.attempt, here),
                None => here,
            },
            already_root: false,
            evidence: Evidence::default(),
            began: None,
            ended: None,
            sentinels: Vec::new(),
            signal_value: rand::rng().random_range(1..i32::MAX),
        }
    }

    /// Starts what the attempt looks for, and notes what it may leave.
    pub(super) fn plant(&mut self, run_dir: &Path) -> std::io::Result<()> {
        if matches!(self.case.attempt, Attempt::WriteFile { .. }) {
            written::begin(run_dir, self.token.as_str())?;
        }
        if matches!(self.case.attempt, Attempt::ListProcesses | Attempt::Signal) {
            let sentinel = Sentinel::start(&crate::range::myself(), None)?;
            self.sentinels.push(sentinel);
        }
        Ok(())
    }

    /// What range and plants give to the attempt. Beacons only where what is sent stays on this machine.
    pub(super) fn given(
        &self,
        bench: &Bench,
        translator: &Translator,
        backend: BackendKind,
        on_this_machine: bool,
    ) -> Given {
        let specs = &self.specs;
        // A socket of the host may appear at another path; any other address is the same everywhere.
        let addresses = || -> Vec<String> {
            let all = specs.iter().map(|spec| spec.address.clone());
            let elsewhere = specs
                .iter()
                .filter_map(|spec| spec.address.strip_prefix("path:"))
                .flat_map(|path| translator.inside(Path::new(path)))
                .map(|path| format!("path:{}", path.display()));
            all.chain(elsewhere).collect()
        };
        let outlive = matches!(self.case.attempt, Attempt::Outlive { .. });
        let plants = &bench.plants;
        let paths: Vec<String> = match &self.case.attempt {
            Attempt::ReadFile { paths } => paths
                .iter()
                .flat_map(|path| plants.expand_path(path))
                .collect(),
            // What the case names is tried as it is named, and where the host's own socket appears.
            Attempt::EngineSocket { paths } => [paths.clone(), engine::sockets(paths)].concat(),
            _ => Vec::new(),
        };
        let places = plants.writable_places();
        let places = places
            .iter()
            .map(|place| place.to_string_lossy().into_owned());
        Given {
            token: self.token.as_str().to_owned(),
            thread_name: String::new(),
            targets: if outlive { Vec::new() } else { addresses() },
            paths: translator.with_translations(paths),
            host_folders: translator.with_translations(places.collect()),
            sentinels: self.sentinels.iter().map(Sentinel::pid).collect(),
            processes: {
                let elsewhere = translator.inside(Path::new("/proc")).into_iter();
                let elsewhere = elsewhere.map(|place| place.to_string_lossy().into_owned());
                elsewhere.collect()
            },
            signal_value: self.signal_value,
            beacons: if outlive && on_this_machine {
                addresses()
            } else {
                Vec::new()
            },
            helpers: bench.helpers(backend),
            resolver: false,
            cpus: bench.machine.cpus,
        }
    }

    /// What the probe told.
    pub(super) fn told(&mut self, inside: Inside, nonce: &str, bench: &Bench) {
        self.evidence.inside = inside;
        self.find_secrets(nonce, bench);
    }

    fn find_secrets(&mut self, nonce: &str, bench: &Bench) {
        let evidence = &mut self.evidence;
        let mut found: Vec<SecretFound> = Vec::new();
        for key in ["env", "env-part", "file"] {
            for fact in evidence.inside.facts_of(key) {
                let hash = std::str::from_utf8(&fact.value).unwrap_or_default();
                let Some(secret) = bench.plants.match_secret(nonce, hash) else {
                    continue;
                };
                let secret = SecretFound {
                    name: secret.name,
                    found_in: fact.name.clone(),
                    real: secret.real,
                };
                if !found.contains(&secret) {
                    found.push(secret);
                }
            }
        }
        evidence.secrets.extend(found);
        let read = evidence.inside.steps_of("read");
        let ok = read.filter(|step| step.outcome == Outcome::Ok);
        let uncompared: Vec<String> = ok
            .map(|step| step.target.clone())
            .filter(|path| !bench.plants.knows(path))
            .filter(|path| fs::metadata(path).is_ok_and(|meta| meta.is_file()))
            .collect();
        if matches!(self.case.attempt, Attempt::ReadFile { .. }) {
            evidence.uncompared.extend(uncompared);
        }
    }

    /// A signal that was sent takes a moment to be told of by who got it.
    async fn hear_sentinels(&mut self) {
        let inside = &self.evidence.inside;
        let sent = inside
            .steps_of("signal")
            .any(|step| step.outcome == Outcome::Ok);
        let until = Instant::now() + GRACE;
        while sent && Instant::now() < until {
            let value = self.signal_value;
            if self.sentinels.iter_mut().any(|s| s.signalled_with(value)) {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether the sentinels are well.
    pub(super) async fn look_at_sentinels(&mut self, nonce: &str) {
        self.hear_sentinels().await;
        let sentinel = &mut self.evidence.sentinel;
        sentinel.alive = !self.sentinels.is_empty();
        for planted in &mut self.sentinels {
            sentinel.alive &= planted.alive();
            sentinel.signalled |= planted.signalled_with(self.signal_value);
            let hash = escape_audit_probe::sha256::secret_hash(nonce, planted.name().as_bytes());
            sentinel.seen |= self
                .evidence
                .inside
                .facts
                .iter()
                .any(|fact| fact.key == "process" && fact.value == hash.as_bytes());
        }
    }

    /// Ends what was planted, and removes what was written.
    pub(super) fn sweep(&mut self, range: &Range, run_dir: &Path) {
        // The probe removes its files before it says that the attempt has ended.
        if self.evidence.inside.done.is_some() {
            written::done(run_dir, self.token.as_str());
        }
        self.sentinels.clear();
        range.forget(&self.token);
        // A probe that was ended while it waited could not remove what it had written.
        for path in &self.evidence.host_files {
            if path.ends_with(self.token.as_str()) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Its own evidence, and what is evidence in every trial of the sandbox. In a shared one it took the time of its
    /// attempt.
    pub(super) fn seen(self, common: &Evidence, shared: bool) -> Seen {
        let own = self.evidence;
        let times = self.began.zip(self.ended).filter(|_| shared);
        Seen {
            evidence: Evidence {
                inside: own.inside,
                targets: own.targets,
                resolver_asks_us: own.resolver_asks_us,
                touches: own.touches,
                secrets: own.secrets,
                uncompared: own.uncompared,
                host_files: own.host_files,
                counts: own.counts,
                sentinel: own.sentinel,
                elapsed: times.map_or(common.elapsed, |(began, ended)| ended - began),
                ..common.clone()
            },
            already_root: self.already_root,
        }
    }
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn random_hex(bytes: usize) -> String {
    let mut rng = rand::rng();
    (0..bytes)
        .map(|_| format!("{:02x}", rng.random::<u8>()))
        .collect()
}
