//! `escape-audit.toml` → valid sandboxes, or every mistake in it.
//!
//! A key that the chosen backend cannot express is a mistake, never dropped: a setting that silently did nothing would be
//! audited as if it were there. What is not written keeps the default of the backend: hardened for the embedded sandbox,
//! and the engine's own for an engine.

use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::builtin::{BUILTINS, builtin};
use super::compose::{self, Wrong};
use super::compose_project;
use super::docker;
use super::keys::{KEYS, POLICY, RANGE, SANDBOX, backends_of};
use super::model::{BackendKind, CANARY_PORT, Policy, RangeConfig, RangeMode, Sandbox};
use super::settings::{each, settings};
use super::waiver::{self, Waiver};
use crate::diag::schema::{Named as _, Reader, View};
use crate::diag::{Code, Diagnostic, Diagnostics, Source, list, suggest};
use crate::protection::Protection;

/// The project file's usual name.
pub const FILE_NAME: &str = "escape-audit.toml";

const LARGEST_FILE: u64 = 1024 * 1024;

/// Programs that are taken for a backend.
const LAUNCHERS: [&str; 9] = [
    "bwrap",
    "bubblewrap",
    "chroot",
    "firejail",
    "nsjail",
    "podman",
    "runc",
    "systemd-run",
    "unshare",
];

/// The project's file, valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Project {
    /// The sandboxes, in the order of the file.
    pub sandboxes: Vec<Sandbox>,
    /// What of the network beyond this machine may be touched.
    pub range: RangeConfig,
    /// The escapes that are known of and lived with.
    pub waivers: Vec<Waiver>,
    /// The file.
    pub file: PathBuf,
}

/// A container of an engine's, as a Compose file would say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Like {
    /// A Compose file of one service, `container`, with everything that the engine says of its settings.
    pub text: String,
    /// The id of its image.
    pub image: String,
}

/// Why a container could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlike {
    /// What was being done, and why it failed.
    pub text: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// Asks an engine how a container runs: its name, and the sandbox's own `docker_host`.
pub type Look<'a> = &'a dyn Fn(&str, Option<&str>) -> Result<Like, Unlike>;

/// Reads a project file where no engine can be asked.
pub fn load(path: &Path) -> Result<Project, Diagnostics> {
    load_with(path, &nobody)
}

/// Reads a project file; `look` is asked where a sandbox is `like` a container.
pub fn load_with(path: &Path, look: Look<'_>) -> Result<Project, Diagnostics> {
    let mistake = |code, message: String, help: &str| {
        Diagnostics::from(Diagnostic::new(code, message, help).in_file(path))
    };
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            let help = "check the path, or leave the option out: then `escape-audit.toml` counts where there is one, else the embedded sandbox";
            mistake(Code::Unreadable, format!("cannot be read: {error}"), help)
        })?;
    if bytes.len() as u64 > LARGEST_FILE {
        let message = "this file is larger than 1 MiB".into();
        return Err(mistake(Code::TooLarge, message, "is it a project file?"));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        mistake(
            Code::NotUtf8,
            "this file is not UTF-8 text".into(),
            "save it as UTF-8",
        )
    })?;
    parse_with(&Source::new(path, &text), look)
}

/// Reads the text of a project file where no engine can be asked.
pub fn parse(source: &Source) -> Result<Project, Diagnostics> {
    parse_with(source, &nobody)
}

fn nobody(_: &str, _: Option<&str>) -> Result<Like, Unlike> {
    Err(Unlike {
        text: "no engine is asked here".into(),
        help: None,
    })
}

/// Reads the text of a project file; relative paths in it are below the file's own folder.
pub fn parse_with(source: &Source, look: Look<'_>) -> Result<Project, Diagnostics> {
    let mut reader = Reader::new(source);
    let document = reader.parse();
    let top = reader.table(KEYS, "", document.get_ref(), 0..0);
    let mut sandboxes = Vec::new();
    if let Some((table, _)) = top.table("sandbox") {
        for (name, value) in table {
            let Some(settings) = value.get_ref().as_table() else {
                let message = format!("`sandbox.{}` is not a table", name.get_ref());
                let help = "write one `[sandbox.NAME]` a sandbox";
                reader.report(Code::WrongType, value.span(), message, help);
                continue;
            };
            check_name(&mut reader, name.get_ref(), name.span());
            let sandbox = sandbox(&mut reader, name.get_ref(), settings, name.span(), look);
            sandboxes.push((name.span().start, sandbox));
        }
    }
    let range = match top.table("range") {
        Some((table, span)) => {
            let view = reader.table(KEYS, RANGE, table, span);
            range_config(&mut reader, &view)
        }
        None => RangeConfig::default(),
    };
    let mut known: Vec<&str> = BUILTINS.to_vec();
    if let Some((table, _)) = top.table("sandbox") {
        known.extend(table.keys().map(|name| name.get_ref().as_ref()));
    }
    let waivers = waiver::waivers(&mut reader, &top, &known);
    // A file may say where the internet is and what is waived, and nothing else: for the built-in sandboxes, and where the
    // internet is also for `run -- LAUNCHER`.
    let says = |key| top.has(key) || top.is_bad(key);
    if sandboxes.is_empty() && !top.is_bad("sandbox") && !says("range") && !says("gate") {
        let help = "write `[sandbox.NAME]` with a `backend`, or leave the file out to audit the embedded sandbox";
        reader.report(Code::MissingKey, 0..0, "no sandbox is configured", help);
    }
    sandboxes.sort_by_key(|(at, _)| *at);
    reader.mistakes.or(Project {
        sandboxes: sandboxes
            .into_iter()
            .filter_map(|(_, sandbox)| sandbox)
            .collect(),
        range,
        waivers,
        file: source.path.clone(),
    })
}

/// The sandbox of this name: the project's, else a built-in one.
pub fn find(project: Option<&Project>, name: &str) -> Result<Sandbox, Diagnostics> {
    let configured = project.map_or(&[][..], |project| &project.sandboxes);
    let own = configured
        .iter()
        .find(|sandbox| sandbox.name == name)
        .cloned();
    own.or_else(|| builtin(name)).ok_or_else(|| {
        let mut names: Vec<&str> = configured.iter().map(|s| s.name.as_str()).collect();
        names.extend(BUILTINS);
        let message = format!("there is no sandbox `{name}`");
        Diagnostic::new(Code::UnknownSandbox, message, suggest(name, &names)).into()
    })
}

fn check_name(reader: &mut Reader<'_>, name: &str, span: Range<usize>) {
    let good = !name.is_empty()
        && name.len() <= 40
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if !good {
        let message = format!("`{name}` cannot be the name of a sandbox");
        let help = "use letters, digits, `-` and `_`, at most 40 of them";
        reader.report(Code::WrongValue, span, message, help);
    } else if BUILTINS.contains(&name) {
        let message = format!("`{name}` is the name of a built-in sandbox");
        let help = "choose another name: reports and `--sandbox` have to mean one thing by it";
        reader.report(Code::WrongValue, span, message, help);
    }
}

fn sandbox(
    reader: &mut Reader<'_>,
    name: &str,
    table: &DeTable<'_>,
    span: Range<usize>,
    look: Look<'_>,
) -> Option<Sandbox> {
    foreign_words(reader, table);
    let view = reader.table_as(KEYS, SANDBOX, &format!("sandbox.{name}"), table, span);
    let policy_view = view.table("policy").map(|(table, span)| {
        reader.table_as(KEYS, POLICY, &format!("sandbox.{name}.policy"), table, span)
    });
    let word = view.text("backend")?;
    let backend = BackendKind::from_name(word)?;
    check_expressible(reader, &view, backend);

    let mut sandbox = Sandbox::new(name, backend);
    match backend {
        BackendKind::Oci | BackendKind::Docker => {
            let composed = view.has("compose") || view.is_bad("compose");
            match backend {
                BackendKind::Docker if composed => {
                    compose_project::sandbox(reader, &view, &mut sandbox);
                }
                BackendKind::Docker if view.has("like") => {
                    compose_project::like(reader, &view, &mut sandbox, look);
                }
                BackendKind::Docker => {
                    sandbox.settings = settings(reader, &view, backend);
                    sandbox.settings.image = docker::image(reader, &view);
                }
                _ => sandbox.settings = settings(reader, &view, backend),
            }
            sandbox.policy =
                Policy::from_settings(&sandbox.settings, backend, sandbox.policy.level);
            let without = view.texts("without").into_iter();
            sandbox.without = without
                .filter_map(|(name, _)| Protection::from_name(name))
                .collect();
        }
        BackendKind::Command => command(reader, &view, &mut sandbox),
        BackendKind::Unsandboxed => {}
    }
    if let Some(view) = policy_view {
        policy(reader, &view, &mut sandbox.policy);
    }
    Some(sandbox)
}

/// What people write first, and what it is called here. Told before the table is read, so that this is the help they get.
fn foreign_words(reader: &mut Reader<'_>, table: &DeTable<'_>) {
    let is_docker = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        key.get_ref() == "backend" && value.get_ref().as_str() == Some("docker")
    };
    let on_docker = table.iter().any(is_docker);
    for (key, value) in table {
        let known = docker::NOT_HERE
            .iter()
            .find(|(name, _)| key.get_ref() == name);
        if let Some((name, help)) = known.filter(|_| on_docker) {
            let message = format!("the backend `docker` of this version cannot express `{name}`");
            reader.report(Code::NotExpressible, key.span(), message, *help);
        }
        let launcher = value.get_ref().as_str().filter(|w| LAUNCHERS.contains(w));
        if let Some(launcher) = launcher.filter(|_| key.get_ref() == "backend") {
            let message = format!("`{launcher}` is a launcher, not a backend");
            let help = format!("write `backend = \"command\"` and `command = [\"{launcher}\", …]`");
            reader.report(Code::WrongValue, value.span(), message, help);
        }
    }
}

fn check_expressible(reader: &mut Reader<'_>, view: &View<'_, '_>, backend: BackendKind) {
    for key in view.names() {
        let able = backends_of(key);
        if able.contains(&backend.name()) {
            continue;
        }
        let help = match backend {
            BackendKind::Oci if key == "privileged" => {
                "name what it should keep: `cap_add = [\"ALL\"]`, `user = \"0:0\"`, \
                 `security_opt = [\"seccomp=unconfined\", \"systempaths=unconfined\"]`"
                    .into()
            }
            BackendKind::Docker if key == "command" => {
                "the probe runs in place of the image's command: remove the line".into()
            }
            BackendKind::Command if able.contains(&"oci") => {
                "the launcher's own arguments set that; what it promises belongs in `policy`".into()
            }
            BackendKind::Unsandboxed => "no sandbox, no setting: remove the line".into(),
            _ => format!("this key belongs to the backend {}", list(able)),
        };
        let message = format!("the backend `{}` cannot express `{key}`", backend.name());
        reader.report(Code::NotExpressible, view.span_of(key), message, help);
    }
}

fn command(reader: &mut Reader<'_>, view: &View<'_, '_>, sandbox: &mut Sandbox) {
    sandbox.command = view.strings("command");
    if sandbox.command.is_empty() && !view.is_bad("command") {
        let help = "add `command = [\"bwrap\", …]`: the launcher and its arguments";
        reader.report(
            Code::MissingKey,
            view.span.clone(),
            "`command` is missing",
            help,
        );
    }
    if view.text("range").is_some() {
        sandbox.range = RangeMode::Host;
    }
    if view
        .text("carrier")
        .is_some_and(|carrier| carrier != "exec")
    {
        let help = "this version appends the probe's own command to the launcher's arguments: `carrier = \"exec\"`";
        let span = view.span_of("carrier");
        reader.report(
            Code::NotExpressible,
            span,
            "this version carries no source text",
            help,
        );
    }
}

fn range_config(reader: &mut Reader<'_>, view: &View<'_, '_>) -> RangeConfig {
    RangeConfig {
        internet: each(reader, view, "internet", internet),
        metadata_real: view.text("metadata").is_some(),
    }
}

/// A canary that a firewall treats as a neighbour says nothing about the internet: its silence would be a false BLOCKED.
fn internet(text: &str) -> Result<SocketAddr, Wrong> {
    let alone = text.parse::<IpAddr>().ok();
    let alone = alone.map(|ip| SocketAddr::new(ip, CANARY_PORT));
    let address = alone
        .or_else(|| text.parse().ok())
        .filter(|at| at.port() != 0);
    let address = address.ok_or(Wrong::Malformed(
        "write the IP address of a host of your own, such as \"203.0.113.10\" or \"[2001:db8::10]:7443\"",
    ))?;
    let is_near = match address.ip().to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_broadcast()
                || v4.is_multicast()
                || matches!(v4.octets(), [0, ..] | [100, 64..=127, ..])
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
        }
    };
    match is_near {
        true => Err(Wrong::Malformed(
            "firewalls treat loopback, private and link-local addresses as near: write one that is routed as the internet is",
        )),
        false => Ok(address),
    }
}

fn policy(reader: &mut Reader<'_>, view: &View<'_, '_>, policy: &mut Policy) {
    policy.level = view.named("level").unwrap_or(policy.level);
    if view.has("writable") {
        policy.writable = each(reader, view, "writable", compose::inside);
    }
    policy.timeout = view.duration("timeout").or(policy.timeout);
    policy.output = view.bytes("output").or(policy.output);
    policy.pids = view.integer("pids").or(policy.pids);
    policy.cpus = view.number("cpus").or(policy.cpus);
    policy.scratch = view.bytes("scratch").or(policy.scratch);
    if let Some(memory) = view.bytes("memory") {
        policy.memory = Some(memory);
        policy.memory_and_swap = Some(memory);
    }
    policy.memory_and_swap = view.bytes("memory_and_swap").or(policy.memory_and_swap);
    if policy.memory_and_swap < policy.memory && view.has("memory_and_swap") {
        let help = "it counts memory and swap together: at least `memory`";
        let span = view.span_of("memory_and_swap");
        reader.report(
            Code::Contradiction,
            span,
            "`memory_and_swap` is lower than `memory`",
            help,
        );
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
