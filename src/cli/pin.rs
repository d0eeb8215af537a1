//! `pin`: the digest of each tag written into the project file, everything else left as it is; and the digest told where a
//! tag is a mistake.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use toml_edit::{Decor, DocumentMut, Item, TableLike, value};

use super::args::Pin as Arguments;
use crate::backend::docker::engine::Engine;
use crate::backend::docker::like;
use crate::backend::docker::pin::{Pin, local, remote};
use crate::config::pins::{Unpinned, beyond, unpinned};
use crate::config::{self, Like, Project, Unlike};
use crate::diag::{Code, Diagnostics, Source};
use crate::exit_code;
use crate::safe_text::SafeText;

/// How long an engine may take to tell a digest beside a mistake.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pins. Gives back the exit code: 1 where `--check` found something to write, 3 where an image could not be found.
pub fn pin(arguments: &Arguments) -> Result<i32> {
    let path = arguments
        .config
        .as_deref()
        .unwrap_or(Path::new(config::FILE_NAME));
    let text = fs::read_to_string(path).with_context(|| format!("read `{}`", path.display()))?;
    let source = Source::new(path, &text);
    let mut wanted = unpinned(&source);
    // What cannot be read may name an image, too.
    if let Err(mistakes) = config::parse_with(&source, &like) {
        let left = beyond(mistakes, &source, &wanted);
        if !left.is_empty() {
            return Err(left.into());
        }
    }
    let mut document: DocumentMut = text.parse().map_err(|_| not_toml(&source))?;
    if let Some(name) = &arguments.sandbox {
        if document
            .get("sandbox")
            .and_then(|all| all.get(name))
            .is_none()
        {
            config::find(None, name)?;
            bail!("`{name}` has no image to pin\nhelp: name a sandbox of backend `docker`");
        }
        wanted.retain(|unpinned| unpinned.sandbox == *name);
    }
    let found = on_a_runtime(async {
        let mut found = Vec::new();
        for unpinned in &wanted {
            found.push(ask(unpinned).await);
        }
        found
    })?;
    let (mut changed, mut failed) = (false, false);
    for (unpinned, found) in wanted.iter().zip(found) {
        let sandbox = &unpinned.sandbox;
        match found {
            Ok(pin) if unpinned.have.as_deref() == Some(pin.line().1) => {}
            Ok(pin) => {
                changed = true;
                let (key, text) = pin.line();
                let words = if arguments.check { "would be" } else { "is" };
                println!(
                    "{}",
                    SafeText::line(format!(
                        "{sandbox}: `{}` {words} {key} = \"{text}\"",
                        unpinned.name
                    ))
                );
                let table = document
                    .get_mut("sandbox")
                    .and_then(|all| all.get_mut(sandbox));
                let table = table.and_then(Item::as_table_like_mut);
                write(
                    table.ok_or_else(|| anyhow!("`sandbox.{sandbox}` is not a table"))?,
                    unpinned,
                    &pin,
                );
            }
            Err(error) => {
                failed = true;
                let help = error
                    .help
                    .as_deref()
                    .unwrap_or("see what the engine's own tools say");
                let text = format!("error: {sandbox}: {}\n  help: {help}\n", error.text);
                eprint!("{}", SafeText::block(text.as_bytes()));
            }
        }
    }
    if changed && !arguments.check {
        replace(path, &document.to_string())?;
    }
    if !changed && !failed {
        println!("every image is pinned");
    }
    Ok(match (failed, changed && arguments.check) {
        (true, _) => exit_code::UNDECIDED,
        (false, true) => exit_code::ESCAPED,
        (false, false) => exit_code::HELD,
    })
}

/// Loads a project file; a mistake about a tag says the line to write, where an engine answers at once.
pub fn load(path: &Path) -> Result<Project, Diagnostics> {
    config::load_with(path, &like).map_err(|mut mistakes| {
        tell(&mut mistakes, path);
        mistakes
    })
}

fn tell(mistakes: &mut Diagnostics, path: &Path) {
    if !mistakes
        .iter()
        .any(|mistake| mistake.code == Code::NotPinned)
    {
        return;
    }
    let Ok(text) = fs::read_to_string(path) else {
        return;
    };
    let wanted = unpinned(&Source::new(path, &text));
    let asked = on_a_runtime(async { tokio::time::timeout(PATIENCE, held(wanted)).await });
    let Ok(Ok(found)) = asked else {
        return;
    };
    for mistake in mistakes
        .iter_mut()
        .filter(|mistake| mistake.code == Code::NotPinned)
    {
        let place = mistake.place.as_ref().and_then(|place| place.span.as_ref());
        let at = place.map(|(_, span)| span.clone());
        let known = found
            .iter()
            .find(|(unpinned, _)| Some(&unpinned.at) == at.as_ref());
        if let Some((unpinned, pin)) = known {
            let (key, text) = pin.line();
            let place = match (unpinned.composed, key) {
                (true, _) => "beside `service`",
                (false, "image") => "here",
                (false, _) => "in its place",
            };
            mistake.help = format!(
                "write `{key} = \"{text}\"` {place}, as `escape-audit pin` does; or say `allow_tag = true`"
            );
        }
    }
}

/// The settings by which a container of an engine's runs.
fn like(name: &str, engine: Option<&str>) -> Result<Like, Unlike> {
    let asked = on_a_runtime(async {
        let engine = Engine::open(engine).await?;
        like::service(&engine, name).await
    });
    let failed = |text: String, help: Option<String>| Unlike { text, help };
    match asked {
        Ok(Ok(like)) => Ok(like),
        Ok(Err(error)) => Err(failed(error.text, error.help)),
        Err(error) => Err(failed(format!("{error:#}"), None)),
    }
}

/// Only what the engine itself holds: a mistake is no reason to speak to a registry.
async fn held(wanted: Vec<Unpinned>) -> Vec<(Unpinned, Pin)> {
    let mut found = Vec::new();
    for unpinned in wanted {
        if let Ok(engine) = Engine::open(unpinned.engine.as_deref()).await
            && let Ok(Some(pin)) = local(&engine, &unpinned.name, unpinned.built).await
        {
            found.push((unpinned, pin));
        }
    }
    found
}

async fn ask(unpinned: &Unpinned) -> Result<Pin, crate::backend::BackendError> {
    let engine = Engine::open(unpinned.engine.as_deref()).await?;
    match local(&engine, &unpinned.name, unpinned.built).await? {
        // What is built here is what is meant, whatever a registry calls by that name.
        Some(pin) => Ok(pin),
        None if unpinned.built => {
            let text = format!(
                "the engine does not hold `{}`, which the service builds",
                unpinned.name
            );
            let help = "build it first: `docker compose build`";
            Err(crate::backend::BackendError::new("image-missing", text).help(help))
        }
        None => remote(&engine, &unpinned.name).await,
    }
}

/// Writes the pin into the sandbox's table: over the old one, or behind `service`. Nothing else of the file moves.
fn write(table: &mut dyn TableLike, unpinned: &Unpinned, pin: &Pin) {
    let (key, text) = pin.line();
    let old = ["image", "image_id"]
        .into_iter()
        .find(|key| table.contains_key(key));
    let place = old.unwrap_or(if unpinned.composed {
        "service"
    } else {
        "backend"
    });
    let before = table.key(place).map(|key| key.leaf_decor().clone());
    let before = before.unwrap_or_default();
    let spaces = before.suffix().and_then(|raw| raw.as_str()).unwrap_or(" ");
    let width = place.len() + spaces.len();
    let comment = table.get(place).and_then(Item::as_value);
    let comment = comment.map(|value| value.decor().clone());

    // A table keeps the order in which its keys come: what stands behind is taken out and put back.
    let names: Vec<String> = table.iter().map(|(name, _)| name.to_owned()).collect();
    let behind = names.iter().skip_while(|name| *name != place).skip(1);
    let behind: Vec<(&String, Decor, Item)> = behind
        .filter_map(|name| {
            let decor = table.key(name)?.leaf_decor().clone();
            Some((name, decor, table.remove(name)?))
        })
        .collect();
    let mut decor = Decor::default();
    decor.set_suffix(" ".repeat(width.saturating_sub(key.len()).max(1)));
    let mut item = value(text);
    if let Some(old) = old {
        table.remove(old);
        if let Some(prefix) = before.prefix() {
            decor.set_prefix(prefix.clone());
        }
        // A comment behind the old pin stays; one behind `service` is about the service.
        if let (Some(value), Some(comment)) = (item.as_value_mut(), comment) {
            *value.decor_mut() = comment;
        }
    }
    put(table, key, decor, item);
    for (name, decor, item) in behind {
        // A tag is no longer what is audited, and one pin is enough.
        if !matches!(name.as_str(), "allow_tag" | "image" | "image_id") {
            put(table, name, decor, item);
        }
    }
    table.remove("allow_tag");
}

fn put(table: &mut dyn TableLike, key: &str, decor: Decor, item: Item) {
    table.insert(key, item);
    if let Some(mut key) = table.key_mut(key) {
        *key.leaf_decor_mut() = decor;
    }
}

fn replace(path: &Path, text: &str) -> Result<()> {
    let path = fs::canonicalize(path).with_context(|| format!("find `{}`", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let doing = || format!("write `{}`", path.display());
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(doing)?;
    file.write_all(text.as_bytes()).with_context(doing)?;
    let mode = fs::metadata(&path)
        .with_context(doing)?
        .permissions()
        .mode();
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(mode))
        .with_context(doing)?;
    file.persist(&path).with_context(doing)?;
    Ok(())
}

fn not_toml(source: &Source) -> anyhow::Error {
    match config::parse(source) {
        Err(mistakes) => mistakes.into(),
        Ok(_) => anyhow!(
            "`{}` cannot be edited\nhelp: write the digest by hand",
            source.path.display()
        ),
    }
}

/// Runs what speaks to an engine.
pub fn on_a_runtime<T>(work: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    Ok(runtime.block_on(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(text: &str, name: &str, composed: bool, pin: &Pin) -> String {
        let mut document: DocumentMut = text.parse().expect("TOML");
        let unpinned = Unpinned {
            sandbox: "a".into(),
            name: name.into(),
            built: false,
            composed,
            have: None,
            engine: None,
            at: 0..0,
            pins: Vec::new(),
        };
        let table = document["sandbox"]["a"]
            .as_table_like_mut()
            .expect("a table");
        write(table, &unpinned, pin);
        document.to_string()
    }

    #[test]
    fn nothing_moves_but_the_image() {
        let text = "# mine\n[sandbox.a] # head\nbackend   = \"docker\"\n# which one\nimage     = \"busybox\" # small\nmem_limit = \"64m\"\n\n\
                    [sandbox.a.policy]\nlevel = \"strict\"\n\n[sandbox.b]\nbackend = \"oci\"\n";
        let digest = Pin::Digest("busybox@sha256:1".into());
        assert_eq!(
            pinned(text, "busybox", false, &digest),
            text.replace("\"busybox\"", "\"busybox@sha256:1\"")
        );
        let id = Pin::Id("sha256:2".into());
        let expected = text.replace("image     = \"busybox\"", "image_id  = \"sha256:2\"");
        assert_eq!(pinned(text, "busybox", false, &id), expected);
    }

    #[test]
    fn beside_a_service_the_pin_stands_behind_it() {
        let text = "[sandbox.a]\nbackend = \"docker\"\ncompose = \"c.yaml\"\nservice = \"s\" # this one\nallow_tag = true\nwithout = [\"pids\"] # for now\n\n[sandbox.a.policy]\npids = 9\n";
        let digest = Pin::Digest("busybox@sha256:1".into());
        let expected = "[sandbox.a]\nbackend = \"docker\"\ncompose = \"c.yaml\"\nservice = \"s\" # this one\nimage   = \"busybox@sha256:1\"\nwithout = [\"pids\"] # for now\n\n[sandbox.a.policy]\npids = 9\n";
        assert_eq!(pinned(text, "busybox", true, &digest), expected);
        // Once more, it is replaced.
        let again = Pin::Id("sha256:2".into());
        let expected =
            expected.replace("image   = \"busybox@sha256:1\"", "image_id = \"sha256:2\"");
        assert_eq!(
            pinned(
                &pinned(text, "busybox", true, &digest),
                "busybox",
                true,
                &again
            ),
            expected
        );
    }

    #[test]
    fn an_inline_table_stays_one() {
        let text = "sandbox.a = { backend = \"docker\", image = \"busybox\", init = true }\n";
        let digest = Pin::Digest("busybox@sha256:1".into());
        assert_eq!(
            pinned(text, "busybox", false, &digest),
            text.replace("\"busybox\"", "\"busybox@sha256:1\"")
        );
    }
}
