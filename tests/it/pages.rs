//! The pages in `docs/` that are made from what the judge, the gate and the library hold. The other pages are made in
//! `cli::docs`, from the tables of keys.

use std::fmt::Write as _;
use std::path::Path;

use escape_audit::case::{Case, Library, Status};
use escape_audit::diag::schema::Named as _;
use escape_audit::exit_code;
use escape_audit::judge::reasons::REASONS;
use escape_audit::protection::PROTECTIONS;
use escape_audit::verdict::Verdict;

/// `UPDATE_EXPECTED=1 cargo test` writes the pages anew.
#[test]
fn the_pages_are_up_to_date() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let library = Library::load(&[]).expect("the library is valid");
    for (name, page) in [
        ("verdicts.md", verdicts()),
        ("protections.md", protections(&library)),
        ("cases.md", cases(&library)),
    ] {
        let path = docs.join(name);
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, &page).expect("written");
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            there, page,
            "{name}: run UPDATE_EXPECTED=1 cargo test, and read the difference"
        );
    }
}

/// What a verdict means, and every reason that it can carry, in Markdown.
fn verdicts() -> String {
    let mut page = String::from(
        "# Verdicts and reasons\n\n\
         A trial, one case in one sandbox, comes to one verdict, with one reason code. Codes are stable: scripts may \
         build on them. The sentence beside them in a report is for people and may change. This page is made from the \
         tables that the judge and the gate read.\n\n\
         When evidence conflicts, ESCAPED outranks ERROR, ERROR outranks INCONCLUSIVE, INCONCLUSIVE outranks BLOCKED.\n",
    );
    for verdict in Verdict::ALL.into_iter().rev() {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {}\n\n{}\n\n", verdict.name(), meaning(verdict));
        let of_this = REASONS.iter().filter(|(with, code, _)| {
            *with == verdict || (verdict == Verdict::Broken && *code == "refused")
        });
        for (_, code, sentence) in of_this {
            let _ = writeln!(page, "- `{code}`: {sentence}");
        }
    }
    page.push_str(
        "\n## Exit codes\n\nNo report format changes them, and no option but `--no-fail`, which says so. 1 outranks 3, and 3 outranks 4. [gate.md](gate.md) says what comes to which.\n\n\
         | code | says |\n|---|---|\n",
    );
    for (code, sentence) in exit_code::ALL {
        let _ = writeln!(page, "| `{code}` | {sentence} |");
    }
    page
}

fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Escaped => {
            "Proven: it got through. The evidence is the host's own wherever there is any, and nothing that the sandbox \
             prints can lower it. Fails the gate with 1."
        }
        Verdict::Broken => {
            "What must work does not. A sandbox that refuses everything is broken, not secure. Fails the gate with 1."
        }
        Verdict::Error => {
            "The harness or the backend failed, or what was in force was not what was configured. Fails the gate with 3."
        }
        Verdict::Inconclusive => "Nothing is proven either way. Fails the gate with 3.",
        Verdict::Skipped => {
            "It was not tried, for a reason that is known beforehand and stands in the report. Does not fail the gate; a \
             sandbox in which nothing at all was tried does, with 4."
        }
        Verdict::Blocked => {
            "Proven: the attempt was made, it ended in a refusal or a proven absence, its target was alive, and the same \
             attempt gets through where nothing should stop it."
        }
        Verdict::Allowed => "A case of what must work: it worked.",
    }
}

/// Every protection: what the embedded sandbox means by it, and which cases get through without it. In Markdown.
fn protections(library: &Library) -> String {
    let mut page = String::from(
        "# Protections\n\n\
         One thing each that can be taken away from a sandbox: by `--without NAME` on the command line, by `without` in \
         the project file, and by `[weakened]` in a case. The last column has the cases that name it: without this \
         protection, and the others of their set, their attempt must get through. `escape-audit prove` tries that. \
         This page is made from the registry of protections and from the library.\n\n\
         | protection | in the embedded sandbox | cases that it holds, alone or with others |\n|---|---|---|\n",
    );
    for (protection, name, meaning) in PROTECTIONS {
        let held: Vec<String> = library
            .cases
            .iter()
            .filter_map(|case| {
                let set = case.weakened.for_backend("oci");
                let others: Vec<&str> = set
                    .iter()
                    .filter(|other| *other != protection)
                    .map(|other| other.name())
                    .collect();
                set.contains(protection).then(|| match others[..] {
                    [] => format!("`{}`", case.id),
                    _ => format!("`{}` (with {})", case.id, others.join(", ")),
                })
            })
            .collect();
        let held = match held[..] {
            [] => "none yet".to_owned(),
            _ => held.join("<br>"),
        };
        let _ = writeln!(page, "| `{name}` | {meaning} | {held} |");
    }
    page.push_str(ON_AN_ENGINE);
    for case in &library.cases {
        let weakened = &case.weakened;
        let set = weakened.for_backend("docker");
        if set == weakened.for_backend("oci") {
            continue;
        }
        let fixture = weakened.fixtures.iter().find(|(name, _)| name == "docker");
        let held: Vec<String> = match fixture {
            Some((_, fixture)) => vec![format!("no setting; `fixtures/{fixture}` lets it through")],
            None => set.iter().map(|p| format!("`{}`", p.name())).collect(),
        };
        let _ = writeln!(page, "| `{}` | {} |", case.id, held.join(", "));
    }
    page
}

const ON_AN_ENGINE: &str = "\n## On a container engine\n\n\
    On `docker` the same names are taken away from what the project file says. `network` is then the host's own network, \
    `user` is root, `capabilities` are those that the engine leaves to root and `CAP_SYS_ADMIN`, `seccomp` is \
    `seccomp=unconfined`, and without `swap` the line is left out, so that the engine gives twice the memory. The sets are \
    those above, but for:\n\n\
    | case | held by |\n|---|---|\n";

/// The library, a line a case, in Markdown.
fn cases(library: &Library) -> String {
    let mut page = format!(
        "# The library\n\n{} cases. `escape-audit explain CASE` says all about one. This page is made from `escapes/`.\n",
        library.cases.len()
    );
    let mut category = "";
    for case in &library.cases {
        if case.category() != category {
            category = case.category();
            let _ = write!(
                page,
                "\n## {category}\n\n| case | tries to | severity | level | held by |\n|---|---|---|---|---|\n"
            );
        }
        let _ = writeln!(page, "{}", line(case));
    }
    page
}

fn line(case: &Case) -> String {
    let held: Vec<&str> = case
        .weakened
        .for_backend("oci")
        .iter()
        .map(|protection| protection.name())
        .collect();
    let note = match case.status {
        Status::Stable => "",
        Status::Experimental => " (experimental)",
    };
    format!(
        "| [`{id}`](../escapes/{id}.toml){note} | {} | {} | {} | {} |",
        case.title.replace('|', "\\|"),
        case.severity.word(),
        case.level.word(),
        held.join(", "),
        id = case.id,
    )
}
