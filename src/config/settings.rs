//! The table of one sandbox → its settings: what the embedded sandbox and an engine have in common.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::compose::{self, Wrong};
use super::docker;
use super::model::{
    BackendKind, ENGINE_CAPABILITIES, NetworkMode, Settings, UNLIMITED, named_capabilities,
};
use crate::diag::schema::{Reader, View};
use crate::diag::{Code, suggest};

/// The settings of a sandbox of this backend, `oci` or `docker`, but for the image. What is not written keeps the
/// backend's default.
pub fn settings(reader: &mut Reader<'_>, view: &View<'_, '_>, backend: BackendKind) -> Settings {
    let mut settings = match backend {
        BackendKind::Docker => Settings::docker(),
        _ => Settings::default(),
    };
    let base = base(reader);
    settings.rootfs = view.text("rootfs").map(|dir| base.join(dir));
    if let Some(mode) = view.text("network_mode") {
        settings.network_mode = network_mode(reader, view, mode, backend);
    }
    if let Some(read_only) = view.flag("read_only") {
        settings.read_only = read_only;
    }
    memory(reader, view, &mut settings, backend);
    settings.cpus = view.number("cpus").or(settings.cpus);
    settings.pids_limit = view.integer("pids_limit").or(settings.pids_limit);
    settings.pid_host = view.text("pid").is_some();
    settings.ipc_host = ipc_host(reader, view, backend);
    if view.has("tmpfs") {
        settings.tmpfs = each(reader, view, "tmpfs", |text| compose::tmpfs(text, backend));
    }
    // An engine, and the helper of the embedded sandbox, work in another folder.
    let whole = std::path::absolute(match base.as_os_str().is_empty() {
        true => Path::new("."),
        false => &base,
    });
    let whole = whole.unwrap_or_else(|_| base.clone());
    settings.volumes = each(reader, view, "volumes", |text| {
        compose::volume(text, &whole, backend)
    });
    if let Some(user) = one(reader, view, "user", |text| compose::user(text, backend)) {
        settings.user = user;
    }
    each(reader, view, "security_opt", |text| match backend {
        BackendKind::Docker => docker::security_opt(text, &base, &mut settings),
        _ => compose::security_opt(text, &mut settings),
    });
    settings.capabilities = capabilities(reader, view, backend);
    settings.environment = environment(reader, view);
    if backend == BackendKind::Docker {
        docker::settings(reader, view, &mut settings);
    }
    settings
}

/// The project file's own folder: relative paths are below it.
fn base(reader: &Reader<'_>) -> PathBuf {
    let path = reader.source.path.parent();
    path.unwrap_or(Path::new("")).to_owned()
}

fn network_mode(
    reader: &mut Reader<'_>,
    view: &View<'_, '_>,
    mode: &str,
    backend: BackendKind,
) -> NetworkMode {
    let span = view.span_of("network_mode");
    let foreign = mode.starts_with("container:") || mode.starts_with("service:");
    match mode {
        "none" => return NetworkMode::None,
        "host" => return NetworkMode::Host,
        _ if backend == BackendKind::Docker && !foreign => match mode {
            "bridge" | "default" => return NetworkMode::Bridge,
            name if compose::is_name(name) => return NetworkMode::Named(name.to_owned()),
            _ => {
                let help = "write `none`, `host`, `bridge` or the name of a network";
                report(reader, "network_mode", mode, span, &Wrong::Malformed(help));
            }
        },
        _ if foreign || matches!(mode, "bridge" | "default") => {
            let help = match backend {
                BackendKind::Docker => {
                    "what shares a network is not alone in it: write `none`, `host`, `bridge` or the name of a network"
                }
                _ => "write `none`, or `host`; other networks need an engine",
            };
            report(
                reader,
                "network_mode",
                mode,
                span,
                &Wrong::NotExpressible(help),
            );
        }
        _ => {
            let message = format!("`{mode}` is not a valid value for `network_mode`");
            reader.report(
                Code::WrongValue,
                span,
                message,
                suggest(mode, &["none", "host"]),
            );
        }
    }
    NetworkMode::None
}

fn ipc_host(reader: &mut Reader<'_>, view: &View<'_, '_>, backend: BackendKind) -> bool {
    if view.text("ipc") == Some("none") {
        let help = "`private` gives a namespace of its own, with a `/dev/shm` of its own";
        let message = format!(
            "the backend `{}` cannot express `ipc = \"none\"`",
            backend.name()
        );
        reader.report(Code::NotExpressible, view.span_of("ipc"), message, help);
    }
    view.text("ipc") == Some("host")
}

fn memory(
    reader: &mut Reader<'_>,
    view: &View<'_, '_>,
    settings: &mut Settings,
    backend: BackendKind,
) {
    let memory = view.bytes("mem_limit").or(settings.mem_limit);
    let both = view.bytes_or_unlimited("memswap_limit");
    settings.mem_limit = memory;
    settings.memswap_limit = match backend {
        BackendKind::Docker => both,
        // Compose gives twice the memory where this is left out: the commonest hole in a ceiling that looks tight.
        _ => both.or(memory).filter(|both| *both != UNLIMITED),
    };
    let lower = settings
        .memswap_limit
        .zip(memory)
        .is_some_and(|(both, memory)| both < memory);
    if lower && !view.is_bad("mem_limit") {
        let help = "it counts memory and swap together: at least `mem_limit`";
        let span = view.span_of("memswap_limit");
        reader.report(
            Code::Contradiction,
            span,
            "`memswap_limit` is lower than `mem_limit`",
            help,
        );
    }
}

fn capabilities(reader: &mut Reader<'_>, view: &View<'_, '_>, backend: BackendKind) -> Vec<String> {
    let added = each(reader, view, "cap_add", compose::capability);
    let dropped = each(reader, view, "cap_drop", compose::capability);
    let engine = backend == BackendKind::Docker;
    for (text, span) in view.texts("cap_drop") {
        // `ALL` is the usual beginning, from which `cap_add` then takes single ones back; an engine knows it the other
        // way round as well.
        let one = compose::capability(text)
            .ok()
            .filter(|caps| caps.len() == 1);
        let named_twice = |one: &Vec<String>| {
            added
                .iter()
                .filter(|caps| !engine || caps.len() == 1)
                .any(|caps| caps.contains(&one[0]))
        };
        if one.as_ref().is_some_and(named_twice) {
            let message = format!("`{text}` is both dropped and added");
            reader.report(Code::Contradiction, span, message, "remove one of the two");
        }
    }
    match engine {
        true => kept_by_an_engine(&added, &dropped),
        false => added.concat(),
    }
}

/// As an engine resolves them: all but those that are dropped by name; else, where all are dropped, those that are added;
/// else its default ones without the dropped and with the added.
fn kept_by_an_engine(added: &[Vec<String>], dropped: &[Vec<String>]) -> Vec<String> {
    let all = |lists: &[Vec<String>]| lists.iter().any(|caps| caps.len() > 1);
    let mut kept = match () {
        () if all(added) => compose::capability("ALL").unwrap_or_default(),
        () if all(dropped) => return unique(added.concat()),
        () => named_capabilities(&ENGINE_CAPABILITIES),
    };
    let by_name: Vec<&String> = dropped.iter().filter(|c| c.len() == 1).flatten().collect();
    kept.retain(|cap| !by_name.contains(&cap));
    kept.extend(added.concat());
    unique(kept)
}

fn unique(names: Vec<String>) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}

fn environment(reader: &mut Reader<'_>, view: &View<'_, '_>) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (name, value, span) in view.pairs("environment") {
        let Some(value) = value else {
            let help = "write \"NAME=VALUE\"; `without = [\"environment\"]` passes on everything";
            let message = format!("`{name}` has no value, and this backend passes nothing on");
            reader.report(Code::NotExpressible, span, message, help);
            continue;
        };
        let good = !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
        if !good {
            let message = format!("`{name}` cannot be the name of a variable");
            reader.report(Code::WrongValue, span, message, "write \"NAME=VALUE\"");
        } else if pairs.iter().any(|(other, _)| other == name) {
            reader.report(
                Code::Repeated,
                span,
                format!("`{name}` is set twice"),
                "remove one of them",
            );
        } else {
            pairs.push((name.to_owned(), value.to_owned()));
        }
    }
    pairs
}

/// Reads each item of a list with `read`; what is wrong is reported at its place.
pub(super) fn each<T>(
    reader: &mut Reader<'_>,
    view: &View<'_, '_>,
    key: &str,
    mut read: impl FnMut(&str) -> Result<T, Wrong>,
) -> Vec<T> {
    let mut all = Vec::new();
    for (text, span) in view.texts(key) {
        match read(text) {
            Ok(value) => all.push(value),
            Err(wrong) => report(reader, key, text, span, &wrong),
        }
    }
    all
}

/// Reads one text with `read`; what is wrong is reported at its place.
pub(super) fn one<T>(
    reader: &mut Reader<'_>,
    view: &View<'_, '_>,
    key: &str,
    read: impl FnOnce(&str) -> Result<T, Wrong>,
) -> Option<T> {
    let text = view.text(key)?;
    match read(text) {
        Ok(value) => Some(value),
        Err(wrong) => {
            report(reader, key, text, view.span_of(key), &wrong);
            None
        }
    }
}

/// Reports what is wrong with one value.
pub(super) fn report(
    reader: &mut Reader<'_>,
    key: &str,
    text: &str,
    span: Range<usize>,
    wrong: &Wrong,
) {
    match wrong {
        Wrong::Malformed(help) => {
            reader.report(
                Code::WrongValue,
                span,
                format!("`{text}` is not a valid value for `{key}`"),
                *help,
            );
        }
        Wrong::NotExpressible(help) => {
            let message = format!("this backend cannot express `{key}` = `{text}`");
            reader.report(Code::NotExpressible, span, message, *help);
        }
    }
}
