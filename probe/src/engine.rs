//! The sockets of container engines: where they stand, how one is asked whether it is there, and what its answer
//! looks like. Pure, for both sides.

/// Where engines that run as root listen. `/var/run` is a link to `/run` on most systems, and not in every image.
pub const SOCKETS: &[&str] = &[
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/buildkit/buildkitd.sock",
];

/// Where the engines of one user listen.
pub fn rootless(uid: u32) -> [String; 2] {
    ["docker.sock", "podman/podman.sock"].map(|name| format!("/run/user/{uid}/{name}"))
}

/// The socket that a `DOCKER_HOST` names, if it names a Unix one. Others would be asked over the network.
pub fn of_docker_host(value: &[u8]) -> Option<&[u8]> {
    let path = value.strip_prefix(b"unix://")?;
    path.starts_with(b"/").then_some(path)
}

/// Everything above: the usual places, and the one in the environment.
pub fn known(uid: u32, docker_host: Option<&[u8]>) -> Vec<Vec<u8>> {
    let of_environment = docker_host.and_then(of_docker_host);
    let of_root = SOCKETS.iter().map(|path| path.as_bytes().to_vec());
    let of_user = rootless(uid).map(String::into_bytes);
    let all = of_environment.map(<[u8]>::to_vec).into_iter();
    all.chain(of_root).chain(of_user).collect()
}

/// The question that every engine of Docker's kind answers, and that changes nothing. The token is for our canary.
pub fn ping(token: &[u8]) -> Vec<u8> {
    let head: &[u8] = b"GET /_ping?token=";
    [head, token, b" HTTP/1.0\r\nHost: localhost\r\n\r\n"].concat()
}

/// The greeting of a gRPC client: the preface of HTTP/2 and empty settings (RFC 9113, section 3.4). It asks nothing.
pub const HTTP2_GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// What kind of engine answers so; `None` if it looks like none.
///
/// `docker` and `libpod` by the header `Server`, `api` by `Api-Version` alone, each with status 200; `http2` by the
/// settings that a gRPC server begins with.
pub fn recognise(answer: &[u8]) -> Option<&'static str> {
    if is_http2(answer) {
        return Some("http2");
    }
    let text = String::from_utf8_lossy(answer);
    let mut lines = text.split("\r\n");
    let mut status = lines.next()?.split(' ');
    if !status.next()?.starts_with("HTTP/1.") || status.next() != Some("200") {
        return None;
    }
    let mut found = None;
    for (name, value) in lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':'))
    {
        let value = value.trim().to_ascii_lowercase();
        match name.to_ascii_lowercase().as_str() {
            "server" if value.starts_with("docker") => return Some("docker"),
            "server" if value.starts_with("libpod") => return Some("libpod"),
            "api-version" => found = Some("api"),
            _ => {}
        }
    }
    found
}

/// A settings frame of stream 0 that is no acknowledgement (RFC 9113, section 6.5).
fn is_http2(answer: &[u8]) -> bool {
    matches!(answer, [0, high, low, 4, 0, 0, 0, 0, 0, ..]
        if (usize::from(*high) << 8 | usize::from(*low)) % 6 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_known_by_their_answers() {
        let ok = |headers: &str| format!("HTTP/1.0 200 OK\r\n{headers}\r\nOK");
        for (answer, kind) in [
            (
                ok("Api-Version: 1.41\r\nServer: Docker/20.10.24 (linux)\r\n"),
                Some("docker"),
            ),
            (
                ok("server: Libpod/4.3.1 (linux)\r\napi-version: 1.40\r\n"),
                Some("libpod"),
            ),
            (ok("API-Version: 1.41\r\n"), Some("api")),
            (ok("Server: nginx\r\n"), None),
            // What stands in the body is no header.
            (ok("\r\nServer: Docker\r\n"), None),
            (
                "HTTP/1.1 403 Forbidden\r\nServer: Docker/20\r\n\r\n".into(),
                None,
            ),
            ("Server: Docker\r\n\r\n".into(), None),
            (String::new(), None),
        ] {
            assert_eq!(recognise(answer.as_bytes()), kind, "{answer}");
        }
    }

    #[test]
    fn a_grpc_server_is_known_by_its_settings() {
        let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64";
        assert_eq!(recognise(settings), Some("http2"));
        assert_eq!(recognise(&HTTP2_GREETING[24..]), Some("http2"));
        for other in [
            &b"\0\0\x05\x04\0\0\0\0\0"[..],
            b"\0\0\0\x04\x01\0\0\0\0",
            b"\0\0\0\x04",
        ] {
            assert_eq!(recognise(other), None, "{other:?}");
        }
    }

    #[test]
    fn only_a_unix_socket_is_taken_from_the_environment() {
        assert_eq!(of_docker_host(b"unix:///x/y.sock"), Some(&b"/x/y.sock"[..]));
        for other in [
            &b"tcp://127.0.0.1:2375"[..],
            b"ssh://host",
            b"unix://x",
            b"/x",
            b"",
        ] {
            assert_eq!(of_docker_host(other), None);
        }
        let known = known(1000, Some(b"unix:///x.sock"));
        assert_eq!(known[0], b"/x.sock");
        assert!(known.contains(&b"/run/user/1000/docker.sock".to_vec()));
    }
}
