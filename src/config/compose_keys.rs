//! Every key of a Compose service, and what an audit makes of it: expressed, of no matter for isolation, or refused.
//!
//! Nothing is dropped in silence: with a setting that is not taken over, another sandbox would be audited than the one that
//! is deployed. The keys: <https://docs.docker.com/reference/compose-file/services/>.

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It becomes a setting of the audited container.
    Expressed,
    /// It changes nothing about what the code in the container may do.
    Ignored,
    /// It changes what is to be audited, and this version cannot give it to a container.
    Refused,
}

impl Fate {
    /// In a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Expressed => "expressed",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
        }
    }
}

/// One key: its name, its fate, and how it is expressed, why it may be ignored, or what to do about it.
pub type Entry = (&'static str, Fate, &'static str);

use Fate::{Expressed, Ignored, Refused};

/// The keys of a service.
#[rustfmt::skip] // one key a line
pub const SERVICE: &[Entry] = &[
    ("annotations", Refused, "a runtime may obey them: leave them out of what is audited"),
    ("attach", Ignored, "output that Compose shows"),
    ("blkio_config", Ignored, "shares of the disks' time"),
    ("build", Expressed, "pinned by `image_id` in the project file: the id of what was built"),
    ("cap_add", Expressed, ""),
    ("cap_drop", Expressed, ""),
    ("cgroup", Refused, "the engine's default is taken here: remove the line"),
    ("cgroup_parent", Expressed, ""),
    ("command", Ignored, "the probe runs in its place"),
    ("configs", Expressed, "a `file` is mounted, read-only; of another kind they are refused"),
    ("container_name", Ignored, "a name"),
    ("cpu_count", Ignored, "of Windows"),
    ("cpu_percent", Ignored, "of Windows"),
    ("cpu_period", Expressed, "with `cpu_quota`, as `cpus`"),
    ("cpu_quota", Expressed, "as `cpus`: the quota divided by the period"),
    ("cpu_rt_period", Refused, "real-time shares are not given here: remove the line"),
    ("cpu_rt_runtime", Refused, "real-time shares are not given here: remove the line"),
    ("cpu_shares", Ignored, "a weight, and no ceiling"),
    ("cpus", Expressed, ""),
    ("cpuset", Expressed, ""),
    ("credential_spec", Ignored, "of Windows"),
    ("depends_on", Ignored, "an order of starting"),
    ("deploy", Expressed, "`resources.limits` as `cpus`, `mem_limit` and `pids_limit`; what says how many run and where is ignored"),
    ("develop", Ignored, "of development"),
    ("device_cgroup_rules", Expressed, "of kind `c`; disks (`b`) and everything (`a`) are refused: no case tries them"),
    ("devices", Expressed, "those that give nothing by themselves, such as `/dev/fuse`; disks and others are refused: no case tries them"),
    ("dns", Expressed, ""),
    ("dns_opt", Ignored, "how names are looked up, and not whom they lead to"),
    ("dns_search", Ignored, "how names are looked up, and not whom they lead to"),
    ("domainname", Ignored, "a name"),
    ("driver_opts", Refused, "write the network's options where the network is defined"),
    ("entrypoint", Ignored, "the probe runs in its place"),
    ("env_file", Expressed, "as `environment`"),
    ("environment", Expressed, "a name without a value is looked up where Compose would look it up"),
    ("expose", Ignored, "a remark"),
    ("extends", Expressed, "of a service of the same file"),
    ("external_links", Refused, "give both a network in common, and write its name in `networks`"),
    ("extra_hosts", Expressed, ""),
    ("gpus", Refused, "this version gives no GPU: leave it out of what is audited"),
    ("group_add", Expressed, ""),
    ("healthcheck", Ignored, "the audit switches it off: its output could pass for the probe's"),
    ("hostname", Ignored, "a name"),
    ("image", Expressed, "pinned by its digest, here or as `image` in the project file"),
    ("init", Expressed, ""),
    ("ipc", Expressed, "`private` or `host`"),
    ("isolation", Ignored, "of Windows"),
    ("label_file", Ignored, "labels"),
    ("labels", Ignored, "labels"),
    ("links", Ignored, "names for siblings; whether they can be reached is the network's matter"),
    ("logging", Ignored, "the audit reads the output itself"),
    ("mac_address", Ignored, "an address"),
    ("mem_limit", Expressed, ""),
    ("mem_reservation", Ignored, "a wish, and no ceiling"),
    ("mem_swappiness", Ignored, "how willingly the kernel swaps"),
    ("memswap_limit", Expressed, ""),
    ("models", Refused, "this version gives no models: write what they set as `environment`"),
    ("network_mode", Expressed, "`none`, `host`, `bridge` or the name of a network of the engine"),
    ("networks", Expressed, "one network of the project, by the name that the engine has for it; without any, `bridge`. Below it only `aliases` and `priority`"),
    ("oom_kill_disable", Refused, "what exceeds its ceiling has to end: remove the line"),
    ("oom_score_adj", Ignored, "whom the kernel ends first where the machine itself has no memory left"),
    ("pid", Expressed, "`host`"),
    ("pids_limit", Expressed, ""),
    ("platform", Ignored, "the digest says it"),
    ("ports", Ignored, "nothing in the container listens while it is audited"),
    ("post_start", Refused, "what runs then may change the sandbox: build it into the image"),
    ("pre_stop", Ignored, "it runs at the end"),
    ("privileged", Expressed, ""),
    ("profiles", Ignored, "which services are started"),
    ("provider", Refused, "this service is no container"),
    ("pull_policy", Ignored, "the digest says what is pulled"),
    ("pull_refresh_after", Ignored, "the digest says what is pulled"),
    ("read_only", Expressed, ""),
    ("restart", Ignored, "what ended stays ended while it is audited"),
    ("runtime", Expressed, ""),
    ("scale", Ignored, "one is audited"),
    ("secrets", Expressed, "a `file` is mounted, read-only; of another kind they are refused"),
    ("security_opt", Expressed, "not `label`, which is refused"),
    ("shm_size", Expressed, ""),
    ("stdin_open", Ignored, "the probe is spoken to by standard input"),
    ("stop_grace_period", Ignored, "the policy's `timeout` is what is audited"),
    ("stop_signal", Ignored, "the engine's own way of ending a container is not asked for"),
    ("storage_opt", Expressed, ""),
    ("sysctls", Expressed, ""),
    ("tmpfs", Expressed, ""),
    ("tty", Ignored, "the probe is spoken to by pipes"),
    ("ulimits", Expressed, ""),
    ("use_api_socket", Refused, "it hands the engine itself to the container: mount the socket by `volumes`, and it is audited"),
    ("user", Expressed, ""),
    ("userns_mode", Expressed, "`host`"),
    ("uts", Refused, "this version gives each container a host name of its own: remove the line"),
    ("volumes", Expressed, "of types `bind`, `volume` and `tmpfs`"),
    ("volumes_from", Refused, "write those volumes here as well: an anchor (`&name`) saves the second list"),
    ("working_dir", Ignored, "the probe needs none"),
];

/// The keys at the top of the file.
#[rustfmt::skip] // one key a line
pub const TOP: &[Entry] = &[
    ("configs", Expressed, "where a service names them"),
    ("include", Refused, "name the file in which the service stands, or the one that `docker compose config` prints"),
    ("models", Ignored, "a service that names them is refused"),
    ("name", Expressed, "the project's name, which the names of its networks and volumes begin with"),
    ("networks", Expressed, "where a service names them"),
    ("secrets", Expressed, "where a service names them"),
    ("services", Expressed, ""),
    ("version", Ignored, "Compose ignores it as well"),
    ("volumes", Expressed, "where a service names them; with a `driver` or `driver_opts` they are refused"),
];

/// What becomes of a key of this table. `x-…` is everybody's own, and Compose ignores it as well.
pub fn fate(table: &'static [Entry], key: &str) -> Option<(Fate, &'static str)> {
    if key.starts_with("x-") {
        return Some((Ignored, "an extension"));
    }
    let entry = table.iter().find(|(name, ..)| *name == key);
    entry.map(|(_, fate, words)| (*fate, *words))
}

/// Both tables in Markdown.
pub fn page() -> String {
    let mut page = String::from(
        "# Compose files\n\n\
         `compose = \"compose.yaml\"` and `service = \"sandbox\"` in a `[sandbox.NAME]` of backend `docker`: the service's \
         own settings are the configuration, so that what is audited is what is deployed.\n\n\
         ```toml\n\
         [sandbox.agent]\n\
         backend = \"docker\"\n\
         compose = \"compose.yaml\"\n\
         service = \"sandbox\"\n\
         image   = \"python:3.12-slim@sha256:…\"   # the digest of the service's tag; `escape-audit pin` writes it\n\n\
         [sandbox.agent.policy]\n\
         level = \"strict\"\n\
         ```\n\n\
         Beside `compose` and `service` stand the pin of the image (`image`, `image_id` or `allow_tag`), `docker_host`, \
         `without` and `policy`, and nothing else: a setting has one place.\n\n\
         Every key of the service is expressed, or ignored because it changes nothing about what the code in the container \
         may do, or refused with its line and a help. A key that is not in these tables is refused.\n\n\
         - Variables are filled in as Compose does it, from the environment and from `.env` beside the file. One that is set \
         nowhere is empty, and a note of the report says so. A `.env` \
         that cannot be read is refused, and so are `COMPOSE_FILE` and `COMPOSE_ENV_FILES`: Compose would read other files.\n\
         - Anchors, merge keys (`<<`) and `extends` within the file are followed. A second file (`include`, `extends` with \
         `file`, and beside a file of a usual name any `compose.override.yaml`, `docker-compose.override.yaml` or the same in \
         `.yml`) is not read: where there is one, name the output of `docker compose config`.\n\
         - A service without a network of its own is audited in the engine's `bridge`; one that names a network, in that \
         network, by the name that the engine has for it. It has to be there: `docker compose create` makes it.\n",
    );
    for (title, table) in [("A service", SERVICE), ("Top of the file", TOP)] {
        page.push_str(&format!(
            "\n## {title}\n\n| key | what becomes of it | how, or why |\n|---|---|---|\n"
        ));
        for (name, fate, words) in table {
            page.push_str(&format!("| `{name}` | {} | {words} |\n", fate.name()));
        }
    }
    page.push_str("\nKeys that begin with `x-` are ignored, as Compose ignores them.\n");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_stands_once_and_in_order() {
        for table in [SERVICE, TOP] {
            let names: Vec<&str> = table.iter().map(|(name, ..)| *name).collect();
            assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        }
    }

    #[test]
    fn what_is_refused_or_ignored_says_why() {
        for (name, fate, words) in SERVICE.iter().chain(TOP) {
            assert!(
                *fate == Expressed || !words.is_empty() || *name == "services",
                "{name}"
            );
        }
    }

    /// `UPDATE_EXPECTED=1 cargo test` writes the page anew.
    #[test]
    fn the_page_is_up_to_date() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/compose.md");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, page()).expect("written");
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            there,
            page(),
            "run UPDATE_EXPECTED=1 cargo test, and read the difference"
        );
    }
}
