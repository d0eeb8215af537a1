//! `[attempt.KIND]` → an attempt with checked arguments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use super::keys::KEYS;
use super::metadata;
use super::model::{
    Attempt, KilledBy, MemoryDose, Position, SpinUntil, Transport, UnixTarget, WriteInto,
};
use super::syscalls;
use crate::diag::Code;
use crate::diag::schema::{Named, Reader, View};

/// The one attempt of a case; `None` if it is missing or wrong, which has then been reported.
pub fn read(reader: &mut Reader<'_>, top: &View<'_, '_>) -> Option<Attempt> {
    let Some((table, span)) = top.table("attempt") else {
        if !top.is_bad("attempt") {
            reader.report(
                Code::NoAttempt,
                top.span.clone(),
                "this case tries nothing",
                "add one `[attempt.KIND]`, such as `[attempt.environment]`",
            );
        }
        return None;
    };
    let mut kinds: Vec<(Range<usize>, &str)> = table
        .keys()
        .map(|key| (key.span(), key.get_ref().as_ref()))
        .collect();
    kinds.sort_by_key(|(span, _)| span.start);
    if let [(_, first), (second, name), ..] = &kinds[..] {
        reader.report(
            Code::TwoAttempts,
            second.clone(),
            format!("a second attempt, `{name}`, beside `{first}`"),
            "one case tries one thing: put the second into a file of its own",
        );
    }
    if kinds.is_empty() {
        reader.report(
            Code::NoAttempt,
            span.clone(),
            "this case tries nothing",
            "name one attempt below `attempt`, such as `[attempt.environment]`",
        );
    }
    let view = reader.table(KEYS, "attempt", table, span);
    let mut attempts: Vec<Option<Attempt>> = Vec::new();
    for kind in view.names() {
        if let Some((table, span)) = view.table(kind) {
            let arguments = reader.table(KEYS, &format!("attempt.{kind}"), table, span);
            attempts.push(build(reader, kind, &arguments));
        }
    }
    if attempts.len() == 1 {
        attempts.pop()?
    } else {
        None
    }
}

fn build(reader: &mut Reader<'_>, kind: &str, arguments: &View<'_, '_>) -> Option<Attempt> {
    Some(match kind {
        "run" => Attempt::Run,
        "environment" => environment(reader, arguments),
        "process-environment" => Attempt::ProcessEnvironment,
        "read-file" => read_file(reader, arguments),
        "write-file" => Attempt::WriteFile {
            into: arguments.named::<WriteInto>("into")?,
        },
        "connect" => connect(arguments)?,
        "http" => http(reader, arguments),
        "dns" => Attempt::Dns,
        "connect-unix" => Attempt::ConnectUnix {
            to: arguments.named::<UnixTarget>("to")?,
        },
        "engine-socket" => engine_socket(reader, arguments),
        "raw-socket" => Attempt::RawSocket,
        "spawn" => Attempt::Spawn,
        "allocate" => Attempt::Allocate {
            dose: arguments.named::<MemoryDose>("dose")?,
        },
        "spin" => Attempt::Spin {
            until: arguments.named::<SpinUntil>("until")?,
        },
        "fill" => Attempt::Fill,
        "flood" => Attempt::Flood,
        "list-processes" => Attempt::ListProcesses,
        "signal" => Attempt::Signal,
        "outlive" => Attempt::Outlive {
            killed_by: arguments.named::<KilledBy>("killed_by")?,
        },
        "capabilities" => Attempt::Capabilities,
        "gain-privileges" => Attempt::GainPrivileges,
        "user-namespace" => Attempt::UserNamespace,
        "mount" => Attempt::Mount,
        "syscall" => syscall(reader, arguments)?,
        _ => return None,
    })
}

fn environment(reader: &mut Reader<'_>, arguments: &View<'_, '_>) -> Attempt {
    for (glob, span) in arguments.texts("names") {
        if let Err(error) = globset::Glob::new(glob) {
            reader.report(
                Code::BadPattern,
                span,
                format!("`{glob}` is not a glob: {}", error.kind()),
                "use `*` for any characters, `?` for one: \"AWS_*\"",
            );
        }
    }
    Attempt::Environment {
        names: arguments.strings("names"),
    }
}

fn read_file(reader: &mut Reader<'_>, arguments: &View<'_, '_>) -> Attempt {
    for (path, span) in arguments.texts("paths") {
        let rest = path.strip_prefix("{home}").unwrap_or(path);
        let wrong = if path == "{planted}" {
            None
        } else if !rest.starts_with('/') {
            Some("is not absolute")
        } else if rest.split('/').any(|part| part == "..") {
            Some("climbs with `..`")
        } else if rest.contains(['{', '}']) {
            Some("holds an unknown placeholder")
        } else if rest.contains(['*', '?']) {
            Some("holds a wildcard, and nothing would fill it in")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            reader.report(
                Code::BadPath,
                span,
                format!("`{path}` {wrong}"),
                "write `/absolute/path`, `{home}/path` or `{planted}`",
            );
        }
    }
    Attempt::ReadFile {
        paths: arguments.strings("paths"),
    }
}

/// The longest path of a socket: the address has room for 108 bytes, and one is its end.
const SOCKET_PATH: usize = 107;

fn engine_socket(reader: &mut Reader<'_>, arguments: &View<'_, '_>) -> Attempt {
    for (path, span) in arguments.texts("paths") {
        let wrong = if !path.starts_with('/') {
            "is not absolute"
        } else if path.split('/').any(|part| part == "..") {
            "climbs with `..`"
        } else if path.contains(['{', '}', '*', '?']) {
            "holds a placeholder or a wildcard, and nothing would fill it in"
        } else if path.len() > SOCKET_PATH {
            "is longer than the path of a socket can be (107 bytes)"
        } else {
            continue;
        };
        reader.report(
            Code::BadPath,
            span,
            format!("`{path}` {wrong}"),
            "write the path of a socket: \"/run/docker.sock\"",
        );
    }
    Attempt::EngineSocket {
        paths: arguments.strings("paths"),
    }
}

fn connect(arguments: &View<'_, '_>) -> Option<Attempt> {
    let transport = match arguments.text("to")? {
        "udp://{position}" => Transport::Udp,
        "tcp6://{position}" => Transport::Tcp6,
        _ => Transport::Tcp,
    };
    let names = arguments.texts("positions").into_iter();
    let positions = names
        .filter_map(|(name, _)| Position::from_name(name))
        .collect();
    Some(Attempt::Connect {
        transport,
        positions,
    })
}

fn http(reader: &mut Reader<'_>, arguments: &View<'_, '_>) -> Attempt {
    for (url, span) in arguments.texts("urls") {
        match check_url(url) {
            Err(wrong) => reader.report(
                Code::BadUrl,
                span,
                format!("`{url}` {wrong}"),
                "write `http://ADDRESS[:PORT]/PATH` with a literal address: \"http://169.254.169.254/latest/\"",
            ),
            Ok(target) if !metadata::may_be_asked(target) => reader.report(
                Code::BadUrl,
                span,
                format!("`{url}` names a host that is no part of the audit"),
                format!(
                    "name port {} of a metadata service ({}), where a canary stands; whether a sandbox reaches hosts at all is what `[attempt.connect]` tries",
                    metadata::METADATA_PORT,
                    metadata::METADATA.map(in_url).join(", "),
                ),
            ),
            Ok(_) => {}
        }
    }
    // One request is sent to every address.
    let mut paths = arguments.texts("urls").into_iter();
    if let Some((first, _)) = paths.next() {
        for (url, span) in paths.filter(|(url, _)| path_of(url) != path_of(first)) {
            reader.report(
                Code::BadUrl,
                span,
                format!("`{url}` has another path than `{first}`"),
                "write a case of its own for another path: the addresses of one case get one request",
            );
        }
    }
    for (header, span) in arguments.texts("headers") {
        if !is_header(header) {
            reader.report(
                Code::BadHeader,
                span,
                format!("`{header}` is not a header line"),
                "write \"Name: value\"",
            );
        }
    }
    Attempt::Http {
        urls: arguments.strings("urls"),
        method: arguments.text("method").unwrap_or("GET").to_owned(),
        headers: arguments.strings("headers"),
    }
}

fn in_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn path_of(url: &str) -> &str {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    rest.find('/').map_or("", |at| &rest[at..])
}

/// Literal addresses only: a name would have to be resolved, and who resolves it decides what was tried.
fn check_url(url: &str) -> Result<SocketAddr, &'static str> {
    let rest = url
        .strip_prefix("http://")
        .ok_or("does not begin with `http://`")?;
    let (authority, path) = rest.split_at(rest.find('/').ok_or("has no path")?);
    if !path.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("holds a character that cannot stand in a URL");
    }
    let (address, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']').ok_or("has no `]`")?;
            let port = rest.strip_prefix(':').or(rest.is_empty().then_some("80"));
            (address.parse::<Ipv6Addr>().map(IpAddr::V6), port)
        }
        None => {
            let (address, port) = authority.split_once(':').unwrap_or((authority, "80"));
            (address.parse::<Ipv4Addr>().map(IpAddr::V4), Some(port))
        }
    };
    let address = address.map_err(|_| "holds no literal address")?;
    let port = port.and_then(|port| port.parse().ok());
    match port.filter(|port| *port > 0) {
        Some(port) => Ok(SocketAddr::new(address, port)),
        None => Err("holds no valid port"),
    }
}

fn is_header(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(name, value)| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && value.bytes().all(|b| (0x20..0x7f).contains(&b))
    })
}

fn syscall(reader: &mut Reader<'_>, arguments: &View<'_, '_>) -> Option<Attempt> {
    let args = arguments.arguments("args");
    for (arg, span) in &args {
        if arg != "bad-pointer" && arg.parse::<u64>().is_err() {
            reader.report(
                Code::WrongValue,
                span.clone(),
                format!("`{arg}` cannot be an argument of a system call"),
                "write a whole number from 0 to 9223372036854775807, or \"bad-pointer\"",
            );
        }
    }
    if args.len() > 6 {
        reader.report(
            Code::WrongValue,
            arguments.span_of("args"),
            "a system call takes at most six arguments",
            "remove the rest",
        );
    }
    let name = arguments.text("name")?;
    if let Some(at) = syscalls::bad_pointer(name)
        && args.get(at).is_none_or(|(arg, _)| arg != "bad-pointer")
    {
        reader.report(
            Code::WrongValue,
            arguments.span_of("args"),
            format!("argument {} of `{name}` is not \"bad-pointer\"", at + 1),
            "it has to be, so that the call does nothing where it is reached",
        );
    }
    Some(Attempt::Syscall {
        name: name.to_owned(),
        number: syscalls::number(name)?,
        args: args.into_iter().map(|(arg, _)| arg).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_literal_addresses_are_urls() {
        for good in [
            "http://169.254.169.254/latest/meta-data/",
            "http://169.254.170.2:80/v2/credentials",
            "http://[fd00:ec2::254]/latest/",
            "http://[::1]:8080/",
        ] {
            assert!(check_url(good).is_ok(), "{good}");
        }
        for bad in [
            "https://169.254.169.254/",
            "http://metadata.google.internal/",
            "http://169.254.169.254",
            "http://user@169.254.169.254/",
            "http://169.254.169.254:0/",
            "http://169.254.169.254:99999/",
            "http://[::1/",
            "http://[::1]x/",
            "http://1.2.3.4/a b",
            "http://1.2.3.4/a\r\nX: y",
        ] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_header_is_one_line_with_a_name() {
        assert!(
            is_header("Metadata: true") && is_header("X-aws-ec2-metadata-token-ttl-seconds: 60")
        );
        assert!(
            !is_header("Metadata")
                && !is_header(": x")
                && !is_header("A: b\r\nC: d")
                && !is_header("A b: c")
        );
    }
}
