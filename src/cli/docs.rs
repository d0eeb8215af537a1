//! The reference pages for both files, made from the tables of keys that the parsers read.

use std::fmt::Write as _;

use crate::case::keys::KEYS as CASE_KEYS;
use crate::case::names::TAGS;
use crate::config::keys::{KEYS as PROJECT_KEYS, SANDBOX, WAIVER, backends_of};
use crate::diag::CODES;
use crate::diag::schema::Key;
use crate::protection::PROTECTIONS;
use crate::report::format::FORMATS;

/// The format of a case file, in Markdown.
pub fn case_file() -> String {
    let mut page = String::from(
        "# The case file\n\nOne case a file, `<category>/<name>.toml`; its place is its id. \
         This page is made from the table of keys that the parser reads.\n",
    );
    tables(&mut page, CASE_KEYS, |_| String::new());
    words(
        &mut page,
        "Protections",
        PROTECTIONS
            .iter()
            .map(|(_, name, meaning)| (*name, *meaning)),
    );
    words(&mut page, "Tags", TAGS.iter().copied());
    words(
        &mut page,
        "Mistakes",
        CODES.iter().map(|(_, name, meaning)| (*name, *meaning)),
    );
    page
}

/// The format of the project file, in Markdown.
pub fn project_file() -> String {
    let mut page = String::from(
        "# The project file\n\n`escape-audit.toml`: the sandboxes under Compose's own names, and what they promise. A key \
         that the chosen backend cannot express is an error. What is left out keeps the default of the \
         backend: `oci` is hardened, which is not what an engine would do; on `docker` it is Docker's own, which \
         sets no ceilings and gives a network. This page is made from the table of keys that the parser \
         reads; [gate.md](gate.md) says what a waiver does.\n",
    );
    tables(&mut page, PROJECT_KEYS, |key| match key.table {
        SANDBOX => format!(" ({})", backends_of(key.name).join(", ")),
        _ => String::new(),
    });
    page
}

/// The formats of reports, in Markdown.
pub fn reports() -> String {
    let mut page = String::from(REPORTS);
    for format in &FORMATS {
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            format.name, format.doc, format.readers, format.limits
        );
    }
    page.push_str(REPORTS_NOTES);
    page
}

const REPORTS: &str = "# Reports\n\n\
    `--format FORMAT=PATH` writes a report, and may be given more than once. `-` as PATH is standard output, and the page for \
    people is then not written there. `--junit FILE` and `--json FILE` are short for the two that are asked for most.\n\n\
    ```sh\n\
    escape-audit run --junit audit.xml --format html=audit.html --format sarif=audit.sarif\n\
    escape-audit run --format github=- --format markdown=summary.md\n\
    escape-audit prove --format jsonl=proof.jsonl\n\
    ```\n\n\
    The formats, from the table that the command line reads:\n\n\
    | format | what it is | who reads it | how much it takes |\n|---|---|---|---|\n";

const REPORTS_NOTES: &str = include_str!("docs/reports.md");

fn tables(page: &mut String, keys: &[Key], note: impl Fn(&Key) -> String) {
    let mut table = None;
    for key in keys {
        if table != Some(key.table) {
            table = Some(key.table);
            let title = match key.table {
                "" => "Top of the file".into(),
                WAIVER => format!("`[[{WAIVER}]]`"),
                table => format!("`[{table}]`"),
            };
            // Writing to a String cannot fail.
            let _ = write!(
                page,
                "\n## {title}\n\n| key | holds | means |\n|---|---|---|\n"
            );
        }
        let holds = match &key.shape.words()[..] {
            [] => key.shape.describe(),
            words => format!("`{}`", words.join("`, `")),
        };
        let name = if key.required {
            format!("**`{}`**", key.name)
        } else {
            format!("`{}`", key.name)
        };
        let _ = writeln!(
            page,
            "| {name} | {holds} | {}{} |",
            key.doc.replace('|', "\\|"),
            note(key)
        );
    }
    page.push_str("\nWhat stands in bold has to be there.\n");
}

fn words<'a>(page: &mut String, title: &str, all: impl Iterator<Item = (&'a str, &'a str)>) {
    let _ = write!(page, "\n## {title}\n\n");
    for (name, meaning) in all {
        let _ = writeln!(page, "- `{name}`: {meaning}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_EXPECTED=1 cargo test` writes the pages anew.
    #[test]
    fn the_pages_are_up_to_date() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        for (name, page) in [
            ("case-file.md", case_file()),
            ("project-file.md", project_file()),
            ("reports.md", reports()),
        ] {
            let path = docs.join(name);
            if std::env::var_os("UPDATE_EXPECTED").is_some() {
                std::fs::write(&path, &page).expect("written");
            }
            let there = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(
                there, page,
                "run UPDATE_EXPECTED=1 cargo test, and read the difference"
            );
        }
    }
}
