//! Networks of an engine that are open, closed, or closed in one direction alone; settings that open what a hardened
//! container closes; a runner that ends the engine's command line and not the container. All of it for real, in the
//! range.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Alone, Audit, Seen, alone, folder, have, range_image, runner, text};

/// The kernel says "unreachable" only so often in a second, and a reset as often as it is asked for.
pub const REJECT: [&str; 2] = ["-p tcp -j REJECT --reject-with tcp-reset", "-j REJECT"];

const INTERNET: &str = "internet = ['203.0.113.10', '2001:db8::10']";

/// Runs a program to its end; what it said.
fn ran(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A network of this test's own, and the rules for what comes from it. Dropped, both are gone.
pub struct Network {
    pub name: String,
    rules: Vec<(&'static str, Vec<String>)>,
}

impl Network {
    /// One whose containers do not reach each other: what is tried is the way out.
    pub fn apart(word: &str, options: &[&str]) -> Self {
        let apart = "com.docker.network.bridge.enable_icc=false";
        Self::new(word, &[&["--opt", apart], options].concat())
    }

    pub fn new(word: &str, options: &[&str]) -> Self {
        let name = format!("ea-it-{}-{word}", std::process::id());
        let bridge = format!("com.docker.network.bridge.name={}", bridge(&name));
        let mut arguments = vec!["network", "create", "--opt", &bridge];
        arguments.extend(options);
        arguments.push(&name);
        ran("docker", &arguments);
        Self {
            name,
            rules: Vec::new(),
        }
    }

    /// What comes from this network's containers meets these rules first, in this order; but for answers, as everywhere:
    /// who is asked from outside may answer.
    pub fn closed_by(mut self, rules: &[&str]) -> Self {
        let rules = [&["-m conntrack --ctstate ESTABLISHED -j ACCEPT"], rules].concat();
        for rule in rules.iter().rev() {
            for program in ["iptables", "ip6tables"] {
                let four = program == "iptables";
                if rule.contains(if four { "2001:" } else { "203." })
                    || (!four && rule.contains("192."))
                {
                    continue;
                }
                let interface = bridge(&self.name);
                let words = ["INPUT", "--in-interface", &interface];
                let words = words.into_iter().chain(rule.split(' '));
                let words: Vec<String> = words.map(str::to_owned).collect();
                let mut arguments = vec!["--wait", "--insert"];
                arguments.extend(words.iter().map(String::as_str));
                ran(program, &arguments);
                self.rules.push((program, words));
            }
        }
        self
    }
}

/// An interface's name has room for 15 bytes.
fn bridge(network: &str) -> String {
    let number: u32 = network.bytes().fold(7, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    format!("br-ea{number:08x}")
}

impl Drop for Network {
    fn drop(&mut self) {
        for (program, rule) in &self.rules {
            let deleted = Command::new(program)
                .args(["--wait", "--delete"])
                .args(rule)
                .status();
            assert!(deleted.is_ok_and(|status| status.success()) || std::thread::panicking());
        }
        let _ = Command::new("docker")
            .args(["network", "rm", &self.name])
            .output();
    }
}

/// A hardened container but for these lines.
pub fn hardened(name: &str, lines: &str) -> String {
    let image = range_image("BUSYBOX_ID").unwrap();
    let mut table =
        format!("[sandbox.{name}]\nbackend = \"docker\"\nimage_id = \"{image}\"\n{lines}\n");
    for (key, value) in [
        ("network_mode", "\"none\""),
        ("read_only", "true"),
        ("mem_limit", "\"64m\""),
        ("memswap_limit", "\"64m\""),
        ("cpus", "0.5"),
        ("pids_limit", "64"),
        ("shm_size", "\"1m\""),
        ("tmpfs", "[\"/scratch:size=16m,mode=1777\"]"),
        ("cap_drop", "[\"ALL\"]"),
        ("security_opt", "[\"no-new-privileges\"]"),
        ("user", "\"65534:65534\""),
    ] {
        if !lines
            .lines()
            .any(|line| line.split([' ', '=']).next() == Some(key))
        {
            table.push_str(&format!("{key} = {value}\n"));
        }
    }
    table
}

pub fn on(network: &Network) -> String {
    format!("network_mode = \"{}\"", network.name)
}

/// Audits these sandboxes with these cases. On a machine's own addresses only one audit at a time has the ports of name
/// servers and metadata services: another that goes on beside this one is waited for.
pub fn audit(
    _alone: &Alone,
    project: &str,
    cases: &[&str],
    prepare: impl Fn(&mut Command),
) -> Seen {
    let folder = folder();
    let config = folder.path().join("escape-audit.toml");
    std::fs::write(&config, project).unwrap();
    let mut arguments = vec!["--config", config.to_str().unwrap()];
    let sandboxes = project
        .lines()
        .filter_map(|line| line.strip_prefix("[sandbox."));
    let sandboxes: Vec<&str> = sandboxes.map(|name| name.trim_end_matches(']')).collect();
    arguments.extend(sandboxes.iter().flat_map(|name| ["--sandbox", name]));
    arguments.extend(cases.iter().flat_map(|case| ["--case", case]));
    let mut tries = 0;
    loop {
        tries += 1;
        let seen = Audit::start_in("run", &arguments, &prepare).finish();
        let reasons = seen.trials().iter().map(|trial| text(&trial["reason"]));
        let crowded = reasons
            .into_iter()
            .any(|reason| reason == "target-not-alive");
        if !crowded || tries == 8 {
            return seen;
        }
        std::thread::sleep(Duration::from_secs(5));
    }
}

#[track_caller]
pub fn expect(seen: &Seen, wanted: &[(&str, &str, &str, &str)]) {
    for (sandbox, case, verdict, reason) in wanted {
        let trial = trial(seen, sandbox, case);
        let judged = (text(&trial["verdict"]), text(&trial["reason"]));
        assert_eq!(judged, (*verdict, *reason), "{sandbox} {case}\n{trial:#}");
    }
}

#[track_caller]
pub fn trial<'a>(seen: &'a Seen, sandbox: &str, case: &str) -> &'a Value {
    let mut trials = seen.trials().iter();
    trials
        .find(|trial| trial["sandbox"] == sandbox && trial["case"] == case)
        .unwrap_or_else(|| panic!("{sandbox} {case} was not tried\n{}{}", seen.out, seen.err))
}

const EGRESS: [&str; 4] = [
    "network/tcp-egress",
    "network/udp-egress",
    "network/ipv6-egress",
    "metadata/aws-v2",
];

/// The rules here close this machine's own addresses. What a gateway passes on, other rules decide, port by port.
pub const UNDECIDED: (&str, &str) = ("INCONCLUSIVE", "no-internet-canary");

#[test]
fn a_firewall_is_judged_by_every_way_out() {
    if !have(&["root", "docker"]) {
        return;
    }
    let alone = alone();
    let rejects = Network::apart("rejects", &[]).closed_by(&REJECT);
    let drops = Network::apart("drops", &[]).closed_by(&["-j DROP"]);
    let open = Network::apart("open", &[])
        .closed_by(&[&["-d 203.0.113.10 -j ACCEPT"], &REJECT[..]].concat());
    let reverse = Network::apart("reverse", &[]).closed_by(&[
        "-p tcp -d 203.0.113.10 -j REJECT --reject-with tcp-reset",
        "-d 203.0.113.10 -j REJECT",
    ]);
    let project = format!(
        "[range]\n{INTERNET}\n{}{}{}{}",
        hardened("rejects", &on(&rejects)),
        hardened("drops", &on(&drops)),
        hardened("open", &on(&open)),
        hardened("reverse", &on(&reverse)),
    );
    let seen = audit(&alone, &project, &EGRESS, |_| {});
    assert_eq!(seen.status, 1, "{}{}", seen.out, seen.err);
    expect(
        &seen,
        &[
            ("rejects", "network/tcp-egress", UNDECIDED.0, UNDECIDED.1),
            ("rejects", "network/ipv6-egress", "BLOCKED", "family-absent"),
            ("rejects", "metadata/aws-v2", "BLOCKED", "rejected"),
            ("drops", "network/tcp-egress", UNDECIDED.0, UNDECIDED.1),
            ("drops", "network/udp-egress", UNDECIDED.0, UNDECIDED.1),
            ("drops", "network/ipv6-egress", "BLOCKED", "family-absent"),
            ("drops", "metadata/aws-v2", "BLOCKED", "dropped"),
            ("open", "network/tcp-egress", "ESCAPED", "canary-reached"),
            ("open", "network/udp-egress", "ESCAPED", "canary-reached"),
            ("open", "metadata/aws-v2", "BLOCKED", "rejected"),
            ("reverse", "network/tcp-egress", "ESCAPED", "canary-reached"),
            ("reverse", "network/udp-egress", "ESCAPED", "canary-reached"),
            ("reverse", "metadata/aws-v2", "ESCAPED", "canary-reached"),
        ],
    );
    // Who was reached is what the rules left open, and nobody else.
    for case in &EGRESS[..2] {
        let reached = reached(trial(&seen, "open", case));
        assert!(
            reached.iter().all(|at| at.contains("203.0.113.10:")),
            "{reached:?}"
        );
        let reached = self::reached(trial(&seen, "reverse", case));
        assert!(!reached.is_empty() && !reached.iter().any(|at| at.contains("203.0.113.10:")));
    }
    // Without an address that plays the internet nobody knows whether it is closed, too.
    let unknown = hardened("rejects", &on(&rejects));
    let seen = audit(&alone, &unknown, &EGRESS[..3], |_| {});
    for case in &EGRESS[..2] {
        expect(&seen, &[("rejects", case, UNDECIDED.0, UNDECIDED.1)]);
    }
    // But there is no such family in it, as the host sees.
    expect(&seen, &[("rejects", EGRESS[2], "BLOCKED", "family-absent")]);
    assert_eq!(seen.status, 3, "{}{}", seen.out, seen.err);
}

pub fn reached(trial: &Value) -> Vec<&str> {
    let touches = trial["observed"]["touches"].as_array();
    let touches = touches.unwrap_or_else(|| panic!("no touches in {trial:#}"));
    touches
        .iter()
        .map(|touch| text(&touch["address"]))
        .collect()
}

/// The engine's resolver asks for who may not ask himself, also in a network without a way out.
#[test]
fn names_that_an_internal_network_still_resolves_carry_data_out() {
    if !have(&["root", "docker"]) {
        return;
    }
    const CASES: [&str; 2] = ["network/dns-egress", "network/tcp-egress"];
    let alone = alone();
    let forwards = Network::apart("forwards", &["--internal"])
        .closed_by(&[&["-p udp -d 192.0.2.1 --dport 53 -j ACCEPT"], &REJECT[..]].concat());
    let silent = Network::apart("silent", &["--internal"]).closed_by(&REJECT);
    // To the engine's name servers, which nobody here knows; and to one that is ours.
    let known = format!("{}\ndns = [\"192.0.2.1\"]", on(&silent));
    let project = format!(
        "[range]\n{INTERNET}\n{}{}{}",
        hardened("forwards", &on(&forwards)),
        hardened("unknown", &on(&silent)),
        hardened("known", &known),
    );
    let seen = audit(&alone, &project, &CASES, |_| {});
    // The engine gives a gateway even to such a network, and keeps it closed by rules of its own.
    expect(
        &seen,
        &[
            ("forwards", CASES[0], "ESCAPED", "canary-reached"),
            ("forwards", CASES[1], UNDECIDED.0, UNDECIDED.1),
            ("unknown", CASES[0], "INCONCLUSIVE", "resolver-elsewhere"),
            ("unknown", CASES[1], UNDECIDED.0, UNDECIDED.1),
            ("known", CASES[0], UNDECIDED.0, UNDECIDED.1),
            ("known", CASES[1], UNDECIDED.0, UNDECIDED.1),
        ],
    );
    let by_resolver = |trial: &Value| {
        let steps = trial["observed"]["inside"]["steps"].as_array().unwrap();
        let mut of_resolver = steps
            .iter()
            .filter(|step| step["target"] == "udp://127.0.0.11:53");
        of_resolver.any(|step| step["what"] == "query" && step["outcome"] == "ok")
    };
    assert!(by_resolver(trial(&seen, "forwards", CASES[0])));
    let reached = reached(trial(&seen, "forwards", CASES[0]));
    assert!(
        reached.iter().all(|at| at.contains("192.0.2.1:53")),
        "{reached:?}"
    );
}

/// Sandbox, case, and how it is seen.
const CAUGHT: [(&str, &str, &str); 7] = [
    ("host-network", "network/host-loopback", "canary-reached"),
    ("host-network", "network/abstract-socket", "canary-reached"),
    (
        "host-processes",
        "processes/see-host-process",
        "process-seen",
    ),
    ("capable", "privilege/capabilities", "breach"),
    ("told", "credentials/environment-dump", "secret-read"),
    ("mounted", "filesystem/write-host-file", "host-file-written"),
    (
        "image-volume",
        "filesystem/write-outside-scratch",
        "written-outside-scratch",
    ),
];

/// One setting at a time, on a container that is hardened but for it.
#[test]
fn a_setting_that_opens_a_hardened_container_is_caught() {
    if !have(&["root", "docker"]) {
        return;
    }
    let alone = alone();
    let project = [
        hardened("host-network", "network_mode = \"host\""),
        hardened("host-processes", "pid = \"host\""),
        hardened(
            "capable",
            "cap_add = [\"SYS_ADMIN\", \"NET_RAW\"]\nuser = \"0:0\"",
        ),
        hardened(
            "told",
            "environment = { MY_DEPLOY_TOKEN = \"hunter2-hunter2-hunter2\" }",
        ),
        hardened("mounted", "volumes = [\"/tmp:/work\"]"),
        hardened("image-volume", "user = \"0:0\"").replace(
            &range_image("BUSYBOX_ID").unwrap(),
            &range_image("HOSTILE_ID").unwrap(),
        ),
    ]
    .concat();
    let cases = [
        "network/host-loopback",
        "network/abstract-socket",
        "processes/see-host-process",
        "privilege/capabilities",
        "credentials/environment-dump",
        "filesystem/write-*",
    ];
    let seen = audit(&alone, &project, &cases, |command| {
        command.env("MY_DEPLOY_TOKEN", "hunter2-hunter2-hunter2");
    });
    for (sandbox, case, reason) in CAUGHT {
        expect(&seen, &[(sandbox, case, "ESCAPED", reason)]);
    }
    let written = trial(&seen, "image-volume", "filesystem/write-outside-scratch");
    assert!(
        written["evidence"].to_string().contains("/data"),
        "{written:#}"
    );
    // And nothing else: root writes into the engine's own `/dev`, and the host looks at what is written into its `/tmp`.
    let also = [
        ("capable", "filesystem/write-outside-scratch"),
        ("mounted", "filesystem/write-outside-scratch"),
    ];
    let named = |trial: &Value| {
        let place = (text(&trial["sandbox"]), text(&trial["case"]));
        also.contains(&place) || CAUGHT.iter().any(|(s, c, _)| place == (*s, *c))
    };
    for trial in seen.trials().iter().filter(|trial| !named(trial)) {
        assert_ne!(trial["verdict"], "ESCAPED", "{trial:#}");
    }
}

/// The containers that the engine has of this image's runner, whatever their state.
fn runners_containers(image: &str) -> Vec<String> {
    let listed = ran(
        "docker",
        &[
            "ps",
            "--all",
            "--quiet",
            "--filter",
            &format!("ancestor={image}"),
        ],
    );
    listed.lines().map(str::to_owned).collect()
}

/// A runner that ends the engine's command line. The container goes on, is found by the secret name of the probe, named
/// as the engine names it, and ended.
#[test]
fn a_runner_that_kills_only_the_client_leaves_its_container_behind() {
    if !have(&["root", "docker"]) {
        return;
    }
    let image = range_image("EMPTY_ID").unwrap();
    let runner = runner("kills-only-the-client");
    let project = format!(
        "[sandbox.runner]\nbackend = \"command\"\ncommand = [\"{runner}\", \"3\"]\n\
         [sandbox.runner.policy]\ntimeout = \"3s\"\nlevel = \"standard\"\n"
    );
    let folder = folder();
    let config = folder.path().join("escape-audit.toml");
    std::fs::write(&config, &project).unwrap();
    let config = config.to_string_lossy();
    let seen = Audit::start_in(
        "run",
        &[
            "--config",
            &config,
            "--sandbox",
            "runner",
            "--case",
            "processes/outlive-*",
            "--case",
            "resources/fork-bomb",
        ],
        |command| {
            command.env("IMAGE", &image);
        },
    )
    .finish();
    let began = Instant::now();
    while !runners_containers(&image).is_empty() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(runners_containers(&image), Vec::<String>::new());
    for way in ["launcher", "terminate", "group", "timeout"] {
        let case = format!("processes/outlive-{way}");
        let trial = trial(&seen, "runner", &case);
        assert_eq!(
            (&trial["verdict"], &trial["reason"]),
            (&Value::from("ESCAPED"), &Value::from("survivor")),
            "{trial:#}"
        );
        let evidence = trial["evidence"].to_string();
        assert!(evidence.contains("in container "), "{evidence}");
    }
    // What cannot be bounded from outside is still not tried.
    expect(
        &seen,
        &[("runner", "resources/fork-bomb", "ERROR", "outside-limiter")],
    );
}
