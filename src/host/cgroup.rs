//! Control groups of both versions: made, bounded, filled, emptied and removed by their own path.
//!
//! A group has the same relative path in every hierarchy that it needs. On version 2 that is one folder; on
//! version 1 one a controller.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup_mounts::{cgroup2_mount, v1_mounts};

/// Why no groups can be made.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// There is no place where this user may make groups with all controllers.
    #[error("no cgroup of our own can be made: {why}")]
    NoPlace {
        /// Why.
        why: String,
    },
    /// A file of the hierarchy could not be read or written.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// `write`, `create`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The version that carries the controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Version {
    V1,
    V2,
}

/// One group.
#[derive(Debug, Clone)]
pub struct Cgroup {
    pub(super) version: Version,
    pub(super) dirs: Vec<(&'static str, PathBuf)>,
    pub(super) others: Vec<PathBuf>,
    pub(super) path: PathBuf,
}

/// Bounds for a group; `None` leaves it open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Bytes of memory, swap not included.
    pub memory: Option<u64>,
}

impl Bounds {
    /// Bounds that both fit into.
    pub fn wider(self, other: Self) -> Self {
        let most = |one: Option<u64>, two: Option<u64>| Some(one?.max(two?));
        Self {
            pids: most(self.pids, other.pids),
            memory: most(self.memory, other.memory),
        }
    }
}

impl Cgroup {
    /// The group that an engine made for the container with this id, found by its first process; `None` where it cannot
    /// be seen from here, and where the process is in another one: a runtime may make none, and then what is counted
    /// would be the engine itself.
    pub fn of_process(pid: i32, container: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let found = Self::in_hierarchies(&mounts, &groups, container)?;
        let exists = found.dirs.iter().all(|(_, dir)| dir.is_dir());
        exists.then_some(found)
    }

    fn in_hierarchies(mountinfo: &str, groups: &str, container: &str) -> Option<Self> {
        let (version, mounts) = match v1_mounts(mountinfo) {
            Some(mounts) => (Version::V1, mounts),
            None => (Version::V2, vec![("", cgroup2_mount(mountinfo)?)]),
        };
        let path = |controller: &str| {
            groups.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                let its = controllers.split(',').any(|name| name == controller);
                let own = !container.is_empty() && path.contains(container);
                (its && own).then(|| path.trim_start_matches('/'))
            })
        };
        let dirs: Option<Vec<_>> = mounts
            .into_iter()
            .map(|(controller, mount)| Some((controller, mount.join(path(controller)?))))
            .collect();
        let first = if version == Version::V1 { "memory" } else { "" };
        Some(Self {
            version,
            dirs: dirs?,
            others: Vec::new(),
            path: path(first)?.into(),
        })
    }

    /// The path from the top of the hierarchy, with a leading slash: what a runtime is given.
    pub fn absolute(&self) -> PathBuf {
        Path::new("/").join(&self.path)
    }

    /// Which version carries it.
    pub fn version(&self) -> Version {
        self.version
    }

    /// A group below this one. On version 2 this one then holds groups and no processes.
    pub fn child(&self, name: &str) -> Result<Self, CgroupError> {
        let child = self.below(name);
        for ((_, dir), (_, parent)) in child.dirs.iter().zip(&self.dirs) {
            if self.version == Version::V2 {
                enable_controllers(parent)?;
            }
            make_dir(dir)?;
        }
        Ok(child)
    }

    /// The group of that name below this one, whether it exists or not.
    pub fn below(&self, name: &str) -> Self {
        Self {
            version: self.version,
            dirs: self
                .dirs
                .iter()
                .map(|(controller, dir)| (*controller, dir.join(name)))
                .collect(),
            others: self.others.iter().map(|dir| dir.join(name)).collect(),
            path: self.path.join(name),
        }
    }

    /// Sets bounds.
    pub fn bound(&self, bounds: Bounds) -> Result<(), CgroupError> {
        if let Some(pids) = bounds.pids {
            self.write("pids", "pids.max", &pids.to_string())?;
        }
        if let Some(memory) = bounds.memory {
            let file = match self.version {
                Version::V1 => "memory.limit_in_bytes",
                Version::V2 => "memory.max",
            };
            self.write("memory", file, &memory.to_string())?;
        }
        Ok(())
    }

    /// Lets it go before its neighbours when CPU time is short, so that a busy machine does not pass for a ceiling. Where
    /// that cannot be had, a measurement that proves nothing is made again.
    pub fn favour(&self) {
        let (file, weight) = match self.version {
            Version::V1 => ("cpu.shares", "10240"),
            Version::V2 => ("cpu.weight", "1000"),
        };
        let _ = self.write("cpu", file, weight);
    }

    /// Opens the files through which a process joins: writing `0` to each moves the writer. Made to be used between
    /// `fork` and `exec`, where nothing may be allocated.
    pub fn doors(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        self.dirs
            .iter()
            .map(|(_, dir)| {
                let path = dir.join("cgroup.procs");
                OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .map(OwnedFd::from)
                    .map_err(io_error("open", &path))
            })
            .collect()
    }

    /// The ids of the processes in it and below it.
    pub fn processes(&self) -> Vec<i32> {
        let mut found = Vec::new();
        for (_, dir) in &self.dirs {
            walk(dir, &mut |dir| {
                if let Ok(text) = fs::read_to_string(dir.join("cgroup.procs")) {
                    found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
                }
            });
        }
        found.retain(|pid| *pid > 0);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether the process is in it, or below it, in every hierarchy: what its bounds and its counters cover.
    pub fn holds(&self, pid: i32) -> bool {
        self.dirs.iter().all(|(_, dir)| {
            let mut found = false;
            walk(dir, &mut |dir| {
                let members = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                found |= members.lines().any(|line| line.parse() == Ok(pid));
            });
            found
        })
    }

    /// Ends every process in it and below it, and waits until they are gone. Gives back what is left, which is
    /// nothing unless a process cannot be killed.
    pub fn kill(&self) -> Vec<i32> {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            if self.version == Version::V2 {
                for (_, dir) in &self.dirs {
                    let _ = fs::write(dir.join("cgroup.kill"), "1");
                }
            }
            let left = self.processes();
            if left.is_empty() || Instant::now() > until {
                return left;
            }
            self.thaw();
            for pid in &left {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// A frozen process does not even die.
    fn thaw(&self) {
        let (file, word) = match self.version {
            Version::V1 => ("freezer.state", "THAWED"),
            Version::V2 => ("cgroup.freeze", "0"),
        };
        for dir in self.dirs.iter().map(|(_, dir)| dir).chain(&self.others) {
            walk(dir, &mut |dir| {
                let _ = fs::write(dir.join(file), word);
            });
        }
    }

    /// Removes it and every group below it. It has to be empty of processes; those that are just going are waited for.
    pub fn remove(&self) -> Result<(), CgroupError> {
        for dir in self.dirs.iter().map(|(_, dir)| dir).chain(&self.others) {
            let mut folders = Vec::new();
            walk(dir, &mut |folder| folders.push(folder.to_owned()));
            for folder in folders.iter().rev() {
                remove_dir(folder)?;
            }
        }
        Ok(())
    }

    /// Whether any of its folders exists.
    pub fn exists(&self) -> bool {
        self.dirs
            .iter()
            .map(|(_, dir)| dir)
            .chain(&self.others)
            .any(|dir| dir.exists())
    }

    /// A file of this controller, as text without the last line feed.
    pub fn read(&self, controller: &str, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.dir(controller)?.join(file)).ok()?;
        Some(text.trim_end().to_owned())
    }

    /// The sum of an entry over this group and every one below it; `None` where none has it. A sandbox may have made a
    /// group of its own, and older kernels count an event only where the process was that met it.
    pub fn sum_below(&self, controller: &str, file: &str, key: &str) -> Option<u64> {
        let mut sum = None;
        walk(self.dir(controller)?, &mut |dir| {
            let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
            let number = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
            if let Some(number) = number {
                sum = Some(sum.unwrap_or(0) + number);
            }
        });
        sum
    }

    fn write(&self, controller: &str, file: &str, value: &str) -> Result<(), CgroupError> {
        let path = self
            .dir(controller)
            .ok_or_else(|| CgroupError::NoPlace {
                why: format!("the controller {controller} is not there"),
            })?
            .join(file);
        fs::write(&path, value).map_err(io_error("write", &path))
    }

    fn dir(&self, controller: &str) -> Option<&Path> {
        self.dirs
            .iter()
            .find(|(name, _)| name.is_empty() || *name == controller)
            .map(|(_, dir)| dir.as_path())
    }
}

/// Moves the calling process through the doors. Only `write(2)` is called, so this may stand between `fork` and `exec`.
pub fn enter(doors: &[OwnedFd]) -> io::Result<()> {
    for door in doors {
        nix::unistd::write(door, b"0").map_err(io::Error::from)?;
    }
    Ok(())
}

pub(super) fn io_error<'a>(
    doing: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> CgroupError + 'a {
    move |source| CgroupError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

pub(super) fn make_dir(dir: &Path) -> Result<(), CgroupError> {
    fs::create_dir_all(dir).map_err(io_error("create", dir))
}

/// A dead process may hold its group for some milliseconds more.
fn remove_dir(dir: &Path) -> Result<(), CgroupError> {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() > until => return Err(io_error("remove", dir)(error)),
            Err(_) => thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Lets groups below this one have the controllers (version 2).
pub(super) fn enable_controllers(dir: &Path) -> Result<(), CgroupError> {
    let path = dir.join("cgroup.subtree_control");
    let present = fs::read_to_string(&path).unwrap_or_default();
    let missing: Vec<String> = ["memory", "pids", "cpu"]
        .iter()
        .filter(|wanted| !present.split_whitespace().any(|have| have == **wanted))
        .map(|wanted| format!("+{wanted}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut file = File::options()
        .write(true)
        .open(&path)
        .map_err(io_error("open", &path))?;
    file.write_all(missing.join(" ").as_bytes())
        .map_err(io_error("write", &path))
}

pub(super) fn walk(dir: &Path, visit: &mut dyn FnMut(&Path)) {
    if !dir.is_dir() {
        return;
    }
    visit(dir);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 24 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    #[test]
    fn the_group_of_a_container_is_found_in_every_hierarchy_or_not_at_all() {
        let groups = "9:pids:/d/c0\n4:cpu,cpuacct:/d/c0\n3:memory:/e/c0\n1:name=systemd:/\n0::/z/docker-c0.scope\n";
        let found = Cgroup::in_hierarchies(HYBRID, groups, "c0").expect("found");
        let at = |found: &Cgroup, controller| found.dir(controller).map(Path::to_owned);
        assert_eq!(
            at(&found, "memory"),
            Some("/sys/fs/cgroup/memory/e/c0".into())
        );
        assert_eq!(at(&found, "pids"), Some("/sys/fs/cgroup/pids/d/c0".into()));
        let unified = HYBRID.replace("rw,pids", "rw,freezer");
        let found = Cgroup::in_hierarchies(&unified, groups, "c0").expect("found");
        let own = "/sys/fs/cgroup/unified/z/docker-c0.scope";
        assert_eq!(at(&found, "pids"), Some(own.into()));
        for (groups, container) in [
            (groups, "c1"),
            (groups, ""),
            ("9:pids:/\n4:cpu,cpuacct:/\n3:memory:/\n0::/\n", "c0"),
            ("9:pids:/d/c0\n4:cpu,cpuacct:/d/c0\n3:memory:/\n", "c0"),
        ] {
            let found = Cgroup::in_hierarchies(HYBRID, groups, container);
            assert!(found.is_none(), "{groups}");
        }
    }
}
