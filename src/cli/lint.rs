//! `lint [DIR]`: every mistake of every case file, or the word that there is none.

use std::io::{self, Write};
use std::path::Path;

use crate::case::Library;
use crate::diag::Diagnostics;

/// Reads the cases of this folder, or those that are compiled in. A mistake of any of them is an error; the caller
/// shows it.
pub fn lint(dir: Option<&Path>) -> Result<Library, Diagnostics> {
    match dir {
        Some(dir) => Library::load_folder(dir),
        None => Library::load(&[]),
    }
}

/// The word that there is no mistake.
pub fn praise(library: &Library, out: &mut dyn Write) -> io::Result<()> {
    match library.cases.len() {
        1 => writeln!(out, "1 case, no mistakes"),
        n => writeln!(out, "{n} cases, no mistakes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::{CODES, Source};
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    fn fixtures() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/invalid")
    }

    /// What is said about one invalid file. `project-*` is a project file, `baseline-*` a baseline; `works-*` a case below `works/`.
    fn refusal(path: &Path) -> Diagnostics {
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let shown = format!("fixtures/invalid/{name}.toml");
        let source = Source::new(shown, &fs::read_to_string(path).expect("readable"));
        if name.starts_with("project-") {
            return crate::config::parse(&source).expect_err("refused");
        }
        if name.starts_with("baseline-") {
            return crate::cli::baseline::parse(&source).expect_err("refused");
        }
        let category = if name.starts_with("works-") {
            "works"
        } else {
            "invalid"
        };
        crate::case::parse::parse(&format!("{category}/{name}"), &source).expect_err("refused")
    }

    /// `UPDATE_EXPECTED=1 cargo test` writes the expectations anew; read the difference before you commit it.
    #[test]
    fn every_invalid_file_is_refused_with_the_expected_words() {
        let update = std::env::var_os("UPDATE_EXPECTED").is_some();
        let mut seen = BTreeSet::new();
        let mut count = 0;
        for entry in fs::read_dir(fixtures()).expect("readable") {
            let path = entry.expect("readable").path();
            if path.extension().is_none_or(|ending| ending != "toml") {
                continue;
            }
            let mistakes = refusal(&path);
            seen.extend(mistakes.iter().map(|mistake| mistake.code));
            let said = mistakes.to_string();
            let expected = path.with_extension("expected");
            if update {
                fs::write(&expected, &said).expect("written");
            }
            let wanted = fs::read_to_string(&expected).unwrap_or_default();
            assert_eq!(said, wanted, "{}", path.display());
            assert_eq!(
                said.matches("help: ").count(),
                mistakes.len(),
                "a help line each:\n{said}"
            );
            count += 1;
        }
        assert!(
            count >= 10,
            "only {count} files in {}",
            fixtures().display()
        );
        let outside_files = [
            "unreadable",
            "not-utf8",
            "too-large",
            "duplicate-id",
            "bad-id",
            "not-a-case",
            "no-cases",
            "no-match",
            "unknown-sandbox",
        ];
        for (code, name, _) in CODES {
            assert!(
                seen.contains(code) || outside_files.contains(name),
                "no file shows `{name}`"
            );
        }
    }

    #[test]
    fn the_own_library_is_praised() {
        let library = lint(None).expect("valid");
        let mut out = Vec::new();
        praise(&library, &mut out).expect("written");
        let said = String::from_utf8(out).expect("text");
        assert_eq!(
            said,
            format!("{} cases, no mistakes\n", library.cases.len())
        );
        let same =
            lint(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join("escapes"))).expect("valid");
        assert_eq!(same.digest, library.digest);
    }
}
