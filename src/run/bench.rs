//! What all trials of a run share: the range, the plants, the probe's file, the run's own group. Opened once; dropped,
//! it leaves nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::backend::{Exposed, Opening, docker, oci_spec};
use crate::case::{Attempt, Case};
use crate::config::{BackendKind, RangeConfig, RangeMode, Sandbox, Settings};
use crate::evidence::Witness;
use crate::host::cgroup::{Cgroup, CgroupError};
use crate::host::hierarchy::Hierarchy;
use crate::host::probe;
use crate::host::proc::{self, Baseline};
use crate::host::run_dir::{self, RunDir};
use crate::host::written;
use crate::host::{routes, rules};
use crate::plan::Machine;
use crate::range::plant::{self, Plants};
use crate::range::{Entry, Mode, Options, Range, Stand};

/// What all trials of a run share.
pub struct Bench {
    /// The canaries, in a network of our own.
    pub range: Range,
    /// The canaries in this machine's own network, where the containers of an engine come out.
    pub here: Option<Range>,
    /// Decoys and planted files.
    pub plants: Plants,
    /// The probe's file.
    pub probe: PathBuf,
    /// What this machine can do.
    pub machine: Machine,
    /// The kernel counts swap by cgroup.
    pub counts_swap: bool,
    /// Why no cgroup can be made, where none can.
    pub no_cgroup: Option<String>,
    own_range: Baseline,
    host_range: Baseline,
    own: Witness,
    set_uid: Option<PathBuf>,
    _set_uid_dir: Option<RunDir>,
    group: Option<RunGroup>,
    _planted: Planted,
    // Last, so that it is dropped last.
    dir: RunDir,
}

/// The journal of what was planted outside the run's folder; dropped, it is emptied.
struct Planted(PathBuf);

impl Drop for Planted {
    fn drop(&mut self) {
        if let Some(run_dir) = self.0.parent() {
            written::remove_left(run_dir);
        }
        plant::reap(&self.0);
    }
}

impl Bench {
    /// What a backend needs once a run.
    pub fn opening<'a>(&'a self, progress: &'a dyn Fn(&str)) -> Opening<'a> {
        Opening {
            run: &self.dir.name,
            probe: &self.probe,
            progress,
        }
    }

    /// Reaps what killed runs left, and sets everything up. Call it inside the runtime.
    ///
    /// `cases` are those that may be tried: what they look for is planted. `sandboxes` are those that they may be tried
    /// in, and `reach` says what of the network beyond may be touched.
    pub fn open(cases: &[Case], sandboxes: &[Sandbox], reach: &RangeConfig) -> Result<Self> {
        let hierarchy = Hierarchy::find();
        reap(hierarchy.as_ref().ok());
        let dir = RunDir::create()?;
        let (hierarchy, no_cgroup) = match hierarchy {
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let group = hierarchy
            .map(|hierarchy| RunGroup::make(hierarchy, &dir.name))
            .transpose()
            .context("make the run's cgroup")?;
        // Whatever fails from here on, what was planted by then is removed before the folder that lists it.
        let planted = Planted(dir.path.join(plant::JOURNAL));
        let probe = probe::install(&dir.path)
            .map_err(|error| no_room("write the probe", &dir.path, &error))?;
        let range = Range::open(&Options::new(&dir.path)).context("open the range")?;
        let has_engine = sandboxes.iter().any(|s| s.backend == BackendKind::Docker);
        let here = has_engine.then(|| {
            let internet = reach.internet.clone();
            Range::open(&Options {
                stand: Stand::Here { internet },
                ..Options::new(&dir.path)
            })
        });
        let here = here
            .transpose()
            .context("open the range in this machine's network")?;
        let given: Vec<(String, String)> = sandboxes
            .iter()
            .flat_map(|sandbox| sandbox.settings.environment.iter().cloned())
            .collect();
        let plants = Plants::plant(&dir.path, &watched(cases), &given)
            .map_err(|error| no_room("plant the canary files", &dir.path, &error))?;
        let root = nix::unistd::geteuid().is_root();
        let set_uid_dir = if root { dir.for_set_uid() } else { None };
        let set_uid = set_uid_dir
            .as_ref()
            .map(|folder| {
                let what = "write the set-uid copy of the probe";
                probe::install_set_uid(&folder.path)
                    .map_err(|error| no_room(what, &folder.path, &error))
            })
            .transpose()?;
        let entry = range.entry();
        let identity = |fd: Option<&std::os::fd::OwnedFd>| {
            nix::sys::stat::fstat(fd?.as_raw_fd())
                .ok()
                .map(|stat| stat.st_ino)
        };
        let own_range = Baseline::new(identity(entry.net.as_ref()), identity(entry.user.as_ref()));
        let host_range = Baseline::new(None, None);
        let own = own_witness(&host_range)?;
        // An engine's containers have groups, also where none can be made here.
        let counts_swap = group
            .as_ref()
            .map_or_else(counts_swap_elsewhere, RunGroup::counts_swap);
        let machine = Machine {
            root,
            limiter: group.is_some(),
            swap: if counts_swap { free_swap() } else { 0 },
            ipv6: range.has_ipv6(),
            cpus: cpus(),
            own_range: *range.mode() == Mode::Own,
        };
        Ok(Self {
            range,
            here,
            plants,
            probe,
            machine,
            counts_swap,
            no_cgroup,
            own_range,
            host_range,
            own,
            set_uid,
            _set_uid_dir: set_uid_dir,
            group,
            _planted: planted,
            dir,
        })
    }

    /// The run's own folder.
    pub fn run_dir(&self) -> &Path {
        &self.dir.path
    }

    /// A limiter's group for one trial; `None` where none can be made.
    pub fn limiter(&self, name: &str) -> Result<Option<Cgroup>, CgroupError> {
        self.group
            .as_ref()
            .map(|group| group.hierarchy.group(&Path::new(&group.name).join(name)))
            .transpose()
    }

    /// The namespaces that a launcher of this sandbox enters first.
    pub fn entry(&self, sandbox: &Sandbox) -> Option<Arc<Entry>> {
        (sandbox.range == RangeMode::Own).then(|| self.range.entry())
    }

    /// The namespaces in which this sandbox's launcher starts.
    pub fn baseline(&self, sandbox: &Sandbox) -> Baseline {
        match sandbox.range {
            RangeMode::Own => self.own_range.clone(),
            RangeMode::Host => self.host_range.clone(),
        }
    }

    /// Whether nothing that a process sends can leave the machine: it stands in the range's namespace, or in one without
    /// any way out. Of any other namespace nobody knows where it leads.
    pub fn in_range(&self, pid: i32) -> bool {
        let theirs = proc::namespace(&pid.to_string(), "net");
        theirs == self.own_range.namespace("net") || routes::no_route(pid) == Some(true)
    }

    /// The canaries that stand where this sandbox's network comes out.
    pub fn range_of(&self, sandbox: &Sandbox) -> &Range {
        match sandbox.backend {
            BackendKind::Docker => self.here.as_ref().unwrap_or(&self.range),
            _ => &self.range,
        }
    }

    /// Whether a container's network has no way out but into the network that this machine's canaries stand in, and this
    /// machine passes on what comes from there by the same way as what comes from itself.
    pub fn leads_here(&self, pid: i32) -> bool {
        let addresses = self.here.as_ref().map(Range::addresses);
        addresses.is_some_and(|addresses| routes::leads_to(pid, addresses) == Some(true))
            && rules::by_destination_alone() == Some(true)
    }

    /// What of the host a sandbox of these settings shows without `host-files`: our own folders, and read-only the
    /// user's files that cases name, so that such a case, too, can be shown to be able to fail.
    pub fn exposed(&self, settings: &Settings) -> Vec<Exposed> {
        let mut folders = vec![self.plants.home.clone()];
        folders.extend(self.plants.drop_dirs.iter().cloned());
        for range in std::iter::once(&self.range).chain(&self.here) {
            folders.extend(range.socket_folders().iter().cloned());
        }
        let ours = folders.into_iter().map(|path| Exposed {
            path,
            read_only: false,
        });
        let named = self.plants.own_files.iter();
        let named = named.filter(|path| can_be_shown(path, settings));
        ours.chain(named.map(|path| Exposed {
            path: path.clone(),
            read_only: true,
        }))
        .collect()
    }

    /// The text without any secret of the user's.
    pub fn without_secrets(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.plants.redact(text.as_bytes())).into_owned()
    }

    /// The set-uid copy of the probe, where root could make one.
    pub fn set_uid(&self) -> Option<&Path> {
        self.set_uid.as_deref()
    }

    /// Where set-uid helpers may stand.
    pub fn helpers(&self, backend: BackendKind) -> Vec<String> {
        let planted = self
            .set_uid
            .iter()
            .map(|path| path.to_string_lossy().into_owned());
        let engines =
            (backend == BackendKind::Docker).then(|| docker::spec::SET_UID_COPY.to_owned());
        std::iter::once(oci_spec::SET_UID_HELPER.to_owned())
            .chain(engines)
            .chain(planted)
            .collect()
    }

    /// Whether the probe has every right and sees everything that the harness itself has and sees: a launcher that
    /// adds no isolation. The mount namespace does not count, since the harness makes one around every launcher.
    pub fn adds_nothing(&self, witness: &Witness) -> bool {
        let apart: BTreeSet<&str> = witness.own_namespaces.iter().map(String::as_str).collect();
        apart.iter().all(|name| *name == "mnt")
            && witness.own_root != Some(true)
            && witness.uid == self.own.uid
            && witness.cap_eff == self.own.cap_eff
            && witness.no_new_privs == self.own.no_new_privs
            && witness.seccomp == self.own.seccomp
    }
}

/// A file of the run's own that could not be written.
fn no_room(doing: &str, folder: &Path, error: &io::Error) -> anyhow::Error {
    let (folder, help) = (
        folder.display(),
        "see that there is space there, and run again",
    );
    anyhow::anyhow!("{doing} below {folder}: {error}\nhelp: {help}")
}

/// Whether a file of the host can be mounted under its own path: not in a file system of the kernel's, and not where the
/// sandbox itself has mounted something, or shows a root of the user's, in which nothing is made.
fn can_be_shown(file: &Path, settings: &Settings) -> bool {
    let kernel = ["/proc", "/sys", "/dev"].iter().map(Path::new);
    let volumes = settings.volumes.iter();
    let mut taken = kernel.chain(volumes.map(|volume| Path::new(&volume.inside)));
    settings.rootfs.is_none() && !taken.any(|place| file.starts_with(place))
}

/// The paths that read-file cases look at, each once.
fn watched(cases: &[Case]) -> Vec<String> {
    let mut paths: Vec<String> = cases
        .iter()
        .filter_map(|case| match &case.attempt {
            Attempt::ReadFile { paths } => Some(paths),
            _ => None,
        })
        .flatten()
        .cloned()
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

fn own_witness(baseline: &Baseline) -> Result<Witness> {
    let me = i32::try_from(std::process::id()).context("an impossible process id")?;
    proc::witness(me, baseline).context("read /proc/self: is /proc mounted?")
}

/// The run's own group; removed on drop, with everything in it ended.
struct RunGroup {
    hierarchy: Hierarchy,
    name: String,
}

impl RunGroup {
    fn make(hierarchy: Hierarchy, name: &str) -> Result<Self, CgroupError> {
        hierarchy.group(Path::new(""))?.favour();
        hierarchy.group(Path::new(name))?.favour();
        Ok(Self {
            hierarchy,
            name: name.to_owned(),
        })
    }

    fn counts_swap(&self) -> bool {
        self.hierarchy
            .group(Path::new(&self.name).join("look").as_path())
            .is_ok_and(|group| {
                let counted = group
                    .read("memory", "memory.memsw.usage_in_bytes")
                    .is_some()
                    || group.read("memory", "memory.swap.current").is_some();
                let _ = group.remove();
                counted
            })
    }
}

impl Drop for RunGroup {
    fn drop(&mut self) {
        clear(&self.hierarchy, &self.name);
        self.hierarchy.tidy();
    }
}

/// Ends and removes a run's group; whether nothing of it is left. What moves into it between the one and the other is
/// found the next time.
fn clear(hierarchy: &Hierarchy, name: &str) -> bool {
    (0..3).any(|_| match hierarchy.group(Path::new(name)) {
        Ok(group) => group.kill().is_empty() && group.remove().is_ok(),
        Err(_) => false,
    })
}

/// Removes what runs left whose owner is gone: processes, groups, planted files, folders. A live run is not touched.
pub fn reap(hierarchy: Option<&Hierarchy>) -> Vec<String> {
    let mut reaped = Vec::new();
    if let Some(hierarchy) = hierarchy {
        for name in hierarchy.runs() {
            if run_dir::is_dead(&name) && clear(hierarchy, &name) {
                reaped.push(name);
            }
        }
    }
    for folder in run_dir::dead_runs() {
        written::remove_left(&folder);
        let planted_left = plant::reap(&folder.join(plant::JOURNAL));
        if planted_left.is_empty() && fs::remove_dir_all(&folder).is_ok() {
            let name = folder.file_name();
            reaped.extend(name.map(|name| name.to_string_lossy().into_owned()));
        }
    }
    reaped.sort();
    reaped.dedup();
    reaped
}

/// Whether the kernel counts swap by cgroup, as groups of others show.
fn counts_swap_elsewhere() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, mount, kind, options, ..] = fields[..] else {
            return false;
        };
        let mount = Path::new(mount);
        match kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                mount.join("memory.memsw.usage_in_bytes").exists()
            }
            // The topmost group has no such file.
            "cgroup2" => fs::read_dir(mount)
                .into_iter()
                .flatten()
                .flatten()
                .any(|group| group.path().join("memory.swap.current").exists()),
            _ => false,
        }
    })
}

/// Free swap space, in bytes.
fn free_swap() -> u64 {
    fs::read_to_string("/proc/meminfo")
        .unwrap_or_default()
        .lines()
        .find_map(|line| {
            let kib = line.strip_prefix("SwapFree:")?.trim().strip_suffix(" kB")?;
            kib.parse::<u64>().ok().map(|kib| kib * 1024)
        })
        .unwrap_or(0)
}

/// The CPUs that this process may use, whatever quota it has itself.
fn cpus() -> u64 {
    let count = || -> io::Result<u64> {
        let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0))?;
        let members =
            (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false));
        Ok(members.count() as u64)
    };
    count().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::{Volume, VolumeSource};

    #[test]
    fn a_file_is_shown_where_a_mount_of_it_can_stand() {
        let mut settings = Settings::default();
        assert!(can_be_shown(Path::new("/srv/key"), &settings));
        for place in ["/proc/1/environ", "/sys/kernel/x", "/dev/shm/key"] {
            assert!(!can_be_shown(Path::new(place), &settings), "{place}");
        }
        settings.volumes.push(Volume {
            source: VolumeSource::Host("/data".into()),
            inside: "/srv".into(),
            read_only: true,
        });
        assert!(!can_be_shown(Path::new("/srv/key"), &settings));
        assert!(can_be_shown(Path::new("/srv-too/key"), &settings));
    }
}
