//! What the engine says is in force, against what was asked of it. Pure.
//!
//! The engine's word is the first of three: the host's `/proc` and cgroups, and the probe inside, tell the rest. Only what
//! makes the sandbox weaker is a difference; an engine that is stricter than it was asked to be is none.

use std::collections::BTreeSet;

use bollard::models::{ContainerInspectResponse, HostConfig, MountPoint};

use super::engine::Facts;
use super::spec::{FOLDER, PROBE, SET_UID_FOLDER};
use crate::backend::oci_spec::SET_UID_HELPER;
use crate::backend::{BackendError, Exposed};
use crate::config::model::{EngineOptions, UNLIMITED, User};
use crate::config::{NetworkMode, Settings};

/// What was read back.
#[derive(Debug, Default)]
pub struct InForce {
    /// Name and value, for the report.
    pub listed: Vec<(String, String)>,
    /// What is weaker than it was asked for: `limit-not-applied`, `runtime-differs`.
    pub weaker: Vec<BackendError>,
}

/// What else may be mounted in the container, and is none of an engine's additions.
pub struct Declared<'a> {
    /// The volumes that the image declares.
    pub image_volumes: &'a [String],
    /// What of the host is shown where `host-files` was taken away.
    pub exposed: &'a [Exposed],
}

/// Compares.
pub fn compare(
    settings: &Settings,
    seen: &ContainerInspectResponse,
    engine: &Facts,
    warnings: &[String],
    declared: &Declared<'_>,
) -> InForce {
    let mut found = Findings::default();
    let nothing = HostConfig::default();
    let host = seen.host_config.as_ref().unwrap_or(&nothing);
    ceilings(settings, host, &mut found);
    privileges(settings, seen, host, engine, &mut found);
    namespaces(settings, host, &mut found);
    options(&settings.options, host, &mut found);
    runtime(settings, host, engine, &mut found);
    let mounts = seen.mounts.as_deref().unwrap_or_default();
    let mounts = files(settings, host, mounts, declared, &mut found);
    for warning in warnings {
        found.expect(!weakens(warning), &format!("the engine warns: {warning}"));
    }
    let mut listed = listed(seen, host, engine);
    listed.extend(mounts);
    listed.retain(|(_, value)| !value.is_empty());
    let listed = listed
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    InForce {
        listed,
        weaker: found.0,
    }
}

#[derive(Default)]
struct Findings(Vec<BackendError>);

impl Findings {
    fn expect(&mut self, holds: bool, what: &str) {
        if !holds {
            let text = format!("not in force as configured, by the engine's own word: {what}");
            self.0.push(BackendError::new("limit-not-applied", text));
        }
    }

    /// A ceiling that is missing, or higher than asked.
    fn ceiling(&mut self, what: &str, asked: Option<i64>, have: Option<i64>) {
        let Some(asked) = asked else { return };
        let have = have.filter(|have| *have > 0);
        let shown = have.map_or("none".to_owned(), |have| have.to_string());
        let holds = have.is_some_and(|have| have <= asked);
        self.expect(holds, &format!("{what}, {asked} asked, {shown} given"));
    }
}

fn ceilings(settings: &Settings, host: &HostConfig, found: &mut Findings) {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let both = settings.memswap_limit.filter(|both| *both != UNLIMITED);
    found.ceiling("memory", settings.mem_limit.map(signed), host.memory);
    found.ceiling("memory and swap", both.map(signed), host.memory_swap);
    found.ceiling(
        "processes",
        settings.pids_limit.map(signed),
        host.pids_limit,
    );
    found.ceiling("/dev/shm", settings.shm_size.map(signed), host.shm_size);
    let cpus = settings.cpus.map(|cpus| (cpus * 1e9).round() as i64);
    found.ceiling("billionths of a CPU", cpus, nano_cpus(host));
}

/// Podman tells the quota where Docker repeats what it was asked.
fn nano_cpus(host: &HostConfig) -> Option<i64> {
    let quota = || {
        let (quota, period) = (host.cpu_quota?, host.cpu_period?);
        (quota > 0 && period > 0).then(|| quota.saturating_mul(1_000_000_000) / period)
    };
    host.nano_cpus.filter(|nano| *nano > 0).or_else(quota)
}

fn privileges(
    settings: &Settings,
    seen: &ContainerInspectResponse,
    host: &HostConfig,
    engine: &Facts,
    found: &mut Findings,
) {
    let privileged = host.privileged.unwrap_or(false);
    found.expect(settings.privileged || !privileged, "not privileged");
    let allowed: BTreeSet<String> = settings.capabilities.iter().cloned().collect();
    let more: Vec<String> = kept(host).difference(&allowed).cloned().collect();
    let what = format!("capabilities dropped, yet kept: {}", more.join(" "));
    found.expect(privileged || more.is_empty(), &what);
    let options = host.security_opt.as_deref().unwrap_or_default();
    let says = |start: &str| options.iter().any(|option| option.starts_with(start));
    found.expect(
        !settings.no_new_privileges || says("no-new-privileges"),
        "no-new-privileges",
    );
    let unconfined = says("seccomp=unconfined") || says("seccomp:unconfined");
    found.expect(!settings.seccomp || !unconfined, "a system call filter");
    let knows = engine
        .security
        .iter()
        .any(|option| option.contains("seccomp"));
    let profile = engine
        .security
        .iter()
        .any(|option| option.contains("name=seccomp") && option.contains("profile=unconfined"));
    found.expect(
        !settings.seccomp || (knows && (!profile || settings.seccomp_profile.is_some())),
        "a system call filter: the engine applies none",
    );
    if let Some(asked) = &settings.apparmor {
        let have = seen.app_armor_profile.as_deref().unwrap_or_default();
        found.expect(
            have == asked,
            &format!("the AppArmor profile {asked}, `{have}` given"),
        );
    }
    let hidden = |paths: &Option<Vec<String>>| paths.as_ref().is_none_or(|list| !list.is_empty());
    found.expect(
        !settings.masked_paths || (hidden(&host.masked_paths) && hidden(&host.readonly_paths)),
        "the kernel's sensitive files hidden",
    );
    let user = seen.config.as_ref().and_then(|config| config.user.clone());
    let asked = settings.user.to_string();
    found.expect(
        settings.user == User::OfTheImage || user.as_ref() == Some(&asked),
        &format!("the user {asked}, `{}` given", user.unwrap_or_default()),
    );
}

/// The capabilities that a container keeps, by what was added to and dropped from the engine's own set.
fn kept(host: &HostConfig) -> BTreeSet<String> {
    let named = |list: &Option<Vec<String>>| -> Vec<String> {
        let names = list.iter().flatten().map(|name| name.to_uppercase());
        names
            .map(|name| match name.starts_with("CAP_") || name == "ALL" {
                true => name,
                false => format!("CAP_{name}"),
            })
            .collect()
    };
    let (added, dropped) = (named(&host.cap_add), named(&host.cap_drop));
    let mut kept: BTreeSet<String> = match dropped.iter().any(|name| name == "ALL") {
        true => BTreeSet::new(),
        false => Settings::docker().capabilities.into_iter().collect(),
    };
    for name in &dropped {
        kept.remove(name);
    }
    kept.extend(added);
    kept
}

fn namespaces(settings: &Settings, host: &HostConfig, found: &mut Findings) {
    let network = host.network_mode.as_deref().unwrap_or_default();
    let holds = match &settings.network_mode {
        NetworkMode::None => network == "none",
        NetworkMode::Host => true,
        NetworkMode::Bridge => network != "host",
        NetworkMode::Named(name) => network == name,
    };
    let what = format!("the network {}, `{network}` given", settings.network_mode);
    found.expect(holds, &what);
    let own = |mode: &Option<String>| mode.as_deref() != Some("host");
    found.expect(
        settings.pid_host || own(&host.pid_mode),
        "a process namespace of its own",
    );
    found.expect(
        settings.ipc_host || own(&host.ipc_mode),
        "an IPC namespace of its own",
    );
    found.expect(
        settings.userns_host || own(&host.userns_mode),
        "the engine's user namespace",
    );
}

/// What only a Compose file says. What gives more than was asked is no addition of the engine's, and is not looked for.
fn options(options: &EngineOptions, host: &HostConfig, found: &mut Findings) {
    for (name, _, hard) in &options.ulimits {
        let mut given = host.ulimits.iter().flatten();
        let holds = given.any(|given| {
            let bounds = |have: i64| *hard < 0 || (0..=*hard).contains(&have);
            given.name.as_ref() == Some(name) && given.hard.is_some_and(bounds)
        });
        found.expect(holds, &format!("the bound `{name}` of a process"));
    }
    if let Some(asked) = &options.cpuset {
        let have = host.cpuset_cpus.as_deref().unwrap_or_default();
        found.expect(have == asked, &format!("the CPUs {asked}, `{have}` given"));
    }
    for (name, value) in &options.sysctls {
        let have = host.sysctls.as_ref().and_then(|all| all.get(name));
        found.expect(
            have == Some(value),
            &format!("the parameter {name} of the kernel"),
        );
    }
    for (name, value) in &options.storage {
        let have = host.storage_opt.as_ref().and_then(|all| all.get(name));
        found.expect(
            have == Some(value),
            &format!("the option {name} of the storage"),
        );
    }
}

fn runtime(settings: &Settings, host: &HostConfig, engine: &Facts, found: &mut Findings) {
    let have = host.runtime.as_deref().unwrap_or_default();
    let asked = settings
        .runtime
        .as_deref()
        .unwrap_or(&engine.default_runtime);
    // Podman does not say.
    if !have.is_empty() && !asked.is_empty() && have != asked && have != "oci" {
        let text = format!("the runtime `{asked}` is configured, and the engine took `{have}`");
        found.0.push(BackendError::new("runtime-differs", text));
    }
}

/// The root file system and what is mounted over it. Gives back what is listed.
fn files(
    settings: &Settings,
    host: &HostConfig,
    mounts: &[MountPoint],
    declared: &Declared<'_>,
    found: &mut Findings,
) -> Vec<(&'static str, String)> {
    let read_only = host.readonly_rootfs.unwrap_or(false);
    found.expect(
        !settings.read_only || read_only,
        "a root file system that cannot be written",
    );
    for mount in &settings.tmpfs {
        let have = host.tmpfs.as_ref().and_then(|list| list.get(&mount.path));
        let size = mount.size.map(|size| format!("size={size}"));
        let holds = have.is_some_and(|have| {
            size.is_none_or(|size| have.split(',').any(|option| option == size))
        });
        found.expect(
            holds,
            &format!("the scratch space {} with its size", mount.path),
        );
    }
    let mut shown = Vec::new();
    for mount in mounts {
        let inside = mount.destination.as_deref().unwrap_or_default();
        if inside == PROBE || inside == FOLDER {
            continue;
        }
        let writable = mount.rw.unwrap_or(true);
        let kind = mount.typ.as_deref().unwrap_or("mount");
        shown.push(format!(
            "{inside} {kind} {}",
            if writable { "rw" } else { "ro" }
        ));
        let asked = settings
            .volumes
            .iter()
            .find(|volume| volume.inside == inside);
        if let Some(asked) = asked {
            found.expect(
                !asked.read_only || !writable,
                &format!("{inside} read-only"),
            );
        }
        let known = asked.is_some()
            || declared.image_volumes.iter().any(|volume| volume == inside)
            || (settings.expose_host_files
                && declared
                    .exposed
                    .iter()
                    .any(|exposed| exposed.path.as_os_str() == inside))
            || [SET_UID_HELPER, SET_UID_FOLDER].contains(&inside)
            || settings.tmpfs.iter().any(|tmpfs| tmpfs.path == inside);
        found.expect(known, &format!("no mount at {inside} was asked for"));
    }
    shown.sort();
    vec![("mounts", shown.join(", "))]
}

/// Whether the engine says that something was left out. A warning about another architecture, or about a name, is none.
fn weakens(warning: &str) -> bool {
    let low = warning.to_lowercase();
    ["discarded", "without swap", "not support", "ignored"]
        .iter()
        .any(|word| low.contains(word))
}

fn listed(
    seen: &ContainerInspectResponse,
    host: &HostConfig,
    engine: &Facts,
) -> Vec<(&'static str, String)> {
    let number = |value: Option<i64>| match value.filter(|value| *value != 0) {
        Some(value) => value.to_string(),
        None => "none".to_owned(),
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let kept: Vec<String> = kept(host).into_iter().collect();
    let capabilities = match (host.privileged, kept.is_empty()) {
        (Some(true), _) => "all (privileged)".to_owned(),
        (_, true) => "none".to_owned(),
        _ => kept.join(" "),
    };
    // A filter may be written out at length.
    let options = host.security_opt.iter().flatten();
    let options: Vec<&str> = options
        .map(|option| option.split("={").next().unwrap_or(option))
        .collect();
    let runtime = host.runtime.clone().filter(|name| !name.is_empty());
    vec![
        ("engine memory", number(host.memory)),
        ("engine memory-and-swap", number(host.memory_swap)),
        ("engine pids", number(host.pids_limit)),
        ("engine nano-cpus", number(nano_cpus(host))),
        ("engine capabilities", capabilities),
        ("engine security-opt", options.join(" ")),
        ("engine network", text(&host.network_mode)),
        ("engine apparmor", text(&seen.app_armor_profile)),
        (
            "runtime",
            runtime.unwrap_or_else(|| engine.default_runtime.clone()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::docker::spec::{Context, Delivery, body};
    use std::collections::HashMap;

    fn engine() -> Facts {
        Facts {
            default_runtime: "runc".into(),
            security: vec!["name=seccomp,profile=default".into()],
            ..Facts::default()
        }
    }

    /// An engine that does just what it is asked.
    fn obedient(settings: &Settings) -> ContainerInspectResponse {
        let context = Context {
            image: "i",
            probe: &Delivery::Bind("/p".into()),
            labels: HashMap::new(),
            environment: Vec::new(),
            exposed: &[],
            set_uid: None,
            seccomp_profile: None,
        };
        let body = body(settings, context);
        let mut host = body.host_config.expect("there");
        host.runtime.get_or_insert("runc".into());
        ContainerInspectResponse {
            host_config: Some(host),
            config: Some(bollard::models::ContainerConfig {
                user: body.user,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn weaker(
        settings: &Settings,
        seen: &ContainerInspectResponse,
        warnings: &[&str],
    ) -> Vec<String> {
        let warnings: Vec<String> = warnings.iter().map(|text| (*text).to_owned()).collect();
        let declared = Declared {
            image_volumes: &[],
            exposed: &[],
        };
        let found = compare(settings, seen, &engine(), &warnings, &declared);
        found
            .weaker
            .into_iter()
            .map(|error| error.code.to_owned() + ": " + &error.text)
            .collect()
    }

    #[test]
    fn an_engine_that_obeys_is_not_accused() {
        for settings in [Settings::default(), Settings::docker()] {
            let seen = obedient(&settings);
            let linux = ["The requested image's platform (linux/arm64) does not match"];
            assert_eq!(weaker(&settings, &seen, &linux), Vec::<String>::new());
        }
    }

    type Change = fn(&mut HostConfig);

    #[test]
    fn whatever_an_engine_leaves_out_is_found() {
        let changes: [(&str, Change); 14] = [
            ("memory, ", |host| host.memory = Some(0)),
            ("memory and swap", |host| host.memory_swap = Some(-1)),
            ("processes", |host| host.pids_limit = None),
            ("CPU", |host| host.nano_cpus = Some(0)),
            ("not privileged", |host| host.privileged = Some(true)),
            ("CAP_SYS_ADMIN", |host| {
                host.cap_add = Some(vec!["SYS_ADMIN".into()])
            }),
            ("CAP_NET_RAW", |host| host.cap_drop = None),
            ("no-new-privileges", |host| host.security_opt = None),
            ("filter", |host| {
                let options = ["no-new-privileges:true", "seccomp=unconfined"];
                host.security_opt = Some(options.map(String::from).to_vec());
            }),
            ("hidden", |host| host.masked_paths = Some(Vec::new())),
            ("network", |host| host.network_mode = Some("default".into())),
            ("process namespace", |host| {
                host.pid_mode = Some("host".into())
            }),
            ("cannot be written", |host| {
                host.readonly_rootfs = Some(false)
            }),
            ("/scratch", |host| host.tmpfs = None),
        ];
        for (words, change) in changes {
            let settings = Settings::default();
            let mut seen = obedient(&settings);
            change(seen.host_config.as_mut().expect("there"));
            let found = weaker(&settings, &seen, &[]);
            assert!(
                found.iter().any(|text| text.contains(words)),
                "{words}: {found:?}"
            );
        }
    }

    #[test]
    fn another_runtime_another_user_and_a_warning_are_found() {
        let settings = Settings {
            runtime: Some("runsc".into()),
            ..Settings::default()
        };
        let mut seen = obedient(&settings);
        seen.host_config.as_mut().expect("there").runtime = Some("runc".into());
        seen.config.as_mut().expect("there").user = Some(String::new());
        let swap = "Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without swap.";
        let found = weaker(&settings, &seen, &[swap]);
        assert!(found.iter().any(|text| text.starts_with("runtime-differs")));
        assert!(found.iter().any(|text| text.contains("65534:65534")));
        assert!(found.iter().any(|text| text.contains("without swap")));
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn a_mount_that_nobody_asked_for_is_found() {
        let settings = Settings::default();
        let mut seen = obedient(&settings);
        let mount = |inside: &str| MountPoint {
            destination: Some(inside.into()),
            rw: Some(true),
            ..MountPoint::default()
        };
        seen.mounts = Some(vec![mount(PROBE), mount("/extra")]);
        let found = weaker(&settings, &seen, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("/extra"));
    }

    #[test]
    fn what_only_a_compose_file_says_is_compared_too() {
        let mut settings = Settings::docker();
        settings.options = EngineOptions {
            cpuset: Some("0".into()),
            ulimits: vec![("nproc".into(), 8, 9), ("nofile".into(), -1, -1)],
            sysctls: [("net.core.somaxconn".to_owned(), "9".to_owned())].into(),
            storage: [("size".to_owned(), "1g".to_owned())].into(),
            ..EngineOptions::default()
        };
        let mut seen = obedient(&settings);
        assert_eq!(weaker(&settings, &seen, &[]), [""; 0]);
        let host = seen.host_config.as_mut().expect("there");
        host.ulimits.as_mut().expect("there")[0].hard = Some(-1);
        (host.cpuset_cpus, host.sysctls, host.storage_opt) = (None, None, None);
        assert_eq!(weaker(&settings, &seen, &[]).len(), 4);
    }
}
