//! Every case shows its teeth: without the protections that it names, and with all others, it comes out ESCAPED; and
//! nothing else changes that is not explained in `fixtures/weak/expected.toml`.

use std::collections::{BTreeMap, BTreeSet};

use escape_audit::case::{Case, Expect, Library};
use escape_audit::protection::Protection;
use serde_json::Value;

use crate::support::{Audit, alone, folder, have, run, text};

/// Cases that take seconds each. Each is tried without the sets that it names (by `prove`), and where it says here; the
/// others are tried without every set.
const SLOW: [&str; 3] = ["network/*-egress", "processes/outlive-*", "resources/cpu-*"];

fn library() -> Vec<Case> {
    Library::load(&[]).unwrap().cases
}

fn set_of(case: &Case) -> BTreeSet<Protection> {
    case.weakened.for_backend("oci").iter().copied().collect()
}

fn name(set: &BTreeSet<Protection>) -> String {
    set.iter().map(|p| p.name()).collect::<Vec<_>>().join("-")
}

/// The sets that cases name, each with the cases that name it.
fn sets() -> BTreeMap<BTreeSet<Protection>, Vec<Case>> {
    let mut sets: BTreeMap<_, Vec<Case>> = BTreeMap::new();
    for case in library()
        .into_iter()
        .filter(|c| c.expect == Expect::Blocked)
    {
        sets.entry(set_of(&case)).or_default().push(case);
    }
    sets
}

/// The other cases that change: set → case → verdict.
fn explained() -> BTreeMap<String, BTreeMap<String, String>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/weak/expected.toml");
    let table: BTreeMap<String, BTreeMap<String, [String; 2]>> =
        toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let verdicts = |cases: BTreeMap<String, [String; 2]>| {
        cases
            .into_iter()
            .map(|(case, [verdict, why])| {
                assert!(why.len() > 10, "{case}: explain it");
                (case, verdict)
            })
            .collect()
    };
    table
        .into_iter()
        .map(|(set, cases)| (set, verdicts(cases)))
        .collect()
}

/// A project with an embedded sandbox for each set, which lacks that set and nothing else.
fn project<'a>(sets: impl IntoIterator<Item = &'a BTreeSet<Protection>>) -> String {
    let sandbox = |set: &BTreeSet<Protection>| {
        let without: Vec<&str> = set.iter().map(|p| p.name()).collect();
        format!(
            "[sandbox.{0}]\nbackend = \"oci\"\nwithout = {without:?}\n[sandbox.{0}.policy]\nlevel = \"hostile\"\n",
            name(set)
        )
    };
    sets.into_iter().map(sandbox).collect()
}

/// The sandbox has nothing of the folder that the file lies in, and is shown the file alone.
#[test]
fn a_case_that_reads_a_file_of_the_users_is_proven() {
    if !have(&["root"]) {
        return;
    }
    let folder = folder();
    let secret = folder.path().join("key");
    std::fs::write(&secret, format!("{:032x}\n", rand::random::<u128>())).unwrap();
    let cases = folder.path().join("cases");
    std::fs::create_dir_all(cases.join("credentials")).unwrap();
    let case = format!(
        "title = \"Read our key\"\nseverity = \"high\"\nlevel = \"standard\"\nwhy = \"It signs.\"\nfix = \"Hide it.\"\n\
         [attempt.read-file]\npaths = [{secret:?}]\n[escaped]\nsecret = true\n\
         [weakened]\nremove = [\"host-files\"]\n"
    );
    std::fs::write(cases.join("credentials/our-key.toml"), case).unwrap();
    let id = "credentials/our-key";
    let ours = ["--cases", cases.to_str().unwrap(), "--case", id];
    run(&ours).expect(0, &[(id, "BLOCKED", "absent")]);
    let proven = Audit::start_in("prove", &ours, |_| {}).finish();
    proven.expect(0, &[(id, "ESCAPED", "secret-read")]);
}

#[test]
fn every_case_is_proven() {
    if !have(&["root"]) {
        return;
    }
    let _alone = alone();
    let seen = Audit::start_in("prove", &[], |_| {}).finish();
    assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
    let blocked = library()
        .into_iter()
        .filter(|c| c.expect == Expect::Blocked);
    for case in blocked {
        let trial = seen.trial(&case.id);
        assert_eq!(
            trial["sandbox"],
            format!("oci-without-{}", name(&set_of(&case)))
        );
        // Swap and IPv6 may be missing from the machine.
        let may_be_missing = ["resources/memory-swap", "network/ipv6-egress"].contains(&&*case.id);
        let verdict = text(&trial["verdict"]);
        assert!(
            verdict == "ESCAPED" || (verdict == "SKIPPED" && may_be_missing),
            "{}: {verdict}",
            case.id
        );
    }
}

#[test]
fn without_a_set_of_protections_the_cases_that_name_it_escape_and_nothing_unexplained_changes() {
    if !have(&["root"]) {
        return;
    }
    let folder = folder();
    let file = folder.path().join("weakened.toml");
    std::fs::write(&file, project(sets().keys())).unwrap();
    let mut arguments = vec!["--config", file.to_str().unwrap()];
    arguments.extend(SLOW.iter().flat_map(|slow| ["--skip", slow]));
    let seen = run(&arguments);
    assert_eq!(seen.status, 1, "{}", seen.out);

    let mut explained = explained();
    let mut unexplained = Vec::new();
    for (set, cases) in sets() {
        let set = name(&set);
        let mut explained = explained.remove(&set).unwrap_or_default();
        for trial in seen
            .trials()
            .iter()
            .filter(|trial| trial["sandbox"] == *set)
        {
            let (case, verdict) = (text(&trial["case"]), text(&trial["verdict"]));
            let named = cases.iter().any(|known| known.id == case);
            let wanted: &[&str] = match explained.remove(case) {
                Some(_) if verdict == "SKIPPED" && named => &[],
                Some(word) if word == "ESCAPED" => &["ESCAPED"],
                Some(word) if word == "INCONCLUSIVE" => &["INCONCLUSIVE"],
                Some(_) => &["SKIPPED"],
                None if named => &["ESCAPED"],
                None => &["BLOCKED", "ALLOWED"],
            };
            // A machine without swap shows neither the one nor the other.
            let no_swap = verdict == "SKIPPED" && case == "resources/memory-swap";
            if !wanted.contains(&verdict) && !no_swap {
                unexplained.push(format!(
                    "{set}: {case}: {verdict}, expected {wanted:?}: {}",
                    trial["sentence"]
                ));
            }
        }
        let unseen: Vec<&String> = explained.keys().collect();
        assert!(unseen.is_empty(), "{set}: not tried: {unseen:?}");
    }
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    assert!(explained.is_empty(), "no case names {:?}", explained.keys());
}

/// These name more than this machine needs, for those where an ordinary user is refused with no filter, too.
const REFUSED_ELSEWHERE: [&str; 3] = [
    "kernel/bpf",
    "kernel/file-handles",
    "kernel/perf-event-open",
];

/// A set is the smallest: with any one of its protections kept, the case holds.
#[test]
fn no_case_names_a_protection_that_need_not_go() {
    if !have(&["root"]) {
        return;
    }
    let mut smaller: BTreeMap<BTreeSet<Protection>, Vec<String>> = BTreeMap::new();
    for (set, cases) in sets().into_iter().filter(|(set, _)| set.len() > 1) {
        for kept in &set {
            let mut rest = set.clone();
            rest.remove(kept);
            let ids = cases.iter().map(|case| case.id.clone());
            smaller.entry(rest).or_default().extend(ids);
        }
    }
    let folder = folder();
    let file = folder.path().join("smaller.toml");
    std::fs::write(&file, project(smaller.keys())).unwrap();
    let cases: BTreeSet<&String> = smaller.values().flatten().collect();
    let mut arguments = vec!["--config", file.to_str().unwrap()];
    arguments.extend(cases.into_iter().flat_map(|case| ["--case", case.as_str()]));
    let seen = run(&arguments);
    for (set, cases) in &smaller {
        let of_set = |trial: &&Value| trial["sandbox"] == name(set);
        for trial in seen.trials().iter().filter(of_set) {
            let case = text(&trial["case"]);
            if cases.iter().any(|named| named == case) && !REFUSED_ELSEWHERE.contains(&case) {
                assert_ne!(
                    trial["verdict"], "ESCAPED",
                    "{case} escapes without {set:?} alone"
                );
            }
        }
    }
}

/// Read backwards: what others stand in for can go, and no case flips.
#[test]
fn one_protection_that_others_stand_in_for_changes_nothing() {
    if !have(&["root"]) {
        return;
    }
    let seen = run(&[
        "--without",
        "masked-paths,ipc-namespace",
        "--case",
        "filesystem/*",
        "--case",
        "works/*",
    ]);
    assert_eq!(seen.status, 0, "{}", seen.out);
}
