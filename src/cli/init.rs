//! `init [DIR]`: a commented project file for what is here: the services of a Compose file, an image of a Dockerfile's, an
//! engine, or nothing but this program. What is written is read back by the parser first.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use super::args::Init;
use super::pin::on_a_runtime;
use crate::backend::docker::endpoint::{Address, Endpoint};
use crate::backend::docker::engine::Engine;
use crate::backend::docker::pin::{Pin, local};
use crate::config::compose_project::{self, Service};
use crate::config::compose_service::{FILES, File, Unread};
use crate::config::{self, BUILTINS, NetworkMode, Settings};
use crate::diag::{Diagnostics, Source};
use crate::exit_code;
use crate::host;
use crate::safe_text::SafeText;

/// How long an engine may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is found is named in the file, and what of it is audited at once.
#[derive(Default)]
struct Draft {
    /// Sections, in order.
    sections: Vec<String>,
    /// How many of them are no comment.
    active: usize,
    /// What was seen, for the one who called.
    said: Vec<String>,
    /// Services that are meant to be audited, and cannot be yet: `escape-audit run` refuses them, and says the same.
    unread: Vec<String>,
}

/// A service of a Compose file, or what is wrong with it.
struct Found {
    name: String,
    service: Result<Service, Diagnostics>,
    pin: Option<Pin>,
}

/// Writes the project file.
pub fn init(arguments: &Init) -> Result<i32> {
    let folder = &arguments.folder;
    let path = folder.join(config::FILE_NAME);
    if path.exists() && !arguments.force {
        bail!(
            "`{}` is there already\nhelp: `--force` replaces it; `escape-audit pin` only writes digests into it",
            path.display()
        );
    }
    let mut draft = on_a_runtime(look(folder))??;
    if draft.active == 0 {
        draft.sections.push(EMBEDDED.to_owned());
    }
    let text = format!("{HEAD}\n{}", draft.sections.join("\n"));
    // A file that our own parser refuses would be no help; that would be a mistake of this program.
    config::parse(&Source::new(&path, &text))
        .context("the file that would be written is not valid")?;
    write(&path, &text, arguments.force)?;
    println!("{}", SafeText::line(format!("wrote {}", path.display())));
    for line in &draft.said {
        println!("  {}", SafeText::line(line));
    }
    if draft.unread.is_empty() {
        println!("next: `escape-audit run`, in the folder of that file");
        return Ok(exit_code::HELD);
    }
    for line in &draft.unread {
        println!("{}", SafeText::line(line));
    }
    println!("next: correct that, then `escape-audit run`; until then it refuses to run");
    Ok(exit_code::UNDECIDED)
}

/// Looks around, and drafts a section for all that is found.
async fn look(folder: &Path) -> Result<Draft> {
    let mut draft = Draft::default();
    let (engine, elsewhere) = find_engine().await;
    draft.said.push(match &engine {
        Some(engine) => format!("{} at {}", about(engine), engine.endpoint.address),
        None => "no container engine answers".to_owned(),
    });
    let engine = engine.as_ref();
    let docker_host = engine
        .filter(|_| elsewhere)
        .map(|engine| engine.endpoint.address.to_string());
    let docker_host = docker_host.as_deref();
    match compose_file(folder) {
        Some(name) => services(folder, name, engine, docker_host, &mut draft).await?,
        None => image(folder, engine, docker_host, &mut draft).await,
    }
    Ok(draft)
}

const HEAD: &str = "\
# What `escape-audit run` audits. Each [sandbox.NAME] is one sandbox; its policy is what it promises, and what it is held to.
#   escape-audit run                      audits all of them
#   escape-audit run --sandbox NAME       audits one
#   escape-audit pin                      writes the digest of an image that is named by a tag
";

const EMBEDDED: &str = "\
# The embedded sandbox: a hardened OCI container that needs no engine. It shows what a tight sandbox comes to on this machine.
[sandbox.embedded]
backend = \"oci\"

[sandbox.embedded.policy]
level   = \"standard\"   # or `strict`, `hostile`
timeout = \"3s\"         # what runs longer is ended
";

/// The file that Compose would take.
fn compose_file(folder: &Path) -> Option<&'static str> {
    FILES.into_iter().find(|name| folder.join(name).is_file())
}

/// The engine that the environment names, else one whose socket is at a usual place.
async fn find_engine() -> (Option<Engine>, bool) {
    let open = tokio::time::timeout(PATIENCE, Engine::open(None));
    if let Ok(Ok(engine)) = open.await {
        return (Some(engine), false);
    }
    // What the environment names counts: another engine in its place would be another sandbox.
    if std::env::var_os("DOCKER_HOST").is_some_and(|host| !host.is_empty()) {
        return (None, false);
    }
    for socket in host::engine::sockets(&[]) {
        let endpoint = Endpoint {
            address: Address::Unix(socket.into()),
            named_by: "its usual place".into(),
        };
        if let Ok(Ok(engine)) = tokio::time::timeout(PATIENCE, Engine::connect(endpoint)).await {
            return (Some(engine), true);
        }
    }
    (None, false)
}

fn about(engine: &Engine) -> String {
    let kind = engine
        .facts
        .kind
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    format!("{kind} {}", engine.facts.version)
}

async fn services(
    folder: &Path,
    name: &str,
    engine: Option<&Engine>,
    docker_host: Option<&str>,
    draft: &mut Draft,
) -> Result<()> {
    let around = compose_project::machine();
    let file = match File::read(&folder.join(name), &around) {
        Ok(file) => file,
        Err(Unread::Not(error)) => {
            return Err(anyhow!(error)).with_context(|| format!("read `{name}`"));
        }
        Err(Unread::Wrong(mistake)) => return Err(Diagnostics::from(*mistake).into()),
    };
    let mut all = Vec::new();
    for (word, _) in file.services() {
        let service = compose_project::read(&file, &word.text);
        let pin = match (&service, engine) {
            (Ok(service), Some(engine)) => {
                held(engine, service.image.as_deref(), service.built).await
            }
            _ => None,
        };
        all.push(Found {
            name: word.text.clone(),
            service,
            pin,
        });
    }
    // What cannot be read is audited all the same, and refused: left out in silence, something else would be green for it.
    let looks = |found: &Found| match &found.service {
        Ok(service) => is_for_code(&found.name, service),
        Err(_) => is_named_so(&found.name),
    };
    let any = all.iter().any(looks);
    let (mut audited, mut aside) = (Vec::new(), Vec::new());
    for found in &all {
        let chosen = looks(found) || !any;
        if let (true, Err(mistakes)) = (chosen, &found.service) {
            for mistake in mistakes.iter() {
                let (name, message, help) = (&found.name, &mistake.message, &mistake.help);
                draft
                    .unread
                    .push(format!("{name} cannot be audited yet: {message}; {help}"));
            }
        }
        let section = section(name, found, docker_host, chosen);
        draft.sections.push(section);
        draft.active += usize::from(chosen);
        let list = if chosen { &mut audited } else { &mut aside };
        list.push(format!("`{}`", found.name));
    }
    let told = |words: &str, list: &[String]| match list {
        [] => None,
        list => Some(format!("{name}: {words} {}", list.join(", "))),
    };
    draft.said.extend(told("audited:", &audited));
    draft.said.extend(told("there, and commented out:", &aside));
    if all.is_empty() {
        draft.said.push(format!("{name}: it has no services"));
    }
    Ok(())
}

/// What the engine holds by the image's name.
async fn held(engine: &Engine, image: Option<&str>, built: bool) -> Option<Pin> {
    let image = image.filter(|image| !image.contains('@'))?;
    let asked = tokio::time::timeout(PATIENCE, local(engine, image, built)).await;
    asked.ok().and_then(Result::ok).flatten()
}

/// What those are called that run others' code.
fn is_named_so(name: &str) -> bool {
    const WORDS: [&str; 12] = [
        "sandbox",
        "runner",
        "exec",
        "worker",
        "agent",
        "code",
        "jail",
        "judge",
        "grader",
        "interpreter",
        "jupyter",
        "kernel",
    ];
    WORDS.iter().any(|word| name.contains(word))
}

/// Words in the name of a service or its image, and settings that nobody gives to anything else.
fn is_for_code(name: &str, service: &Service) -> bool {
    let settings = &service.settings;
    is_named_so(name)
        || service.image.as_deref().is_some_and(is_named_so)
        || settings.network_mode == NetworkMode::None
        || (settings.no_new_privileges && settings.capabilities.is_empty())
}

/// The sandbox of one service; what is not audited is a comment.
fn section(file: &str, found: &Found, docker_host: Option<&str>, chosen: bool) -> String {
    let name = sandbox_name(&found.name);
    let mut text = format!("[sandbox.{name}]\nbackend = \"docker\"\n");
    if let Some(host) = docker_host {
        text.push_str(&format!("docker_host = {}\n", quoted(host)));
    }
    text.push_str(&format!(
        "compose = {}\nservice = {}\n",
        quoted(file),
        quoted(&found.name)
    ));
    let mut head = format!("# The service `{}` of {file}.", found.name);
    match &found.service {
        Ok(service) => {
            head.push_str(&format!(" {}\n", summary(&service.settings)));
            text.push_str(&pin_line(service, found.pin.as_ref()));
        }
        Err(mistakes) => {
            head.push_str(" It cannot be audited yet:\n");
            for mistake in mistakes.iter() {
                head.push_str(&format!("#   {}: {}\n", mistake.message, mistake.help));
            }
        }
    }
    text.push_str(&format!(
        "\n[sandbox.{name}.policy]          # what it promises; ceilings default to those of the service\n\
         level   = \"standard\"   # or `strict`, `hostile`\n"
    ));
    let text = match chosen {
        true => text,
        false => text
            .lines()
            .map(|line| format!("# {line}").trim_end().to_owned() + "\n")
            .collect(),
    };
    let head: String = head
        .lines()
        .map(|line| format!("{}\n", SafeText::line(line)))
        .collect();
    head + &text
}

fn pin_line(service: &Service, pin: Option<&Pin>) -> String {
    match (pin, &service.image) {
        (Some(pin), Some(image)) => {
            let (key, value) = pin.line();
            let value = quoted(value);
            format!("{key} = {value} # what {} is on this engine today\n", quoted(image))
        }
        (None, Some(image)) if image.contains('@') => String::new(),
        _ if service.built => {
            "allow_tag = true # build it, then `escape-audit pin` writes its id in place of this line\n".into()
        }
        _ => "allow_tag = true # not on this engine yet: `escape-audit pin` writes its digest in place of this line\n".into(),
    }
}

/// What a reader should see at once of a service's settings.
fn summary(settings: &Settings) -> String {
    let mut open = Vec::new();
    let mut say = |holds: bool, what: &str| {
        if holds {
            open.push(what.to_owned());
        }
    };
    say(settings.privileged, "privileged");
    say(
        settings.network_mode != NetworkMode::None,
        &format!("network {}", settings.network_mode),
    );
    say(!settings.read_only, "root file system writable");
    say(settings.mem_limit.is_none(), "no ceiling on memory");
    say(settings.cpus.is_none(), "none on CPU time");
    say(settings.pids_limit.is_none(), "none on processes");
    say(
        !settings.capabilities.is_empty() && !settings.privileged,
        &format!("{} capabilities", settings.capabilities.len()),
    );
    say(!settings.no_new_privileges, "new privileges possible");
    match open.is_empty() {
        true => "It is closed on every side that its settings show.".into(),
        false => format!("Open: {}.", open.join(", ")),
    }
}

/// A Dockerfile's image, or any of an engine's: with every protection that Compose can express.
async fn image(
    folder: &Path,
    engine: Option<&Engine>,
    docker_host: Option<&str>,
    draft: &mut Draft,
) {
    let dockerfile = ["Dockerfile", "Containerfile"]
        .into_iter()
        .find(|name| folder.join(name).is_file());
    if engine.is_none() && dockerfile.is_none() {
        return;
    }
    let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let name = real
        .file_name()
        .map(|name| name.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let pin = match (engine, dockerfile) {
        (Some(engine), Some(_)) => held(engine, Some(&name), false).await,
        _ => None,
    };
    let (line, why) = match (&pin, dockerfile) {
        (Some(pin), _) => {
            let (key, value) = pin.line();
            let why = format!("the image `{name}` of the Dockerfile");
            (format!("{key:13} = {}\n", quoted(value)), why)
        }
        (None, Some(file)) => (
            "image_id      = \"sha256:…\" # docker image inspect --format '{{.Id}}' IMAGE\n".to_owned(),
            format!("{file}: which image it becomes cannot be seen; written as a comment"),
        ),
        (None, None) => (
            "image         = \"NAME@sha256:…\" # docker image inspect --format '{{index .RepoDigests 0}}' IMAGE\n".to_owned(),
            "no Compose file and no Dockerfile; a container of the engine's is written as a comment".to_owned(),
        ),
    };
    draft.said.push(why);
    let host = docker_host
        .map(|host| format!("docker_host   = {}\n", quoted(host)))
        .unwrap_or_default();
    let text = format!("[sandbox.container]\nbackend       = \"docker\"\n{line}{host}{HARDENED}");
    let head = "# A container that nothing is given which it does not need. Take away what yours does not have, and see what escapes.\n";
    draft.sections.push(match pin {
        Some(_) => {
            draft.active += 1;
            format!("{head}{text}")
        }
        None => {
            head.to_owned()
                + &text
                    .lines()
                    .map(|line| format!("# {line}").trim_end().to_owned() + "\n")
                    .collect::<String>()
        }
    });
}

const HARDENED: &str = "\
network_mode  = \"none\"
read_only     = true
mem_limit     = \"256m\"
memswap_limit = \"256m\"              # without it Docker gives twice the memory
cpus          = 0.5
pids_limit    = 64
shm_size      = \"1m\"
tmpfs         = [\"/scratch:size=64m\"]
cap_drop      = [\"ALL\"]
security_opt  = [\"no-new-privileges\"]
user          = \"65534:65534\"

[sandbox.container.policy]          # what it promises; ceilings default to the settings above
level   = \"standard\"                # or `strict`, `hostile`
timeout = \"3s\"                      # what runs longer is ended
";

/// A name that the project file takes.
fn sandbox_name(service: &str) -> String {
    let good = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') {
            c
        } else {
            '-'
        }
    };
    let name: String = service.chars().map(good).take(30).collect();
    match BUILTINS.contains(&name.as_str()) || name.is_empty() {
        true => format!("service-{name}"),
        false => name,
    }
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// Whole or not at all; and never over a file that nobody said may go.
fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let doing = || format!("write `{}`", path.display());
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .with_context(doing)?;
    file.write_all(text.as_bytes()).with_context(doing)?;
    match force {
        true => file.persist(path).map(drop).with_context(doing),
        false => file.persist_noclobber(path).map(drop).with_context(doing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, folder: &Path) -> config::Project {
        config::parse(&Source::new(folder.join(config::FILE_NAME), text)).expect("valid")
    }

    #[test]
    fn every_part_that_is_written_is_valid_by_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(
            parsed(&format!("{HEAD}\n{EMBEDDED}"), folder.path())
                .sandboxes
                .len(),
            1
        );
        let id = format!("image_id = \"sha256:{}\"\n", "0a".repeat(32));
        let hardened = format!("[sandbox.container]\nbackend = \"docker\"\n{id}{HARDENED}");
        let sandbox = parsed(&hardened, folder.path()).sandboxes.remove(0);
        assert_eq!(
            summary(&sandbox.settings),
            "It is closed on every side that its settings show."
        );
    }

    #[test]
    fn the_service_that_runs_code_is_chosen_and_the_others_are_comments() {
        let folder = tempfile::tempdir().expect("a folder");
        let compose = "services:\n  db: {image: 'postgres:17'}\n  code-runner: {image: 'python:3', network_mode: none}\n  odd.name:\n    image: x\n    cgroup: host\n";
        fs::write(folder.path().join("compose.yaml"), compose).expect("written");
        let mut draft = Draft::default();
        on_a_runtime(services(
            folder.path(),
            "compose.yaml",
            None,
            None,
            &mut draft,
        ))
        .expect("a runtime")
        .expect("read");
        let text = draft.sections.join("\n");
        let names: Vec<String> = parsed(&text, folder.path())
            .sandboxes
            .into_iter()
            .map(|s| s.name)
            .collect();
        assert_eq!((draft.active, names), (1, vec!["code-runner".to_owned()]));
        assert!(
            text.contains("# [sandbox.db]\n") && text.contains("# [sandbox.odd-name]\n"),
            "{text}"
        );
        assert!(
            text.contains("#   this version cannot audit a service with `cgroup`: "),
            "{text}"
        );
        // Without the comment signs the others are valid, too.
        let all = text
            .replace("\n# [sandbox.db]", "\n[sandbox.db]")
            .replace("\n# backend", "\nbackend")
            .replace("\n# compose", "\ncompose")
            .replace("\n# service", "\nservice")
            .replace("\n# allow_tag", "\nallow_tag")
            .replace("\n# level", "\nlevel")
            .replace("\n# [sandbox.db.policy]", "\n[sandbox.db.policy]");
        let end = all.find("# The service `odd.name`").expect("there");
        assert_eq!(
            parsed(&all[..end], folder.path()).sandboxes.len(),
            2,
            "{all}"
        );
    }

    #[test]
    fn where_no_service_looks_like_it_all_are_audited() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(
            folder.path().join("c.yml"),
            "services: {a: {image: x}, b: {build: .}, oci: {image: y}}",
        )
        .expect("written");
        let mut draft = Draft::default();
        on_a_runtime(services(folder.path(), "c.yml", None, None, &mut draft))
            .expect("a runtime")
            .expect("read");
        let names: Vec<String> = parsed(&draft.sections.join("\n"), folder.path())
            .sandboxes
            .into_iter()
            .map(|s| s.name)
            .collect();
        assert_eq!(names, ["a", "b", "service-oci"]);
    }

    #[test]
    fn a_file_that_is_there_is_never_replaced_unasked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(config::FILE_NAME);
        fs::write(&path, "mine").expect("written");
        let asked = |force| Init {
            folder: folder.path().into(),
            force,
        };
        let error = init(&asked(false)).expect_err("refused");
        assert!(error.to_string().contains("--force"), "{error}");
        assert!(write(&path, "other", false).is_err());
        assert_eq!(fs::read_to_string(&path).expect("there"), "mine");
    }
}
