//! A service of a Compose file is the configuration: what the engine makes of it comes to the same as the settings written
//! out, and what is dangerous in it escapes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Seen, folder, have, range_image, run};

/// The file and the project file beside it, in a folder of their own; then `run` with these arguments.
fn audit(services: &str, sandbox: &str, arguments: &[&str]) -> Seen {
    let place = folder();
    write(place.path(), services, sandbox);
    let config = place.path().join("escape-audit.toml");
    let config = config.to_string_lossy();
    let mut all = vec!["--config", &*config];
    all.extend(arguments);
    run(&all)
}

fn write(place: &Path, services: &str, sandbox: &str) {
    let services: String = services
        .lines()
        .map(|line| format!("    {line}\n"))
        .collect();
    let file =
        format!("name: it\nservices:\n  code:\n    image: escape-audit-test/busybox\n{services}");
    fs::write(place.join("compose.yaml"), file).unwrap();
    let id = range_image("BUSYBOX_ID").unwrap();
    let project = format!(
        "[sandbox.code]\nbackend = 'docker'\ncompose = 'compose.yaml'\nservice = 'code'\nimage_id = '{id}'\n{sandbox}\n"
    );
    fs::write(place.join("escape-audit.toml"), project).unwrap();
}

const HARDENED: &str = "\
network_mode: none
read_only: true
mem_limit: 64m
memswap_limit: 64m
shm_size: 1m
tmpfs: [\"/scratch:size=16m\"]
cap_drop: [ALL]
security_opt: [\"no-new-privileges:true\"]
user: \"65534:65534\"
restart: unless-stopped
ports: [\"127.0.0.1:8080:80\"]
deploy:
  resources:
    limits: {cpus: \"${CPUS:-0.5}\", pids: 64}";

#[test]
fn a_hardened_service_holds_as_the_same_settings_do() {
    if !have(&["root", "docker"]) {
        return;
    }
    let seen = audit(HARDENED, "", &[]);
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/sandboxes.toml");
    let project = project.to_string_lossy();
    let written = run(&["--config", &project, "--sandbox", "docker-hardened"]);
    assert_eq!(
        (seen.status, written.status),
        (0, 0),
        "{}{}",
        seen.out,
        written.out
    );
    assert_eq!(seen.verdicts(), written.verdicts());
    let settings = |seen: &Seen| {
        let mut settings = seen.report["sandboxes"][0]["settings"].clone();
        settings["image"] = serde_json::Value::Null;
        settings
    };
    assert_eq!(settings(&seen), settings(&written));
    let notes = seen.report["sandboxes"][0]["notes"].to_string();
    assert!(
        notes.contains("the service `code`") && notes.contains("`restart`, `ports`"),
        "{notes}"
    );
}

#[test]
fn what_is_dangerous_in_a_service_escapes() {
    if !have(&["root", "docker"]) {
        return;
    }
    let socket = std::env::var("DOCKER_HOST").unwrap();
    let socket = socket.strip_prefix("unix://").unwrap();
    let weak = format!(
        "cap_add: [SYS_ADMIN]\nnetwork_mode: host\nsecurity_opt: [seccomp:unconfined]\nvolumes:\n  - type: bind\n    source: {socket}\n    target: /var/run/docker.sock"
    );
    let cases = [
        "engine/engine-socket",
        "network/host-loopback",
        "network/tcp-egress",
        "privilege/mount",
        "resources/fork-bomb",
    ];
    let arguments: Vec<&str> = cases.iter().flat_map(|case| ["--case", case]).collect();
    let seen = audit(&weak, "", &arguments);
    assert_eq!(seen.status, 1, "{}", seen.out);
    for case in cases {
        assert_eq!(seen.verdict(case).0, "ESCAPED", "{case}\n{}", seen.out);
    }
}

/// One dropped line of a service that holds, and the build goes red.
#[test]
fn each_line_that_is_dropped_is_noticed() {
    if !have(&["root", "docker"]) {
        return;
    }
    for (line, case) in [
        ("read_only: true\n", "filesystem/write-outside-scratch"),
        (
            "    limits: {cpus: \"${CPUS:-0.5}\", pids: 64}",
            "resources/fork-bomb",
        ),
        (
            "security_opt: [\"no-new-privileges:true\"]\n",
            "privilege/new-privileges",
        ),
    ] {
        let weaker = HARDENED.replace(line, "");
        assert_ne!(weaker, HARDENED);
        let seen = audit(&weaker, "", &["--case", case]);
        assert_eq!(
            (seen.status, seen.verdict(case).0),
            (1, "ESCAPED"),
            "{line}\n{}",
            seen.out
        );
    }
}

#[test]
fn a_network_of_the_project_that_is_not_there_is_named() {
    if !have(&["root", "docker"]) {
        return;
    }
    let place = folder();
    write(place.path(), "networks: [inner]", "");
    let file = place.path().join("compose.yaml");
    let text = fs::read_to_string(&file).unwrap() + "networks: {inner: {internal: true}}\n";
    fs::write(&file, text).unwrap();
    let config = place.path().join("escape-audit.toml");
    let seen = run(&["--config", &config.to_string_lossy(), "--case", "works/run"]);
    assert_eq!(seen.status, 3, "{}", seen.out);
    let said = format!("{}{}", seen.report, seen.err);
    assert!(
        said.contains("it_inner") && said.contains("network"),
        "{said}"
    );
}

#[test]
fn a_bound_on_processes_of_a_user_is_in_force() {
    if !have(&["root", "docker"]) {
        return;
    }
    let bounded = format!(
        "{HARDENED}\nulimits:\n  nofile: {{soft: 64, hard: 128}}\ncpuset: \"0\"\nsysctls: [net.ipv4.ip_unprivileged_port_start=80]"
    );
    let seen = audit(
        &bounded,
        "",
        &["--case", "works/*", "--case", "network/tcp-egress"],
    );
    assert_eq!(seen.status, 0, "{}", seen.out);
    let options = &seen.report["sandboxes"][0]["settings"]["options"];
    assert_eq!(
        options["ulimits"][0],
        serde_json::json!(["nofile", 64, 128])
    );
}

/// A container that is there, started by the engine's own client, and removed however the test ends.
struct Started(String);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = docker(&["rm", "--force", &self.0]);
    }
}

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(
        output.status.success(),
        "docker {arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn a_container_that_runs_is_audited_as_it_runs() {
    if !have(&["root", "docker"]) {
        return;
    }
    let started = |flags: &[&str]| {
        let mut all = vec!["run", "--detach"];
        all.extend(flags);
        all.extend(["escape-audit-test/busybox", "sleep", "300"]);
        Started(docker(&all))
    };
    let audit = |container: &Started, cases: &[&str]| {
        let place = folder();
        let config = place.path().join("escape-audit.toml");
        let text = format!(
            "[sandbox.it]\nbackend = 'docker'\nlike = '{}'\n",
            container.0
        );
        fs::write(&config, text).unwrap();
        let config = config.to_string_lossy().into_owned();
        let mut arguments = vec!["--config", &*config];
        arguments.extend(cases.iter().flat_map(|case| ["--case", case]));
        run(&arguments)
    };
    let hardened = started(&[
        "--network=none",
        "--read-only",
        "--memory=64m",
        "--memory-swap=64m",
        "--cpus=0.5",
        "--pids-limit=64",
        "--shm-size=1m",
        "--tmpfs=/scratch:size=16m",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--user=65534:65534",
    ]);
    let cases = [
        "works/*",
        "resources/fork-bomb",
        "network/tcp-egress",
        "privilege/capabilities",
    ];
    let seen = audit(&hardened, &cases);
    assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
    assert_eq!(seen.report["sandboxes"][0]["settings"]["pids_limit"], 64);

    let weak = started(&[
        "--network=host",
        "--cap-add=SYS_ADMIN",
        "--security-opt=seccomp=unconfined",
    ]);
    let cases = [
        "resources/fork-bomb",
        "network/tcp-egress",
        "privilege/mount",
    ];
    let seen = audit(&weak, &cases);
    assert_eq!(seen.status, 1, "{}{}", seen.out, seen.err);
    for case in cases {
        assert_eq!(seen.verdict(case).0, "ESCAPED", "{case}\n{}", seen.out);
    }
    let nobody = std::mem::ManuallyDrop::new(Started("no-such-container".into()));
    let seen = audit(&nobody, &["works/run"]);
    assert_eq!(seen.status, 2, "{}", seen.err);
    assert!(
        seen.err
            .contains("the engine has no container `no-such-container`"),
        "{}",
        seen.err
    );
}

/// The image of the service by its name is another one than what is pinned: a moved tag, or a new build. And what Compose
/// builds is never asked of a registry, where that name may be a stranger's.
#[test]
fn what_is_pinned_is_what_is_deployed_or_nothing_runs() {
    if !have(&["root", "docker"]) {
        return;
    }
    let place = folder();
    let config = place.path().join("escape-audit.toml");
    let audited = |image: &str, pin: &str| {
        let file = format!("services:\n  code:\n    network_mode: none\n    {image}\n");
        fs::write(place.path().join("compose.yaml"), file).unwrap();
        let project = format!(
            "[sandbox.code]\nbackend = 'docker'\ncompose = 'compose.yaml'\nservice = 'code'\n{pin}\n"
        );
        fs::write(&config, project).unwrap();
        run(&["--config", &config.to_string_lossy(), "--case", "works/run"])
    };
    let id = format!("image_id = '{}'", range_image("BUSYBOX_ID").unwrap());
    let same = audited("image: escape-audit-test/busybox", &id);
    assert_eq!(same.status, 0, "{}{}", same.out, same.err);
    for (image, pin, words) in [
        (
            "image: escape-audit-test/python",
            &*id,
            "and what is pinned",
        ),
        (
            "image: ea-it-nowhere",
            &*id,
            "nothing shows that it is what is pinned",
        ),
        ("build: .", "allow_tag = true", "and the service builds it"),
    ] {
        let other = audited(image, pin);
        assert_eq!(other.status, 3, "{image}\n{}{}", other.out, other.err);
        let said = format!("{}{}", other.out, other.err);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(words), "{image}\n{said}");
    }
}
