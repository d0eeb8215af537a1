//! Where the hierarchies of control groups are mounted, from `/proc/self/mountinfo`. Pure.

use std::path::PathBuf;

/// The controllers that a limiter and the ceilings need; on version 1 `cpuacct` counts what `cpu` bounds.
const CONTROLLERS: [&str; 4] = ["memory", "pids", "cpu", "cpuacct"];

/// The mount points of version 1, if every controller is there.
pub(super) fn v1_mounts(mountinfo: &str) -> Option<Vec<(&'static str, PathBuf)>> {
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
pub(super) fn v1_others(mountinfo: &str) -> Vec<PathBuf> {
    let used = v1_mounts(mountinfo).unwrap_or_default();
    mount_entries(mountinfo)
        .filter(|(_, kind, _)| matches!(*kind, "cgroup" | "cgroup2"))
        .map(|(point, _, _)| PathBuf::from(point))
        .filter(|point| !used.iter().any(|(_, mount)| mount == point))
        .collect()
}

pub(super) fn cgroup2_mount(mountinfo: &str) -> Option<PathBuf> {
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
    use std::path::Path;

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
    fn a_missing_controller_means_version_two() {
        let without = HYBRID.replace("rw,pids", "rw,freezer");
        assert!(v1_mounts(&without).is_none());
        assert_eq!(
            cgroup2_mount(&without).expect("there"),
            Path::new("/sys/fs/cgroup/unified")
        );
    }
}
