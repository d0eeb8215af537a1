//! Settings → an OCI runtime configuration (`config.json`). Pure.
//!
//! The shape is the runtime specification's, <https://github.com/opencontainers/runtime-spec/blob/main/config.md>.

use std::path::Path;

use serde_json::{Value, json};

use super::Exposed;
use crate::config::model::NOBODY;
use crate::config::{NetworkMode, Settings, VolumeSource};

/// Where the probe stands inside a root file system of ours.
pub const PROBE: &str = "/escape-audit-probe";

/// Where the probe is mounted in a root file system of the user's, in which nothing is made.
pub const MOUNTED_PROBE: &str = "/dev/escape-audit-probe";

/// Where a set-uid copy of the probe stands inside, for the attempt that tries to gain by it.
pub const SET_UID_HELPER: &str = "/escape-audit-setuid";

/// Kernel files that say too much or control too much: what container engines hide.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
];

const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The capabilities that the helper itself needs to install a filter where `no_new_privs` is not set; it drops them.
pub const FILTER_CAPABILITIES: [&str; 2] = ["CAP_SYS_ADMIN", "CAP_SETPCAP"];

/// What a configuration is made of besides the settings.
pub struct Context<'a> {
    /// The root file system's folder.
    pub rootfs: &'a Path,
    /// The probe's file, where the root file system does not hold it.
    pub probe: Option<&'a Path>,
    /// The group, as a path from the top of the hierarchy.
    pub cgroup: &'a Path,
    /// The environment, in the end.
    pub environment: Vec<(String, String)>,
    /// What of the host is shown where `host-files` was taken away.
    pub exposed: &'a [Exposed],
    /// Without root: the host's uid and gid, which become 0 in a user namespace.
    pub user_namespace: Option<(u32, u32)>,
}

/// The configuration.
pub fn config(settings: &Settings, context: &Context<'_>) -> Value {
    let (uid, gid) = match context.user_namespace {
        Some(_) => (0, 0),
        None => settings.user.ids().unwrap_or(NOBODY),
    };
    let mut capabilities = settings.capabilities.clone();
    if settings.seccomp && !settings.no_new_privileges {
        for name in FILTER_CAPABILITIES {
            if !capabilities.iter().any(|have| have == name) {
                capabilities.push(name.into());
            }
        }
    }
    let environment: Vec<String> = context
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut linux = json!({
        "cgroupsPath": context.cgroup,
        "namespaces": namespaces(settings, context.user_namespace.is_some()),
        "resources": resources(settings),
    });
    if settings.masked_paths {
        linux["maskedPaths"] = json!(MASKED);
        linux["readonlyPaths"] = json!(READ_ONLY);
    }
    if let Some((uid, gid)) = context.user_namespace {
        // The one user of the namespace owns the device folder's file system; without root nothing else holds it.
        let mut read_only = vec!["/dev"];
        if settings.masked_paths {
            read_only.extend(READ_ONLY);
        }
        linux["readonlyPaths"] = json!(read_only);
        linux["uidMappings"] = json!([{"containerID": 0, "hostID": uid, "size": 1}]);
        linux["gidMappings"] = json!([{"containerID": 0, "hostID": gid, "size": 1}]);
    }
    let mut process = json!({
        "terminal": false,
        "user": {"uid": uid, "gid": gid},
        "args": [if context.probe.is_some() { MOUNTED_PROBE } else { PROBE }],
        "env": environment,
        "cwd": "/",
        "capabilities": {
            "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
            "inheritable": [], "ambient": [],
        },
    });
    if settings.no_new_privileges {
        process["noNewPrivileges"] = json!(true);
    }
    json!({
        "ociVersion": "1.2.0",
        "root": {"path": context.rootfs, "readonly": settings.read_only},
        "hostname": "sandbox",
        "process": process,
        "mounts": mounts(settings, context),
        "linux": linux,
    })
}

fn namespaces(settings: &Settings, user: bool) -> Value {
    let mut kinds = vec!["mount", "uts", "cgroup"];
    if settings.network_mode == NetworkMode::None {
        kinds.push("network");
    }
    if !settings.pid_host {
        kinds.push("pid");
    }
    if !settings.ipc_host {
        kinds.push("ipc");
    }
    if user {
        kinds.push("user");
    }
    kinds.iter().map(|kind| json!({"type": kind})).collect()
}

fn resources(settings: &Settings) -> Value {
    let mut resources = json!({});
    if let Some(pids) = settings.pids_limit {
        resources["pids"] = json!({"limit": pids});
    }
    if let Some(memory) = settings.mem_limit {
        resources["memory"] = json!({"limit": memory});
        if let Some(both) = settings.memswap_limit {
            resources["memory"]["swap"] = json!(both);
            // libcontainer takes a swap allowance of nothing for none asked for, and leaves it open on version 2.
            resources["unified"] =
                json!({"memory.swap.max": both.saturating_sub(memory).to_string()});
        }
    }
    if let Some(cpus) = settings.cpus {
        const PERIOD_US: f64 = 100_000.0;
        resources["cpu"] = json!({"quota": (cpus * PERIOD_US) as i64, "period": PERIOD_US as u64});
    }
    resources
}

fn mounts(settings: &Settings, context: &Context<'_>) -> Value {
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc",
               "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
               "options": ["nosuid", "noexec", "mode=755", "size=65536k"]}),
        json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
               "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=1m"]}),
    ];
    if !settings.ipc_host {
        mounts.push(
            json!({"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue",
                           "options": ["nosuid", "noexec", "nodev"]}),
        );
    }
    for tmpfs in &settings.tmpfs {
        let mut options = vec!["nosuid".into(), "nodev".into(), "mode=1777".into()];
        options.extend(tmpfs.size.map(|size| format!("size={size}")));
        mounts.push(
            json!({"destination": tmpfs.path, "type": "tmpfs", "source": "tmpfs",
                           "options": options}),
        );
    }
    if let Some(probe) = context.probe {
        mounts.push(bind(probe, MOUNTED_PROBE, true));
    }
    for volume in &settings.volumes {
        if let VolumeSource::Host(host) = &volume.source {
            mounts.push(bind(host, &volume.inside, volume.read_only));
        }
    }
    if settings.expose_host_files {
        for Exposed { path, read_only } in context.exposed {
            mounts.push(bind(path, &path.to_string_lossy(), *read_only));
        }
    }
    Value::Array(mounts)
}

fn bind(host: &Path, inside: &str, read_only: bool) -> Value {
    let mut options = vec!["rbind", "nosuid", "nodev"];
    options.push(if read_only { "ro" } else { "rw" });
    json!({"destination": inside, "type": "bind", "source": host, "options": options})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protection::{PROTECTIONS, Protection};

    fn config_without(protections: &[Protection]) -> Value {
        let mut settings = Settings::default();
        protections.iter().for_each(|p| settings.remove(*p));
        config(
            &settings,
            &Context {
                rootfs: Path::new("/r"),
                probe: None,
                cgroup: Path::new("/c"),
                environment: Vec::new(),
                exposed: &[Exposed {
                    path: "/h".into(),
                    read_only: false,
                }],
                user_namespace: None,
            },
        )
    }

    #[test]
    fn removing_a_protection_changes_the_configuration_or_is_enforced_outside_it() {
        let outside = [
            Protection::Environment,
            Protection::Seccomp,
            Protection::Timeout,
            Protection::Output,
            Protection::Cleanup,
        ];
        let whole = config_without(&[]);
        for (protection, name, _) in PROTECTIONS {
            let changed = config_without(&[*protection]) != whole;
            assert_eq!(changed, !outside.contains(protection), "{name}");
        }
    }

    #[test]
    fn what_is_shown_to_be_read_is_mounted_read_only() {
        let settings = Settings {
            expose_host_files: true,
            ..Settings::default()
        };
        let shown = |read_only| Exposed {
            path: "/srv/key".into(),
            read_only,
        };
        let options = |read_only| {
            let context = Context {
                rootfs: Path::new("/r"),
                probe: None,
                cgroup: Path::new("/c"),
                environment: Vec::new(),
                exposed: &[shown(read_only)],
                user_namespace: None,
            };
            let mounts = config(&settings, &context)["mounts"].clone();
            let mounts = mounts.as_array().expect("a list");
            let there = mounts
                .iter()
                .find(|mount| mount["destination"] == "/srv/key");
            there.expect("mounted")["options"].to_string()
        };
        assert!(options(true).contains("\"ro\"") && options(false).contains("\"rw\""));
    }

    #[test]
    fn nothing_is_kept_by_default() {
        let whole = config_without(&[]);
        assert_eq!(whole["process"]["capabilities"]["bounding"], json!([]));
        assert_eq!(whole["process"]["noNewPrivileges"], json!(true));
        assert_eq!(whole["root"]["readonly"], json!(true));
        assert_eq!(whole["process"]["env"], json!([]));
    }
}
