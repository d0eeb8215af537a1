//! Settings → the body of the engine's create call. Pure.
//!
//! The shape is the engine's, <https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerCreate>:
//! what is not said is the engine's default, which is what is to be audited.

use std::collections::{BTreeSet, HashMap};

use bollard::models::{
    ContainerCreateBody, DeviceMapping, HealthConfig, HostConfig, HostConfigLogConfig, Mount,
    MountType, MountVolumeOptions, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use crate::backend::Exposed;
use crate::backend::oci_spec::SET_UID_HELPER;
use crate::config::model::{Tmpfs, UNLIMITED, User, Volume, VolumeSource};
use crate::config::{NetworkMode, Settings};

/// The folder in the container that holds the probe; the image has none of that name.
pub const FOLDER: &str = "/.escape-audit";

/// Where the probe stands in the container.
pub const PROBE: &str = "/.escape-audit/probe";

/// And of a set-uid copy of it, where that comes in a volume.
pub const SET_UID_FOLDER: &str = "/.escape-audit-set-uid";

/// In that folder.
pub const SET_UID_COPY: &str = "/.escape-audit-set-uid/probe";

/// How the probe comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The engine sees this file of ours.
    Bind(String),
    /// It does not, or may not: the probe lies in this volume of the engine's.
    Volume(String),
}

/// What a body is made of besides the settings.
pub struct Context<'a> {
    /// The image's id.
    pub image: &'a str,
    /// How the probe comes in.
    pub probe: &'a Delivery,
    /// Who owns the container.
    pub labels: HashMap<String, String>,
    /// The environment, in the end; the image's own comes on top, and ours goes before it.
    pub environment: Vec<(String, String)>,
    /// What of the host is shown where `host-files` was taken away.
    pub exposed: &'a [Exposed],
    /// A set-uid copy of the probe, where the attempt asks for one.
    pub set_uid: Option<Delivery>,
    /// The text of `seccomp_profile`.
    pub seccomp_profile: Option<String>,
}

/// The body.
pub fn body(settings: &Settings, context: Context<'_>) -> ContainerCreateBody {
    let environment = context.environment.iter();
    ContainerCreateBody {
        image: Some(context.image.to_owned()),
        // Whatever the image would run is not run: neither its entrypoint nor its health check, whose output could
        // pass for the probe's.
        entrypoint: Some(vec![PROBE.into()]),
        cmd: Some(Vec::new()),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".into()]),
            ..HealthConfig::default()
        }),
        user: user(&settings.user),
        env: Some(
            environment
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        ),
        tty: Some(false),
        open_stdin: Some(true),
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        labels: Some(context.labels.clone()),
        host_config: Some(host_config(settings, &context)),
        ..ContainerCreateBody::default()
    }
}

fn user(user: &User) -> Option<String> {
    match user {
        User::OfTheImage => None,
        said => Some(said.to_string()),
    }
}

fn host_config(settings: &Settings, context: &Context<'_>) -> HostConfig {
    let (cap_add, cap_drop) = capabilities(settings);
    let host = |host: bool| host.then(|| "host".to_owned());
    let options = &settings.options;
    HostConfig {
        memory: settings.mem_limit.map(signed),
        memory_swap: settings.memswap_limit.map(signed),
        nano_cpus: settings.cpus.map(|cpus| (cpus * 1e9).round() as i64),
        pids_limit: settings.pids_limit.map(signed),
        tmpfs: some(settings.tmpfs.iter().map(tmpfs).collect()),
        shm_size: settings.shm_size.map(signed),
        cap_add,
        cap_drop,
        privileged: Some(settings.privileged),
        security_opt: Some(security(settings, context)),
        // Nothing is said unless they are to be seen: then no path is hidden.
        masked_paths: (!settings.masked_paths).then(Vec::new),
        readonly_paths: (!settings.masked_paths).then(Vec::new),
        readonly_rootfs: Some(settings.read_only),
        network_mode: Some(network(&settings.network_mode)),
        pid_mode: host(settings.pid_host),
        ipc_mode: host(settings.ipc_host),
        userns_mode: host(settings.userns_host),
        runtime: settings.runtime.clone(),
        mounts: Some(mounts(settings, context)),
        dns: some(settings.dns.clone()),
        extra_hosts: some(settings.extra_hosts.clone()),
        group_add: some(settings.group_add.clone()),
        cgroup_parent: settings.cgroup_parent.clone(),
        init: Some(settings.init),
        cpuset_cpus: options.cpuset.clone(),
        ulimits: some(options.ulimits.iter().map(ulimit).collect()),
        devices: some(options.devices.iter().map(device).collect()),
        device_cgroup_rules: some(options.device_rules.clone()),
        sysctls: some(options.sysctls.clone().into_iter().collect()),
        storage_opt: some(options.storage.clone().into_iter().collect()),
        // What ended stays until it was looked at, and does not come back.
        auto_remove: Some(false),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        // A payload may print without end, and the engine would keep all of it.
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".into()),
            config: None,
        }),
        ..HostConfig::default()
    }
}

/// No ceiling is `-1` in the engine's words.
fn signed(number: u64) -> i64 {
    match number {
        UNLIMITED => -1,
        number => i64::try_from(number).unwrap_or(i64::MAX),
    }
}

fn some<T: IntoIterator>(list: T) -> Option<T>
where
    for<'a> &'a T: IntoIterator,
{
    let empty = (&list).into_iter().next().is_none();
    (!empty).then_some(list)
}

/// What is added to and dropped from the engine's own set. Where the settings keep just that set, nothing is said, as
/// nobody says it.
fn capabilities(settings: &Settings) -> (Option<Vec<String>>, Option<Vec<String>>) {
    let kept: BTreeSet<&String> = settings.capabilities.iter().collect();
    let engines = Settings::docker().capabilities;
    if settings.privileged || kept == engines.iter().collect() {
        return (None, None);
    }
    (
        some(settings.capabilities.clone()),
        Some(vec!["ALL".into()]),
    )
}

fn security(settings: &Settings, context: &Context<'_>) -> Vec<String> {
    let mut options = Vec::new();
    if settings.no_new_privileges {
        options.push("no-new-privileges:true".to_owned());
    }
    match &context.seccomp_profile {
        _ if !settings.seccomp => options.push("seccomp=unconfined".into()),
        Some(profile) => options.push(format!("seccomp={profile}")),
        None => {}
    }
    if let Some(profile) = &settings.apparmor {
        options.push(format!("apparmor={profile}"));
    }
    options
}

fn ulimit((name, soft, hard): &(String, i64, i64)) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.clone()),
        soft: Some(*soft),
        hard: Some(*hard),
    }
}

fn device((here, inside, allowed): &(String, String, String)) -> DeviceMapping {
    DeviceMapping {
        path_on_host: Some(here.clone()),
        path_in_container: Some(inside.clone()),
        cgroup_permissions: Some(allowed.clone()),
    }
}

fn network(mode: &NetworkMode) -> String {
    match mode {
        // A container of no network of its own name stands in the default one.
        NetworkMode::Bridge => "bridge".into(),
        mode => mode.to_string(),
    }
}

fn tmpfs(mount: &Tmpfs) -> (String, String) {
    let mut options: Vec<String> = mount
        .size
        .iter()
        .map(|size| format!("size={size}"))
        .collect();
    options.extend(mount.options.iter().cloned());
    (mount.path.clone(), options.join(","))
}

fn mounts(settings: &Settings, context: &Context<'_>) -> Vec<Mount> {
    let mut mounts = vec![probe(context.probe)];
    mounts.extend(
        settings
            .volumes
            .iter()
            .map(|volume| mounted(volume, context)),
    );
    match &context.set_uid {
        Some(Delivery::Bind(helper)) => mounts.push(bind(helper.clone(), SET_UID_HELPER, true)),
        Some(Delivery::Volume(name)) => {
            mounts.push(volume(Some(name.clone()), SET_UID_FOLDER, true, None));
        }
        None => {}
    }
    if settings.expose_host_files {
        let exposed = context.exposed.iter().map(|exposed| {
            let path = exposed.path.to_string_lossy().into_owned();
            bind(path.clone(), &path, exposed.read_only)
        });
        mounts.extend(exposed);
    }
    mounts
}

fn probe(delivery: &Delivery) -> Mount {
    match delivery {
        Delivery::Bind(file) => bind(file.clone(), PROBE, true),
        Delivery::Volume(name) => volume(Some(name.clone()), FOLDER, true, None),
    }
}

fn mounted(asked: &Volume, context: &Context<'_>) -> Mount {
    let (inside, read_only) = (asked.inside.as_str(), asked.read_only);
    match &asked.source {
        VolumeSource::Host(path) => bind(path.to_string_lossy().into_owned(), inside, read_only),
        // The user's own: not labelled, and not removed.
        VolumeSource::Named(name) => volume(Some(name.clone()), inside, read_only, None),
        VolumeSource::Anonymous => volume(None, inside, read_only, Some(context.labels.clone())),
    }
}

fn bind(source: String, target: &str, read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source),
        target: Some(target.to_owned()),
        read_only: Some(read_only),
        ..Mount::default()
    }
}

fn volume(
    name: Option<String>,
    target: &str,
    read_only: bool,
    labels: Option<HashMap<String, String>>,
) -> Mount {
    Mount {
        typ: Some(MountType::VOLUME),
        source: name,
        target: Some(target.to_owned()),
        read_only: Some(read_only),
        volume_options: labels.map(|labels| MountVolumeOptions {
            labels: Some(labels),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protection::{PROTECTIONS, Protection};
    use serde_json::{Value, json};

    fn made(settings: &Settings, environment: &[(String, String)]) -> Value {
        let context = Context {
            image: "sha256:aa",
            probe: &Delivery::Bind("/run/x/probe".into()),
            labels: HashMap::from([("escape-audit.run".into(), "r".into())]),
            environment: environment.to_vec(),
            exposed: &[Exposed {
                path: "/h".into(),
                read_only: false,
            }],
            set_uid: None,
            seccomp_profile: None,
        };
        serde_json::to_value(body(settings, context)).expect("a body")
    }

    fn hardened() -> Settings {
        Settings {
            mem_limit: Some(1 << 28),
            memswap_limit: Some(1 << 28),
            cpus: Some(0.5),
            pids_limit: Some(64),
            shm_size: Some(1 << 20),
            capabilities: Vec::new(),
            ..Settings::default()
        }
    }

    #[test]
    fn nothing_that_the_image_would_run_is_run() {
        let body = made(&Settings::docker(), &[("A".into(), "b=c".into())]);
        assert_eq!(body["Entrypoint"], json!([PROBE]));
        assert_eq!(body["Cmd"], json!([]));
        assert_eq!(body["Healthcheck"]["Test"], json!(["NONE"]));
        assert_eq!(body["Env"], json!(["A=b=c"]));
        assert_eq!(body["HostConfig"]["AutoRemove"], json!(false));
        assert_eq!(body["HostConfig"]["RestartPolicy"]["Name"], json!("no"));
        let mount = &body["HostConfig"]["Mounts"][0];
        assert_eq!(mount["Target"], json!(PROBE));
        assert_eq!(mount["ReadOnly"], json!(true));
    }

    #[test]
    fn where_nothing_is_configured_nothing_is_said() {
        let body = made(&Settings::docker(), &[]);
        for key in [
            "CapAdd",
            "CapDrop",
            "Memory",
            "MemorySwap",
            "NanoCpus",
            "PidsLimit",
        ] {
            assert_eq!(body["HostConfig"][key], Value::Null, "{key}");
        }
        for key in ["Tmpfs", "MaskedPaths", "PidMode", "IpcMode", "Runtime"] {
            assert_eq!(body["HostConfig"][key], Value::Null, "{key}");
        }
        assert_eq!(body["HostConfig"]["SecurityOpt"], json!([]));
        assert_eq!(body["User"], Value::Null);
        assert_eq!(body["HostConfig"]["NetworkMode"], json!("bridge"));
    }

    #[test]
    fn settings_arrive_in_the_engines_units() {
        let mut settings = hardened();
        let host = &made(&settings, &[])["HostConfig"];
        assert_eq!(host["NanoCpus"], json!(500_000_000));
        assert_eq!(host["MemorySwap"], json!(1 << 28));
        assert_eq!(host["CapDrop"], json!(["ALL"]));
        assert_eq!(host["CapAdd"], Value::Null);
        assert_eq!(host["SecurityOpt"], json!(["no-new-privileges:true"]));
        assert_eq!(host["Tmpfs"], json!({"/scratch": "size=16777216"}));
        settings.memswap_limit = Some(UNLIMITED);
        settings.capabilities = vec!["CAP_CHOWN".into()];
        let host = &made(&settings, &[])["HostConfig"];
        assert_eq!(host["MemorySwap"], json!(-1));
        assert_eq!(host["CapAdd"], json!(["CAP_CHOWN"]));
    }

    #[test]
    fn removing_a_protection_changes_the_body_or_is_enforced_outside_it() {
        let outside = [
            Protection::Environment,
            Protection::Timeout,
            Protection::Output,
            Protection::Cleanup,
        ];
        let whole = made(&hardened(), &[]);
        for (protection, name, _) in PROTECTIONS {
            let mut without = hardened();
            without.remove(*protection);
            let changed = made(&without, &[]) != whole;
            assert_eq!(changed, !outside.contains(protection), "{name}");
        }
    }

    #[test]
    fn volumes_are_ours_or_the_users_by_their_labels() {
        let mut settings = hardened();
        let volume = |source, inside: &str| Volume {
            source,
            inside: inside.into(),
            read_only: true,
        };
        settings.volumes = vec![
            volume(VolumeSource::Host("/data".into()), "/d"),
            volume(VolumeSource::Named("theirs".into()), "/n"),
            volume(VolumeSource::Anonymous, "/a"),
        ];
        let mounts = made(&settings, &[])["HostConfig"]["Mounts"].clone();
        assert_eq!(mounts[1]["Type"], json!("bind"));
        assert_eq!(mounts[2]["VolumeOptions"], Value::Null);
        assert_eq!(mounts[2]["Source"], json!("theirs"));
        let labels = &mounts[3]["VolumeOptions"]["Labels"];
        assert_eq!(labels["escape-audit.run"], json!("r"));
    }
}
