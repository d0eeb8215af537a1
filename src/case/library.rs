//! All cases: those that are compiled in, and those of the user's own folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use sha2::{Digest as _, Sha256};

use super::model::Case;
use super::parse;
use crate::diag::{Code, Diagnostic, Diagnostics, Place, Source};

static EMBEDDED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/escapes");

/// No case comes near it, and no mistaken `--cases` reads a disk image into memory.
const LARGEST_FILE: u64 = 256 * 1024;

/// A set of valid cases with different ids.
#[derive(Debug, Clone, PartialEq)]
pub struct Library {
    /// The cases, sorted by id.
    pub cases: Vec<Case>,
    /// SHA-256 over all ids and files, in hexadecimal: what exactly a report was made with.
    pub digest: String,
}

/// One file that should be a case.
struct Entry {
    id: String,
    source: Source,
}

impl Library {
    /// The compiled-in cases and those of these folders, or every mistake in all of them.
    pub fn load(extra: &[PathBuf]) -> Result<Self, Diagnostics> {
        let mut mistakes = Diagnostics::default();
        let mut entries = embedded(&mut mistakes);
        for dir in extra {
            entries.extend(folder(dir, &mut mistakes));
        }
        build(entries, mistakes)
    }

    /// The cases of one folder alone: what `lint DIR` reads.
    pub fn load_folder(dir: &Path) -> Result<Self, Diagnostics> {
        let mut mistakes = Diagnostics::default();
        let entries = folder(dir, &mut mistakes);
        build(entries, mistakes)
    }

    /// The case of this id.
    pub fn get(&self, id: &str) -> Option<&Case> {
        self.cases
            .binary_search_by(|case| case.id.as_str().cmp(id))
            .ok()
            .map(|at| &self.cases[at])
    }

    /// Every id, sorted.
    pub fn ids(&self) -> Vec<&str> {
        self.cases.iter().map(|case| case.id.as_str()).collect()
    }
}

fn build(entries: Vec<Entry>, mut mistakes: Diagnostics) -> Result<Library, Diagnostics> {
    let mut first: BTreeMap<String, Source> = BTreeMap::new();
    let mut cases = Vec::new();
    for Entry { id, source } in entries {
        match parse::parse(&id, &source) {
            Ok(case) => cases.push(case),
            Err(more) => mistakes.append(more),
        }
        match first.get(&id) {
            Some(other) => mistakes.push(
                Diagnostic::new(
                    Code::DuplicateId,
                    format!("two cases with the id `{id}`"),
                    "rename one of the files: a case's place is its id",
                )
                .in_file(&source.path)
                .and(Place::whole(&other.path)),
            ),
            None => {
                first.insert(id, source);
            }
        }
    }
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    let mut hash = Sha256::new();
    for case in &cases {
        hash.update(format!("{} {}\n", case.id, case.digest));
    }
    let digest = format!("{:x}", hash.finalize());
    mistakes.or(Library { cases, digest })
}

fn embedded(mistakes: &mut Diagnostics) -> Vec<Entry> {
    let mut entries = Vec::new();
    for category in EMBEDDED.dirs() {
        for file in category.files() {
            let path = Path::new("escapes").join(file.path());
            entries.extend(entry(
                file.path(),
                &path,
                || Ok(file.contents().to_vec()),
                mistakes,
            ));
        }
    }
    entries
}

/// The files of a library's folder: `DIR/<category>/<name>.toml` and nothing else.
fn folder(dir: &Path, mistakes: &mut Diagnostics) -> Vec<Entry> {
    let mut entries = Vec::new();
    let before = mistakes.len();
    for (name, path) in children(dir, mistakes) {
        match is_folder(&path) {
            Err(error) => mistakes.push(unreadable(&path, &error)),
            Ok(true) => {
                for (file, path) in children(&path, mistakes) {
                    let below = Path::new(&name).join(&file);
                    entries.extend(match is_folder(&path) {
                        Err(error) => {
                            mistakes.push(unreadable(&path, &error));
                            None
                        }
                        Ok(true) => {
                            mistakes.push(misplaced(&path, "a folder inside a category"));
                            None
                        }
                        Ok(false) => entry(&below, &path, || read(&path), mistakes),
                    });
                }
            }
            Ok(false) if is_note(Path::new(&name)) => {}
            Ok(false) => mistakes.push(misplaced(&path, "a file outside every category")),
        }
    }
    if entries.is_empty() && mistakes.len() == before {
        mistakes.push(
            Diagnostic::new(
                Code::NoCases,
                "this folder holds no case",
                "put cases into `<category>/<name>.toml` below it, or name another folder",
            )
            .in_file(dir),
        );
    }
    entries
}

/// One file of a category: an entry if it can be a case. Notes for people are passed over, anything else is a mistake:
/// a case with a mistyped ending must not silently be no case.
fn entry(
    below: &Path,
    path: &Path,
    bytes: impl FnOnce() -> std::io::Result<Vec<u8>>,
    mistakes: &mut Diagnostics,
) -> Option<Entry> {
    if is_note(below) {
        return None;
    }
    if below.extension().is_none_or(|ending| ending != "toml") {
        let help = "a case ends in `.toml`; notes are called README, and names that begin with a dot are passed over";
        mistakes
            .push(Diagnostic::new(Code::NotACase, "this file is not a case", help).in_file(path));
        return None;
    }
    let id = below.with_extension("").to_string_lossy().into_owned();
    if !id.split('/').all(is_word) {
        let help = "use lower-case letters, digits and single hyphens: `network/tcp-egress.toml`";
        let message = format!("`{id}` cannot be a case's id");
        // What is in it is read all the same: all mistakes come at once.
        mistakes.push(Diagnostic::new(Code::BadId, message, help).in_file(path));
    }
    let bytes = match bytes() {
        Ok(bytes) => bytes,
        Err(error) => {
            mistakes.push(unreadable(path, &error));
            return None;
        }
    };
    if bytes.len() as u64 > LARGEST_FILE {
        let message = format!("this file is larger than {} KiB", LARGEST_FILE / 1024);
        mistakes.push(Diagnostic::new(Code::TooLarge, message, "is it a case?").in_file(path));
        return None;
    }
    let Ok(text) = String::from_utf8(bytes) else {
        let help = "save it as UTF-8: a TOML file is nothing else";
        mistakes.push(
            Diagnostic::new(Code::NotUtf8, "this file is not UTF-8 text", help).in_file(path),
        );
        return None;
    };
    Some(Entry {
        id,
        source: Source::new(path, &text),
    })
}

fn is_note(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || name == "README" || name.starts_with("README.")
}

fn is_word(word: &str) -> bool {
    word.split('-').all(|part| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    })
}

/// Names and paths of what a folder holds, in order. Names that begin with a dot are passed over.
fn children(dir: &Path, mistakes: &mut Diagnostics) -> Vec<(String, PathBuf)> {
    let mut all = Vec::new();
    match fs::read_dir(dir) {
        Err(error) => mistakes.push(unreadable(dir, &error)),
        Ok(entries) => {
            for entry in entries {
                match entry {
                    Err(error) => mistakes.push(unreadable(dir, &error)),
                    Ok(entry) => {
                        let name = entry.file_name().to_string_lossy().into_owned();
                        if !name.starts_with('.') {
                            all.push((name, entry.path()));
                        }
                    }
                }
            }
        }
    }
    all.sort();
    all
}

/// Follows links: a category may be one. A link that leads to itself is an error of the kernel's here.
fn is_folder(path: &Path) -> std::io::Result<bool> {
    Ok(fs::metadata(path)?.is_dir())
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        // A pipe or a device would hang, or never end.
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(LARGEST_FILE + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Diagnostic {
    let help = match error.raw_os_error() {
        Some(nix::libc::ENOENT) => {
            "check the path; a relative one is looked for where the program was started"
        }
        Some(nix::libc::ELOOP) => "it is a link that leads to itself: remove it",
        Some(nix::libc::EACCES) => "make it readable for the user who runs the audit",
        Some(nix::libc::ENOTDIR) => "name the folder that holds the categories, not a file",
        _ => "every file of a library has to be read before anything runs",
    };
    let mut help = help.to_owned();
    if error.raw_os_error() == Some(nix::libc::ENOTDIR)
        && let Some(root) = path.parent().and_then(folder_above)
    {
        help.push_str(&format!("; did you mean the folder `{}`?", root.display()));
    }
    Diagnostic::new(Code::Unreadable, format!("cannot be read: {error}"), help).in_file(path)
}

/// The folder that this one is in, as it can be written on a command line.
fn folder_above(folder: &Path) -> Option<PathBuf> {
    match folder.parent()? {
        above if above.as_os_str().is_empty() => Some(".".into()),
        above => Some(above.to_owned()),
    }
}

fn misplaced(path: &Path, what: &str) -> Diagnostic {
    let mut help =
        "a case stands in `<category>/<name>.toml`, exactly one folder below the library's root"
            .to_owned();
    if path.is_file()
        && let Some(root) = path.parent().and_then(folder_above)
    {
        help.push_str(&format!("; did you mean the folder `{}`?", root.display()));
    }
    Diagnostic::new(
        Code::BadId,
        format!("{what} cannot belong to a library"),
        help,
    )
    .in_file(path)
}

#[cfg(test)]
#[path = "library_tests.rs"]
mod tests;
