//! A container as the engine says it runs → the Compose service that would run so.
//!
//! A Compose file is what the settings are read from, so nothing that the engine says is dropped in silence: what cannot be
//! expressed is refused there, under Compose's own name for it.

use bollard::models::{ContainerInspectResponse, HostConfig, MountPoint};
use serde_json::{Map, Value, json};

use super::call::{Phase, call, status};
use super::engine::Engine;
use super::image::{inspect, with_algorithm};
use crate::backend::BackendError;
use crate::config::Like;

/// How the container of this name runs.
pub async fn service(engine: &Engine, name: &str) -> Result<Like, BackendError> {
    let asked = async {
        match engine.docker.inspect_container(name, None).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let Some(seen) = call(Phase::Inspect, asked).await? else {
        let text = format!("the engine has no container `{name}`");
        return Err(BackendError::new("container-gone", text)
            .help("start it first; `docker ps -a` shows those there are"));
    };
    let image = with_algorithm(seen.image.as_deref().unwrap_or_default());
    let declared = inspect(engine, &image).await?.map(|facts| facts.volumes);
    let groups = match engine.facts.cgroup_version.as_str() {
        "2" => "private",
        _ => "host",
    };
    let text = compose(&seen, &declared.unwrap_or_default(), groups)?;
    Ok(Like { text, image })
}

/// The file. `declared` are the volumes of the image, which every container of it gets; `groups` is the engine's default
/// for the namespace of cgroups.
fn compose(
    seen: &ContainerInspectResponse,
    declared: &[String],
    groups: &str,
) -> Result<String, BackendError> {
    let nothing = HostConfig::default();
    let host = seen.host_config.as_ref().unwrap_or(&nothing);
    let security = security(host)?;
    let mut service = Map::new();
    let mut say = |key: &str, value: Value| {
        let empty = match &value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        if !empty {
            service.insert(key.to_owned(), escaped(value));
        }
    };
    let config = seen.config.as_ref();
    say(
        "image",
        json!(with_algorithm(seen.image.as_deref().unwrap_or_default()).replace("sha256:", "id-")),
    );
    say(
        "user",
        json!(config.and_then(|config| config.user.as_ref())),
    );
    say(
        "environment",
        json!(config.and_then(|config| config.env.as_ref())),
    );
    say("mem_limit", positive(host.memory));
    say(
        "memswap_limit",
        json!(host.memory_swap.filter(|bytes| *bytes != 0)),
    );
    say("pids_limit", positive(host.pids_limit));
    say(
        "cpus",
        json!(
            host.nano_cpus
                .filter(|nano| *nano > 0)
                .map(|nano| nano as f64 / 1e9)
        ),
    );
    // Podman says the quota as well.
    if host.nano_cpus.is_none_or(|nano| nano <= 0) {
        say("cpu_quota", positive(host.cpu_quota));
        say("cpu_period", positive(host.cpu_period));
    }
    say("cpu_rt_runtime", positive(host.cpu_realtime_runtime));
    say("cpuset", json!(host.cpuset_cpus));
    // Compose has no word for it, so it is refused.
    say("cpuset_mems", json!(host.cpuset_mems));
    say("shm_size", positive(host.shm_size));
    say("read_only", json!(host.readonly_rootfs));
    say("privileged", json!(host.privileged));
    say("cap_add", json!(host.cap_add));
    say("cap_drop", json!(host.cap_drop));
    say("security_opt", json!(security));
    let networks = networks(seen);
    match (&networks[..], own_address(seen)) {
        // Firewalls go by an address that is its own, and no other container can have it: so it is refused, as of a service.
        ([one], Some(address)) => say("networks", json!({one: {"ipv4_address": address}})),
        ([one], None) if one == "default" => say("network_mode", json!("bridge")),
        ([one], None) => say("network_mode", json!(one)),
        (several, _) => say("networks", json!(several)),
    }
    say("pid", json!(host.pid_mode));
    // A namespace of its own either way; whether others may join it is their matter.
    let own = |mode: &&String| !matches!(mode.as_str(), "private" | "shareable");
    say("ipc", json!(host.ipc_mode.as_ref().filter(own)));
    say("uts", json!(host.uts_mode));
    say("userns_mode", json!(host.userns_mode));
    let mode = host.cgroupns_mode.map(|mode| mode.to_string());
    say("cgroup", json!(mode.filter(|mode| mode != groups)));
    say("cgroup_parent", json!(host.cgroup_parent));
    // What Podman calls its own default.
    say(
        "runtime",
        json!(host.runtime.as_ref().filter(|name| *name != "oci")),
    );
    say("init", json!(host.init));
    say("group_add", json!(host.group_add));
    say("dns", json!(host.dns));
    say("extra_hosts", json!(host.extra_hosts));
    say("oom_kill_disable", json!(host.oom_kill_disable));
    say("sysctls", json!(host.sysctls));
    say("storage_opt", json!(host.storage_opt));
    say("annotations", json!(host.annotations));
    say("device_cgroup_rules", json!(host.device_cgroup_rules));
    say("devices", devices(host));
    say("ulimits", ulimits(host));
    say(
        "gpus",
        json!(
            host.device_requests
                .as_ref()
                .is_some_and(|all| !all.is_empty())
        ),
    );
    say("tmpfs", tmpfs(host));
    let mounts = seen.mounts.as_deref().unwrap_or_default();
    say("volumes", volumes(host, mounts, declared));
    let named = mounts
        .iter()
        .filter_map(name)
        .map(|name| (name.to_owned(), json!({"external": true})));
    let file = json!({
        "services": {"container": service},
        "volumes": named.collect::<Map<_, _>>(),
    });
    Ok(serde_json::to_string_pretty(&file).unwrap_or_default())
}

/// `$` names a variable in a Compose file.
fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace('$', "$$")),
        Value::Array(list) => list.into_iter().map(escaped).collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (key, escaped(value)))
            .collect(),
        other => other,
    }
}

fn positive(number: Option<i64>) -> Value {
    json!(number.filter(|number| *number > 0))
}

fn security(host: &HostConfig) -> Result<Vec<String>, BackendError> {
    let mut all = host.security_opt.clone().unwrap_or_default();
    let bare = |paths: &Option<Vec<String>>| paths.as_ref().is_some_and(Vec::is_empty);
    let open = bare(&host.masked_paths) && bare(&host.readonly_paths);
    let usual = is_usual(&host.masked_paths, &MASKED, &MASKED_BY_SOME)
        && is_usual(&host.readonly_paths, &READ_ONLY, &[]);
    if !open && !usual {
        let text = "it hides other paths of the kernel's than the engine does by itself";
        return Err(BackendError::new("not-expressible", text)
            .help("start it without `MaskedPaths` and `ReadonlyPaths`, or with both of them empty (`systempaths=unconfined`)"));
    }
    if open && host.privileged != Some(true) {
        all.push("systempaths=unconfined".into());
    }
    Ok(all)
}

/// What an engine hides by itself.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
];

/// What newer versions hide as well; what ends with a star is the beginning of a path.
const MASKED_BY_SOME: [&str; 3] = [
    "/proc/interrupts",
    "/sys/devices/system/cpu/cpu*",
    "/sys/devices/virtual/powercap",
];

/// What it makes read-only.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Whether these are an engine's own paths. Podman does not say them.
fn is_usual(paths: &Option<Vec<String>>, always: &[&str], also: &[&str]) -> bool {
    let Some(paths) = paths else {
        return true;
    };
    let has = |path: &&str| paths.iter().any(|there| there == path);
    let known = |there: &String| {
        always.contains(&there.as_str())
            || also.iter().any(|path| match path.strip_suffix('*') {
                Some(start) => there.starts_with(start),
                None => there == path,
            })
    };
    always.iter().all(has) && paths.iter().all(known)
}

/// The address that it was given, and did not get by chance.
fn own_address(seen: &ContainerInspectResponse) -> Option<String> {
    let settings = seen.network_settings.as_ref()?;
    let configs = settings.networks.as_ref()?.values();
    let configs = configs.filter_map(|network| network.ipam_config.as_ref());
    let addresses = configs.flat_map(|ipam| [&ipam.ipv4_address, &ipam.ipv6_address]);
    addresses
        .flatten()
        .find(|address| !address.is_empty())
        .cloned()
}

/// The networks that it is in; of one that is stopped, or shares another's, the one that it was asked to be in.
fn networks(seen: &ContainerInspectResponse) -> Vec<String> {
    let settings = seen.network_settings.as_ref();
    let networks = settings.and_then(|settings| settings.networks.as_ref());
    let mut names: Vec<String> = networks
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect();
    names.sort();
    if names.is_empty() {
        let asked = seen
            .host_config
            .as_ref()
            .and_then(|host| host.network_mode.clone());
        names.extend(asked);
    }
    names
}

fn devices(host: &HostConfig) -> Value {
    let all = host.devices.iter().flatten().map(|device| {
        json!({
            "source": device.path_on_host,
            "target": device.path_in_container,
            "permissions": device.cgroup_permissions,
        })
    });
    all.collect()
}

fn ulimits(host: &HostConfig) -> Value {
    let all = host.ulimits.iter().flatten().map(|bound| {
        let name = bound.name.clone().unwrap_or_default();
        (name, json!({"soft": bound.soft, "hard": bound.hard}))
    });
    Value::Object(all.collect())
}

fn tmpfs(host: &HostConfig) -> Value {
    let all = host
        .tmpfs
        .iter()
        .flatten()
        .map(|(path, options)| match options.as_str() {
            "" => path.clone(),
            options => format!("{path}:{options}"),
        });
    all.collect()
}

/// The name of a volume that somebody named.
fn name(mount: &MountPoint) -> Option<&str> {
    let name = mount.name.as_deref()?;
    let made_up = name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
    (!made_up).then_some(name)
}

fn volumes(host: &HostConfig, mounts: &[MountPoint], declared: &[String]) -> Value {
    let all = mounts.iter().filter_map(|mount| {
        let target = mount.destination.clone().unwrap_or_default();
        let kind = mount.typ.as_deref().unwrap_or_default();
        let writable = mount.rw.unwrap_or(true);
        let asked = host.mounts.iter().flatten();
        let asked = asked.clone().find(|asked| asked.target.as_deref() == Some(&*target));
        let propagation = mount.propagation.as_deref().filter(|said| !said.is_empty());
        let bind = asked.and_then(|asked| asked.bind_options.as_ref());
        let recursive = bind.and_then(|bind| match (bind.non_recursive, bind.read_only_non_recursive) {
            (Some(true), _) => Some("disabled"),
            (_, Some(true)) => Some("writable"),
            _ => None,
        });
        match kind {
            "volume" if name(mount).is_none() && declared.contains(&target) => None,
            "volume" if name(mount).is_none() => Some(json!({"type": "volume", "target": target})),
            "volume" => {
                let subpath = asked.and_then(|asked| asked.volume_options.as_ref()?.subpath.clone());
                Some(json!({
                    "type": "volume", "source": name(mount), "target": target, "read_only": !writable,
                    "volume": {"subpath": subpath},
                }))
            }
            "tmpfs" => {
                let options = asked.and_then(|asked| asked.tmpfs_options.as_ref());
                let size = options.and_then(|options| options.size_bytes);
                let mode = options.and_then(|options| options.mode);
                let mut given = Map::new();
                given.extend(size.map(|size| ("size".to_owned(), json!(size))));
                given.extend(mode.map(|mode| ("mode".to_owned(), json!(mode))));
                Some(json!({"type": "tmpfs", "target": target, "tmpfs": given}))
            }
            kind => Some(json!({
                "type": kind, "source": mount.source, "target": target, "read_only": !writable,
                "bind": {"propagation": propagation, "recursive": recursive},
            })),
        }
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NetworkMode, Project, Unlike, parse_with};
    use crate::diag::{Diagnostics, Source};

    /// What an engine says, as the project file makes a sandbox of it.
    fn like(seen: Value, beside: &str) -> Result<Project, Diagnostics> {
        let seen: ContainerInspectResponse = serde_json::from_value(seen).expect("an answer");
        let text = compose(&seen, &["/declared".into()], "private");
        let text = text.map_err(|error| Unlike {
            text: error.text,
            help: error.help,
        });
        let image = seen.image.clone().unwrap_or_default();
        let source = format!("[sandbox.x]\nbackend = 'docker'\nlike = 'it'\n{beside}\n");
        parse_with(&Source::new("p.toml", &source), &|_, _| {
            Ok(Like {
                text: text.clone()?,
                image: image.clone(),
            })
        })
    }

    fn image() -> String {
        format!("sha256:{}", "0a".repeat(32))
    }

    #[test]
    fn a_container_comes_to_its_own_settings() {
        let seen = json!({
            "Image": image(),
            "Config": {"User": "nobody", "Env": ["A=$B", "PATH=/bin"]},
            "HostConfig": {
                "Memory": 64 << 20, "MemorySwap": 64 << 20, "NanoCpus": 500_000_000, "PidsLimit": 64, "ShmSize": 1 << 20,
                "ReadonlyRootfs": true, "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges:true"],
                "NetworkMode": "none", "IpcMode": "private", "CgroupnsMode": "private", "Runtime": "runc",
                "Tmpfs": {"/scratch": "size=16777216"}, "Ulimits": [{"Name": "nproc", "Soft": 8, "Hard": 9}],
                "OomKillDisable": false, "PidMode": "", "CpuQuota": 0,
                "MaskedPaths": ([MASKED.as_slice(), &["/proc/interrupts"]].concat()), "ReadonlyPaths": READ_ONLY,
            },
            "Mounts": [
                {"Type": "bind", "Source": "/srv", "Destination": "/data", "RW": false, "Propagation": "rprivate"},
                {"Type": "volume", "Name": "f".repeat(64), "Destination": "/declared", "RW": true},
                {"Type": "volume", "Name": "theirs", "Destination": "/theirs", "RW": true},
            ],
        });
        let project = like(seen, "").unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let settings = &project.sandboxes[0].settings;
        assert_eq!(
            (settings.mem_limit, settings.cpus, settings.pids_limit),
            (Some(64 << 20), Some(0.5), Some(64))
        );
        assert!(
            settings.read_only
                && settings.no_new_privileges
                && settings.masked_paths
                && settings.seccomp
        );
        assert!(settings.capabilities.is_empty() && settings.network_mode == NetworkMode::None);
        assert_eq!(settings.environment[0], ("A".to_owned(), "$B".to_owned()));
        assert_eq!(
            (settings.volumes.len(), settings.tmpfs[0].size),
            (2, Some(16 << 20))
        );
        assert_eq!(settings.options.ulimits.len(), 1);
        assert_eq!(
            settings.image.as_ref().map(ToString::to_string),
            Some(image())
        );
    }

    #[test]
    fn what_is_open_stays_open() {
        let seen = json!({
            "Image": image(),
            "HostConfig": {
                "NetworkMode": "host", "PidMode": "host", "IpcMode": "host", "CapAdd": ["SYS_ADMIN"], "MemorySwap": -1,
                "Memory": 64 << 20, "SecurityOpt": ["seccomp=unconfined"], "MaskedPaths": [], "ReadonlyPaths": [],
                "Devices": [{"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rwm"}],
            },
        });
        let project = like(seen, "").unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let settings = &project.sandboxes[0].settings;
        assert!(
            settings.pid_host && settings.ipc_host && !settings.seccomp && !settings.masked_paths
        );
        assert!(settings.capabilities.contains(&"CAP_SYS_ADMIN".to_owned()));
        assert_eq!(
            (&settings.network_mode, settings.options.devices.len()),
            (&NetworkMode::Host, 1)
        );
    }

    #[test]
    fn what_cannot_be_expressed_is_refused() {
        for (key, value) in [
            ("UTSMode", json!("host")),
            ("CgroupnsMode", json!("host")),
            ("DeviceRequests", json!([{"Count": -1}])),
            ("Annotations", json!({"a": "b"})),
            ("OomKillDisable", json!(true)),
            ("PidMode", json!("container:other")),
            ("CpusetMems", json!("0")),
            ("NetworkMode", json!("container:other")),
        ] {
            let seen = json!({"Image": image(), "HostConfig": {key: value}});
            let mistakes = like(seen, "").err().unwrap_or_else(|| panic!("{key}"));
            assert!(
                mistakes.to_string().contains("the container it:"),
                "{mistakes}"
            );
        }
        let (fewer, more) = (&MASKED[1..], [MASKED.as_slice(), &["/proc/mine"]].concat());
        for (masked, read_only) in [
            (json!(fewer), json!(READ_ONLY)),
            (json!([]), json!(READ_ONLY)),
            (json!(MASKED), json!([])),
            (json!(null), json!([])),
            (json!(MASKED), json!(["/proc/sys"])),
            (json!(more), json!(READ_ONLY)),
        ] {
            let host = json!({"MaskedPaths": masked, "ReadonlyPaths": read_only});
            let said = like(json!({"Image": image(), "HostConfig": host}), "");
            let said = said.expect_err("other paths").to_string();
            assert!(
                said.contains("MaskedPaths") && said.contains("help:"),
                "{said}"
            );
        }
        // What is mounted below a folder stays writable, or is not there.
        for option in ["ReadOnlyNonRecursive", "NonRecursive"] {
            let bind = json!({"Type": "bind", "Target": "/d", "Source": "/s", "BindOptions": {option: true}});
            let seen = json!({
                "Image": image(),
                "HostConfig": {"Mounts": [bind]},
                "Mounts": [{"Type": "bind", "Source": "/s", "Destination": "/d", "RW": false, "Propagation": "rprivate"}],
            });
            let said = like(seen, "")
                .expect_err("a bind of its own kind")
                .to_string();
            assert!(said.contains("kind of `bind`"), "{said}");
        }
        let given = json!({"a": {"IPAMConfig": {"IPv4Address": "10.89.0.77"}}});
        let seen = json!({"Image": image(), "NetworkSettings": {"Networks": given}});
        let said = like(seen, "")
            .expect_err("an address of its own")
            .to_string();
        assert!(said.contains("ipv4_address"), "{said}");
        let networks = json!({"a": {}, "b": {}});
        let seen = json!({"Image": image(), "NetworkSettings": {"Networks": networks}});
        let said = like(seen, "").expect_err("in two networks").to_string();
        assert!(said.contains("in 2 networks"), "{said}");
        let seen = json!({"Image": image(), "HostConfig": {}});
        assert!(like(seen.clone(), "mem_limit = '64m'").is_err());
        assert!(like(seen.clone(), "image_id = 'x'").is_err());
        assert!(like(seen, "[sandbox.x.policy]\npids = 9").is_ok());
    }
}
