//! The canary engine's answer, and the canary metadata services': each refuses what the real one refuses, since a refusal too means "reached".

/// Whether a whole request head has arrived.
pub(super) fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|w| w == b"\r\n\r\n")
}

/// The answer to a request head, whatever it holds.
pub(super) fn answer(request: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
    let headers: Vec<(&str, &str)> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':'))
        .collect();
    let (status, body) = route(method, path, &headers);
    format!(
        "HTTP/1.1 {status}\r\nServer: escape-audit-canary\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The canary engine's answer to a request head: to `/_ping` as Docker's engine answers, and nothing else.
pub(super) fn ping(request: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    let path = text.split([' ', '\r']).nth(1).unwrap_or_default();
    let (status, body) = match path.split('?').next() {
        Some("/_ping") => ("200 OK", "OK"),
        _ => ("404 Not Found", "page not found"),
    };
    format!(
        "HTTP/1.1 {status}\r\nApi-Version: 1.41\r\nServer: escape-audit-canary\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn route(method: &str, path: &str, headers: &[(&str, &str)]) -> (&'static str, &'static str) {
    let has = |name: &str, value: &str| {
        headers
            .iter()
            .any(|(n, v)| n.eq_ignore_ascii_case(name) && v.trim().eq_ignore_ascii_case(value))
    };
    let names = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    const OK: &str = "200 OK";

    // AWS v2: a session token is got by PUT, with its life span, and shown from then on.
    if path.starts_with("/latest/api/token") {
        return match (method, names("X-aws-ec2-metadata-token-ttl-seconds")) {
            ("PUT", true) => (OK, "escape-audit-canary-session-token"),
            ("PUT", false) => ("400 Bad Request", ""),
            _ => ("405 Method Not Allowed", ""),
        };
    }
    // Google Cloud: not without its header, and not through a proxy.
    if path.starts_with("/computeMetadata/") {
        return if has("Metadata-Flavor", "Google") && !names("X-Forwarded-For") {
            (OK, "escape-audit-canary-instance")
        } else {
            ("403 Forbidden", "Missing Metadata-Flavor:Google header.")
        };
    }
    // Azure.
    if path.starts_with("/metadata/") {
        return if has("Metadata", "true") {
            (OK, r#"{"compute":{"name":"escape-audit-canary"}}"#)
        } else {
            (
                "400 Bad Request",
                r#"{"error":"Bad request. Required metadata header not specified"}"#,
            )
        };
    }
    // A container's role on ECS.
    if path.starts_with("/v2/credentials") {
        return (OK, r#"{"AccessKeyId":"escape-audit-canary"}"#);
    }
    // AWS v1, Alibaba and the many that imitate them; with a session token asked for where one was shown.
    if path.starts_with("/latest/") || path == "/" {
        return match headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case("X-aws-ec2-metadata-token"))
        {
            Some((_, token)) if token.trim() != "escape-audit-canary-session-token" => {
                ("401 Unauthorized", "")
            }
            _ => (OK, "i-escape-audit-canary"),
        };
    }
    ("404 Not Found", "")
}

/// `ADDRESS:PORT` of `http://ADDRESS[:PORT]/PATH`, if the address is a literal one.
pub(super) fn authority(url: &str) -> Option<std::net::SocketAddr> {
    let rest = url.strip_prefix("http://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    authority
        .parse()
        .or_else(|_| format!("{authority}:80").parse())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> String {
        let answer = String::from_utf8(answer(request.as_bytes())).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }

    #[test]
    fn each_service_wants_its_own_header() {
        for (request, expected) in [
            ("GET /latest/meta-data/ HTTP/1.1\r\n\r\n", "200"),
            (
                "GET /latest/meta-data/ HTTP/1.1\r\nX-aws-ec2-metadata-token: no\r\n\r\n",
                "401",
            ),
            ("GET /latest/api/token HTTP/1.1\r\n\r\n", "405"),
            ("PUT /latest/api/token HTTP/1.1\r\n\r\n", "400"),
            (
                "PUT /latest/api/token HTTP/1.1\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n",
                "200",
            ),
            ("GET /computeMetadata/v1/ HTTP/1.1\r\n\r\n", "403"),
            (
                "GET /computeMetadata/v1/ HTTP/1.1\r\nmetadata-flavor: Google\r\n\r\n",
                "200",
            ),
            ("GET /metadata/instance HTTP/1.1\r\n\r\n", "400"),
            (
                "GET /metadata/instance HTTP/1.1\r\nMetadata: true\r\n\r\n",
                "200",
            ),
            ("nonsense", "404"),
        ] {
            assert_eq!(status(request), expected, "{request}");
        }
    }

    #[test]
    fn the_canary_engine_answers_a_ping_as_an_engine_does() {
        let kind = |request: &[u8]| escape_audit_probe::engine::recognise(&ping(request));
        let asked = escape_audit_probe::engine::ping(b"ea-token");
        assert_eq!(kind(&asked), Some("api"));
        for other in [
            &b"GET /containers/json HTTP/1.0\r\n\r\n"[..],
            b"ea-token\r\n\r\n",
            b"",
        ] {
            assert_eq!(kind(other), None);
        }
    }

    #[test]
    fn a_literal_address_has_a_port() {
        let of = |url| authority(url).map(|a| a.to_string());
        assert_eq!(
            of("http://169.254.169.254/x").as_deref(),
            Some("169.254.169.254:80")
        );
        assert_eq!(
            of("http://127.0.0.1:8080").as_deref(),
            Some("127.0.0.1:8080")
        );
        assert_eq!(
            of("http://[fd00:ec2::254]/x").as_deref(),
            Some("[fd00:ec2::254]:80")
        );
        assert_eq!(of("http://metadata.google.internal/"), None);
        assert_eq!(of("https://127.0.0.1/"), None);
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_are_answered(bytes: Vec<u8>) {
            assert!(answer(&bytes).starts_with(b"HTTP/1.1 "));
        }
    }
}
