//! The socket of a container engine, mounted: usable, forbidden, silent, or somebody else's. The engines are threads of
//! this test, but for the last one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::support::{Audit, Seen, folder, have, range_image, run, run_with};

const CASE: &str = "engine/engine-socket";

const DOCKER: &[u8] =
    b"HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\nServer: Docker/20.10.24 (linux)\r\n\r\nOK";

/// A socket that says the same to everybody; to whom it has nothing to say it listens, and is silent. The thread ends
/// with the test's process.
fn engine(path: &Path, says: &'static [u8]) {
    let listener = UnixListener::bind(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(says);
            if says.is_empty() {
                open.push(stream);
            }
        }
    });
}

/// Audits the embedded sandbox with a socket of the host mounted, read-only.
fn audit(socket: &Path, inside: &str, arguments: &[&str], docker_host: Option<&Path>) -> Seen {
    let folder = folder();
    let config = folder.path().join("escape-audit.toml");
    let project = format!(
        "[sandbox.agent]\nbackend = \"oci\"\nvolumes = [\"{}:{inside}:ro\"]\n",
        socket.display()
    );
    fs::write(&config, project).unwrap();
    let mut all = vec!["--config", config.to_str().unwrap()];
    all.extend(arguments);
    Audit::start_in("run", &all, |command| {
        command.env_remove("DOCKER_HOST");
        if let Some(path) = docker_host {
            command.env("DOCKER_HOST", format!("unix://{}", path.display()));
        }
    })
    .finish()
}

#[test]
fn the_canary_engine_tells_who_came_to_it() {
    if !have(&["root"]) {
        return;
    }
    run(&["--case", CASE]).expect(0, &[(CASE, "BLOCKED", "absent")]);
    let escaped = [(CASE, "ESCAPED", "canary-reached")];
    run(&["--case", CASE, "--without", "host-files"]).expect(1, &escaped);
    run(&["--case", CASE, "--sandbox", "unsandboxed"]).expect(1, &escaped);
    if have(&["bwrap"]) {
        let bwrap = ["bwrap", "--unshare-all", "--ro-bind", "/", "/"];
        run_with(&[CASE], &bwrap).expect(1, &escaped);
    }
}

#[test]
fn an_engine_that_answers_inside_is_an_escape() {
    if !have(&["root"]) {
        return;
    }
    let folder = folder();
    let socket = folder.path().join("d.sock");
    engine(&socket, DOCKER);
    let seen = audit(&socket, "/run/docker.sock", &["--case", CASE], None);
    seen.expect(1, &[(CASE, "ESCAPED", "engine-answers")]);
    assert!(
        seen.out
            .contains("a Docker engine answered at /run/docker.sock"),
        "{}",
        seen.out
    );
    // Under another name inside, it is found through the mounts: here the one that DOCKER_HOST names outside.
    let seen = audit(&socket, "/srv/d", &["--case", CASE], Some(&socket));
    seen.expect(1, &[(CASE, "ESCAPED", "engine-answers")]);
}

#[test]
fn a_socket_that_is_there_for_others_is_held_by_its_permissions() {
    if !have(&["root"]) {
        return;
    }
    let folder = folder();
    let socket = folder.path().join("d.sock");
    engine(&socket, DOCKER);
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();
    let seen = audit(&socket, "/run/docker.sock", &["--case", CASE], None);
    seen.expect(0, &[(CASE, "BLOCKED", "permission")]);
    assert!(
        seen.report
            .to_string()
            .contains("connect /run/docker.sock: EACCES")
    );
}

#[test]
fn what_accepts_and_is_no_engine_proves_nothing() {
    if !have(&["root"]) {
        return;
    }
    let folder = folder();
    for (name, says, reason) in [
        ("silent", &b""[..], "connected-unseen"),
        (
            "mail",
            b"220 mail.example ESMTP\r\n\r\n",
            "answered-by-another",
        ),
    ] {
        let socket = folder.path().join(name);
        engine(&socket, says);
        let seen = audit(&socket, "/run/docker.sock", &["--case", CASE], None);
        seen.expect(3, &[(CASE, "INCONCLUSIVE", reason)]);
    }
}

/// A path that a private case names is tried as it is named.
#[test]
fn a_case_may_name_its_own_sockets() {
    if !have(&["root"]) {
        return;
    }
    let folder = folder();
    let socket = folder.path().join("d.sock");
    engine(&socket, DOCKER);
    let cases = folder.path().join("cases");
    fs::create_dir_all(cases.join("private")).unwrap();
    let library = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/escapes/engine/engine-socket.toml"
    );
    let text = fs::read_to_string(library).unwrap().replace(
        "[attempt.engine-socket]\n",
        "[attempt.engine-socket]\npaths = [\"/srv/own.sock\"]\n",
    );
    fs::write(cases.join("private/own.toml"), text).unwrap();
    let cases = cases.to_str().unwrap();
    let arguments = ["--cases", cases, "--case", "private/own"];
    let seen = audit(&socket, "/srv/own.sock", &arguments, None);
    seen.expect(1, &[("private/own", "ESCAPED", "engine-answers")]);
    let seen = audit(&socket, "/run/docker.sock", &arguments, None);
    seen.expect(0, &[("private/own", "BLOCKED", "absent")]);
}

/// The range's own engine, into whose container its own socket is mounted: by the group that may use it, and without.
#[test]
fn the_socket_of_the_engine_in_its_own_container() {
    if !have(&["root", "docker"]) {
        return;
    }
    let host = std::env::var("DOCKER_HOST").unwrap();
    let socket = host.strip_prefix("unix://").unwrap();
    let image = range_image("BUSYBOX_ID").unwrap();
    for (user, status, verdict, reason) in [
        ("0:0", 1, "ESCAPED", "engine-answers"),
        ("65534:65534", 0, "BLOCKED", "permission"),
    ] {
        let folder = folder();
        let config = folder.path().join("escape-audit.toml");
        let project = format!(
            "[sandbox.agent]\nbackend = \"docker\"\nimage_id = \"{image}\"\nnetwork_mode = \"none\"\nuser = \"{user}\"\n\
             volumes = [\"{socket}:/var/run/docker.sock:ro\"]\n"
        );
        fs::write(&config, project).unwrap();
        let seen = run(&["--config", config.to_str().unwrap(), "--case", CASE]);
        seen.expect(status, &[(CASE, verdict, reason)]);
    }
}
