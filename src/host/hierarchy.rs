//! A place where this user may make groups: found, proven by enabling the controllers, made tidy again.

use std::fs;
use std::path::{Path, PathBuf};

use super::cgroup::{Cgroup, CgroupError, Version, enable_controllers, io_error, make_dir};
use super::cgroup_mounts::{cgroup2_mount, v1_mounts, v1_others};

/// The folder under which all groups of this program stand, so that a later run finds what an earlier one left.
pub const ROOT_GROUP: &str = "escape-audit";

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
