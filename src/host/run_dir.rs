//! The run's own folder, and the reaping of those that a killed run left behind.
//!
//! A run is named by its owner: process id, that process's start time and the boot id, so that a reused process id
//! is never taken for a live owner, and a live run is never touched.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::proc;

/// The run's own folder; removed on drop.
#[derive(Debug)]
pub struct RunDir {
    /// Where it is.
    pub path: PathBuf,
    /// Its name, which also names the run's cgroup: `run-<pid>-<start time>-<boot>`.
    pub name: String,
}

/// Why no folder could be made.
#[derive(Debug, thiserror::Error)]
#[error("no folder for this run could be made where programs may be executed; tried {tried}")]
pub struct RunDirError {
    tried: String,
}

impl RunDir {
    /// Makes it in the first place where a file can be executed and a sandbox's other user can come: the probe lies
    /// in it.
    pub fn create() -> Result<Self, RunDirError> {
        let mut tried = Vec::new();
        for parent in parents() {
            match Self::create_in(&parent) {
                Ok(dir) => return Ok(dir),
                Err(error) => tried.push(format!("{} ({error})", parent.display())),
            }
        }
        Err(RunDirError {
            tried: tried.join(", "),
        })
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)?;
        let meta = fs::symlink_metadata(parent)?;
        if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() {
            return Err(io::Error::other("it belongs to somebody else"));
        }
        let flags = nix::sys::statvfs::statvfs(parent)?.flags();
        if flags.contains(nix::sys::statvfs::FsFlags::ST_NOEXEC) {
            return Err(io::Error::other("mounted noexec"));
        }
        let name = own_name();
        let path = parent.join(&name);
        DirBuilder::new().mode(0o755).create(&path)?;
        // The umask may have taken what a sandbox's other user needs to come in.
        fs::set_permissions(parent, Permissions::from_mode(0o755))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(Self { path, name })
    }

    /// A second folder of this run's name, in the first place whose file system honours set-uid programs; only root
    /// can use one. A later run finds it as it finds the first.
    pub fn for_set_uid(&self) -> Option<Self> {
        use nix::sys::statvfs::{FsFlags, statvfs};
        parents().into_iter().find_map(|parent| {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(&parent)
                .ok()?;
            let flags = statvfs(&parent).ok()?.flags();
            if flags.intersects(FsFlags::ST_NOSUID | FsFlags::ST_NOEXEC) {
                return None;
            }
            let path = parent.join(&self.name).join("set-uid");
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(&path)
                .ok()?;
            fs::set_permissions(&path, Permissions::from_mode(0o755)).ok()?;
            Some(Self {
                path,
                name: self.name.clone(),
            })
        })
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        // The folder of all runs, and a second folder's own parent, go with the last one in them.
        for parent in self.path.ancestors().skip(1).take(2) {
            if parent.ends_with(&self.name) || is_ours(parent) {
                let _ = fs::remove_dir(parent);
            }
        }
    }
}

fn is_ours(folder: &Path) -> bool {
    folder
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("escape-audit"))
}

/// The folders of runs whose owner is gone, in every place where this user's runs can be.
pub fn dead_runs() -> Vec<PathBuf> {
    parents()
        .iter()
        .filter_map(|parent| fs::read_dir(parent).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is_dead)
        })
        .collect()
}

/// Whether a name is a run's, and its owner is gone.
pub fn is_dead(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("run-") else {
        return false;
    };
    let mut parts = rest.splitn(3, '-');
    let (Some(Ok(pid)), Some(Ok(started)), Some(boot)) = (
        parts.next().map(str::parse::<i32>),
        parts.next().map(str::parse::<u64>),
        parts.next(),
    ) else {
        return false;
    };
    let (boot, namespace) = boot.split_once('.').unwrap_or((boot, ""));
    if boot != boot_word() {
        return true;
    }
    // Of an owner in another process namespace nothing can be told from here: its numbers are others.
    namespace == pid_namespace() && proc::start_time(pid) != Some(started)
}

fn own_name() -> String {
    let pid = std::process::id();
    let started = i32::try_from(pid)
        .ok()
        .and_then(proc::start_time)
        .unwrap_or_default();
    format!("run-{pid}-{started}-{}.{}", boot_word(), pid_namespace())
}

/// The process namespace in which this process has its number.
fn pid_namespace() -> String {
    proc::namespace("self", "pid")
        .map(|inode| inode.to_string())
        .unwrap_or_default()
}

/// The first block of the boot id: enough to tell two boots of one machine apart.
fn boot_word() -> String {
    proc::boot_id().chars().take(8).collect()
}

fn parents() -> Vec<PathBuf> {
    let mut parents = Vec::new();
    if nix::unistd::geteuid().is_root() {
        parents.extend(["/run/escape-audit", "/var/lib/escape-audit"].map(PathBuf::from));
    } else if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR") {
        parents.push(PathBuf::from(dir).join("escape-audit"));
    }
    let uid = nix::unistd::geteuid();
    parents.push(PathBuf::from(format!("/var/tmp/escape-audit-{uid}")));
    parents.push(std::env::temp_dir().join(format!("escape-audit-{uid}")));
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_dead_when_its_owner_is_another_process() {
        let own = own_name();
        assert!(!is_dead(&own));
        let mut parts: Vec<&str> = own.splitn(4, '-').collect();
        parts[2] = "1";
        assert!(is_dead(&parts.join("-")), "same pid, other start time");
        let elsewhere = format!("{}1", parts.join("-"));
        assert!(!is_dead(&elsewhere), "another process namespace");
        assert!(!is_dead("run-x"), "not a run's name");
        assert!(!is_dead("something"));
    }
}
