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

/// The controllers that a limiter and the ceilings need; on version 1 `cpuacct` counts what `cpu` bounds.
const CONTROLLERS: [&str; 4] = ["memory", "pids", "cpu", "cpuacct"];

/// The folder under which all groups of this program stand, so that a later run finds what an earlier one left.
pub const ROOT_GROUP: &str = "escape-audit";

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

/// A place where groups can be made.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    /// The version.
    pub version: Version,
    /// `(controller, mount point)`; on version 2 one entry, whose controller is empty.
    mounts: Vec<(&'static str, PathBuf)>,
    /// On version 1, hierarchies that we do not use and a container runtime does: swept, never filled.
    others: Vec<PathBuf>,
    /// The path below each mount point under which groups are made, without a leading slash.
    base: PathBuf,
    /// The delegated group whose processes had to step aside into a leaf.
    left: Option<PathBuf>,
}

impl Hierarchy {
    /// Finds the place: the root of the hierarchies for root, the delegated subtree for an ordinary user. It proves
    /// that the controllers work there by enabling them.
    pub fn find() -> Result<Self, CgroupError> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        match v1_mounts(&mounts) {
            Some(found) => Self::find_v1(found, v1_others(&mounts)),
            None => Self::find_v2(&mounts, &own),
        }
    }

    fn find_v1(
        mounts: Vec<(&'static str, PathBuf)>,
        others: Vec<PathBuf>,
    ) -> Result<Self, CgroupError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(CgroupError::NoPlace {
                why: "the controllers are on cgroup version 1, which only root can use".into(),
            });
        }
        let found = Self {
            version: Version::V1,
            mounts,
            others,
            base: PathBuf::from(ROOT_GROUP),
            left: None,
        };
        found.make_base()?;
        Ok(found)
    }

    fn find_v2(mountinfo: &str, own: &str) -> Result<Self, CgroupError> {
        let mount = cgroup2_mount(mountinfo).ok_or_else(|| CgroupError::NoPlace {
            why: "no cgroup file system is mounted".into(),
        })?;
        let own = own
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .unwrap_or_default();
        // Somebody's run made this process, or its shell, step aside already.
        let own = match Path::new(own) {
            path if path.ends_with(LEAF) => {
                path.parent().and_then(Path::to_str).unwrap_or_default()
            }
            _ => own,
        };
        let at = |parent: &str| Self {
            version: Version::V2,
            mounts: vec![("", mount.clone())],
            others: Vec::new(),
            base: Path::new(parent).join(ROOT_GROUP),
            left: None,
        };
        // Root first tries the top, where no process stands in the way; a container's own top, and an ordinary
        // user's delegated subtree, hold this process, which has to step aside into a leaf.
        let top = at("");
        if nix::unistd::geteuid().is_root() && top.make_base().is_ok() {
            return Ok(top);
        }
        let mut delegated = at(own);
        let left = mount.join(own);
        step_aside(&left)?;
        if let Err(error) = delegated.make_base() {
            step_back(&left);
            return Err(CgroupError::NoPlace {
                why: format!("the cgroup /{own} is not delegated to this user ({error})"),
            });
        }
        delegated.left = Some(left);
        Ok(delegated)
    }

    fn make_base(&self) -> Result<(), CgroupError> {
        for (_, mount) in &self.mounts {
            let base = mount.join(&self.base);
            if self.version == Version::V2
                && let Some(parent) = base.parent()
            {
                enable_controllers(parent)?;
            }
            make_dir(&base)?;
            if self.version == Version::V2 {
                enable_controllers(&base)?;
            }
        }
        Ok(())
    }

    /// The group of this relative path below the base, made with its parents.
    pub fn group(&self, name: &Path) -> Result<Cgroup, CgroupError> {
        let path = self.base.join(name);
        let group = Cgroup {
            version: self.version,
            dirs: self
                .mounts
                .iter()
                .map(|(controller, mount)| (*controller, mount.join(&path)))
                .collect(),
            others: self.others.iter().map(|mount| mount.join(&path)).collect(),
            path,
        };
        for (_, mount) in &self.mounts {
            let mut dir = mount.join(&self.base);
            for part in name {
                // On version 2 a controller is there only where every group above hands it on.
                if self.version == Version::V2 {
                    enable_controllers(&dir)?;
                }
                dir.push(part);
                make_dir(&dir)?;
            }
        }
        Ok(group)
    }

    /// Removes the base itself where no run uses it any more, and lets those who stepped aside come back.
    pub fn tidy(&self) {
        for mount in self
            .mounts
            .iter()
            .map(|(_, mount)| mount)
            .chain(&self.others)
        {
            let _ = fs::remove_dir(mount.join(&self.base));
        }
        if let Some(left) = &self.left
            && !left.join(ROOT_GROUP).exists()
        {
            step_back(left);
        }
    }

    /// The groups directly below the base: what earlier and other runs have.
    pub fn runs(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .mounts
            .iter()
            .map(|(_, mount)| mount)
            .chain(&self.others)
            .filter_map(|mount| fs::read_dir(mount.join(&self.base)).ok())
            .flatten()
            .filter_map(|entry| {
                let entry = entry.ok()?;
                entry.file_type().ok()?.is_dir().then(|| entry.file_name())
            })
            .filter_map(|name| name.into_string().ok())
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// One group.
#[derive(Debug, Clone)]
pub struct Cgroup {
    version: Version,
    dirs: Vec<(&'static str, PathBuf)>,
    others: Vec<PathBuf>,
    path: PathBuf,
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

fn io_error<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> CgroupError + 'a {
    move |source| CgroupError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

fn make_dir(dir: &Path) -> Result<(), CgroupError> {
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

fn enable_controllers(dir: &Path) -> Result<(), CgroupError> {
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

/// The leaf that processes step aside into.
const LEAF: &str = "escape-audit.self";

/// A group of version 2 that bounds others must hold no process itself: all of this one, the shell that the program
/// was started from among them, move into a leaf beside them. They stay within what bounded them before.
fn step_aside(own: &Path) -> Result<(), CgroupError> {
    let leaf = own.join(LEAF);
    make_dir(&leaf).map_err(|error| CgroupError::NoPlace {
        why: format!(
            "the cgroup {} is not delegated to this user ({error})",
            own.display()
        ),
    })?;
    move_all(own, &leaf)
}

/// Undoes [`step_aside`].
fn step_back(own: &Path) {
    let leaf = own.join(LEAF);
    let _ = fs::write(own.join("cgroup.subtree_control"), "-memory -pids -cpu");
    let _ = move_all(&leaf, own);
    let _ = fs::remove_dir(&leaf);
}

/// Moves every process, also those that are born meanwhile.
fn move_all(from: &Path, to: &Path) -> Result<(), CgroupError> {
    let door = to.join("cgroup.procs");
    for _ in 0..100 {
        let inside = fs::read_to_string(from.join("cgroup.procs")).unwrap_or_default();
        if inside.is_empty() {
            break;
        }
        for pid in inside.lines() {
            match fs::write(&door, pid) {
                Err(error) if error.raw_os_error() != Some(nix::libc::ESRCH) => {
                    return Err(io_error("write", &door)(error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn walk(dir: &Path, visit: &mut dyn FnMut(&Path)) {
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

/// The mount points of version 1, if every controller is there.
fn v1_mounts(mountinfo: &str) -> Option<Vec<(&'static str, PathBuf)>> {
    CONTROLLERS
        .iter()
        .map(|controller| {
            mount_entries(mountinfo)
                .find(|(_, kind, options)| {
                    *kind == "cgroup" && options.split(',').any(|option| option == *controller)
                })
                .map(|(point, _, _)| (*controller, PathBuf::from(point)))
        })
        .collect()
}

/// The other hierarchies: those of version 1 that we do not use, named ones too, and a hybrid's version 2. An engine puts
/// a container into every one of them, below our group where it is told to.
fn v1_others(mountinfo: &str) -> Vec<PathBuf> {
    let used = v1_mounts(mountinfo).unwrap_or_default();
    mount_entries(mountinfo)
        .filter(|(_, kind, _)| matches!(*kind, "cgroup" | "cgroup2"))
        .map(|(point, _, _)| PathBuf::from(point))
        .filter(|point| !used.iter().any(|(_, mount)| mount == point))
        .collect()
}

fn cgroup2_mount(mountinfo: &str) -> Option<PathBuf> {
    mount_entries(mountinfo)
        .find(|(_, kind, _)| *kind == "cgroup2")
        .map(|(point, _, _)| PathBuf::from(point))
}

/// `(mount point, file system, super options)` of each line.
fn mount_entries(mountinfo: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        let mut right = right.split(' ');
        let kind = right.next()?;
        Some((point, kind, right.nth(1).unwrap_or_default()))
    })
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
    fn controllers_are_found_where_they_are_mounted() {
        let mounts = v1_mounts(HYBRID).expect("all four");
        assert_eq!(mounts[2].1, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(mounts[3].1, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    }

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

    #[test]
    fn a_missing_controller_means_version_two() {
        let without = HYBRID.replace("rw,pids", "rw,freezer");
        assert!(v1_mounts(&without).is_none());
        assert_eq!(
            cgroup2_mount(&without).expect("there"),
            Path::new("/sys/fs/cgroup/unified")
        );
    }
}
