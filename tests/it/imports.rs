//! Who may import whom: read from `src/`, held to this table. What decides knows nothing of what touches the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Module, one job, whom it may import. `diag`, `safe_text`, `exit_code` and `protection` are words that everybody may
/// use who is listed with them; nothing that is not listed may be imported.
const MAP: &[(&str, &str, &[&str])] = &[
    // Data and words.
    ("protection", "the vocabulary of protections", &[]),
    ("exit_code", "exit codes, a sentence each", &[]),
    ("verdict", "data", &[]),
    ("safe_text", "untrusted bytes made safe", &[]),
    (
        "secret_words",
        "which variables hold a secret, by name and value",
        &[],
    ),
    ("evidence", "data", &["case"]),
    (
        "diag",
        "mistakes in files, and how they are shown",
        &["safe_text", "secret_words"],
    ),
    // Pure.
    (
        "case",
        "TOML to valid cases, or all diagnostics",
        &["diag", "protection"],
    ),
    (
        "config",
        "project file to sandboxes, or all diagnostics",
        &["case", "diag", "protection"],
    ),
    (
        "plan",
        "cases and sandboxes to trials",
        &["case", "config", "protection"],
    ),
    (
        "judge",
        "case and evidence to a verdict",
        &["case", "config", "evidence", "verdict"],
    ),
    (
        "report",
        "the result, and a file a format",
        &[
            "case",
            "config",
            "evidence",
            "exit_code",
            "protection",
            "safe_text",
            "verdict",
        ],
    ),
    (
        "gate",
        "report, waivers and baseline to exit code",
        &[
            "case",
            "config",
            "exit_code",
            "report",
            "safe_text",
            "verdict",
        ],
    ),
    (
        "record",
        "report to a statement for others, and back",
        &["case", "config", "diag", "exit_code", "report", "verdict"],
    ),
    // What touches the host.
    ("host", "cgroups, /proc, the run's folder", &["evidence"]),
    ("range", "canaries", &["case", "evidence", "secret_words"]),
    (
        "backend",
        "a file a kind of sandbox",
        &["config", "host", "range"],
    ),
    (
        "run",
        "carries the plan out",
        &[
            "backend", "case", "config", "evidence", "host", "judge", "plan", "range", "report",
            "verdict",
        ],
    ),
    // The only ones that wire.
    (
        "hidden",
        "the program executed again as a helper",
        &["backend", "exit_code", "range"],
    ),
    (
        "cli",
        "arguments, wiring, opening files",
        &[
            "backend",
            "case",
            "config",
            "diag",
            "exit_code",
            "gate",
            "host",
            "plan",
            "protection",
            "range",
            "record",
            "report",
            "run",
            "safe_text",
            "verdict",
        ],
    ),
    (
        "test",
        "an audit as `cargo test`",
        &[
            "case",
            "cli",
            "config",
            "diag",
            "exit_code",
            "gate",
            "hidden",
            "plan",
            "record",
            "report",
            "safe_text",
            "verdict",
        ],
    ),
];

/// These decide or are data: no clock of the host, no process, no socket, no runtime.
const PURE: [&str; 12] = [
    "protection",
    "exit_code",
    "verdict",
    "evidence",
    "plan",
    "judge",
    "gate",
    "safe_text",
    "secret_words",
    "report",
    "record",
    "case",
];

/// What a pure module has no use for. `report::write` puts a finished report in its place, and the loader of cases reads
/// files: each says so by being the one file that may.
const OF_THE_HOST: [&str; 10] = [
    "std::process::Command",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "std::os::",
    "tokio::",
    "nix::",
    "std::thread",
    "std::fs",
    "use std::fs",
];
const MAY_READ_FILES: [&str; 3] = ["report/write.rs", "case/library.rs", "config/parse.rs"];

/// The code of a file, without comments and without what is compiled for tests alone.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = match text.find("#[cfg(test)]\nmod tests {") {
        Some(tests) => &text[..tests],
        None => &text,
    };
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// `src/`: module → its files, tests left out.
fn modules() -> BTreeMap<String, Vec<(String, PathBuf)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut modules: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(&root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let of_tests = name.contains("tests")
                || name.ends_with("_test.rs")
                || ["report/sample.rs", "report/outside.rs"].contains(&&*name);
            if path.is_dir() {
                folders.push(path);
            } else if !of_tests && name != "main.rs" && name != "lib.rs" {
                let module = name.split(['/', '.']).next().unwrap().to_owned();
                modules.entry(module).or_default().push((name, path));
            }
        }
    }
    modules
}

/// The modules that `crate::NAME`, `crate::{NAME, …}` and `escape_audit::NAME` name.
fn imports(code: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let mut found = BTreeSet::new();
    for start in ["crate::", "escape_audit::"] {
        for (at, _) in code.match_indices(start) {
            let rest = &code[at + start.len()..];
            match rest.strip_prefix('{') {
                Some(list) => {
                    let list = list.split(';').next().unwrap_or_default();
                    let mut depth = 0;
                    for part in list.split_inclusive(['{', '}', ',']) {
                        if depth == 0 {
                            found.insert(word(part.trim()));
                        }
                        depth += part.matches('{').count();
                        depth = depth.saturating_sub(part.matches('}').count());
                    }
                }
                None => {
                    found.insert(word(rest));
                }
            }
        }
    }
    found.remove("");
    found
}

#[test]
fn nobody_imports_whom_the_map_does_not_list() {
    let map: BTreeMap<&str, &[&str]> = MAP.iter().map(|(module, _, may)| (*module, *may)).collect();
    let modules = modules();
    let known: BTreeSet<&str> = map.keys().copied().collect();
    let there: BTreeSet<&str> = modules.keys().map(String::as_str).collect();
    assert_eq!(
        known, there,
        "every module of src/ is on the map, and nothing else"
    );

    let mut used: BTreeSet<(&str, String)> = BTreeSet::new();
    for (module, files) in &modules {
        for (name, path) in files {
            for import in imports(&code(path)) {
                if import == *module || !known.contains(&*import) {
                    continue; // itself; a macro or an item of the crate's root
                }
                assert!(
                    map[&**module].contains(&&*import),
                    "src/{name} imports `{import}`"
                );
                used.insert((known.get(&**module).unwrap(), import));
            }
        }
    }
    for (module, _, may) in MAP {
        for import in *may {
            let used = used.contains(&(*module, (*import).to_owned()));
            assert!(
                used,
                "`{module}` no longer imports `{import}`: take it off the map"
            );
        }
    }
}

#[test]
fn the_architecture_shows_the_same_map() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    for (module, _, may) in MAP {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{module}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for `{module}`"));
        let cell = row.split(" | ").last().unwrap();
        let shown: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert_eq!(shown, *may, "{row}");
    }
}

#[test]
fn the_map_has_no_circle() {
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    for (module, _, may) in MAP {
        for import in *may {
            // `config`'s sandboxes, `case` and `evidence` know each other only one way.
            let later = MAP.iter().any(|(other, ..)| other == import) && !placed.contains(import);
            let data = *module == "evidence" && *import == "case";
            assert!(
                !later || data,
                "`{module}` stands before `{import}`, which it imports"
            );
        }
        placed.insert(module);
    }
}

#[test]
fn what_decides_does_not_touch_the_host() {
    let modules = modules();
    for module in PURE {
        for (name, path) in &modules[module] {
            if MAY_READ_FILES.contains(&&**name) {
                continue;
            }
            // Constants, and the names of error numbers and signals, are words.
            let code = code(path)
                .replace("use nix::libc;", "")
                .replace("nix::libc::E", "libc::E")
                .replace("nix::errno::Errno::from_raw", "")
                .replace("nix::sys::signal::Signal::try_from", "");
            let calls = code
                .match_indices("libc::")
                .any(|(at, word)| code[at + word.len()..].starts_with(char::is_lowercase));
            assert!(!calls, "src/{name} is pure, and calls libc");
            for touch in OF_THE_HOST {
                assert!(
                    !code.contains(touch),
                    "src/{name} is pure, and says `{touch}`"
                );
            }
        }
    }
}

/// A backend runs one program and reports what it saw; what the case expects is none of its business.
#[test]
fn a_backend_never_knows_what_the_case_expects() {
    for (name, path) in &modules()["backend"] {
        let code = code(path);
        for word in [
            "Expect",
            "crate::judge",
            "crate::case",
            "crate::verdict",
            "Verdict",
        ] {
            assert!(!code.contains(word), "src/{name} says `{word}`");
        }
    }
}

#[test]
fn imports_are_found_however_they_are_written() {
    let found = imports(
        "use crate::case::{Case, Level};\nuse crate::{\n  config::{A, B},\n  judge,\n};\ncrate::gate::decide()",
    );
    let names: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(names, ["case", "config", "gate", "judge"]);
}
