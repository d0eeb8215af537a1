//! Where container engines listen on this host.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use escape_audit_probe::engine;

/// The sockets that are there, at their real paths (`/run/docker.sock`, not `/var/run/docker.sock`): of the usual ones,
/// this user's, and the one that `DOCKER_HOST` names, or of these. Nothing is connected to.
pub fn sockets(asked: &[String]) -> Vec<String> {
    let mut found: Vec<String> = if asked.is_empty() {
        let docker_host = std::env::var_os("DOCKER_HOST");
        let docker_host = docker_host.as_deref().map(|value| value.as_bytes());
        let uid = nix::unistd::geteuid().as_raw();
        let known = engine::known(uid, docker_host).into_iter();
        known
            .map(|path| PathBuf::from(OsString::from_vec(path)))
            .filter_map(real_socket)
            .collect()
    } else {
        asked
            .iter()
            .map(PathBuf::from)
            .filter_map(real_socket)
            .collect()
    };
    found.sort();
    found.dedup();
    found
}

fn real_socket(path: PathBuf) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let kind = fs::metadata(&path).ok()?.file_type();
    kind.is_socket()
        .then(|| path.into_os_string().into_string().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_known_by_its_real_path_and_a_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let _listener = std::os::unix::net::UnixListener::bind(path("s")).unwrap();
        std::os::unix::fs::symlink(path("s"), path("link")).unwrap();
        fs::write(path("file"), "").unwrap();
        let asked = ["link", "s", "file", "none"].map(path);
        let real = fs::canonicalize(path("s")).unwrap();
        assert_eq!(sockets(&asked), [real.to_str().unwrap()]);
    }
}
