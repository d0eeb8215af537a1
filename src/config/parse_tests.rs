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
    assert_eq!(settings.user, (1000, 100));
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
    assert_eq!(with("docker", "image = 'x'"), ["not-expressible"]);
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
