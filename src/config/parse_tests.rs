use super::super::model::{Image, NetworkMode, Settings, UNLIMITED, User, VolumeSource};
use super::*;
use std::time::Duration;

const MIB: u64 = 1024 * 1024;

fn read(text: &str) -> Result<Project, Diagnostics> {
    parse(&Source::new("project/escape-audit.toml", text))
}

fn one(text: &str) -> Sandbox {
    let project = read(text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    project.sandboxes.into_iter().next().expect("one sandbox")
}

fn codes(text: &str) -> Vec<&'static str> {
    let mistakes = read(text).expect_err("refused");
    let mut codes: Vec<_> = mistakes.iter().map(|mistake| mistake.code.name()).collect();
    codes.sort_unstable();
    codes
}

#[test]
fn what_is_not_written_keeps_the_hardened_default() {
    let sandbox = one("[sandbox.agent]\nbackend = 'oci'\n");
    assert_eq!(sandbox, Sandbox::new("agent", BackendKind::Oci));
}

#[test]
fn compose_names_reach_the_settings_and_the_promise() {
    let sandbox = one(r#"
[sandbox.agent]
backend = "oci"
rootfs = "root"
network_mode = "host"
read_only = false
mem_limit = "256m"
cpus = 2
pids_limit = 10
tmpfs = ["/scratch:size=64m", "/tmp:size=1m"]
cap_drop = ["ALL"]
cap_add = ["NET_RAW"]
security_opt = ["no-new-privileges:false", "seccomp=unconfined"]
user = "1000:100"
pid = "host"
ipc = "host"
environment = { LANG = "C" }
volumes = ["./data:/data:ro", "/srv:/srv"]
without = ["pids"]
[sandbox.agent.policy]
level = "strict"
timeout = "10s"
output = "2m"
"#);
    let settings = &sandbox.settings;
    assert_eq!(settings.rootfs.as_deref(), Some(Path::new("project/root")));
    assert_eq!(settings.network_mode, NetworkMode::Host);
    assert!(!settings.read_only && !settings.no_new_privileges && !settings.seccomp);
    assert_eq!(
        (settings.mem_limit, settings.memswap_limit),
        (Some(256 * MIB), Some(256 * MIB))
    );
    assert_eq!((settings.cpus, settings.pids_limit), (Some(2.0), Some(10)));
    assert_eq!(settings.capabilities, ["CAP_NET_RAW"]);
    assert_eq!(settings.user, User::Ids(1000, 100));
    assert!(settings.pid_host && settings.ipc_host);
    assert_eq!(settings.environment, [("LANG".to_owned(), "C".to_owned())]);
    assert_eq!(settings.volumes.len(), 2);
    let policy = &sandbox.policy;
    assert_eq!(
        policy.pids,
        Some(10),
        "what is taken away is promised all the same"
    );
    assert_eq!(sandbox.settings_in_force().pids_limit, None);
    assert_eq!(policy.scratch, Some(65 * MIB));
    assert_eq!(policy.timeout, Some(Duration::from_secs(10)));
    assert!(
        policy.may_write("/srv/x") && policy.may_write("/tmp/x") && !policy.may_write("/data/x")
    );
}

#[test]
fn a_launcher_has_a_command_and_a_promise_and_nothing_else() {
    let sandbox = one(r#"
[sandbox.runner]
backend = "command"
command = ["bwrap", "--bind", "/a", "/a", "--bind", "/b", "/b", ""]
range = "host"
[sandbox.runner.policy]
writable = ["/tmp"]
timeout = "5s"
"#);
    assert_eq!(sandbox.command.len(), 8);
    assert_eq!(sandbox.range, RangeMode::Host);
    assert_eq!(sandbox.policy.writable, ["/tmp"]);
    assert_eq!(sandbox.policy.timeout, Some(Duration::from_secs(5)));
    assert_eq!(codes("[sandbox.a]\nbackend = 'command'\n"), ["missing-key"]);
    assert_eq!(
        codes("[sandbox.a]\nbackend = 'command'\ncommand = []\n"),
        ["empty-text"]
    );
    assert_eq!(
        codes("[sandbox.a]\nbackend = 'command'\ncommand = ['x']\ncarrier = 'python'\n"),
        ["not-expressible"]
    );
}

#[test]
fn what_the_backend_cannot_express_is_never_dropped() {
    let with =
        |backend: &str, line: &str| codes(&format!("[sandbox.a]\nbackend = '{backend}'\n{line}\n"));
    for line in [
        "image = 'x'",
        "command = ['x']",
        "range = 'host'",
        "tmpfs = ['/tmp:noexec']",
        "volumes = ['named:/data']",
        "security_opt = ['seccomp=profile.json']",
        "security_opt = ['apparmor=unconfined']",
        "user = 'nobody'",
        "ipc = 'none'",
        "environment = ['HOME']",
    ] {
        assert_eq!(with("oci", line), ["not-expressible"], "{line}");
    }
    assert_eq!(with("unsandboxed", "read_only = true"), ["not-expressible"]);
    assert_eq!(
        with("unsandboxed", "without = ['pids']"),
        ["not-expressible"]
    );
    assert_eq!(
        with("command", "command = ['x']\nmem_limit = '1g'"),
        ["not-expressible"]
    );
    let docker = |line: &str| with("docker", &format!("image = 'x'\nallow_tag = true\n{line}"));
    for line in [
        "rootfs = 'x'",
        "command = ['x']",
        "network_mode = 'container:other'",
        "network_mode = 'service:other'",
        "tmpfs = ['/tmp:ro']",
        "volumes = ['named:/data:z']",
        "security_opt = ['label=disable']",
        "security_opt = ['seccomp=builtin']",
        "ipc = 'none'",
        "environment = ['HOME']",
        "docker_host = 'ssh://host'",
        "ulimits = { nproc = 3 }",
    ] {
        assert_eq!(docker(line), ["not-expressible"], "{line}");
    }
    for line in [
        "network_mode = 'bridge'",
        "memswap_limit = '1g'\nprivileged = true",
    ] {
        assert_eq!(with("oci", line), ["not-expressible"], "{line}");
    }
}

#[test]
fn all_mistakes_are_found_at_once() {
    let text = r#"
top = 1
[sandbox.a]
backend = "ocy"
[sandbox.b]
backend = "oci"
mem_limits = "1g"
mem_limit = "lots"
pids_limit = 0
cpus = -1
read_only = "yes"
memswap_limit = "8m"
cap_add = ["NET_RAW", "NETRAW"]
cap_drop = ["NET_RAW"]
without = ["pid"]
environment = ["A=1", "A=2"]
[sandbox.b.policy]
timeout = "10"
writable = ["tmp"]
[sandbox."c d"]
backend = "oci"
"#;
    assert_eq!(
        codes(text),
        [
            "contradiction",
            "repeated",
            "unknown-key",
            "unknown-key",
            "wrong-type",
            "wrong-value",
            "wrong-value",
            "wrong-value",
            "wrong-value",
            "wrong-value",
            "wrong-value",
            "wrong-value",
            "wrong-value",
            "wrong-value",
        ]
    );
    let shown = read(text).expect_err("refused").to_string();
    for help in [
        "did you mean `oci`?",
        "did you mean `mem_limit`?",
        "did you mean `pids`?",
    ] {
        assert!(shown.contains(help), "{help}\n{shown}");
    }
    assert!(shown.contains("project/escape-audit.toml:7:1"), "{shown}");
}

#[test]
fn a_file_without_a_sandbox_and_a_missing_file_say_what_to_do() {
    assert_eq!(codes(""), ["missing-key"]);
    assert_eq!(
        codes("[sandbox]\nagent = 1\n"),
        ["missing-key", "wrong-type"]
    );
    let missing = load(Path::new("/nonexistent/escape-audit.toml")).expect_err("refused");
    assert!(
        missing.to_string().contains("help: check the path"),
        "{missing}"
    );
}

#[test]
fn a_sandbox_is_found_by_name_and_a_typo_is_no_other_sandbox() {
    let project = read("[sandbox.agent]\nbackend = 'oci'\n").expect("valid");
    assert_eq!(
        find(Some(&project), "agent").map(|s| s.name),
        Ok("agent".to_owned())
    );
    assert_eq!(
        find(Some(&project), "oci").map(|s| s.name),
        Ok("oci".to_owned())
    );
    let wrong = find(Some(&project), "agnet")
        .expect_err("refused")
        .to_string();
    assert!(wrong.contains("did you mean `agent`?"), "{wrong}");
}

/// A container of this image with these lines.
fn container(lines: &str) -> Sandbox {
    one(&format!(
        "[sandbox.a]\nbackend = 'docker'\nimage = 'busybox'\nallow_tag = true\n{lines}\n"
    ))
}

#[test]
fn what_is_not_written_of_a_container_is_what_docker_does() {
    let sandbox = container("");
    let settings = &sandbox.settings;
    let bare = Settings {
        image: Some(Image::Tag("busybox".into())),
        ..Settings::docker()
    };
    assert_eq!(*settings, bare);
    assert_eq!(settings.network_mode, NetworkMode::Bridge);
    assert_eq!(settings.user, User::OfTheImage);
    assert_eq!(settings.capabilities.len(), 14);
    assert!(!settings.read_only && !settings.no_new_privileges && settings.seccomp);
    assert_eq!((settings.mem_limit, settings.pids_limit), (None, None));
    // What it lacks it is held to all the same.
    let (policy, embedded) = (&sandbox.policy, Policy::default());
    assert_eq!(policy.pids, embedded.pids);
    assert_eq!(policy.cpus, embedded.cpus);
    assert_eq!(
        (policy.memory, policy.memory_and_swap),
        (embedded.memory, embedded.memory)
    );
    assert_eq!(policy.scratch, Some(80 * MIB), "16 MiB, and /dev/shm");
    assert_eq!(policy.writable, ["/dev/shm", "/dev/mqueue"]);
}

#[test]
fn a_container_is_what_its_row_of_flags_says() {
    let digest = format!("sha256:{}", "7".repeat(64));
    let sandbox = one(&format!(
        r#"
[sandbox.agent]
backend = "docker"
image = "python:3.12-slim@{digest}"
runtime = "runsc"
docker_host = "unix:///run/other.sock"
network_mode = "inner_net"
read_only = true
mem_limit = "256m"
memswap_limit = -1
tmpfs = ["/scratch:size=16m,noexec"]
shm_size = "1m"
volumes = ["./data:/data:ro", "cache:/cache", "/inner"]
cap_drop = ["ALL"]
cap_add = ["NET_RAW"]
security_opt = ["no-new-privileges", "seccomp=profile.json", "apparmor=mine", "systempaths=unconfined"]
user = "app:staff"
group_add = ["audio", "44"]
userns_mode = "host"
cgroup_parent = "audited.slice"
init = true
dns = "192.0.2.53"
extra_hosts = ["db:192.0.2.7", "six=[2001:db8::1]", "host:host-gateway"]
without = ["network"]
"#
    ));
    let settings = &sandbox.settings;
    assert!(
        matches!(&settings.image, Some(Image::Digest { digest: there, .. }) if *there == digest)
    );
    assert_eq!(settings.runtime.as_deref(), Some("runsc"));
    assert_eq!(settings.engine.as_deref(), Some("unix:///run/other.sock"));
    assert_eq!(
        settings.network_mode,
        NetworkMode::Named("inner_net".into())
    );
    assert_eq!(settings.memswap_limit, Some(UNLIMITED));
    assert_eq!(settings.tmpfs[0].options, ["noexec"]);
    let sources: Vec<_> = settings.volumes.iter().map(|v| v.source.clone()).collect();
    let here = std::env::current_dir().expect("a folder");
    assert_eq!(
        sources,
        [
            VolumeSource::Host(here.join("project/./data")),
            VolumeSource::Named("cache".into()),
            VolumeSource::Anonymous
        ]
    );
    assert_eq!(settings.capabilities, ["CAP_NET_RAW"]);
    assert!(settings.no_new_privileges && settings.seccomp && !settings.masked_paths);
    let profile = settings.seccomp_profile.as_deref();
    assert_eq!(profile, Some(Path::new("project/profile.json")));
    assert_eq!(settings.apparmor.as_deref(), Some("mine"));
    assert_eq!(settings.user, User::Named("app:staff".into()));
    assert_eq!(settings.group_add, ["audio", "44"]);
    assert!(settings.userns_host && settings.init);
    assert_eq!(settings.dns, ["192.0.2.53"]);
    assert_eq!(
        settings.extra_hosts,
        ["db:192.0.2.7", "six:2001:db8::1", "host:host-gateway"]
    );
    let policy = &sandbox.policy;
    assert_eq!(
        policy.memory_and_swap,
        Some(256 * MIB),
        "no ceiling is no promise"
    );
    assert_eq!(policy.scratch, Some(17 * MIB));
    assert!(policy.may_write("/cache/x") && policy.may_write("/inner/x"));
    assert!(!policy.may_write("/data/x"));
}

#[test]
fn swap_that_nobody_bounds_is_left_to_docker_and_promised_away() {
    let sandbox = container("mem_limit = '256m'");
    assert_eq!(sandbox.settings.memswap_limit, None);
    assert_eq!(sandbox.policy.memory_and_swap, Some(256 * MIB));
    let oci = one("[sandbox.a]\nbackend = 'oci'\nmemswap_limit = -1\n");
    assert_eq!(oci.settings.memswap_limit, None);
    assert_eq!(oci.policy.memory_and_swap, oci.policy.memory);
}

#[test]
fn scratch_counts_shared_memory_once() {
    let promised = |lines: &str| container(lines).policy.scratch.map(|bytes| bytes / MIB);
    assert_eq!(
        promised("read_only = true"),
        Some(64),
        "nothing but /dev/shm"
    );
    assert_eq!(promised("tmpfs = ['/a:size=16m', '/b']"), Some(96));
    assert_eq!(
        promised("read_only = true\ntmpfs = ['/dev/shm:size=2m']"),
        Some(2)
    );
    assert_eq!(
        promised("shm_size = '1g'\ntmpfs = ['/a:size=1m']"),
        Some(1025)
    );
    let shm = container("tmpfs = ['/dev/shm:size=2m']").policy.writable;
    assert_eq!(shm, ["/dev/shm", "/dev/mqueue"]);
}

#[test]
fn capabilities_are_resolved_as_an_engine_resolves_them() {
    let kept = |lines: &str| container(lines).settings.capabilities;
    assert_eq!(kept("cap_drop = ['all']"), [""; 0]);
    assert_eq!(kept("cap_drop = ['NET_RAW', 'CAP_MKNOD']").len(), 12);
    let more = kept("cap_add = ['SYS_PTRACE', 'NET_RAW']");
    assert_eq!(
        (more.len(), more.last().map(String::as_str)),
        (15, Some("CAP_SYS_PTRACE"))
    );
    assert_eq!(kept("cap_add = ['ALL']").len(), 41);
    assert_eq!(kept("cap_add = ['ALL']\ncap_drop = ['ALL']").len(), 41);
    assert_eq!(kept("privileged = true\ncap_drop = ['ALL']").len(), 41);
    let all_but_one = "[sandbox.a]\nbackend = 'docker'\nimage = 'x'\nallow_tag = true\n";
    let twice = format!("{all_but_one}cap_add = ['NET_RAW']\ncap_drop = ['NET_RAW']\n");
    assert_eq!(codes(&twice), ["contradiction"]);
}

#[test]
fn privileged_takes_the_other_protections_with_it() {
    let settings = container("privileged = true").settings;
    assert!(settings.privileged && !settings.seccomp && !settings.masked_paths);
    let filtered = container("privileged = true\nsecurity_opt = ['seccomp=f.json']").settings;
    assert!(filtered.seccomp);
}

#[test]
fn each_protection_of_a_hardened_container_can_be_taken_away() {
    use crate::protection::PROTECTIONS;
    let whole = container(
        "network_mode = 'none'\nread_only = true\nmem_limit = '1g'\nmemswap_limit = '1g'\ncpus = 1\n\
         pids_limit = 64\ntmpfs = ['/s:size=1m']\ncap_drop = ['ALL']\nuser = '1:1'\n\
         security_opt = ['no-new-privileges', 'seccomp=f.json']",
    );
    for (protection, name, _) in PROTECTIONS {
        let mut weaker = whole.clone();
        weaker.without.insert(*protection);
        assert_ne!(weaker.settings_in_force(), whole.settings, "{name}");
        assert_eq!(weaker.policy, whole.policy, "{name}");
    }
    let mut open = whole;
    open.without = PROTECTIONS.iter().map(|(p, _, _)| *p).collect();
    let settings = open.settings_in_force();
    assert_eq!(settings.network_mode, NetworkMode::Host);
    assert_eq!(
        (settings.seccomp_profile, settings.user),
        (None, User::Ids(0, 0))
    );
    assert!(settings.capabilities.contains(&"CAP_SYS_ADMIN".to_owned()));
    let mut named = container("network_mode = 'inner'\ncap_add = ['ALL']");
    named.without = open.without;
    let settings = named.settings_in_force();
    assert_eq!(settings.network_mode, NetworkMode::Host);
    assert_eq!(
        settings.capabilities.len(),
        41,
        "nothing is taken away by taking away"
    );
}

#[test]
fn a_container_is_pinned_or_the_file_says_that_it_is_not() {
    let with = |lines: &str| codes(&format!("[sandbox.a]\nbackend = 'docker'\n{lines}\n"));
    let id = format!("sha256:{}", "7".repeat(64));
    assert_eq!(with(""), ["missing-key"]);
    assert_eq!(with("imge = 'a'"), ["unknown-key"], "one mistake, not two");
    assert_eq!(with("image = 'a'"), ["not-pinned"]);
    assert_eq!(with("image = 'a'\nallow_tag = false"), ["not-pinned"]);
    assert_eq!(
        with("image = 'a@sha256:12'\nallow_tag = true"),
        ["wrong-value"]
    );
    assert_eq!(with("image_id = 'sha256:12'"), ["wrong-value"]);
    assert_eq!(
        with(&format!("image = 'a@{id}'\nimage_id = '{id}'")),
        ["contradiction"]
    );
    let by_id = one(&format!(
        "[sandbox.a]\nbackend = 'docker'\nimage_id = '{id}'\n"
    ));
    assert_eq!(by_id.settings.image, Some(Image::Id(id)));
}

#[test]
fn what_an_engine_would_refuse_is_refused_here() {
    let with = |lines: &str| {
        codes(&format!(
            "[sandbox.a]\nbackend = 'docker'\nimage = 'a'\nallow_tag = true\n{lines}\n"
        ))
    };
    assert_eq!(with("mem_limit = '5m'"), ["wrong-value"]);
    assert_eq!(with("memswap_limit = '64m'"), ["contradiction"]);
    assert_eq!(
        with("mem_limit = '1g'\nmemswap_limit = '64m'"),
        ["contradiction"]
    );
    for line in [
        "dns = ['resolver']",
        "extra_hosts = ['db']",
        "extra_hosts = ['db:resolver']",
        "docker_host = 'docker.sock'",
        "docker_host = 'tcp://'",
        "runtime = 'a b'",
        "group_add = ['-x']",
        "network_mode = 'a b'",
        "user = 'a b'",
        "memswap_limit = -2",
        "security_opt = ['apparmor']",
        "security_opt = ['seccomp']",
    ] {
        assert_eq!(with(line), ["wrong-value"], "{line}");
    }
}

#[test]
fn the_range_is_of_the_users_own_choosing() {
    let range = |lines: &str| read(&format!("[range]\n{lines}\n"));
    let one = range("internet = '203.0.113.10'").expect("a range alone is a project");
    assert_eq!(one.range.internet, ["203.0.113.10:7443".parse().unwrap()]);
    assert!(!one.range.metadata_real && one.sandboxes.is_empty());
    let both =
        range("internet = ['203.0.113.10', '2001:db8::10']\nmetadata = 'real'").expect("valid");
    assert_eq!(both.range.internet.len(), 2);
    assert!(both.range.metadata_real);
    for near in [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "::1",
        "fd00::1",
        "fe80::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "example.org",
        "203.0.113.10:",
        "203.0.113.10:0",
    ] {
        let mistakes = range(&format!("internet = '{near}'")).expect_err(near);
        assert_eq!(mistakes.len(), 1, "{near}");
    }
    assert_eq!(codes("[range]\nmetadata = 'fake'\n"), ["wrong-value"]);
    assert_eq!(codes("range = 'host'\n"), ["wrong-type"]);
}

#[test]
fn a_folder_that_is_mounted_is_named_from_the_top() {
    let source = Source::new(
        "escape-audit.toml",
        "[sandbox.a]\nbackend = 'oci'\nvolumes = ['./data:/data']\n",
    );
    let settings = &parse(&source).expect("valid").sandboxes[0].settings;
    let here = std::env::current_dir().expect("a folder");
    let expected = crate::config::VolumeSource::Host(here.join("./data"));
    assert_eq!(settings.volumes[0].source, expected);
}
