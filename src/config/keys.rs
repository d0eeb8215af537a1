//! Every key of the project file, in one table, and which backends can express it.

use super::model::BackendKind;
use crate::case::Level;
use crate::diag::schema::{Key, Shape, named, words};
use crate::protection::Protection;

named!(BackendKind: Oci = "oci", Command = "command", Unsandboxed = "unsandboxed");

/// The table of one sandbox, whatever its name.
pub const SANDBOX: &str = "sandbox.NAME";
/// The table of one sandbox's promises.
pub const POLICY: &str = "sandbox.NAME.policy";

/// Every key, table by table.
#[rustfmt::skip] // one key a line
pub const KEYS: &[Key] = &[
    key("", "sandbox", Shape::Table, "the sandboxes: one `[sandbox.NAME]` each"),
    Key { required: true, ..key(SANDBOX, "backend", Shape::OneOf(backends), "the kind of sandbox; this version has no `docker` yet") },
    // Compose's names, with Compose's meaning.
    key(SANDBOX, "network_mode", Shape::OneOf(network_modes), "`none`, or `host`: the network in which the canaries stand"),
    key(SANDBOX, "read_only", Shape::Flag, "the root file system cannot be written"),
    key(SANDBOX, "mem_limit", Shape::Memory, "the ceiling on memory"),
    key(SANDBOX, "memswap_limit", Shape::Memory, "the ceiling on memory and swap together; without it, the same as `mem_limit`"),
    key(SANDBOX, "cpus", Shape::Cpus, "the ceiling on CPU time: CPUs' worth of it a second"),
    key(SANDBOX, "pids_limit", Shape::Integer(3, u64::MAX), "the ceiling on processes and threads"),
    key(SANDBOX, "tmpfs", Shape::Texts, "scratch mounts, such as \"/scratch:size=64m\""),
    key(SANDBOX, "cap_drop", Shape::Texts, "capabilities that are taken away; all of them are, unless `cap_add` names them"),
    key(SANDBOX, "cap_add", Shape::Texts, "capabilities that are kept, such as \"NET_RAW\""),
    key(SANDBOX, "security_opt", Shape::Texts, "\"no-new-privileges:false\", \"seccomp=unconfined\" or \"systempaths=unconfined\""),
    key(SANDBOX, "user", Shape::Line(4096), "\"UID\" or \"UID:GID\", in numbers"),
    key(SANDBOX, "pid", Shape::OneOf(only_host), "`host`: the host's own process namespace"),
    key(SANDBOX, "ipc", Shape::OneOf(ipc_modes), "`private`, or `host`: the host's own IPC namespace"),
    key(SANDBOX, "environment", Shape::Pairs, "what the environment holds; without it, nothing"),
    key(SANDBOX, "volumes", Shape::Texts, "bind mounts, such as \"./data:/data:ro\""),
    // Ours.
    key(SANDBOX, "rootfs", Shape::Line(4096), "a folder that becomes the root file system; without it, there is the probe and nothing else"),
    key(SANDBOX, "without", Shape::ManyOf(words::<Protection>), "protections taken away on purpose; what is promised stays the same"),
    key(SANDBOX, "command", Shape::Argv, "the launcher and its arguments; the probe's own command is appended, and `{probe}` in an argument stands for its path"),
    key(SANDBOX, "range", Shape::OneOf(only_host), "`host`: the launcher needs the real network, and network cases are skipped"),
    key(SANDBOX, "carrier", Shape::OneOf(carriers), "how the attempts get in"),
    key(SANDBOX, "policy", Shape::Table, "what the sandbox promises, by which it is judged"),
    // What only the Docker backend will read.
    key(SANDBOX, "image", Shape::Line(4096), "an image, pinned by digest"),
    key(SANDBOX, "allow_tag", Shape::Flag, "take an image by a tag, which may change"),
    key(SANDBOX, "runtime", Shape::Line(4096), "the engine's runtime: `runc`, `runsc`, `kata`"),
    key(SANDBOX, "compose", Shape::Line(4096), "a Compose file whose service is audited"),
    key(SANDBOX, "service", Shape::Line(4096), "the service in that file"),
    key(SANDBOX, "like", Shape::Line(4096), "a running container whose settings are audited"),
    // What it promises.
    key(POLICY, "level", Shape::OneOf(words::<Level>), "the level of paranoia at which it must hold"),
    key(POLICY, "writable", Shape::Texts, "places that may be written; without it, scratch mounts, read-write volumes, `/dev/shm` and `/dev/mqueue`"),
    key(POLICY, "timeout", Shape::Duration, "ended after this"),
    key(POLICY, "output", Shape::Bytes, "at most so much on standard output and error together"),
    key(POLICY, "pids", Shape::Integer(1, u64::MAX), "at most so many processes and threads"),
    key(POLICY, "memory", Shape::Memory, "at most so much memory"),
    key(POLICY, "memory_and_swap", Shape::Memory, "at most so much memory and swap together"),
    key(POLICY, "cpus", Shape::Cpus, "at most so much CPU time a second"),
    key(POLICY, "scratch", Shape::Bytes, "at most so much in all writable places together"),
];

/// The backends that can express a key of [`SANDBOX`], by name.
pub fn backends_of(key: &str) -> &'static [&'static str] {
    match key {
        "backend" | "policy" => &["oci", "command", "unsandboxed", "docker"],
        "command" | "range" | "carrier" => &["command"],
        "image" | "allow_tag" | "runtime" | "compose" | "service" | "like" => &["docker"],
        "rootfs" | "without" => &["oci"],
        _ => &["oci", "docker"],
    }
}

/// What `backend` may say. `docker` is a word of the format, although this version cannot run it.
fn backends() -> Vec<&'static str> {
    vec!["oci", "command", "unsandboxed", "docker"]
}

fn network_modes() -> Vec<&'static str> {
    vec!["none", "host"]
}

fn ipc_modes() -> Vec<&'static str> {
    vec!["private", "host", "none"]
}

fn only_host() -> Vec<&'static str> {
    vec!["host"]
}

fn carriers() -> Vec<&'static str> {
    vec!["exec", "python", "sh", "javascript"]
}

const fn key(table: &'static str, name: &'static str, shape: Shape, doc: &'static str) -> Key {
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
    fn no_key_stands_twice() {
        let all: BTreeSet<(&str, &str)> = KEYS.iter().map(|key| (key.table, key.name)).collect();
        assert_eq!(all.len(), KEYS.len());
    }
}
