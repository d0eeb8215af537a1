//! The documents say what is true: exit codes, counts, protections, commands, links, modules.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use escape_audit::case::Library;
use escape_audit::cli::args::Arguments;
use escape_audit::exit_code;
use escape_audit::protection::PROTECTIONS;
use escape_audit::report::format::FORMATS;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect(name)
}

/// Every Markdown file of the project, as a path below its root.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["", "docs", "fixtures/range"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let path = Path::new(folder).join(name);
            if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    assert!(found.len() > 8, "{found:?}");
    found
}

/// The first cells of the table whose heading is this line.
pub fn first_cells(page: &str, heading: &str) -> Vec<String> {
    page.lines()
        .skip_while(|line| line.trim() != heading)
        .skip(2)
        .take_while(|line| line.trim().starts_with('|'))
        .map(|line| {
            let cell = line.trim().trim_start_matches('|').split('|').next();
            cell.unwrap_or_default().trim().trim_matches('`').to_owned()
        })
        .collect()
}

#[test]
fn the_exit_codes_of_the_pages_are_the_programs() {
    let rows: String = exit_code::ALL
        .iter()
        .map(|(code, sentence)| format!("| `{code}` | {sentence} |\n"))
        .collect();
    let table = format!("| code | says |\n|---|---|\n{rows}\n");
    for page in ["README.md", "docs/gate.md"] {
        assert!(read(page).contains(&table), "{page}: it should be\n{table}");
    }
}

#[test]
fn the_readme_counts_the_library_as_it_is() {
    let library = Library::load(&[]).expect("the library is valid");
    let readme = read("README.md");
    let all = library.cases.len();
    for claim in [
        format!("a library of {all} cases"),
        format!("**{all} cases in "),
        format!("(all {all})"),
        format!("{all} held attempts are no proof against the {}th", all + 1),
    ] {
        assert!(readme.contains(&claim), "README.md should say: {claim}");
    }
    assert!(read("CHANGELOG.md").contains(&format!("- {all} cases: ")));
    let standard = library
        .cases
        .iter()
        .filter(|case| case.level == escape_audit::case::Level::Standard)
        .count();
    assert!(readme.contains(&format!("`standard` ({standard} cases, the default)")));

    let mut categories: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &library.cases {
        *categories.entry(case.category()).or_default() += 1;
    }
    let heading = "| category | cases | about |";
    let listed = first_cells(&readme, heading);
    assert_eq!(listed, categories.keys().copied().collect::<Vec<_>>());
    for (category, count) in categories {
        let row = format!("| `{category}` | {count} | ");
        assert!(readme.contains(&row), "README.md should have: {row}");
    }
}

#[test]
fn the_readme_has_every_protection() {
    let listed = first_cells(
        &read("README.md"),
        "| protection | in the embedded sandbox |",
    );
    let names: Vec<&str> = PROTECTIONS.iter().map(|(_, name, _)| *name).collect();
    assert_eq!(listed, names);
}

#[test]
fn the_readme_names_every_format() {
    let names: Vec<String> = FORMATS.iter().map(|f| format!("`{}`", f.name)).collect();
    let readme = read("README.md").replace("\n  ", " ");
    let list = format!("`--format FORMAT=PATH`: {}. ", names.join(", "));
    assert!(readme.contains(&list), "README.md should say: {list}");
}

#[test]
fn every_command_line_of_the_documents_parses() {
    let mut tried = 0;
    for document in documents() {
        for line in read(&document).lines() {
            for arguments in our_arguments(line) {
                tried += 1;
                if let Err(error) = Arguments::try_parse_from(&arguments) {
                    panic!("{document}: {line}\n{error}");
                }
            }
        }
    }
    assert!(tried > 20, "only {tried} command lines were found");
}

/// What this program is called with, where the line, or a quotation in it, is a call of it.
fn our_arguments(line: &str) -> Vec<Vec<String>> {
    let quoted = line.split('`').skip(1).step_by(2);
    std::iter::once(line)
        .filter(|line| !line.contains('`'))
        .chain(quoted)
        .filter_map(|text| {
            let text = text.trim().trim_start_matches("$ ");
            let text = text.strip_prefix("- run: ").unwrap_or(text);
            let rest = [
                "escape-audit ",
                "cargo run --release -- ",
                "sudo \"$(command -v escape-audit)\" ",
                "systemd-run --user --scope -p Delegate=yes -- escape-audit ",
                "fixtures/range/enter target/release/escape-audit ",
            ]
            .iter()
            .find_map(|call| text.strip_prefix(call))?;
            // A sentence or a picture, and the hidden helpers, are no calls.
            let word = rest.split(' ').next()?;
            [
                "run", "prove", "list", "explain", "lint", "clean", "waive", "baseline", "diff",
                "verify",
            ]
            .contains(&word)
            .then(|| [vec!["escape-audit".to_owned()], words(rest)].concat())
        })
        .collect()
}

/// As a shell splits it: what stands in quotes is one word, without them.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut open) = (Vec::new(), String::new(), None);
    for c in text.chars().chain([' ']) {
        match (c, open) {
            (' ', None) if word.is_empty() => {}
            (' ', None) => words.push(std::mem::take(&mut word)),
            ('\'' | '"', None) => open = Some(c),
            (_, Some(quote)) if c == quote => open = None,
            _ => word.push(c),
        }
    }
    words
}

#[test]
fn every_link_within_the_project_leads_somewhere() {
    let mut followed = 0;
    for document in documents() {
        let text = read(&document);
        let folder = root().join(&document);
        let folder = folder.parent().expect("a folder");
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.starts_with("https://") {
                continue;
            }
            followed += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => root().join(&document),
                path => folder.join(path),
            };
            assert!(target.exists(), "{document}: {link} is not there");
            if !anchor.is_empty() {
                assert!(
                    anchors(&target).contains(&anchor.to_owned()),
                    "{document}: {link}"
                );
            }
        }
    }
    assert!(followed > 50, "only {followed} links were found");
}

/// The headings of a page, as GitHub turns them into anchors.
fn anchors(page: &PathBuf) -> Vec<String> {
    let text = fs::read_to_string(page).expect("a page");
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[test]
fn the_architecture_names_every_module() {
    let mut modules: Vec<String> = fs::read_dir(root().join("src"))
        .expect("src")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| !["lib", "main"].contains(&name.as_str()))
        .collect();
    modules.sort();
    modules.dedup();
    let mut listed = first_cells(
        &read("ARCHITECTURE.md"),
        "| module | its one job | may import |",
    );
    listed.sort();
    assert_eq!(listed, modules);
}

#[test]
fn every_file_that_the_architecture_points_at_exists() {
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = read(document);
        for word in text.split('`').skip(1).step_by(2) {
            let is_path = ["src/", "probe/", "docs/", "fixtures/", "escapes/"]
                .iter()
                .any(|start| word.starts_with(start));
            if is_path && !word.contains(['*', '<', ' ']) {
                assert!(
                    root().join(word).exists(),
                    "{document}: {word} is not there"
                );
            }
        }
    }
}

/// The page of the gate knows every remark, and no other: scripts build on their codes.
#[test]
fn the_page_of_the_gate_has_every_code_of_a_remark() {
    let code: String = ["mod.rs", "waivers.rs", "baseline.rs"]
        .iter()
        .map(|file| read(&format!("src/gate/{file}")))
        .collect();
    let of = |text: &str, quote: char| -> std::collections::BTreeSet<String> {
        let words = text.split(quote).skip(1).step_by(2).map(str::to_owned);
        let is_code = |word: &String| {
            ["waiver-", "baseline-", "nothing-selected"]
                .iter()
                .any(|start| word.starts_with(start))
                && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
        };
        words.filter(is_code).collect()
    };
    let in_code: std::collections::BTreeSet<String> =
        code.lines().flat_map(|line| of(line, '"')).collect();
    assert!(in_code.len() > 15, "{in_code:?}");
    let page = read("docs/gate.md");
    let on_page: std::collections::BTreeSet<String> =
        page.lines().flat_map(|line| of(line, '`')).collect();
    assert_eq!(on_page, in_code);
}
