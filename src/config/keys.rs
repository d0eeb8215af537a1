//! Every key of the project file, in one table, and which backends can express it.

use super::model::BackendKind;
use crate::case::Level;
use crate::diag::schema::{Key, Shape, named, words};
use crate::protection::Protection;

named!(BackendKind: Oci = "oci", Docker = "docker", Command = "command", Unsandboxed = "unsandboxed");

/// The table of one sandbox, whatever its name.
pub const SANDBOX: &str = "sandbox.NAME";
/// The table of one sandbox's promises.
pub const POLICY: &str = "sandbox.NAME.policy";

/// What of the network beyond this machine may be touched.
pub const RANGE: &str = "range";

/// What the gate is told.
pub const GATE: &str = "gate";
/// One escape that is known of and lived with.
pub const WAIVER: &str = "gate.waiver";

/// Every key, table by table.
#[rustfmt::skip] // one key a line
pub const KEYS: &[Key] = &[
    key("", "sandbox", Shape::Table, "the sandboxes: one `[sandbox.NAME]` each"),
    key("", "range", Shape::Table, "what of the network beyond this machine the audit may touch"),
    key("", "gate", Shape::Table, "what the gate is told: the waivers"),
    Key { required: true, ..key(SANDBOX, "backend", Shape::OneOf(words::<BackendKind>), "the kind of sandbox") },
    // Compose's names, with Compose's meaning.
    key(SANDBOX, "network_mode", Shape::Line(4096), "`none`, or `host`: the network in which the canaries stand; on `docker` also `bridge`, its default, and the name of another network"),
    key(SANDBOX, "read_only", Shape::Flag, "the root file system cannot be written"),
    key(SANDBOX, "mem_limit", Shape::Memory, "the ceiling on memory; what fills a scratch mount or `/dev/shm` counts as memory too"),
    key(SANDBOX, "memswap_limit", Shape::Swap, "the ceiling on memory and swap together; without it, `oci` takes `mem_limit` and `docker` twice that"),
    key(SANDBOX, "cpus", Shape::Cpus, "the ceiling on CPU time: CPUs' worth of it a second"),
    key(SANDBOX, "pids_limit", Shape::Integer(3, u64::MAX), "the ceiling on processes and threads"),
    key(SANDBOX, "tmpfs", Shape::Texts, "scratch mounts, such as \"/scratch:size=64m\"; on `docker` also with `mode=`, `uid=`, `gid=`, `noexec`, `nosuid`, `nodev` and their opposites"),
    key(SANDBOX, "cap_drop", Shape::Texts, "capabilities that are taken away, such as \"ALL\"; on `oci` all of them are, unless `cap_add` names them"),
    key(SANDBOX, "cap_add", Shape::Texts, "capabilities that are kept, such as \"NET_RAW\"; on `docker` besides its fourteen, less those that `cap_drop` names"),
    key(SANDBOX, "security_opt", Shape::Texts, "\"no-new-privileges\", \"no-new-privileges:false\", \"seccomp=unconfined\", \"systempaths=unconfined\"; on `docker` also \"seccomp=FILE\" and \"apparmor=PROFILE\""),
    key(SANDBOX, "user", Shape::Line(4096), "\"UID\" or \"UID:GID\", in numbers; on `docker` also \"name\" and \"name:group\", and without it the image's own user"),
    key(SANDBOX, "pid", Shape::OneOf(only_host), "`host`: the host's own process namespace"),
    key(SANDBOX, "ipc", Shape::OneOf(ipc_modes), "`private`, or `host`: the host's own IPC namespace"),
    key(SANDBOX, "environment", Shape::Pairs, "what the environment holds; without it, nothing, and on `docker` what the image sets"),
    key(SANDBOX, "volumes", Shape::Texts, "bind mounts, such as \"./data:/data:ro\"; on `docker` also named volumes, \"cache:/cache\", and anonymous ones, \"/cache\""),
    // Compose's names that only an engine understands.
    key(SANDBOX, "image", Shape::Line(4096), "the image, pinned by its digest: \"python:3.12-slim@sha256:…\"; it or `image_id` has to be there"),
    key(SANDBOX, "runtime", Shape::Line(4096), "the engine's runtime by its name, such as `runc` or `runsc`; without it, the engine's default"),
    key(SANDBOX, "privileged", Shape::Flag, "every capability and device, and no filter"),
    key(SANDBOX, "shm_size", Shape::Bytes, "the size of `/dev/shm`; without it, the engine's own 64 MiB. It can always be written, so it counts against `scratch` in the policy"),
    key(SANDBOX, "group_add", Shape::Texts, "groups besides the user's own, by name or number"),
    key(SANDBOX, "userns_mode", Shape::OneOf(only_host), "`host`: the host's own user namespace, where the engine remaps users"),
    key(SANDBOX, "cgroup_parent", Shape::Line(4096), "the cgroup below which the container's own is made"),
    key(SANDBOX, "init", Shape::Flag, "the engine's small init is the first process"),
    key(SANDBOX, "dns", Shape::TextOrTexts, "the addresses of name servers"),
    key(SANDBOX, "extra_hosts", Shape::Texts, "names and their addresses, such as \"db:192.0.2.7\" or \"host:host-gateway\""),
    // Ours.
    key(SANDBOX, "image_id", Shape::Line(4096), "in place of `image`: an image that the engine holds and no registry knows, by its id \"sha256:…\""),
    key(SANDBOX, "allow_tag", Shape::Flag, "take `image` by a tag, which may mean another image tomorrow"),
    key(SANDBOX, "docker_host", Shape::Line(4096), "where the engine listens: `unix:///run/docker.sock`, `tcp://host:2376`; without it, as `DOCKER_HOST` or the current context says"),
    key(SANDBOX, "rootfs", Shape::Line(4096), "a folder that becomes the root file system; without it, there is the probe and nothing else"),
    key(SANDBOX, "without", Shape::ManyOf(words::<Protection>), "protections taken away on purpose; what is promised stays the same"),
    key(SANDBOX, "command", Shape::Argv, "the launcher and its arguments; the probe's own command is appended, and `{probe}` in an argument stands for its path"),
    key(SANDBOX, "range", Shape::OneOf(only_host), "`host`: the launcher needs the real network, and network cases are skipped"),
    key(SANDBOX, "carrier", Shape::OneOf(carriers), "how the attempts get in"),
    key(SANDBOX, "policy", Shape::Table, "what the sandbox promises, by which it is judged"),
    key(SANDBOX, "compose", Shape::Line(4096), "a Compose file, below the project file's own folder: the settings of its `service` are the configuration, and none stand here"),
    key(SANDBOX, "service", Shape::Line(4096), "the service in that file"),
    key(SANDBOX, "like", Shape::Line(4096), "a container of the engine's, by name or id: its settings and its image are the configuration, and none stand here"),
    // What it promises.
    key(POLICY, "level", Shape::OneOf(words::<Level>), "the level of paranoia at which it must hold"),
    key(POLICY, "writable", Shape::Texts, "places that may be written; without it, scratch mounts, read-write volumes, `/dev/shm` and `/dev/mqueue`"),
    key(POLICY, "timeout", Shape::Duration, "ended after this"),
    key(POLICY, "output", Shape::Bytes, "at most so much on standard output and error together"),
    key(POLICY, "pids", Shape::Integer(1, u64::MAX), "at most so many processes and threads; without it, `pids_limit`, or 64"),
    key(POLICY, "memory", Shape::Memory, "at most so much memory; without it, `mem_limit`, or 64 MiB"),
    key(POLICY, "memory_and_swap", Shape::Memory, "at most so much memory and swap together; without it, `memswap_limit`, or the same as memory"),
    key(POLICY, "cpus", Shape::Cpus, "at most so much CPU time a second; without it, the `cpus` of the settings, or 0.5"),
    key(POLICY, "scratch", Shape::Bytes, "at most so much in all writable places together; without it, the sizes of the scratch mounts, 16 MiB for one that has none, and on `docker` the size of `/dev/shm`. `mem_limit` has to leave room for all of it, or the ceiling on memory hides this one"),
    // Beyond this machine.
    key(RANGE, "internet", Shape::TextOrTexts, "hosts of yours beyond this machine that run `escape-audit canary`, as `ADDRESS` or `ADDRESS:PORT`: they play the internet for the containers of an engine"),
    key(RANGE, "metadata", Shape::OneOf(only_real), "`real`: this machine's own metadata service counts as a target, once it has answered the host"),
    // The gate.
    key(GATE, "waiver", Shape::Tables, "escapes that are known of and lived with: one `[[gate.waiver]]` each"),
    needed(WAIVER, "case", Shape::Line(200), "the id of one case; patterns are refused"),
    needed(WAIVER, "sandbox", Shape::Line(40), "the sandbox in which it is waived, and no other"),
    needed(WAIVER, "until", Shape::Date, "the last day on which it counts; 14 days before, it warns"),
    needed(WAIVER, "reason", Shape::Line(500), "why you live with it; it stands in every report"),
    key(WAIVER, "ticket", Shape::Line(200), "where it is followed up"),
];

/// The backends that can express a key of [`SANDBOX`], by name.
pub fn backends_of(key: &str) -> &'static [&'static str] {
    match key {
        "backend" | "policy" => &["oci", "docker", "command", "unsandboxed"],
        "command" | "range" | "carrier" => &["command"],
        "image" | "image_id" | "allow_tag" | "runtime" | "docker_host" | "privileged"
        | "shm_size" | "group_add" | "userns_mode" | "cgroup_parent" | "init" | "dns"
        | "extra_hosts" | "compose" | "service" | "like" => &["docker"],
        "rootfs" => &["oci"],
        _ => &["oci", "docker"],
    }
}

fn ipc_modes() -> Vec<&'static str> {
    vec!["private", "host", "none"]
}

fn only_host() -> Vec<&'static str> {
    vec!["host"]
}

fn only_real() -> Vec<&'static str> {
    vec!["real"]
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

const fn needed(table: &'static str, name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key {
        required: true,
        ..key(table, name, shape, doc)
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
