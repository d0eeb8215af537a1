//! The sandboxes of `fixtures/sandboxes.toml`, audited through a real engine: the hardened one holds, the engine's
//! defaults do not, without a set of protections the cases that name it get through, a kernel of its own is proven, and
//! whatever differs is explained in `fixtures/sandboxes-expected.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use escape_audit::case::{Case, Expect, Level, Library};
use escape_audit::protection::Protection;
use serde_json::Value;

use crate::docker::on_the_engine;
use crate::main_job::{OCI, counts};
use crate::support::{Audit, Seen, alone, copy_of, have, text};

/// What takes seconds each. It is tried without the sets that it names; the rest without every set.
const SLOW: [&str; 4] = [
    "network/*-egress",
    "processes/outlive-*",
    "resources/cpu-*",
    "resources/output-flood",
];

/// From this line on, the file is made from the library.
const MADE: &str =
    "# From here on: the hardened one without each set of protections that a case names.";

/// The table of what holds or not in all of these, as the engine's own filter goes.
const WITHOUT: &str = "docker-without";

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/sandboxes.toml")
}

fn library() -> Vec<Case> {
    Library::load(&[]).unwrap().cases
}

fn set_of(case: &Case) -> BTreeSet<Protection> {
    case.weakened
        .for_backend("docker")
        .iter()
        .copied()
        .collect()
}

/// The sandbox that lacks this set.
fn without(set: &BTreeSet<Protection>) -> String {
    let names: Vec<&str> = set.iter().map(|p| p.name()).collect();
    format!("{WITHOUT}-{}", names.join("-"))
}

/// The sets that cases name for this backend, each with the cases that name it.
fn sets() -> BTreeMap<BTreeSet<Protection>, BTreeSet<String>> {
    let mut sets: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    let cases = library().into_iter();
    for case in cases.filter(|case| case.expect == Expect::Blocked) {
        sets.entry(set_of(&case)).or_default().insert(case.id);
    }
    // What no setting lets through, a runner of `fixtures/runners` does.
    sets.remove(&BTreeSet::new());
    sets
}

/// The hardened sandbox's own lines, without its comments.
fn hardened(written: &str) -> String {
    let (_, after) = written.split_once("[sandbox.docker-hardened]\n").unwrap();
    let (lines, _) = after.split_once("\n\n").unwrap();
    let bare = |line: &str| line.split('#').next().unwrap().trim_end().to_owned();
    lines.lines().map(|line| bare(line) + "\n").collect()
}

fn made(written: &str) -> String {
    let settings = hardened(written);
    let mut text = format!("{MADE}\n");
    for set in sets().keys() {
        let names: Vec<&str> = set.iter().map(|protection| protection.name()).collect();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n[sandbox.{}]\n{settings}without       = {names:?}\npolicy        = {{ level = \"hostile\" }}\n",
            without(set)
        );
    }
    text
}

/// `UPDATE_EXPECTED=1 cargo test` writes the made part anew.
#[test]
fn there_is_a_sandbox_without_each_set_that_a_case_names() {
    let there = fs::read_to_string(project()).unwrap();
    let written = there.split(MADE).next().unwrap();
    let wanted = format!("{written}{}", made(written));
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(project(), &wanted).unwrap();
    }
    let there = fs::read_to_string(project()).unwrap();
    assert_eq!(
        there, wanted,
        "run UPDATE_EXPECTED=1 cargo test, and read the difference"
    );
}

/// Sandbox → case → the verdict that is neither BLOCKED nor ALLOWED.
fn expected() -> BTreeMap<String, BTreeMap<String, String>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/sandboxes-expected.toml");
    let table: BTreeMap<String, BTreeMap<String, [String; 2]>> =
        toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let verdict = |(case, [verdict, why]): (String, [String; 2])| {
        assert!(why.len() > 10, "{case}: explain it");
        (case, verdict)
    };
    let table = table.into_iter();
    table
        .map(|(sandbox, cases)| (sandbox, cases.into_iter().map(verdict).collect()))
        .collect()
}

/// Audits sandboxes of the file. On the engine nothing may be left of it either.
fn audit(sandboxes: &[&str], more: &[&str], prepare: impl FnOnce(&mut Command)) -> Seen {
    let config = project().to_string_lossy().into_owned();
    let mut arguments = vec!["--config", config.as_str()];
    arguments.extend(sandboxes.iter().flat_map(|name| ["--sandbox", name]));
    arguments.extend(more);
    let audit = Audit::start_in("run", &arguments, prepare);
    let pid = audit.pid;
    let seen = audit.finish();
    assert_eq!(on_the_engine(pid), Vec::<String>::new());
    seen
}

fn by_itself(sandboxes: &[&str], more: &[&str]) -> Seen {
    let _alone = alone();
    audit(sandboxes, more, |_| {})
}

static HARDENED: LazyLock<Seen> = LazyLock::new(|| by_itself(&["docker-hardened"], &[]));
static DEFAULT: LazyLock<Seen> = LazyLock::new(|| by_itself(&["docker-default"], &[]));

/// What came out otherwise than it is expected to.
fn unexplained(seen: &Seen, sandbox: &str, named: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut all = expected();
    let explained = all.remove(sandbox).unwrap_or_default();
    let mut of_engine = all.remove(WITHOUT).unwrap_or_default();
    of_engine.retain(|_, _| sandbox.starts_with(WITHOUT));
    for trial in of(seen, sandbox) {
        let (case, verdict) = (text(&trial["case"]), text(&trial["verdict"]));
        let wanted: &[&str] = match explained.get(case).map(String::as_str) {
            _ if named.contains(case) => &["ESCAPED"],
            Some(word) => &[word],
            None if of_engine.contains_key(case) => &["BLOCKED", &of_engine[case]],
            None => &["BLOCKED", "ALLOWED"],
        };
        // What the machine itself lacks.
        let lacks = ["resources/memory-swap", "network/ipv6-egress"].contains(&case);
        let is_fine = wanted.contains(&verdict) || (lacks && verdict == "SKIPPED");
        if !is_fine {
            wrong.push(format!(
                "{sandbox}: {case}: {verdict} ({}), expected {wanted:?}: {}",
                trial["reason"], trial["sentence"]
            ));
        }
    }
    wrong
}

fn of<'a>(seen: &'a Seen, sandbox: &str) -> impl Iterator<Item = &'a Value> {
    let trials = seen.trials().iter();
    trials.filter(move |trial| trial["sandbox"] == sandbox)
}

/// Everything is as it is expected, and everything that is expected was seen.
#[track_caller]
fn as_expected(seen: &Seen, sandbox: &str) {
    let wrong = unexplained(seen, sandbox, &BTreeSet::new());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let tried: BTreeSet<&str> = of(seen, sandbox)
        .map(|trial| text(&trial["case"]))
        .collect();
    for case in expected()[sandbox].keys() {
        assert!(
            tried.contains(case.as_str()),
            "{sandbox}: {case} was not tried"
        );
    }
}

#[test]
fn what_is_expected_is_about_sandboxes_and_cases_that_there_are() {
    let project = fs::read_to_string(project()).unwrap();
    let cases: BTreeSet<String> = library().into_iter().map(|case| case.id).collect();
    for (sandbox, explained) in expected() {
        let known = project.contains(&format!("[sandbox.{sandbox}]\n"));
        assert!(known || sandbox == WITHOUT, "{sandbox}");
        let known = |case: &String| cases.contains(case);
        assert!(explained.keys().all(known), "{sandbox}: {explained:?}");
    }
}

#[test]
fn the_hardened_sandbox_holds_and_nothing_is_undecided() {
    if !have(&["root", "docker"]) {
        return;
    }
    let seen = &*HARDENED;
    let counts = counts(seen);
    let held = counts["BLOCKED"] + counts["ALLOWED"];
    let skipped = counts.get("SKIPPED").copied().unwrap_or(0);
    assert!(skipped <= 2, "{}", seen.out); // no swap, no IPv6
    assert_eq!(held + skipped, seen.trials().len(), "{}", seen.out);
    let standard = library()
        .iter()
        .filter(|case| case.level == Level::Standard)
        .count();
    assert_eq!(seen.trials().len(), standard);
    assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
    let junit = seen.junit.as_ref().unwrap();
    assert!(junit.contains(&format!("tests=\"{standard}\"")), "{junit}");
    for trial in of(seen, "docker-hardened").filter(|trial| trial["verdict"] == "BLOCKED") {
        let (case, observed) = (&trial["case"], &trial["observed"]);
        assert_eq!(trial["inside_only"], false, "{case}");
        assert!(observed["witness"]["pid"].is_number(), "{case}: {observed}");
        for target in observed["targets"].as_array().unwrap() {
            assert_eq!(target["alive"], true, "{case}: {target}");
        }
    }
}

#[test]
fn the_engines_defaults_hold_neither_the_network_nor_any_ceiling() {
    if !have(&["root", "docker"]) {
        return;
    }
    assert_eq!(DEFAULT.status, 1, "{}{}", DEFAULT.out, DEFAULT.err);
    as_expected(&DEFAULT, "docker-default");
    for case in [
        "network/tcp-egress",
        "network/udp-egress",
        "metadata/aws-v2",
        "resources/fork-bomb",
        "resources/memory",
        "resources/cpu-quota",
        "filesystem/write-outside-scratch",
    ] {
        assert_eq!(
            DEFAULT.verdict(case).0,
            "ESCAPED",
            "{case}\n{}",
            DEFAULT.out
        );
    }
}

#[test]
fn without_a_set_of_protections_the_cases_that_name_it_escape_and_nothing_unexplained_changes() {
    if !have(&["root", "docker"]) {
        return;
    }
    let sets = sets();
    let names: Vec<String> = sets.keys().map(without).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let skip: Vec<&str> = SLOW.iter().flat_map(|slow| ["--skip", slow]).collect();
    let most = by_itself(&names, &skip);
    let is_slow = |case: &String| {
        let parts = |slow: &str| slow.split('*').map(str::to_owned).collect::<Vec<_>>();
        SLOW.iter().any(|slow| {
            let parts = parts(slow);
            case.starts_with(&parts[0]) && case.ends_with(parts.last().unwrap())
        })
    };
    let naming_slow: Vec<(&str, Vec<&str>)> = sets
        .values()
        .zip(&names)
        .map(|(cases, name)| {
            let slow = cases.iter().filter(|case| is_slow(case));
            (*name, slow.flat_map(|case| ["--case", case]).collect())
        })
        .filter(|(_, cases): &(&str, Vec<&str>)| !cases.is_empty())
        .collect();
    let sandboxes: Vec<&str> = naming_slow.iter().map(|(name, _)| *name).collect();
    let cases: Vec<&str> = naming_slow
        .into_iter()
        .flat_map(|(_, cases)| cases)
        .collect();
    let rest = by_itself(&sandboxes, &cases);

    let mut wrong = Vec::new();
    let mut explained = expected();
    for ((_, named), name) in sets.iter().zip(&names) {
        let mut explained = explained.remove(*name).unwrap_or_default();
        let mut escaped = false;
        for seen in [&most, &rest] {
            wrong.extend(unexplained(seen, name, named));
            for trial in of(seen, name) {
                explained.remove(text(&trial["case"]));
                escaped |= trial["verdict"] == "ESCAPED" && trial["gates"] == true;
            }
        }
        // A machine without swap cannot show what it holds.
        assert!(escaped || *name == "docker-without-swap", "{name} holds");
        assert!(explained.is_empty(), "{name}: not tried: {explained:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for seen in [&most, &rest] {
        assert_eq!(seen.status, 1, "{}{}", seen.out, seen.err);
    }
}

#[test]
fn a_kernel_of_its_own_is_proven_and_said() {
    if !have(&["root", "docker", "gvisor"]) {
        return;
    }
    let names = ["docker-gvisor", "docker-gvisor-net"];
    let seen = by_itself(&names, &[]);
    assert_eq!(seen.status, 1, "{}{}", seen.out, seen.err);
    for name in names {
        as_expected(&seen, name);
        let by_kernel: Vec<&Value> = of(&seen, name)
            .filter(|trial| trial["reason"] == "own-kernel")
            .collect();
        for trial in &by_kernel {
            let proof = trial["observed"]["own_kernel"].to_string();
            assert!(
                proof.contains("the host sees an ordinary container's processes"),
                "{trial}"
            );
        }
    }
}

#[test]
fn cases_that_share_a_sandbox_come_out_as_they_do_alone() {
    if !have(&["root", "docker"]) {
        return;
    }
    let fresh = by_itself(&["docker-hardened"], &["--fresh"]);
    assert_eq!(fresh.verdicts(), HARDENED.verdicts(), "{}", fresh.out);
    assert_eq!(fresh.status, HARDENED.status);
    let fresh = {
        let _alone = alone();
        crate::support::run(&["--fresh"])
    };
    assert_eq!(fresh.verdicts(), OCI.verdicts(), "{}", fresh.out);
    assert_eq!(fresh.status, OCI.status);
}

/// Somebody of the group that the engine's socket belongs to: user and group.
fn user_of_the_engine() -> (u32, u32) {
    let host = std::env::var("DOCKER_HOST").unwrap();
    let socket = fs::metadata(host.strip_prefix("unix://").unwrap()).unwrap();
    let group = nix::unistd::Group::from_gid(socket.gid().into())
        .unwrap()
        .unwrap();
    let user = group.mem.first().expect("a user of the engine");
    let user = nix::unistd::User::from_name(user).unwrap().unwrap();
    assert!(!user.uid.is_root());
    (user.uid.as_raw(), user.gid.as_raw())
}

/// An ordinary user who may use the engine audits a sandbox that is as it should be: what most people have.
#[test]
fn an_ordinary_user_of_the_engine_gets_a_whole_verdict() {
    if !have(&["root", "docker", "setpriv"]) {
        return;
    }
    let (user, group) = user_of_the_engine();
    // The original may lie where only root gets to.
    let (place, program) = copy_of(env!("CARGO_BIN_EXE_escape-audit").as_ref());
    let config = place.path().join("sandboxes.toml");
    fs::copy(project(), &config).unwrap();
    let reports = place.path().join("reports");
    fs::create_dir(&reports).unwrap();
    std::os::unix::fs::chown(&reports, Some(user), Some(group)).unwrap();
    let file = |name: &str| reports.join(name);
    let alone = alone();
    let output = Command::new("setpriv")
        .args([
            format!("--reuid={user}"),
            format!("--regid={group}"),
            "--init-groups".into(),
        ])
        .arg(&program)
        .args(["run", "--sandbox", "docker-hardened", "--config"])
        .arg(&config)
        .arg("--json")
        .arg(file("report.json"))
        .current_dir(&reports)
        .output()
        .unwrap();
    // Whoever makes the other audit has to be alone, too.
    drop(alone);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = fs::read_to_string(file("report.json")).unwrap();
    let seen = Seen {
        status: output.status.code().unwrap(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        report: serde_json::from_str(&report).unwrap(),
        junit: None,
        out,
    };
    assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
    for trial in seen.trials() {
        let (case, verdict) = (text(&trial["case"]), text(&trial["verdict"]));
        let judged = (verdict, text(&trial["reason"]));
        assert_eq!(
            judged,
            HARDENED.verdict(case),
            "{case}: {}",
            trial["sentence"]
        );
    }
    assert_eq!(seen.trials().len(), HARDENED.trials().len());
}
