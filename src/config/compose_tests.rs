//! What a service comes to, key by key; what is refused; and what the project file may say beside it.

use std::collections::BTreeMap;

use super::*;
use crate::config::compose_keys::{Fate, SERVICE};
use crate::config::model::{NetworkMode, User, VolumeSource};
use crate::config::parse;
use crate::diag::Source;

type Files<'a> = &'a [(&'a str, &'a str)];

/// The text of a file that is there and cannot be read.
const FORBIDDEN: &str = "\0";

/// The text of a file that is no text.
const BINARY: &str = "\u{1}";

/// A service of `/p/demo/compose.yaml`, with these other files and variables.
fn read_with(
    yaml: &str,
    name: &str,
    files: Files<'_>,
    variables: &[(&str, &str)],
) -> Result<Service, Diagnostics> {
    let read = |path: &Path| {
        let name = path
            .strip_prefix("/p/demo")
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        let found = files.iter().find(|(file, _)| *file == name);
        match (name.as_str(), found) {
            ("compose.yaml", _) => Ok(yaml.to_owned()),
            (_, Some((_, FORBIDDEN))) => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
            (_, Some((_, BINARY))) => Err(io::Error::from(io::ErrorKind::InvalidData)),
            (_, Some((_, text))) => Ok((*text).to_owned()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    };
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let around = Surroundings {
        read: &read,
        variable: &variable,
        here: "/".into(),
    };
    let file = match File::read(Path::new("/p/demo/compose.yaml"), &around) {
        Ok(file) => file,
        Err(Unread::Wrong(mistake)) => return Err((*mistake).into()),
        Err(Unread::Not(error)) => panic!("{error}"),
    };
    super::read(&file, name)
}

fn service(lines: &str) -> Result<Service, Diagnostics> {
    let yaml = format!("services:\n  a:\n    image: busybox\n{}", indented(lines));
    read_with(&yaml, "a", &[], &[])
}

fn indented(lines: &str) -> String {
    lines.lines().map(|line| format!("    {line}\n")).collect()
}

fn good(lines: &str) -> Settings {
    service(lines)
        .unwrap_or_else(|mistakes| panic!("{lines}\n{mistakes}"))
        .settings
}

fn codes(mistakes: &Diagnostics) -> Vec<&'static str> {
    mistakes.iter().map(|mistake| mistake.code.name()).collect()
}

#[test]
fn a_service_comes_to_the_settings_that_a_project_file_would_say() {
    let composed = good(
        "read_only: true\nmem_limit: 256m\nmemswap_limit: 256m\ncpus: 0.5\npids_limit: 64\nshm_size: 1m\n\
         tmpfs: /scratch:size=64m,mode=1777\ncap_drop: [ALL]\ncap_add: [NET_RAW]\nuser: \"65534:65534\"\n\
         security_opt:\n  - no-new-privileges:true\n  - seccomp:unconfined\n  - apparmor=unconfined\n\
         network_mode: none\npid: host\nipc: host\nuserns_mode: host\ninit: true\nruntime: runsc\n\
         group_add: [1000, staff]\ndns: 192.0.2.53\nextra_hosts: {db: 192.0.2.7}\ncgroup_parent: /x\n\
         environment: [A=1, B=]\nvolumes: [/data:/data:ro, ./here:/here]",
    );
    let source = Source::new(
        "/p/demo/escape-audit.toml",
        "[sandbox.a]\nbackend = 'docker'\nimage = 'busybox'\nallow_tag = true\nread_only = true\nmem_limit = '256m'\n\
         memswap_limit = '256m'\ncpus = 0.5\npids_limit = 64\nshm_size = '1m'\ntmpfs = ['/scratch:size=64m,mode=1777']\n\
         cap_drop = ['ALL']\ncap_add = ['NET_RAW']\nuser = '65534:65534'\n\
         security_opt = ['no-new-privileges', 'seccomp=unconfined', 'apparmor=unconfined']\nnetwork_mode = 'none'\n\
         pid = 'host'\nipc = 'host'\nuserns_mode = 'host'\ninit = true\nruntime = 'runsc'\ngroup_add = ['1000', 'staff']\n\
         dns = ['192.0.2.53']\nextra_hosts = ['db:192.0.2.7']\ncgroup_parent = '/x'\n\
         volumes = ['/data:/data:ro', './here:/here']\n[sandbox.a.environment]\nA = '1'\nB = ''\n",
    );
    let mut written = parse(&source).expect("valid").sandboxes.remove(0).settings;
    written.image = None;
    assert_eq!(composed, written);
}

#[test]
fn a_service_that_says_nothing_is_a_container_with_nothing_configured() {
    let nothing = service("").expect("valid");
    assert_eq!(nothing.settings, Settings::docker());
    assert!(
        nothing.notes.iter().any(|note| note.contains("bridge")),
        "{:?}",
        nothing.notes
    );
    let said_so = good(
        "privileged: false\nread_only: no\nmem_limit: 0\ncpus: 0\npids_limit: -1\noom_kill_disable: false\ntmpfs: []",
    );
    assert_eq!(said_so, Settings::docker());
}

#[test]
fn what_is_dangerous_arrives() {
    let settings = good(
        "privileged: true\nnetwork_mode: host\ncap_add: [SYS_ADMIN]\nvolumes:\n  - /var/run/docker.sock:/var/run/docker.sock\n\
         devices: [/dev/fuse]\nsysctls: [net.ipv4.ip_forward=1]\ndevice_cgroup_rules: ['c 1:11 r']",
    );
    assert!(settings.privileged && settings.network_mode == NetworkMode::Host);
    assert!(settings.capabilities.contains(&"CAP_SYS_ADMIN".to_owned()));
    assert_eq!(
        settings.volumes[0].source,
        VolumeSource::Host("/var/run/docker.sock".into())
    );
    assert_eq!(settings.options.devices[0].2, "rwm");
    assert_eq!(settings.options.sysctls["net.ipv4.ip_forward"], "1");
    assert_eq!(settings.options.device_rules, ["c 1:11 r"]);
}

/// No case tries an open disk: a container that holds one would come out BLOCKED in all of them.
#[test]
fn a_device_that_no_case_tries_is_refused() {
    for lines in [
        "devices: [/dev/sda]",
        "devices: ['/dev/vda:/dev/fuse:r']",
        "devices: [{source: /dev/mem}]",
        "devices: [/dev/fuse/../sda]",
        "devices: [/srv/null]",
        "device_cgroup_rules: ['b 8:0 r']",
        "device_cgroup_rules: [' a *:* rwm']",
    ] {
        let mistakes = service(lines).err().expect(lines);
        assert_eq!(codes(&mistakes), ["not-expressible"], "{lines}");
        assert!(mistakes.to_string().contains("no case tries"), "{mistakes}");
    }
}

#[test]
fn ceilings_have_an_old_and_a_new_place() {
    let new = good(
        "deploy:\n  resources:\n    limits: {cpus: '0.5', memory: 1.5g, pids: 64}\n    reservations: {memory: 1m}",
    );
    assert_eq!(
        (new.cpus, new.mem_limit, new.pids_limit),
        (Some(0.5), Some(3 << 29), Some(64))
    );
    for typo in [
        "deploy: {resource: {limits: {pids: 9}}}",
        "deploy: {resources: {limit: {pids: 9}}}",
    ] {
        assert_eq!(
            codes(&service(typo).err().expect("refused")),
            ["unknown-key"],
            "{typo}"
        );
    }
    assert_eq!(
        good("tmpfs: ['/t:rw,noexec,size=1m']").tmpfs,
        good("tmpfs: '/t:noexec,size=1m'").tmpfs
    );
    assert_eq!(good("cpu_quota: 50000").cpus, Some(0.5));
    assert_eq!(good("cpu_quota: 30000\ncpu_period: 20000").cpus, Some(1.5));
    assert_eq!(
        good("ulimits: {nproc: 64, nofile: {soft: 1, hard: 2}}")
            .options
            .ulimits
            .len(),
        2
    );
    assert_eq!(good("cpuset: 0-1").options.cpuset.as_deref(), Some("0-1"));
    for both in [
        "mem_limit: 1g\ndeploy: {resources: {limits: {memory: 2g}}}",
        "cpus: 1\ncpu_quota: 50000",
        "mem_limit: 8m\nmemswap_limit: 7m",
    ] {
        assert_eq!(
            codes(&service(both).err().expect("refused")),
            ["contradiction"],
            "{both}"
        );
    }
}

/// Were one of them taken for nothing, another sandbox would be audited than the one that is deployed.
#[test]
fn every_refused_key_is_refused_at_its_place() {
    for (key, fate, _) in SERVICE.iter().filter(|(_, fate, _)| *fate == Fate::Refused) {
        let mistakes = service(&format!("{key}: [something]")).err().expect(key);
        assert_eq!(codes(&mistakes), ["not-expressible"], "{key} {fate:?}");
        assert!(
            mistakes.to_string().contains("compose.yaml:4:5"),
            "{mistakes}"
        );
    }
    for lines in [
        "deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}",
        "deploy: {resources: {limits: {gpu: 1}}}",
    ] {
        assert_eq!(
            codes(&service(lines).err().expect("refused")),
            ["not-expressible"],
            "{lines}"
        );
    }
    let unknown = service("red_only: true")
        .err()
        .expect("refused")
        .to_string();
    assert!(
        unknown.contains("error[unknown-key]") && unknown.contains("did you mean `read_only`?"),
        "{unknown}"
    );
}

/// Every key that the table calls expressed does change what is audited.
#[test]
fn every_expressed_key_changes_something() {
    let example: BTreeMap<&str, &str> = BTreeMap::from([
        ("cap_add", "[SYS_ADMIN]"),
        ("cap_drop", "[CHOWN]"),
        ("cgroup_parent", "/x"),
        ("configs", "[c]"),
        ("cpu_period", "50000"),
        ("cpu_quota", "10000"),
        ("cpus", "1"),
        ("cpuset", "0"),
        ("deploy", "{resources: {limits: {pids: 9}}}"),
        ("device_cgroup_rules", "['c 1:3 r']"),
        ("devices", "[/dev/fuse]"),
        ("dns", "[192.0.2.1]"),
        ("env_file", "env"),
        ("environment", "{A: b}"),
        ("extends", "base"),
        ("extra_hosts", "['a:192.0.2.1']"),
        ("group_add", "[7]"),
        ("init", "true"),
        ("ipc", "host"),
        ("mem_limit", "64m"),
        ("memswap_limit", "-1"),
        ("network_mode", "none"),
        ("networks", "[n]"),
        ("pid", "host"),
        ("pids_limit", "9"),
        ("privileged", "true"),
        ("read_only", "true"),
        ("runtime", "runsc"),
        ("secrets", "[s]"),
        ("security_opt", "[seccomp=unconfined]"),
        ("shm_size", "1m"),
        ("storage_opt", "{size: 1g}"),
        ("sysctls", "{net.core.somaxconn: 9}"),
        ("tmpfs", "/t"),
        ("ulimits", "{nproc: 9}"),
        ("user", "nobody"),
        ("userns_mode", "host"),
        ("volumes", "[/v]"),
    ]);
    let top = "configs: {c: {file: ./c}}\nsecrets: {s: {file: ./s}}\nnetworks: {n: {}}\n";
    for (key, ..) in SERVICE
        .iter()
        .filter(|(_, fate, _)| *fate == Fate::Expressed)
    {
        if matches!(*key, "image" | "build") {
            continue;
        }
        let value = example
            .get(key)
            .unwrap_or_else(|| panic!("an example of `{key}`"));
        let more = if *key == "cpu_period" {
            "\n    cpu_quota: 10000"
        } else {
            ""
        };
        let yaml = format!(
            "{top}services:\n  base: {{image: busybox, read_only: true}}\n  a:\n    image: busybox\n    {key}: {value}{more}\n"
        );
        let read = read_with(&yaml, "a", &[("env", "E=1\n")], &[]);
        let settings = read
            .unwrap_or_else(|mistakes| panic!("{key}\n{mistakes}"))
            .settings;
        assert_ne!(settings, Settings::docker(), "{key}");
    }
}

#[test]
fn what_is_of_no_matter_is_named_in_a_note() {
    let with = service("restart: always\nports: ['80:80']\nx-mine: 1").expect("valid");
    assert_eq!(with.settings, Settings::docker());
    assert!(
        with.notes
            .iter()
            .any(|note| note.contains("`restart`, `ports`, `x-mine`")),
        "{:?}",
        with.notes
    );
}

#[test]
fn variables_come_from_the_environment_and_the_file_beside() {
    let yaml = "services:\n  a:\n    image: ${IMAGE:-busybox}\n    mem_limit: ${MEM}m\n    pids_limit: ${PIDS:-9}\n    environment: [FROM, NOT_SET, X=$MISSING]\n";
    let files = [(".env", "MEM=64\nFROM=file\n")];
    let seen = read_with(yaml, "a", &files, &[("MEM", "32"), ("IMAGE", "other")]).expect("valid");
    assert_eq!(seen.image.as_deref(), Some("other"));
    assert_eq!(
        (seen.settings.mem_limit, seen.settings.pids_limit),
        (Some(32 << 20), Some(9))
    );
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        seen.settings.environment,
        [set("FROM", "file"), set("X", "")]
    );
    assert!(
        seen.notes
            .iter()
            .any(|note| note.contains("`MISSING`, `NOT_SET`")),
        "{:?}",
        seen.notes
    );
    let wrong = "services: {a: {image: busybox, mem_limit: \"${MEM:?say how much}\"}}";
    let said = read_with(wrong, "a", &[], &[])
        .err()
        .expect("refused")
        .to_string();
    assert!(
        said.contains("`MEM` has to be set: say how much") && said.contains("compose.yaml:1:43"),
        "{said}"
    );
}

/// What is wrong with a password is said without it: errors end in logs that many read.
#[test]
fn a_mistake_in_a_secret_does_not_show_it() {
    let wrong = "services: {a: {image: busybox, environment: {DB_PASSWORD: \"hunter$ 2\"}}}";
    let said = read_with(wrong, "a", &[], &[]).err().expect("refused");
    let said = said.to_string();
    assert!(said.contains("DB_PASSWORD: \"******$ *\""), "{said}");
    assert!(!said.contains("hunter"), "{said}");
}

#[test]
fn environment_files_come_before_the_environment() {
    let yaml = "services:\n  a:\n    image: busybox\n    env_file: [one, {path: two, required: false}, {path: gone, required: false}]\n    environment: {A: mine}\n";
    let files = [("one", "A=1\nB=1\n"), ("two", "B=2\n")];
    let seen = read_with(yaml, "a", &files, &[]).expect("valid");
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(seen.settings.environment, [set("A", "mine"), set("B", "2")]);
    assert!(codes(&service("env_file: gone").err().expect("refused")).contains(&"wrong-value"));
}

/// Without them, other variables would be filled in than those of what is deployed.
#[test]
fn a_file_of_variables_is_read_or_refused() {
    let yaml = "services: {a: {image: busybox, privileged: \"${P:-false}\"}}";
    let marked = [(".env", "\u{feff}P=true\n")];
    let seen = read_with(yaml, "a", &marked, &[]).expect("valid");
    assert!(seen.settings.privileged);
    let files = "services: {a: {image: busybox, env_file: [{path: env, required: false}]}}";
    let marked = [("env", "\u{feff}A=1\n")];
    let seen = read_with(files, "a", &marked, &[]).expect("valid");
    assert_eq!(seen.settings.environment, [("A".into(), "1".into())]);
    for text in [FORBIDDEN, BINARY] {
        for (yaml, name) in [(yaml, ".env"), (files, "env")] {
            let said = read_with(yaml, "a", &[(name, text)], &[]).err();
            let said = said.expect("refused").to_string();
            assert!(
                said.contains("compose.yaml:1:") && said.contains("save it as UTF-8"),
                "{said}"
            );
        }
    }
}

#[test]
fn a_variable_that_names_other_files_is_refused() {
    let yaml = "services: {a: {image: busybox}}";
    for name in ["COMPOSE_FILE", "COMPOSE_ENV_FILES"] {
        let text = format!("{name}=other\n");
        for (files, own) in [
            (&[(".env", text.as_str())][..], &[][..]),
            (&[], &[(name, "other")]),
        ] {
            let said = read_with(yaml, "a", files, own).err().expect("refused");
            assert_eq!(codes(&said), ["not-expressible"], "{name}");
        }
        assert!(read_with(yaml, "a", &[], &[(name, "")]).is_ok());
    }
}

#[test]
fn a_file_of_variables_that_compose_is_told_not_to_read_is_not_read() {
    let yaml = "services: {a: {image: busybox, network_mode: '${NETWORK:-host}'}}";
    let network = |own: &[(&str, &str)]| {
        let files = [(".env", "NETWORK=none\n")];
        let seen = read_with(yaml, "a", &files, own).expect("valid");
        seen.settings.network_mode
    };
    assert_eq!(network(&[]), NetworkMode::None);
    for (said, network_mode) in [
        ("1", NetworkMode::Host),
        ("true", NetworkMode::Host),
        ("0", NetworkMode::None),
        ("false", NetworkMode::None),
    ] {
        let own = [("COMPOSE_DISABLE_ENV_FILE", said)];
        assert_eq!(network(&own), network_mode, "{said}");
    }
}

/// One key that is left empty leaves what the base says of it.
#[test]
fn what_is_left_empty_is_taken_from_the_base() {
    let yaml = "services:\n  base:\n    image: busybox\n    privileged: true\n    cap_add: [SYS_ADMIN]\n    tmpfs: /a\n    environment: {A: 1, B: 1}\n\
                \x20   deploy: {resources: {limits: {pids: 9}}}\n\
                \x20 a:\n    extends: base\n    image:\n    privileged: ~\n    cap_add:\n    tmpfs: /b\n    environment: {A: }\n    deploy: {resources: {limits: }}\n";
    let seen = read_with(yaml, "a", &[], &[]).expect("valid");
    assert_eq!(seen.image.as_deref(), Some("busybox"));
    let settings = seen.settings;
    assert!(settings.privileged && settings.capabilities.contains(&"CAP_SYS_ADMIN".to_owned()));
    assert_eq!((settings.pids_limit, settings.tmpfs.len()), (Some(9), 2));
    // A variable without a value is passed on from where Compose runs.
    assert_eq!(settings.environment, [("B".into(), "1".into())]);
}

#[test]
fn what_a_service_extends_is_merged_in() {
    let yaml = "services:\n  base:\n    image: busybox\n    read_only: true\n    cap_drop: [ALL]\n    environment: [A=1, B=1]\n    volumes: ['/x:/data', '/y:/y']\n\
                \x20 a:\n    extends: {service: base}\n    cap_drop: [NET_RAW, ALL]\n    environment: {B: 2}\n    volumes: ['/z:/data:ro']\n\
                \x20 loop: {extends: loop, image: busybox}\n  out: {extends: {file: other.yaml, service: x}, image: busybox}\n";
    let seen = read_with(yaml, "a", &[], &[]).expect("valid").settings;
    assert!(seen.read_only && seen.capabilities.is_empty());
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(seen.environment, [set("A", "1"), set("B", "2")]);
    assert_eq!(seen.volumes.len(), 2);
    assert_eq!(seen.volumes[1].source, VolumeSource::Host("/z".into()));
    assert_eq!(
        codes(&read_with(yaml, "loop", &[], &[]).err().expect("refused")),
        ["contradiction"]
    );
    assert_eq!(
        codes(&read_with(yaml, "out", &[], &[]).err().expect("refused")),
        ["not-expressible"]
    );
}

#[test]
fn networks_and_volumes_go_by_the_names_that_the_engine_has() {
    let network = |lines: &str, top: &str| {
        let yaml = format!(
            "{top}\nservices:\n  a:\n    image: busybox\n{}",
            indented(lines)
        );
        read_with(&yaml, "a", &[], &[]).map(|seen| seen.settings.network_mode)
    };
    let named = |name: &str| NetworkMode::Named(name.to_owned());
    let of = |lines, top| network(lines, top).expect("valid");
    assert_eq!(of("", ""), NetworkMode::Bridge);
    assert_eq!(of("networks: [n]", "networks: {n: }"), named("demo_n"));
    assert_eq!(
        of(
            "networks: {n: {aliases: [x], priority: 1, mac_address: }}",
            "name: mine\nnetworks: {n: {}}"
        ),
        named("mine_n")
    );
    assert_eq!(
        of("networks: [n]", "networks: {n: {name: real}}"),
        named("real")
    );
    assert_eq!(
        of("networks: [n]", "networks: {n: {external: true}}"),
        named("n")
    );
    assert_eq!(
        of("", "networks: {default: {internal: true}}"),
        named("demo_default")
    );
    assert_eq!(of("network_mode: bridge", ""), NetworkMode::Bridge);
    for (lines, top) in [
        ("networks: [a, b]", "networks: {a: , b: }"),
        ("networks: [n]", ""),
        ("network_mode: none\nnetworks: [n]", "networks: {n: }"),
        ("network_mode: service:b", ""),
        ("networks: {n: {driver_opts: {x: y}}}", "networks: {n: }"),
        (
            "networks: {n: {ipv4_address: 192.0.2.9}}",
            "networks: {n: }",
        ),
        (
            "networks: {n: {ipv6_address: '2001:db8::9'}}",
            "networks: {n: }",
        ),
        (
            "networks: {n: {mac_address: '02:00:00:00:00:09'}}",
            "networks: {n: }",
        ),
        (
            "networks: {n: {link_local_ips: [192.0.2.9]}}",
            "networks: {n: }",
        ),
        ("networks: {n: {gw_priority: 1}}", "networks: {n: }"),
        ("networks: {n: {interface_name: eth9}}", "networks: {n: }"),
    ] {
        assert_eq!(
            network(lines, top).err().map(|m| m.len()),
            Some(1),
            "{lines}"
        );
    }
    let volume = |top: &str| {
        let yaml = format!("{top}\nservices:\n  a:\n    image: busybox\n    volumes: ['v:/v']\n");
        let seen = read_with(&yaml, "a", &[], &[]).ok()?;
        Some(seen.settings.volumes[0].source.clone())
    };
    assert_eq!(
        volume("volumes: {v: }"),
        Some(VolumeSource::Named("demo_v".into()))
    );
    assert_eq!(
        volume("volumes: {v: {external: true}}"),
        Some(VolumeSource::Named("v".into()))
    );
    // It may be any folder of the host's under another name.
    assert_eq!(
        volume("volumes: {v: {driver_opts: {type: none, o: bind, device: /}}}"),
        None
    );
    assert_eq!(volume(""), None);
}

/// A volume of the same name is another thing.
#[test]
fn a_bind_of_a_bare_name_is_a_folder() {
    let yaml = "volumes: {work: }\nservices:\n  a:\n    image: busybox\n    volumes:\n      - {type: bind, source: work, target: /w}\n\
                \x20     - {type: volume, source: work, target: /v}\n";
    let seen = read_with(yaml, "a", &[], &[]).expect("valid").settings;
    assert_eq!(
        (&seen.volumes[0].source, &seen.volumes[1].source),
        (
            &VolumeSource::Host("/p/demo/./work".into()),
            &VolumeSource::Named("demo_work".into())
        )
    );
    let path = yaml.replace("volume, source: work", "volume, source: ./work");
    let said = read_with(&path, "a", &[], &[]).err().expect("refused");
    assert_eq!(codes(&said), ["wrong-value"]);
}

#[test]
fn secrets_are_files_that_are_mounted() {
    let yaml = "secrets: {key: {file: ./key.txt}, env: {environment: KEY}}\nservices:\n  a: {image: busybox, secrets: [key, {source: key, target: /k}]}\n  b: {image: busybox, secrets: [env]}\n";
    let seen = read_with(yaml, "a", &[], &[])
        .expect("valid")
        .settings
        .volumes;
    let places: Vec<(&str, bool)> = seen
        .iter()
        .map(|v| (v.inside.as_str(), v.read_only))
        .collect();
    assert_eq!(places, [("/run/secrets/key", true), ("/k", true)]);
    assert_eq!(
        seen[0].source,
        VolumeSource::Host("/p/demo/./key.txt".into())
    );
    assert_eq!(
        codes(&read_with(yaml, "b", &[], &[]).err().expect("refused")),
        ["wrong-value"]
    );
}

#[test]
fn a_file_that_compose_would_merge_in_is_not_overlooked() {
    let yaml = "services: {a: {image: busybox}}";
    let beside = [("compose.override.yaml", "services: {a: {privileged: true}}")];
    assert!(read_with(yaml, "a", &[], &[]).is_ok());
    assert_eq!(
        codes(&read_with(yaml, "a", &beside, &[]).err().expect("refused")),
        ["not-expressible"]
    );
    // Whatever the two are called, and whether or not this user may read it.
    for name in [
        "compose.override.yml",
        "docker-compose.override.yml",
        "docker-compose.override.yaml",
    ] {
        for text in ["services: {}", FORBIDDEN] {
            let said = read_with(yaml, "a", &[(name, text)], &[]).err();
            assert_eq!(
                said.as_ref().map(codes),
                Some(vec!["not-expressible"]),
                "{name}"
            );
        }
    }
    let include = format!("include: [other.yaml]\n{yaml}");
    assert_eq!(
        codes(&read_with(&include, "a", &[], &[]).err().expect("refused")),
        ["not-expressible"]
    );
}

/// The project file's part, with real files.
fn project(service: &str, beside: &str) -> Result<Sandbox, Vec<&'static str>> {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(
        folder.path().join("c.yaml"),
        format!("services:\n  a: {service}\n"),
    )
    .expect("written");
    let text =
        format!("[sandbox.x]\nbackend = 'docker'\ncompose = 'c.yaml'\nservice = 'a'\n{beside}\n");
    let source = Source::new(folder.path().join("escape-audit.toml"), &text);
    parse(&source)
        .map(|mut p| p.sandboxes.remove(0))
        .map_err(|m| codes(&m))
}

#[test]
fn the_image_is_pinned_here_or_there() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let pinned = format!("busybox:1@{digest}");
    let image = |service: &str, beside: &str| project(service, beside).map(|s| s.settings.image);
    let by_digest = Ok(Some(Image::Digest {
        reference: pinned.clone(),
        digest: digest.clone(),
    }));
    assert_eq!(image(&format!("{{image: '{pinned}'}}"), ""), by_digest);
    assert_eq!(
        image("{image: 'busybox:1'}", &format!("image = '{pinned}'")),
        by_digest
    );
    assert_eq!(
        image("{image: 'busybox:1'}", "allow_tag = true"),
        Ok(Some(Image::Tag("busybox:1".into())))
    );
    let by_id = format!("image_id = '{digest}'");
    assert_eq!(
        image("{build: .}", &by_id),
        Ok(Some(Image::Id(digest.clone())))
    );
    assert_eq!(
        image("{build: ., image: mine}", &by_id),
        Ok(Some(Image::Id(digest.clone())))
    );
    // What is deployed is what the service says, and what it builds no registry knows.
    for (service, beside) in [
        (format!("{{image: '{pinned}'}}"), by_id.clone()),
        (
            "{build: ., image: 'busybox:1'}".into(),
            format!("image = '{pinned}'"),
        ),
        (
            "{build: ., image: 'busybox:1'}".into(),
            format!("image = '{pinned}'\nallow_tag = true"),
        ),
    ] {
        assert_eq!(
            image(&service, &beside),
            Err(vec!["contradiction"]),
            "{service} {beside}"
        );
    }
    assert_eq!(image("{image: 'busybox:1'}", ""), Err(vec!["not-pinned"]));
    assert_eq!(image("{build: .}", ""), Err(vec!["not-pinned"]));
    assert_eq!(image("{read_only: true}", ""), Err(vec!["missing-key"]));
    // The tag moved on, and the pin stayed.
    assert_eq!(
        image("{image: 'busybox:2'}", &format!("image = '{pinned}'")),
        Err(vec!["contradiction"])
    );
    assert_eq!(
        image(
            &format!("{{image: 'busybox:2@{digest}'}}"),
            &format!("image = '{pinned}'")
        ),
        Err(vec!["contradiction"])
    );
}

#[test]
fn a_setting_has_one_place() {
    for beside in [
        "mem_limit = '64m'",
        "network_mode = 'none'",
        "privileged = true",
        "environment = ['A=1']",
    ] {
        let said = project("{image: busybox}", &format!("allow_tag = true\n{beside}"));
        assert_eq!(said, Err(vec!["contradiction"]), "{beside}");
    }
    let sandbox = project(
        "{image: busybox, user: nobody}",
        "allow_tag = true\nwithout = ['network']\ndocker_host = 'unix:///x'\n[sandbox.x.policy]\nlevel = 'strict'\npids = 9",
    );
    let sandbox = sandbox.expect("valid");
    assert_eq!(sandbox.settings.user, User::Named("nobody".into()));
    assert_eq!(sandbox.settings.engine.as_deref(), Some("unix:///x"));
    assert_eq!((sandbox.policy.pids, sandbox.without.len()), (Some(9), 1));
}

#[test]
fn a_service_or_a_file_that_is_not_there_is_a_mistake_of_the_project_file() {
    let codes_of = |text: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(
            folder.path().join("c.yaml"),
            "services: {sandbox: {image: busybox}}",
        )
        .expect("written");
        let text = format!("[sandbox.x]\nbackend = 'docker'\n{text}\n");
        let mistakes =
            parse(&Source::new(folder.path().join("p.toml"), &text)).expect_err("refused");
        assert!(mistakes.to_string().contains("p.toml:"), "{mistakes}");
        codes(&mistakes)
    };
    assert_eq!(
        codes_of("compose = 'gone.yaml'\nservice = 'sandbox'"),
        ["unreadable"]
    );
    assert_eq!(
        codes_of("compose = 'c.yaml'\nservice = 'sandbux'"),
        ["wrong-value"]
    );
    assert_eq!(codes_of("compose = 'c.yaml'"), ["missing-key"]);
    assert_eq!(
        codes_of("image = 'a'\nallow_tag = true\nservice = 'sandbox'"),
        ["missing-key"]
    );
}
