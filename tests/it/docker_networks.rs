//! Networks of an engine that are open, closed, or closed in one direction alone; settings that open what a hardened
//! container closes; a runner that ends the engine's command line and not the container. All of it for real, in the
//! range.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Alone, Audit, Seen, alone, folder, have, range_image, runner, text};

/// The kernel says "unreachable" only so often in a second, and a reset as often as it is asked for.
pub const REJECT: [&str; 2] = ["-p tcp -j REJECT --reject-with tcp-reset", "-j REJECT"];

/// Another machine, which this one passes on to.
const INTERNET: &str = "internet = ['198.51.100.10', '[2001:db8:beef::10]:7443']";

/// What is said without a canary there.
pub const UNDECIDED: (&str, &str) = ("INCONCLUSIVE", "no-internet-canary");

/// `escape-audit canary` on the other machine. Dropped, it is ended.
struct Internet(Child);

impl Internet {
    fn open() -> Self {
        let beyond = "/run/netns/escape-audit-beyond";
        let mut canary = Command::new("nsenter")
            .args([
                &format!("--net={beyond}"),
                "--",
                env!("CARGO_BIN_EXE_escape-audit"),
                "canary",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut out = BufReader::new(canary.stdout.take().unwrap());
        out.read_line(&mut said).unwrap();
        assert!(
            said.starts_with("listening on every address: tcp 22"),
            "{said}"
        );
        Self(canary)
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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

    /// What comes from this network's containers to this machine meets these rules first, in this order; but for answers, as
    /// everywhere: who is asked from outside may answer.
    pub fn closed_by(self, rules: &[&str]) -> Self {
        let answers = ["-m conntrack --ctstate ESTABLISHED -j ACCEPT"];
        self.meets("INPUT", &[&answers[..], rules].concat())
    }

    /// And this is what is to be passed on to others.
    fn passes(self, rules: &[&str]) -> Self {
        self.meets("FORWARD", rules)
    }

    /// And its containers do not reach each other.
    fn apart(self) -> Self {
        let rule = format!("--out-interface {} -j REJECT", bridge(&self.name));
        self.meets("FORWARD", &[&rule])
    }

    fn meets(mut self, chain: &str, rules: &[&str]) -> Self {
        for rule in rules.iter().rev() {
            for program in ["iptables", "ip6tables"] {
                let other = if program == "iptables" {
                    "ipv6"
                } else {
                    "192."
                };
                if rule.contains(other) {
                    continue;
                }
                let interface = bridge(&self.name);
                let words = [chain, "--in-interface", &interface];
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
        if seen.status == 2 {
            return seen;
        }
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

/// The kernel says of datagrams that they were refused only so often a second.
const ANY: &str = "";

#[track_caller]
pub fn expect(seen: &Seen, wanted: &[(&str, &str, &str, &str)]) {
    for (sandbox, case, verdict, reason) in wanted {
        let trial = trial(seen, sandbox, case);
        let judged = (text(&trial["verdict"]), text(&trial["reason"]));
        let reason = if *reason == ANY { judged.1 } else { reason };
        assert_eq!(judged, (*verdict, reason), "{sandbox} {case}\n{trial:#}");
    }
}

#[track_caller]
pub fn trial<'a>(seen: &'a Seen, sandbox: &str, case: &str) -> &'a Value {
    let mut trials = seen.trials().iter();
    trials
        .find(|trial| trial["sandbox"] == sandbox && trial["case"] == case)
        .unwrap_or_else(|| panic!("{sandbox} {case} was not tried\n{}{}", seen.out, seen.err))
}

const EGRESS: [&str; 5] = [
    "network/tcp-egress",
    "network/udp-egress",
    "network/ipv6-egress",
    "network/dns-egress",
    "metadata/aws-v2",
];

#[test]
fn a_firewall_is_judged_by_every_way_out() {
    if !have(&["root", "docker"]) {
        return;
    }
    const OPEN: [&str; 1] = ["-j ACCEPT"];
    const DROP: [&str; 1] = ["-j DROP"];
    let alone = alone();
    let internet = Internet::open();
    let network = |word, here: &[&str], beyond: &[&str]| {
        Network::new(word, &[])
            .closed_by(here)
            .passes(beyond)
            .apart()
    };
    let rejects = network("rejects", &REJECT, &REJECT);
    let drops = network("drops", &DROP, &DROP);
    let open = network("open", &REJECT, &OPEN);
    let reverse = network("reverse", &OPEN, &REJECT);
    // What a firewall forgets may be one port.
    let https = network(
        "https",
        &DROP,
        &[&["-p tcp --dport 443 -j ACCEPT"], &DROP[..]].concat(),
    );
    let names = network(
        "names",
        &DROP,
        &[&["-p udp --dport 53 -j ACCEPT"], &DROP[..]].concat(),
    );
    let high = network(
        "high",
        &DROP,
        &[&["-p tcp --dport 0:1023 -j DROP"], &OPEN[..]].concat(),
    );
    let sandboxes = [
        hardened("rejects", &on(&rejects)),
        hardened("drops", &on(&drops)),
        hardened("open", &on(&open)),
        hardened("reverse", &on(&reverse)),
        hardened("https", &on(&https)),
        hardened("names", &on(&names)),
        hardened("high", &on(&high)),
    ]
    .concat();
    let seen = audit(
        &alone,
        &format!("[range]\n{INTERNET}\n{sandboxes}"),
        &EGRESS,
        |_| {},
    );
    assert_eq!(seen.status, 1, "{}{}", seen.out, seen.err);
    let [tcp, udp, six, dns, metadata] = EGRESS;
    let reached = "canary-reached";
    expect(
        &seen,
        &[
            ("rejects", tcp, "BLOCKED", "rejected"),
            ("rejects", udp, "BLOCKED", ANY),
            // The engine's own resolver takes questions, and asks nobody that is known here.
            ("rejects", dns, "INCONCLUSIVE", "resolver-elsewhere"),
            ("rejects", six, "BLOCKED", "family-absent"),
            ("rejects", metadata, "BLOCKED", "rejected"),
            ("drops", tcp, "BLOCKED", "dropped"),
            ("drops", udp, "BLOCKED", "dropped"),
            ("drops", six, "BLOCKED", "family-absent"),
            ("drops", metadata, "BLOCKED", "dropped"),
            ("open", tcp, "ESCAPED", reached),
            ("open", udp, "ESCAPED", reached),
            ("open", dns, "ESCAPED", reached),
            ("open", metadata, "BLOCKED", "rejected"),
            ("reverse", tcp, "ESCAPED", reached),
            ("reverse", udp, "ESCAPED", reached),
            ("reverse", metadata, "ESCAPED", reached),
            ("https", tcp, "ESCAPED", reached),
            ("https", udp, "BLOCKED", "dropped"),
            ("names", tcp, "BLOCKED", "dropped"),
            ("names", dns, "ESCAPED", reached),
            ("high", tcp, "ESCAPED", reached),
        ],
    );
    // Who was reached is what the rules left open, and nobody else.
    let reached = |sandbox, case| self::reached(trial(&seen, sandbox, case));
    let is_beyond = |at: &&str| at.contains("198.51.100.10:");
    for case in [tcp, udp] {
        assert!(reached("open", case).iter().all(is_beyond));
        assert!(!reached("reverse", case).iter().any(is_beyond));
    }
    assert_eq!(reached("https", tcp), ["tcp://198.51.100.10:443"]);
    assert_eq!(reached("names", dns), ["udp://198.51.100.10:53"]);

    // Without one out there nobody knows whether the way is closed, too.
    drop(internet);
    let unknown = hardened("rejects", &on(&rejects));
    let seen = audit(&alone, &unknown, &[tcp, udp, six], |_| {});
    for case in [tcp, udp] {
        expect(&seen, &[("rejects", case, UNDECIDED.0, UNDECIDED.1)]);
    }
    // But there is no such family in it, as the host sees.
    expect(&seen, &[("rejects", six, "BLOCKED", "family-absent")]);
    assert_eq!(seen.status, 3, "{}{}", seen.out, seen.err);
}

/// A network with IPv6, whose own tables decide what it passes on.
#[test]
fn the_other_version_of_ip_is_judged_by_its_own_way_out() {
    if !have(&["root", "docker"]) {
        return;
    }
    // Without it nobody finds the gateway.
    const CLOSED: [&str; 2] = ["-p ipv6-icmp -j ACCEPT", "-j DROP"];
    let alone = alone();
    let _internet = Internet::open();
    let open = Network::new("open6", &["--ipv6", "--subnet", "2001:db8:2::/64"])
        .closed_by(&CLOSED)
        .passes(&["-j ACCEPT"])
        .apart();
    let closed = Network::new("closed6", &["--ipv6", "--subnet", "2001:db8:3::/64"])
        .closed_by(&CLOSED)
        .passes(&["-j DROP"])
        .apart();
    let sandboxes = [
        hardened("open", &on(&open)),
        hardened("closed", &on(&closed)),
    ]
    .concat();
    let six = "network/ipv6-egress";
    let seen = audit(
        &alone,
        &format!("[range]\n{INTERNET}\n{sandboxes}"),
        &[six],
        |_| {},
    );
    expect(
        &seen,
        &[
            ("open", six, "ESCAPED", "canary-reached"),
            ("closed", six, "BLOCKED", "dropped"),
        ],
    );
    let reached = reached(trial(&seen, "open", six));
    assert!(
        reached.iter().all(|at| at.contains("[2001:db8:beef::10]:")),
        "{reached:?}"
    );
    // A canary that has only the other version proves nothing of this one.
    let four = format!(
        "[range]\ninternet = '198.51.100.10'\n{}",
        hardened("closed", &on(&closed))
    );
    let seen = audit(&alone, &four, &[six], |_| {});
    expect(&seen, &[("closed", six, UNDECIDED.0, UNDECIDED.1)]);
}

/// The canary out there is ended while an audit goes on: what it would have heard is unknown from then on.
#[test]
fn a_canary_out_there_that_dies_or_was_never_there_proves_nothing() {
    if !have(&["root", "docker"]) {
        return;
    }
    let alone = alone();
    let network = Network::new("dies", &[])
        .closed_by(&["-j DROP"])
        .passes(&["-j DROP"])
        .apart();
    let project = format!("[range]\n{INTERNET}\n{}", hardened("dies", &on(&network)));
    let seen = audit(&alone, &project, &["network/tcp-egress"], |_| {});
    assert_eq!(seen.status, 2, "{}{}", seen.out, seen.err);
    for words in [
        "speak to the internet canary at 198.51.100.10:7443: Connection refused",
        "help: run `escape-audit canary` on that host",
    ] {
        assert!(seen.err.contains(words), "{}", seen.err);
    }

    // It hangs, and so does its connection, from the moment that there is a container to attempt anything in.
    let internet = Internet::open();
    let folder = folder();
    let config = folder.path().join("escape-audit.toml");
    std::fs::write(&config, &project).unwrap();
    let config = config.to_string_lossy();
    let case = ["--case", "network/tcp-egress"];
    let arguments = [&["--config", &config, "--sandbox", "dies"], &case[..]].concat();
    let running = Audit::start_in("run", &arguments, |_| {});
    let of_network = format!("network={}", network.name);
    let began = Instant::now();
    while ran("docker", &["ps", "--quiet", "--filter", &of_network]).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    ran("kill", &["-STOP", &internet.0.id().to_string()]);
    let seen = running.finish();
    expect(
        &seen,
        &[(
            "dies",
            "network/tcp-egress",
            "INCONCLUSIVE",
            "target-not-alive",
        )],
    );
}

/// Dropped, the rule is gone.
struct Rule(&'static [&'static str]);

impl Rule {
    fn add(words: &'static [&'static str]) -> Self {
        ran("ip", &[&["rule", "add"], words].concat());
        Self(words)
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        ran("ip", &[&["rule", "del"], self.0].concat());
    }
}

/// Where a rule sends some senders another way, a canary on the way of the others hears nothing of them.
#[test]
fn a_canary_on_another_way_proves_nothing() {
    if !have(&["root", "docker"]) {
        return;
    }
    let alone = alone();
    let _internet = Internet::open();
    let network = Network::new("ruled", &[])
        .closed_by(&["-j DROP"])
        .passes(&["-j DROP"]);
    let project = format!("[range]\n{INTERNET}\n{}", hardened("ruled", &on(&network)));
    let tcp = "network/tcp-egress";
    let _rule = Rule::add(&["from", "10.91.3.0/24", "lookup", "191"]);
    let seen = audit(&alone, &project, &[tcp], |_| {});
    expect(&seen, &[("ruled", tcp, "INCONCLUSIVE", "other-network")]);
}

/// A container on a link of its own comes out on the wire, and not where this machine's canaries stand: whatever its
/// gateway is called, their silence proves nothing.
#[test]
fn a_link_of_its_own_is_no_bridge_of_the_engines() {
    if !have(&["root", "docker"]) {
        return;
    }
    let alone = alone();
    let bridge = Network::new("bridge", &["--subnet", "10.77.1.0/24"])
        .closed_by(&["-j DROP"])
        .apart();
    let wire = Network {
        name: format!("ea-it-{}-wire", std::process::id()),
        rules: Vec::new(),
    };
    let options = [
        "--driver",
        "macvlan",
        "--opt",
        "parent=ea-beyond",
        "--subnet",
        "10.77.2.0/24",
    ];
    let create = [&["network", "create"], &options[..], &[&wire.name]].concat();
    ran("docker", &create);
    let project = [
        hardened("bridge", &on(&bridge)),
        hardened("wire", &on(&wire)),
    ]
    .concat();
    let (service, tcp) = ("metadata/aws-v2", "network/tcp-egress");
    let seen = audit(&alone, &project, &[service, tcp], |_| {});
    expect(
        &seen,
        &[
            ("bridge", service, "BLOCKED", "dropped"),
            ("wire", service, "INCONCLUSIVE", "other-network"),
            ("bridge", tcp, UNDECIDED.0, UNDECIDED.1),
            // Who hangs on the same link is reached over it.
            ("wire", tcp, "ESCAPED", "canary-reached"),
        ],
    );
    let reached = reached(trial(&seen, "wire", tcp));
    assert!(
        reached.iter().all(|at| at.starts_with("tcp://10.77.2.")),
        "{reached:?}"
    );
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
    let _internet = Internet::open();
    let forwards = Network::new("forwards", &["--internal"])
        .closed_by(&[&["-p udp -d 192.0.2.1 --dport 53 -j ACCEPT"], &REJECT[..]].concat())
        .apart();
    let silent = Network::new("silent", &["--internal"])
        .closed_by(&REJECT)
        .apart();
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
            ("forwards", CASES[1], "BLOCKED", "dropped"),
            ("unknown", CASES[0], "INCONCLUSIVE", "resolver-elsewhere"),
            ("unknown", CASES[1], "BLOCKED", "dropped"),
            ("known", CASES[0], "BLOCKED", "dropped"),
            ("known", CASES[1], "BLOCKED", "dropped"),
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
const CAUGHT: [(&str, &str, &str); 9] = [
    ("host-network", "network/host-loopback", "canary-reached"),
    ("host-network", "network/abstract-socket", "canary-reached"),
    (
        "host-processes",
        "processes/see-host-process",
        "process-seen",
    ),
    (
        "mounted-processes",
        "processes/see-host-process",
        "process-seen",
    ),
    ("odd-socket", "engine/engine-socket", "engine-answers"),
    ("capable", "privilege/capabilities", "breach"),
    ("told", "credentials/environment-dump", "secret-read"),
    ("mounted", "filesystem/write-host-file", "host-file-written"),
    (
        "image-volume",
        "filesystem/write-outside-scratch",
        "written-outside-scratch",
    ),
];

fn engines_socket() -> String {
    let host = std::env::var("DOCKER_HOST").unwrap();
    host.strip_prefix("unix://").unwrap().to_owned()
}

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
        hardened("mounted-processes", "volumes = [\"/proc:/hostproc:ro\"]"),
        hardened(
            "odd-socket",
            &format!(
                "volumes = [\"{}:/work/api.sock\"]\nuser = \"0:0\"",
                engines_socket()
            ),
        ),
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
        "engine/engine-socket",
        "credentials/environment-dump",
        "filesystem/write-*",
    ];
    // The token is in nobody's environment but the container's.
    let seen = audit(&alone, &project, &cases, |_| {});
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
        ("odd-socket", "filesystem/write-outside-scratch"),
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
