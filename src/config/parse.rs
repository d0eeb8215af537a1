//! `escape-audit.toml` → valid sandboxes, or every mistake in it.
//!
//! A key that the chosen backend cannot express is a mistake, never dropped: a setting that silently did nothing would be
//! audited as if it were there. What is not written keeps the hardened default of the backend.

use std::fs;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::builtin::{BUILTINS, builtin};
use super::compose::{self, Wrong};
use super::keys::{KEYS, POLICY, SANDBOX, backends_of};
use super::model::{BackendKind, NetworkMode, Policy, RangeMode, Sandbox, Settings};
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
    /// The file.
    pub file: PathBuf,
}

/// Reads a project file.
pub fn load(path: &Path) -> Result<Project, Diagnostics> {
    let mistake = |code, message: String, help: &str| {
        Diagnostics::from(Diagnostic::new(code, message, help).in_file(path))
    };
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            let help = "check the path, or leave the option out to audit the embedded sandbox";
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
    parse(&Source::new(path, &text))
}

/// Reads the text of a project file; relative paths in it are below the file's own folder.
pub fn parse(source: &Source) -> Result<Project, Diagnostics> {
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
            let sandbox = sandbox(&mut reader, name.get_ref(), settings, name.span());
            sandboxes.push((name.span().start, sandbox));
        }
    }
    if sandboxes.is_empty() && !top.is_bad("sandbox") {
        let help = "write `[sandbox.NAME]` with a `backend`, or leave the file out to audit the embedded sandbox";
        reader.report(Code::MissingKey, 0..0, "no sandbox is configured", help);
    }
    sandboxes.sort_by_key(|(at, _)| *at);
    reader.mistakes.or(Project {
        sandboxes: sandboxes
            .into_iter()
            .filter_map(|(_, sandbox)| sandbox)
            .collect(),
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
) -> Option<Sandbox> {
    foreign_words(reader, table);
    let view = reader.table_as(KEYS, SANDBOX, &format!("sandbox.{name}"), table, span);
    let policy_view = view.table("policy").map(|(table, span)| {
        reader.table_as(KEYS, POLICY, &format!("sandbox.{name}.policy"), table, span)
    });
    let word = view.text("backend")?;
    if word == "docker" {
        let help = "audit the embedded `oci` sandbox with the same settings until it has one";
        let span = view.span_of("backend");
        reader.report(
            Code::NotExpressible,
            span,
            "this version has no docker backend yet",
            help,
        );
        return None;
    }
    let backend = BackendKind::from_name(word)?;
    check_expressible(reader, &view, backend);

    let mut sandbox = Sandbox::new(name, backend);
    match backend {
        BackendKind::Oci => {
            sandbox.settings = settings(reader, &view);
            sandbox.policy = Policy::from_settings(&sandbox.settings, sandbox.policy.level);
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
    for (key, value) in table {
        if key.get_ref() == "privileged" {
            let message = "nothing here can be `privileged`";
            let help = "name what it should keep: `cap_add = [\"ALL\"]`, `user = \"0:0\"`, \
                        `security_opt = [\"seccomp=unconfined\", \"systempaths=unconfined\"]`";
            reader.report(Code::NotExpressible, key.span(), message, help);
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

fn settings(reader: &mut Reader<'_>, view: &View<'_, '_>) -> Settings {
    let mut settings = Settings::default();
    let base = reader
        .source
        .path
        .parent()
        .unwrap_or(Path::new(""))
        .to_owned();
    settings.rootfs = view.text("rootfs").map(|dir| base.join(dir));
    if view.text("network_mode") == Some("host") {
        settings.network_mode = NetworkMode::Host;
    }
    if let Some(read_only) = view.flag("read_only") {
        settings.read_only = read_only;
    }
    memory(reader, view, &mut settings);
    settings.cpus = view.number("cpus").or(settings.cpus);
    settings.pids_limit = view.integer("pids_limit").or(settings.pids_limit);
    settings.pid_host = view.text("pid").is_some();
    match view.text("ipc") {
        Some("host") => settings.ipc_host = true,
        Some("none") => {
            let help = "`private` gives a namespace of its own, with a `/dev/shm` of its own";
            let span = view.span_of("ipc");
            reader.report(
                Code::NotExpressible,
                span,
                "the backend `oci` cannot express `ipc = \"none\"`",
                help,
            );
        }
        _ => {}
    }
    if view.has("tmpfs") {
        settings.tmpfs = each(reader, view, "tmpfs", compose::tmpfs);
    }
    settings.volumes = each(reader, view, "volumes", |text| compose::volume(text, &base));
    if let Some(user) = view.text("user") {
        match compose::user(user) {
            Ok(user) => settings.user = user,
            Err(wrong) => report(reader, "user", user, view.span_of("user"), &wrong),
        }
    }
    each(reader, view, "security_opt", |text| {
        compose::security_opt(text, &mut settings)
    });
    settings.capabilities = capabilities(reader, view);
    settings.environment = environment(reader, view);
    settings
}

fn memory(reader: &mut Reader<'_>, view: &View<'_, '_>, settings: &mut Settings) {
    let memory = view.bytes("mem_limit").or(settings.mem_limit);
    settings.mem_limit = memory;
    // Compose gives twice the memory where this is left out: the commonest hole in a ceiling that looks tight.
    settings.memswap_limit = view.bytes("memswap_limit").or(memory);
    if settings.memswap_limit < memory && !view.is_bad("mem_limit") {
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

fn capabilities(reader: &mut Reader<'_>, view: &View<'_, '_>) -> Vec<String> {
    let kept: Vec<String> = each(reader, view, "cap_add", compose::capability).concat();
    each(reader, view, "cap_drop", compose::capability);
    for (text, span) in view.texts("cap_drop") {
        // `ALL` is the usual beginning, from which `cap_add` then takes single ones back.
        if let Ok([cap]) = compose::capability(text).as_deref()
            && kept.contains(cap)
        {
            let message = format!("`{text}` is both dropped and added");
            reader.report(Code::Contradiction, span, message, "remove one of the two");
        }
    }
    kept
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

/// Reads each item of a list with `read`; what is wrong is reported at its place.
fn each<T>(
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

fn report(reader: &mut Reader<'_>, key: &str, text: &str, span: Range<usize>, wrong: &Wrong) {
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

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
