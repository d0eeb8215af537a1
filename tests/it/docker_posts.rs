//! Canaries that stand in containers of ours: beside the sandbox in its own network, and on the machine of an engine whose
//! network is not this one's. All of it for real, in the range.

use std::ffi::CString;
use std::path::Path;
use std::process::Command;

use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::docker::on_the_engine;
use crate::docker_networks::{
    Network, REJECT, UNDECIDED, audit, expect, hardened, on, reached, trial,
};
use crate::support::{Audit, Seen, alone, folder, have, text};

/// Containers of such a network do not reach each other.
const APART: [&str; 2] = ["--opt", "com.docker.network.bridge.enable_icc=false"];

const EGRESS: [&str; 2] = ["network/tcp-egress", "network/udp-egress"];

/// The targets of a trial that stand beside the sandbox.
fn siblings<'a>(seen: &'a Seen, sandbox: &str, case: &str) -> Vec<&'a Value> {
    let targets = trial(seen, sandbox, case)["observed"]["targets"].as_array();
    let targets = targets.unwrap().iter();
    let targets = targets.filter(|target| target["position"] == "sibling");
    targets.collect()
}

#[test]
fn a_sibling_is_reached_where_the_network_lets_it() {
    if !have(&["root", "docker"]) {
        return;
    }
    let alone = alone();
    // Two networks that lead nowhere: in one containers reach each other, in the other they do not.
    let together = Network::new("together", &[]).closed_by(&REJECT);
    let apart = Network::new("apart", &APART).closed_by(&REJECT);
    let project = format!(
        "{}{}{}",
        hardened("together", &on(&together)),
        hardened("apart", &on(&apart)),
        hardened("none", "")
    );
    let seen = audit(&alone, &project, &EGRESS, |_| {});
    for case in EGRESS {
        expect(
            &seen,
            &[
                ("together", case, "ESCAPED", "canary-reached"),
                ("apart", case, UNDECIDED.0, UNDECIDED.1),
                ("none", case, "BLOCKED", "no-route"),
            ],
        );
        // It is the sibling, and nobody else, and a person reads that.
        let beside = siblings(&seen, "together", case);
        assert_eq!(beside.len(), 1, "{beside:?}");
        let address = text(&beside[0]["address"]);
        let escaped = trial(&seen, "together", case);
        assert!(reached(escaped).iter().all(|at| *at == address));
        let line = format!("the sibling's {} canary at {address} saw", kind(case));
        assert!(
            text(&escaped["evidence"][0]).starts_with(&line),
            "{escaped:#}"
        );
        // The other was there, alive, and silent.
        let beside = siblings(&seen, "apart", case);
        assert_eq!(beside.len(), 1, "{beside:?}");
        assert_eq!(beside[0]["alive"], true);
        assert_eq!(siblings(&seen, "none", case), Vec::<&Value>::new());
    }
}

fn kind(case: &str) -> &'static str {
    match case {
        "network/udp-egress" => "UDP",
        _ => "TCP",
    }
}

/// Starts an audit of a container in this network.
fn started(folder: &Path, network: &Network, cases: &[&str]) -> Audit {
    let config = folder.join("escape-audit.toml");
    std::fs::write(&config, hardened("agent", &on(network))).unwrap();
    let mut arguments = vec!["--config", config.to_str().unwrap(), "--sandbox", "agent"];
    arguments.extend(cases.iter().flat_map(|case| ["--case", case]));
    Audit::run(&arguments)
}

/// Waits until the sibling stands, and a sandbox beside it. Gives back its name.
fn until_it_stands(audit: &mut Audit) -> String {
    let mut sibling = None;
    audit.until("a sibling", |audit| {
        let all = on_the_engine(audit.pid);
        sibling = all.iter().find(|name| name.contains("-sibling-")).cloned();
        sibling.is_some() && all.iter().any(|name| name.contains("-trial-"))
    });
    sibling.unwrap().trim_start_matches('/').to_owned()
}

#[test]
fn a_sibling_that_died_proves_nothing_by_its_silence() {
    if !have(&["root", "docker"]) {
        return;
    }
    let _alone = alone();
    let network = Network::new("died", &APART).closed_by(&REJECT);
    let folder = folder();
    let mut audit = started(folder.path(), &network, &EGRESS[1..]);
    let sibling = until_it_stands(&mut audit);
    let killed = Command::new("docker").args(["kill", &sibling]).output();
    assert!(killed.unwrap().status.success());
    let seen = audit.finish();
    expect(
        &seen,
        &[("agent", EGRESS[1], "INCONCLUSIVE", "target-not-alive")],
    );
    let beside = siblings(&seen, "agent", EGRESS[1]);
    assert_eq!(beside[0]["alive"], false, "{beside:?}");
}

#[test]
fn a_sibling_goes_with_the_run_however_it_ends() {
    if !have(&["root", "docker"]) {
        return;
    }
    // Any other audit removes what a killed one left.
    let _alone = alone();
    let network = Network::new("ends", &[]).closed_by(&REJECT);
    let folder = folder();
    let mut stopped = started(folder.path(), &network, &EGRESS);
    until_it_stands(&mut stopped);
    stopped.signal(Signal::SIGINT);
    let pid = stopped.pid;
    assert_eq!(stopped.finish().status, 130);
    assert_eq!(on_the_engine(pid), Vec::<String>::new());

    let mut killed = started(folder.path(), &network, &EGRESS);
    let sibling = until_it_stands(&mut killed);
    killed.signal(Signal::SIGKILL);
    let pid = killed.pid;
    killed.finish_with_traces();
    // Its input has ended, and so has it; what is left of it the next run removes.
    let ended = Command::new("docker").args(["wait", &sibling]).output();
    let ended = String::from_utf8(ended.unwrap().stdout).unwrap();
    assert_eq!(ended.trim(), "0");
    let clean = Audit::start_in("clean", &[], |_| {}).finish();
    assert!(clean.out.contains(&sibling), "{}", clean.out);
    assert_eq!(on_the_engine(pid), Vec::<String>::new());
}

/// Where root's runs have their folders.
const RUNS: &str = "/run/escape-audit";

/// The program as on another machine than the engine's: in a network that is not the engine's, and where `files`, with a
/// folder that the engine does not see.
fn elsewhere(command: &mut Command, files: bool) {
    use std::os::unix::process::CommandExt;
    let _ = std::fs::create_dir(RUNS);
    // SAFETY: system calls alone.
    unsafe {
        command.pre_exec(move || {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
            loopback_up()?;
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            if files {
                mount(Some("none"), RUNS, Some("tmpfs"), MsFlags::empty(), none)?;
            }
            Ok(())
        });
    }
}

/// A new network namespace has a loopback device that is down (`netdevice(7)`).
fn loopback_up() -> std::io::Result<()> {
    let name = CString::new("lo")?;
    // SAFETY: an all-zero request is a valid one; it holds the name, and outlives the call.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 || libc::ioctl(socket, libc::SIOCSIFFLAGS, &request) < 0 {
            return Err(std::io::Error::last_os_error());
        }
        libc::close(socket);
    }
    Ok(())
}

/// The canaries of this machine's network stand where no container of that engine comes. Those on the engine's machine
/// are what decides.
#[test]
fn on_an_engine_of_another_network_the_canaries_stand_in_containers() {
    if !have(&["root", "docker"]) {
        return;
    }
    let alone = alone();
    let closed = Network::new("elsewhere", &APART).closed_by(&REJECT);
    let project = format!(
        "{}{}{}",
        hardened("bridge", "network_mode = \"bridge\""),
        hardened("host", "network_mode = \"host\""),
        hardened("closed", &on(&closed)),
    );
    let cases = ["network/tcp-egress", "network/host-loopback"];
    for files in [false, true] {
        let seen = audit(&alone, &project, &cases, |command| {
            elsewhere(command, files)
        });
        expect(
            &seen,
            &[
                ("bridge", cases[0], "ESCAPED", "canary-reached"),
                ("host", cases[0], "ESCAPED", "canary-reached"),
                // It shares the engine's loopback, where nothing of this machine listens.
                ("host", cases[1], "ESCAPED", "canary-reached"),
                ("bridge", cases[1], "BLOCKED", "rejected"),
                ("closed", cases[1], "BLOCKED", "rejected"),
                // Nobody knows of a way out that is none to these.
                ("closed", cases[0], "INCONCLUSIVE", "other-network"),
            ],
        );
        let reached = reached(trial(&seen, "bridge", cases[0]));
        for address in ["tcp://172.17.0.1:", "tcp://192.0.2.1:"] {
            let known = reached.iter().any(|at| at.starts_with(address));
            assert!(known, "{address}: {reached:?}");
        }
        assert_eq!(siblings(&seen, "bridge", cases[0]).len(), 1);
        let targets = &trial(&seen, "closed", cases[0])["observed"]["targets"];
        let mut targets = targets.as_array().unwrap().iter();
        assert!(targets.all(|target| target["alive"] == true));
        let facts = seen.report["sandboxes"][0]["in_force"].to_string();
        assert!(facts.contains("in another network"), "{facts}");
    }
    let _ = std::fs::remove_dir(RUNS);
}
