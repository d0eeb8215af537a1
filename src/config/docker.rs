//! What only an engine understands.

use std::net::IpAddr;
use std::path::Path;

use super::compose::{self, Wrong};
use super::image::{self, HOW_TO_PIN};
use super::model::{Image, Settings};
use super::settings::{each, one};
use crate::diag::Code;
use crate::diag::schema::{Reader, View};

use Wrong::{Malformed, NotExpressible};

/// An engine refuses a lower ceiling.
const LEAST_MEMORY: u64 = 6 << 20;

/// Keys of Compose that have no place here, and what to do instead.
pub const NOT_HERE: &[(&str, &str)] = &[
    (
        "ulimits",
        "they bound one process or one user, and no sandbox: `pids_limit` and `mem_limit` bound all of it",
    ),
    (
        "devices",
        "this version cannot give single devices: remove the line",
    ),
    (
        "deploy",
        "write the limits as `mem_limit`, `cpus` and `pids_limit`",
    ),
    (
        "networks",
        "write the name of the network as `network_mode`",
    ),
    (
        "sysctls",
        "this version cannot set kernel parameters: remove the line",
    ),
    ("env_file", "write the variables as `environment`"),
    ("entrypoint", "the probe runs in its place: remove the line"),
    ("healthcheck", "the audit switches it off: remove the line"),
    (
        "ports",
        "nothing in the container listens while it is audited: remove the line",
    ),
];

/// Reads what only an engine understands, into the settings that hold the rest.
pub fn settings(reader: &mut Reader<'_>, view: &View<'_, '_>, settings: &mut Settings) {
    settings.runtime = one(reader, view, "runtime", runtime);
    settings.engine = one(reader, view, "docker_host", engine);
    settings.shm_size = view.bytes("shm_size");
    settings.group_add = each(reader, view, "group_add", group);
    settings.userns_host = view.text("userns_mode").is_some();
    settings.cgroup_parent = view.text("cgroup_parent").map(str::to_owned);
    settings.init = view.flag("init").unwrap_or(false);
    settings.dns = each(reader, view, "dns", address);
    settings.extra_hosts = each(reader, view, "extra_hosts", extra_host);
    if view.flag("privileged") == Some(true) {
        make_privileged(settings);
    }
    check_memory(reader, view, settings);
    refuse_half_a_service(reader, view);
}

/// What `privileged` takes away, taken away in the settings that say so.
fn make_privileged(settings: &mut Settings) {
    settings.privileged = true;
    settings.capabilities = compose::capability("ALL").unwrap_or_default();
    settings.masked_paths = false;
    // A filter that is named is applied all the same.
    settings.seccomp = settings.seccomp_profile.is_some();
}

/// One entry of `security_opt`, applied to the settings; a relative path is below `base`.
pub fn security_opt(text: &str, base: &Path, settings: &mut Settings) -> Result<(), Wrong> {
    let (name, value) = text.split_once(['=', ':']).unwrap_or((text, "true"));
    match (name, value) {
        ("no-new-privileges", "true") => settings.no_new_privileges = true,
        ("no-new-privileges", "false") => settings.no_new_privileges = false,
        ("systempaths", "unconfined") => settings.masked_paths = false,
        ("seccomp", "unconfined") => {
            settings.seccomp = false;
            settings.seccomp_profile = None;
        }
        ("seccomp", "builtin") => {
            return Err(NotExpressible(
                "the engine's default filter is in force without this line: remove it",
            ));
        }
        ("seccomp", file) if !file.is_empty() && text != "seccomp" => {
            settings.seccomp = true;
            settings.seccomp_profile = Some(base.join(file));
        }
        ("apparmor", profile) if compose::is_name(profile) && text != "apparmor" => {
            settings.apparmor = Some(profile.to_owned());
        }
        ("label", _) => {
            return Err(NotExpressible(
                "this version sets no SELinux labels: remove it",
            ));
        }
        _ => {
            return Err(Malformed(
                "write \"no-new-privileges\", \"seccomp=unconfined\", \"seccomp=FILE\", \"apparmor=PROFILE\" or \"systempaths=unconfined\"",
            ));
        }
    }
    Ok(())
}

/// What the container is made of, where the project file alone says it.
pub fn image(reader: &mut Reader<'_>, view: &View<'_, '_>) -> Option<Image> {
    if view.has("image") && view.has("image_id") {
        let message = "`image` and `image_id` both say what the container is made of";
        let help = "keep `image` for what a registry knows by this digest, `image_id` for what the engine alone holds";
        let span = view.span_of("image_id");
        reader.report(Code::Contradiction, span, message, help);
    }
    let id = one(reader, view, "image_id", image::image_id);
    let image = one(reader, view, "image", image::image);
    if let Some(Image::Tag(text)) = &image
        && view.flag("allow_tag") != Some(true)
    {
        let message = format!("`{text}` is not pinned by a digest");
        reader.report(Code::NotPinned, view.span_of("image"), message, HOW_TO_PIN);
    }
    let said = |key| view.has(key) || view.is_bad(key);
    if !["image", "image_id", "like"].into_iter().any(said) {
        let help = "add `image = \"NAME@sha256:…\"`, which \
                    `docker image inspect --format '{{index .RepoDigests 0}}' IMAGE` shows; \
                    `image_id` for an image that no registry knows";
        let span = view.span.clone();
        reader.report(Code::MissingKey, span, "`image` is missing", help);
    }
    image.or(id)
}

fn runtime(text: &str) -> Result<String, Wrong> {
    let parts = text.strip_prefix('/').unwrap_or(text).split('/');
    match parts.into_iter().all(compose::is_name) {
        true => Ok(text.to_owned()),
        false => Err(Malformed(
            "write the name of a runtime that the engine knows, such as `runc` or `runsc`",
        )),
    }
}

/// Where the engine listens.
pub fn engine(text: &str) -> Result<String, Wrong> {
    let is_good = match text.split_once("://") {
        Some(("unix", path)) => path.starts_with('/'),
        Some(("tcp", host)) => !host.is_empty() && !host.contains(['/', '@', ' ']),
        Some(("ssh" | "npipe" | "fd" | "http" | "https", _)) => {
            return Err(NotExpressible(
                "an engine is reached by `unix:///path` or `tcp://host:port`, with TLS as `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH` say",
            ));
        }
        _ => false,
    };
    is_good.then(|| text.to_owned()).ok_or(Malformed(
        "write `unix:///run/docker.sock` or `tcp://host:2376`",
    ))
}

fn group(text: &str) -> Result<String, Wrong> {
    let is_good = compose::is_user_name(text) || text.parse::<u32>().is_ok();
    is_good
        .then(|| text.to_owned())
        .ok_or(Malformed("write the name or the number of a group"))
}

fn address(text: &str) -> Result<String, Wrong> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(address.to_string()),
        Err(_) => Err(Malformed("write an IP address, such as \"192.0.2.53\"")),
    }
}

/// `NAME:ADDRESS`, or Compose's newer `NAME=ADDRESS`, as the former.
fn extra_host(text: &str) -> Result<String, Wrong> {
    let (name, there) = text
        .split_once('=')
        .or_else(|| text.split_once(':'))
        .unwrap_or((text, ""));
    let bare = there.trim_start_matches('[').trim_end_matches(']');
    let is_address = bare == "host-gateway" || bare.parse::<IpAddr>().is_ok();
    match compose::is_name(name) && is_address {
        true => Ok(format!("{name}:{bare}")),
        false => Err(Malformed(
            "write a name and its address, such as \"db:192.0.2.7\"",
        )),
    }
}

fn check_memory(reader: &mut Reader<'_>, view: &View<'_, '_>, settings: &Settings) {
    if settings.mem_limit.is_some_and(|bytes| bytes < LEAST_MEMORY) {
        let message = "an engine gives no container less than 6 MiB of memory";
        let span = view.span_of("mem_limit");
        reader.report(Code::WrongValue, span, message, "write at least \"6m\"");
    }
    let alone = settings.mem_limit.is_none() && !view.is_bad("mem_limit");
    let bounds_both = settings
        .memswap_limit
        .is_some_and(|both| both != super::model::UNLIMITED);
    if alone && bounds_both {
        let message = "`memswap_limit` stands without `mem_limit`";
        let help = "an engine refuses that: add `mem_limit`";
        let span = view.span_of("memswap_limit");
        reader.report(Code::Contradiction, span, message, help);
    }
}

/// A word that means nothing without another.
fn refuse_half_a_service(reader: &mut Reader<'_>, view: &View<'_, '_>) {
    if view.has("service") {
        let message = "`service` stands without `compose`";
        let help = "add `compose = \"compose.yaml\"`, the file that the service stands in";
        reader.report(Code::MissingKey, view.span_of("service"), message, help);
    }
}
