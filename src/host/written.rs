//! Files that an attempt writes wherever it may: the probe removes them itself, and who ends the probe halfway has to.
//!
//! Each is named by its trial's token and holds nothing but the token. The tokens are noted in the run's folder before
//! anything is written, so that the next run finds what a killed one left.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use escape_audit_probe::mounts;

/// The notes' name in the run's folder.
const FILE: &str = "written";

/// So deep, and so many folders, does the probe look for a place to write in.
const DEEP: usize = 3;
const FOLDERS: usize = 20_000;

/// Notes that files with this token may be written from now on.
pub fn begin(run_dir: &Path, token: &str) -> io::Result<()> {
    note(run_dir, '+', token)
}

/// Notes that the probe removed them.
pub fn done(run_dir: &Path, token: &str) {
    // What is not noted is looked for once more than needed.
    let _ = note(run_dir, '-', token);
}

fn note(run_dir: &Path, sign: char, token: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(run_dir.join(FILE))?;
    writeln!(file, "{sign}{token}")
}

/// Removes what is left of this run's files.
pub fn remove_left(run_dir: &Path) {
    let notes = fs::read_to_string(run_dir.join(FILE)).unwrap_or_default();
    let of = |sign: char| {
        notes
            .lines()
            .filter_map(move |line| line.strip_prefix(sign))
    };
    let is_done = |token: &str| of('-').any(|done| done == token);
    let left: Vec<&str> = of('+')
        .filter(|token| is_token(token) && !is_done(token))
        .collect();
    if left.is_empty() {
        return;
    }
    for folder in places() {
        for token in &left {
            let file = folder.join(token);
            let plain = fs::symlink_metadata(&file).is_ok_and(|found| found.is_file());
            // A disk that was full kept the name alone.
            let ours = |held: Vec<u8>| held.is_empty() || held == token.as_bytes();
            if plain && fs::read(&file).is_ok_and(ours) {
                let _ = fs::remove_file(&file);
            }
        }
    }
}

/// Whatever else stands in the notes, nothing but a file with such a name is removed.
fn is_token(text: &str) -> bool {
    let rest = text.strip_prefix("ea-").unwrap_or_default();
    rest.len() == 24 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Wherever the probe may have written on this host: at mount points, and near the root.
fn places() -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let mountinfo = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts::points(&mountinfo).into_iter();
    let mut all: Vec<PathBuf> = points
        .map(|point| std::ffi::OsString::from_vec(point).into())
        .collect();
    all.extend(std::env::var_os("HOME").map(PathBuf::from));
    let mut level = vec![PathBuf::from("/")];
    for _ in 0..=DEEP {
        let mut next = Vec::new();
        for folder in level {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            next.extend(
                folders
                    .map(|entry| entry.path())
                    .filter(|path| !is_kernels(path)),
            );
            all.push(folder);
        }
        next.truncate(FOLDERS.saturating_sub(all.len()));
        level = next;
    }
    all.sort();
    all.dedup();
    all
}

fn is_kernels(folder: &Path) -> bool {
    ["/proc", "/sys"].iter().any(|own| folder == Path::new(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_and_not_done_is_removed_and_nothing_else() {
        let run = tempfile::tempdir().expect("a folder");
        let place = tempfile::tempdir_in("/tmp").expect("a folder");
        let token = |letter: &str| format!("ea-{}", letter.repeat(24));
        let tokens = ["l", "d", "f"].map(token);
        for token in &tokens {
            begin(run.path(), token).expect("noted");
            fs::write(place.path().join(token), token).expect("written");
        }
        begin(run.path(), "passwd").expect("noted");
        done(run.path(), &tokens[1]);
        fs::write(place.path().join(&tokens[2]), "somebody else's").expect("written");
        remove_left(run.path());
        let there = tokens
            .each_ref()
            .map(|token| place.path().join(token).exists());
        assert_eq!(there, [false, true, true]);
    }
}
