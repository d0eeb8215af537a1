//! What was planted, written down before it is made, so that whatever a killed run left can be removed by the next.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// What the name of everything begins with that is planted outside the run's own folder. Nothing else is removed
/// there, whatever a journal says.
pub(super) const MARK: &str = "escape-audit-canary-";

/// The journal's name in the run's folder.
pub const FILE: &str = "planted";

/// A name that nothing else has.
pub(super) fn unique() -> String {
    format!("{MARK}{}", hex(8))
}

/// So many random bytes in hexadecimal.
pub(super) fn hex(bytes: usize) -> String {
    (0..bytes)
        .map(|_| format!("{:02x}", rand::random::<u8>()))
        .collect()
}

/// An open journal: one path a line, as a JSON string.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Begins the journal in the run's folder, or goes on with it.
    pub(super) fn open(run_dir: &Path) -> io::Result<Self> {
        let path = run_dir.join(FILE);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Self { path, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file with this content; never over one that is there.
    pub(super) fn make_file(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        self.note(path)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(mode))
    }

    /// Makes a folder; it may not be there yet.
    pub(super) fn make_folder(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        self.note(path)?;
        fs::create_dir(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn note(&mut self, path: &Path) -> io::Result<()> {
        let mut line = serde_json::to_string(path)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())
    }
}

/// Removes everything that the journal lists, newest first, and then the journal. What is gone already is no error;
/// what cannot be removed is returned, and keeps the journal where it is.
pub(super) fn remove_all(journal: &Path) -> Vec<PathBuf> {
    let run_dir = journal.parent().unwrap_or(journal);
    // Where runs lie, others may make folders too. Only what this user wrote, in a folder that nobody else can
    // change, says what to remove: else root would follow a stranger's journal through a stranger's links.
    let is_mine = |path: &Path| {
        let mine = nix::unistd::geteuid().as_raw();
        fs::symlink_metadata(path).is_ok_and(|found| {
            found.uid() == mine && found.mode() & 0o022 == 0 && !found.is_symlink()
        })
    };
    if !is_mine(run_dir) || !is_mine(journal) {
        return Vec::new();
    }
    let Ok(text) = fs::read_to_string(journal) else {
        return Vec::new();
    };
    let mut left = Vec::new();
    // The last line may be cut short; what it names was not made then.
    let paths = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let paths: Vec<PathBuf> = paths.collect();
    for path in paths
        .into_iter()
        .rev()
        .filter(|path| is_ours(path, run_dir))
    {
        let removed = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(error) => Err(error),
        };
        if removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            left.push(path);
        }
    }
    if left.is_empty() {
        let _ = fs::remove_file(journal);
    }
    left
}

fn is_ours(path: &Path, run_dir: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let straight = path
        .components()
        .all(|part| !matches!(part, std::path::Component::ParentDir));
    path.is_absolute() && straight && (name.starts_with(MARK) || path.starts_with(run_dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_removed_and_nothing_else() {
        let (run, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut journal = Journal::open(run.path()).unwrap();
        let inside = run.path().join("home");
        journal.make_folder(&inside, 0o755).unwrap();
        journal
            .make_file(&inside.join(".netrc"), 0o644, b"x")
            .unwrap();
        let outside = elsewhere.path().join(format!("{MARK}1"));
        journal.make_file(&outside, 0o600, b"x").unwrap();
        // A folder that an attacker filled, with a way out of it.
        let drop = elsewhere.path().join(format!("{MARK}drop"));
        journal.make_folder(&drop, 0o1777).unwrap();
        let precious = elsewhere.path().join("precious");
        fs::write(&precious, "kept").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), drop.join("link")).unwrap();
        // Lines that no run of ours writes.
        journal.note(&precious).unwrap();
        journal.note(&run.path().join("..")).unwrap();
        journal
            .file
            .write_all(b"\"/tmp/escape-audit-canary-cut")
            .unwrap();

        assert!(remove_all(&run.path().join(FILE)).is_empty());
        assert!(!inside.exists() && !outside.exists() && !drop.exists());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_journal_that_others_could_have_written_is_not_followed() {
        let run = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(run.path()).unwrap();
        let file = run.path().join("file");
        journal.make_file(&file, 0o644, b"x").unwrap();
        let mode =
            |mode| fs::set_permissions(run.path(), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o777);
        remove_all(&run.path().join(FILE));
        assert!(file.exists());
        mode(0o755);
        remove_all(&run.path().join(FILE));
        assert!(!file.exists());
    }

    #[test]
    fn what_was_not_there_before_is_never_written_over() {
        let run = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(run.path()).unwrap();
        let path = run.path().join("file");
        fs::write(&path, "mine").unwrap();
        assert!(journal.make_file(&path, 0o644, b"x").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
