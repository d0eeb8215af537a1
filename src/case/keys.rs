//! Every key of a case file, in one table: parser, linter and documentation read it.

use super::model::{
    CanaryKind, Ceiling, Expect, KilledBy, Level, MemoryDose, Need, Position, Severity, SpinUntil,
    Status, UnixTarget, WriteInto,
};
use super::names::tags;
use super::syscalls;
use crate::diag::schema::{Key, Shape, words};
use crate::protection::Protection;

/// Every key, table by table.
#[rustfmt::skip] // one key a line
pub const KEYS: &[Key] = &[
    // The case itself.
    must("", "title", Shape::Line(100), "one line that says what is tried"),
    must("", "severity", Shape::OneOf(words::<Severity>), "how bad it is when it gets through"),
    must("", "level", Shape::OneOf(words::<Level>), "the lowest level of paranoia at which it must hold"),
    must("", "why", Shape::Text, "why it matters"),
    must("", "fix", Shape::Text, "what to do when it gets through"),
    may("", "status", Shape::OneOf(words::<Status>), "`experimental` until its `[weakened]` is proven; an experimental case never gates"),
    may("", "expect", Shape::OneOf(words::<Expect>), "`allowed` for a case of what must work, below `works/`: its attempt is `run`, `write-file` into `scratch` or `allocate` of `half`"),
    may("", "techniques", Shape::Texts, "MITRE ATT&CK techniques, such as \"T1048\" or \"T1552.005\""),
    may("", "references", Shape::Texts, "https URLs of pages that describe the technique"),
    may("", "tags", Shape::ManyOf(tags), "labels for `--tag`"),
    may("", "needs", Shape::ManyOf(words::<Need>), "what machine and policy must have, beyond the attempt's own needs"),
    may("", "danger", Shape::Integer(0, 3), "what the attempt can do: 0 looks, 1 changes the sandbox, 2 loads resources, 3 could hurt the host; only ever higher than the attempt's own"),
    may("", "attempt", Shape::Table, "what is tried: exactly one `[attempt.KIND]`"),
    may("", "escaped", Shape::Table, "what proves that it got through; any one suffices. `lint` names those that the attempt can give"),
    may("", "weakened", Shape::Table, "without which protections it must get through"),
    // The attempts.
    may("attempt", "run", Shape::Table, "start, and say so"),
    may("attempt", "environment", Shape::Table, "read the own environment"),
    may("attempt", "process-environment", Shape::Table, "read the environment of PID 1, of the ancestors, and of every process that can be read"),
    may("attempt", "read-file", Shape::Table, "read files of the host, by their paths and through what was left open for the sandbox"),
    may("attempt", "write-file", Shape::Table, "create files"),
    may("attempt", "connect", Shape::Table, "open a connection, or send datagrams, to a canary"),
    may("attempt", "http", Shape::Table, "ask over HTTP"),
    may("attempt", "dns", Shape::Table, "ask the canary name server for a name that holds the token"),
    may("attempt", "connect-unix", Shape::Table, "connect to a Unix socket of the host"),
    may("attempt", "engine-socket", Shape::Table, "connect to the sockets of container engines, and ask whether one is there"),
    may("attempt", "raw-socket", Shape::Table, "open a raw socket and send a hand-made packet"),
    may("attempt", "spawn", Shape::Table, "start more processes than the ceiling allows; they sleep"),
    may("attempt", "allocate", Shape::Table, "touch memory"),
    may("attempt", "spin", Shape::Table, "burn CPU time"),
    may("attempt", "fill", Shape::Table, "write more than the ceiling into every writable place"),
    may("attempt", "flood", Shape::Table, "print more than the promised ceiling"),
    may("attempt", "list-processes", Shape::Table, "look for a process of the host"),
    may("attempt", "signal", Shape::Table, "signal a process of the host"),
    may("attempt", "outlive", Shape::Table, "leave a detached process behind"),
    may("attempt", "capabilities", Shape::Table, "report and use dangerous capabilities"),
    may("attempt", "gain-privileges", Shape::Table, "execute a set-uid program"),
    may("attempt", "user-namespace", Shape::Table, "make a user namespace and use a capability in it"),
    may("attempt", "mount", Shape::Table, "mount a file system"),
    may("attempt", "syscall", Shape::Table, "make one system call with harmless arguments"),
    // Their arguments.
    may("attempt.environment", "names", Shape::Texts, "globs of the planted variables that count; without it, all"),
    must("attempt.read-file", "paths", Shape::Texts, "absolute paths; `{home}` stands for each known home folder, `{planted}` for every planted host file. Your own file at such a path counts as a secret, wherever it is mounted inside: it has to be there, and hold 8 bytes or more. A decoy is put at each path below `{home}`, and at no other"),
    must("attempt.write-file", "into", Shape::OneOf(words::<WriteInto>), "`outside-scratch`: every mount and folders in it, but for what `writable` of the policy names; `host`: folders of the host, planted and everyday ones; `scratch`: the promised places"),
    must("attempt.connect", "to", Shape::OneOf(connect_targets), "what is spoken"),
    must("attempt.connect", "positions", Shape::ManyOf(words::<Position>), "who is played by the canaries that are tried; hosts of yours cannot be named, and stand for none of them"),
    must("attempt.http", "urls", Shape::Texts, "`http://ADDRESS/PATH`, where ADDRESS is that of a metadata service, at which a canary stands, or loopback"),
    may("attempt.http", "method", Shape::OneOf(methods), "the method; without it, `GET`"),
    may("attempt.http", "headers", Shape::Texts, "`Name: value` lines"),
    must("attempt.connect-unix", "to", Shape::OneOf(words::<UnixTarget>), "a name in the abstract namespace, or a socket file"),
    may("attempt.engine-socket", "paths", Shape::Texts, "absolute paths; without it, the usual ones of Docker, Podman, containerd, CRI-O and BuildKit, those of the user, and the one that `DOCKER_HOST` names. The canary engine is tried in any case"),
    must("attempt.allocate", "dose", Shape::OneOf(words::<MemoryDose>), "how much"),
    must("attempt.spin", "until", Shape::OneOf(words::<SpinUntil>), "against the CPU ceiling, or past the timeout"),
    must("attempt.outlive", "killed_by", Shape::OneOf(words::<KilledBy>), "what ends the run"),
    must("attempt.syscall", "name", Shape::OneOf(syscalls::names), "the system call"),
    may("attempt.syscall", "args", Shape::Arguments, "up to six arguments: a number, or \"bad-pointer\" for an address that is never mapped"),
    // What proves it.
    may("escaped", "canary", Shape::OneOf(words::<CanaryKind>), "a canary of this kind saw the trial's token"),
    may("escaped", "secret", Shape::True, "a planted secret, or one of the user's own, was read"),
    may("escaped", "file", Shape::OneOf(files), "a file was made where the policy allows none, or the host sees it"),
    may("escaped", "process", Shape::OneOf(processes), "the host's sentinel process was seen, or got the signal"),
    may("escaped", "ceiling", Shape::OneOf(words::<Ceiling>), "the host counted more than this ceiling"),
    may("escaped", "survivor", Shape::True, "a process outlived the run"),
    may("escaped", "breach", Shape::True, "doing it is itself the breach"),
    // What shows that the case can fail.
    may("weakened", "remove", Shape::ManyOf(words::<Protection>), "the smallest set of protections whose removal lets it through"),
    may("weakened", "oci", Shape::Table, "another set for the `oci` backend"),
    may("weakened", "docker", Shape::Table, "another set for the `docker` backend"),
    may("weakened.oci", "remove", Shape::ManyOf(words::<Protection>), "the set for this backend"),
    may("weakened.oci", "fixture", Shape::Line(256), "a runner below `fixtures/` that lets it through, where no setting does: for the library's own tests, `prove` does not try it"),
    may("weakened.docker", "remove", Shape::ManyOf(words::<Protection>), "the set for this backend"),
    may("weakened.docker", "fixture", Shape::Line(256), "a runner below `fixtures/` that lets it through, where no setting does"),
];

/// The backends that `[weakened.BACKEND]` may name.
pub const WEAKENED_BACKENDS: [&str; 2] = ["oci", "docker"];

/// What `to` of `[attempt.connect]` may say.
pub fn connect_targets() -> Vec<&'static str> {
    vec!["tcp://{position}", "tcp6://{position}", "udp://{position}"]
}

/// What `method` of `[attempt.http]` may say.
pub fn methods() -> Vec<&'static str> {
    vec!["GET", "PUT", "HEAD", "POST"]
}

/// What `file` of `[escaped]` may say.
pub fn files() -> Vec<&'static str> {
    vec!["outside-scratch", "host"]
}

/// What `process` of `[escaped]` may say.
pub fn processes() -> Vec<&'static str> {
    vec!["seen", "signalled"]
}

const fn must(table: &'static str, name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key {
        table,
        name,
        shape,
        required: true,
        doc,
    }
}

const fn may(table: &'static str, name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key {
        table,
        name,
        shape,
        required: false,
        doc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_key_stands_twice_and_every_table_is_a_key() {
        let all: BTreeSet<(&str, &str)> = KEYS.iter().map(|key| (key.table, key.name)).collect();
        assert_eq!(all.len(), KEYS.len());
        for table in KEYS
            .iter()
            .map(|key| key.table)
            .filter(|table| !table.is_empty())
        {
            let (parent, name) = table.rsplit_once('.').unwrap_or(("", table));
            assert!(all.contains(&(parent, name)), "[{table}]");
        }
    }

    #[test]
    fn every_key_says_what_it_means() {
        assert!(
            KEYS.iter()
                .all(|key| !key.doc.is_empty() && !key.doc.ends_with('.'))
        );
    }
}
