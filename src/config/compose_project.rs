//! `compose` and `service` of a sandbox: the service's settings are the configuration, and the project file adds the pin
//! of its image and what it promises.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::compose_service::{File, Surroundings, Unread, no_such_service};
use super::compose_table::{Converted, Converter};
use super::docker;
use super::image;
use super::keys::{KEYS, SANDBOX};
use super::model::{BackendKind, Deployed, Image, Sandbox, Settings};
use super::parse::Look;
use super::settings::{one, settings};
use crate::diag::schema::{Reader, View};
use crate::diag::{Code, Diagnostic, Diagnostics, Place, Source};

/// What may stand beside `compose`: it changes nothing about the service.
const BESIDE: [&str; 9] = [
    "backend",
    "compose",
    "service",
    "image",
    "image_id",
    "allow_tag",
    "docker_host",
    "without",
    "policy",
];

const LARGEST_FILE: u64 = 1024 * 1024;

/// A service as an audit takes it.
pub struct Service {
    /// Its settings, the image left out.
    pub settings: Settings,
    /// What its image is called; of one that is built, how Compose calls it.
    pub image: Option<String>,
    /// The image is built, so no registry knows it.
    pub built: bool,
    /// What a reader of the report must know.
    pub notes: Vec<String>,
    /// Where the image is named.
    pub place: Place,
}

/// Reads the sandbox's service; the sandbox's own table says what is not of the service.
pub fn sandbox(reader: &mut Reader<'_>, view: &View<'_, '_>, sandbox: &mut Sandbox) {
    for key in view.names().filter(|key| !BESIDE.contains(key)) {
        let message = format!("`{key}` stands beside `compose`, whose service says all settings");
        let help = "write it in the Compose file, so that what is deployed has it too";
        reader.report(Code::Contradiction, view.span_of(key), message, help);
    }
    let (Some(path), Some(name)) = (view.text("compose"), view.text("service")) else {
        if !view.is_bad("service") && !view.is_bad("compose") {
            let message = "`compose` stands without `service`";
            let help = "add `service = \"NAME\"`, the service that is audited";
            reader.report(Code::MissingKey, view.span_of("compose"), message, help);
        }
        return;
    };
    let folder = reader.source.path.parent().unwrap_or(Path::new(""));
    let around = machine();
    let path = folder.join(path);
    let file = match File::read(&path, &around) {
        Ok(file) => file,
        Err(Unread::Not(error)) => {
            let message = format!(
                "the Compose file `{}` cannot be read: {error}",
                path.display()
            );
            let help = "the path is below the project file's own folder";
            return reader.report(Code::Unreadable, view.span_of("compose"), message, help);
        }
        Err(Unread::Wrong(mistake)) => return reader.mistakes.push(*mistake),
    };
    if !file.services().iter().any(|(word, _)| word.text == name) {
        let (message, help) = no_such_service(&file, name);
        return reader.report(Code::WrongValue, view.span_of("service"), message, help);
    }
    match read(&file, name) {
        Err(mistakes) => reader.mistakes.append(mistakes),
        Ok(service) => {
            sandbox.notes.extend(service.notes.iter().cloned());
            sandbox.settings = service.settings.clone();
            sandbox.settings.image = pinned(reader, view, &service);
            sandbox.settings.deployed = service.image.as_ref().map(|name| Deployed {
                name: name.clone(),
                built: service.built,
            });
        }
    }
    sandbox.settings.engine = one(reader, view, "docker_host", docker::engine);
}

/// What may stand beside `like`.
const BESIDE_LIKE: [&str; 5] = ["backend", "like", "docker_host", "without", "policy"];

/// Takes the settings over by which a container runs.
pub fn like(reader: &mut Reader<'_>, view: &View<'_, '_>, sandbox: &mut Sandbox, look: Look<'_>) {
    for key in view.names().filter(|key| !BESIDE_LIKE.contains(key)) {
        let message = format!("`{key}` stands beside `like`, whose container says all settings");
        let help = "start the container so, or leave `like` out and write every setting here";
        reader.report(Code::Contradiction, view.span_of(key), message, help);
    }
    let name = view.text("like").unwrap_or_default();
    let engine = one(reader, view, "docker_host", docker::engine);
    let found = match look(name, engine.as_deref()) {
        Ok(found) => found,
        Err(error) => {
            let message = format!("the settings of `{name}` are not known: {}", error.text);
            let help = error
                .help
                .unwrap_or_else(|| "`docker ps -a` shows the containers there are".into());
            return reader.report(Code::Unreadable, view.span_of("like"), message, help);
        }
    };
    let nowhere = Surroundings {
        read: &|_| Err(io::Error::from(io::ErrorKind::NotFound)),
        variable: &|_| None,
        here: PathBuf::from("/"),
    };
    let source = Source::new(format!("the container {name}"), &found.text);
    match File::of(source, &nowhere)
        .map_err(|mistake| Diagnostics::from(*mistake))
        .and_then(|file| read(&file, "container"))
    {
        Err(mistakes) => reader.mistakes.append(mistakes),
        Ok(service) => {
            sandbox
                .notes
                .push(format!("settings of the container `{name}`"));
            sandbox.settings = service.settings;
            sandbox.settings.image = image::image_id(&found.image).ok();
        }
    }
    sandbox.settings.engine = engine;
}

/// This machine's files and variables.
pub fn machine() -> Surroundings<'static> {
    Surroundings {
        read: &|path| {
            let mut text = String::new();
            let read = fs::File::open(path)?
                .take(LARGEST_FILE + 1)
                .read_to_string(&mut text)?;
            match read as u64 > LARGEST_FILE {
                true => Err(io::Error::other("it is larger than 1 MiB")),
                false => Ok(text),
            }
        },
        variable: &|name| std::env::var(name).ok(),
        here: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
    }
}

/// Reads a service that is there.
pub fn read(file: &File<'_>, name: &str) -> Result<Service, Diagnostics> {
    let mut reader = Reader::new(&file.source);
    check_file(file, &mut reader);
    let mut variables = file.variables(&mut reader);
    let project = project(file, &mut variables);
    let Some((word, node)) = file.service(&mut reader, name, &mut variables) else {
        return Err(reader.mistakes);
    };
    let mut converter = Converter {
        file,
        reader: &mut reader,
        variables: &mut variables,
        project: project.clone(),
        out: Converted::default(),
    };
    converter.service(&word, &node);
    let out = converter.out;
    let table = out.whole();
    let shown = format!("services.{name}");
    let view = reader.table_as(KEYS, SANDBOX, &shown, &table, word.span.clone());
    let mut settings = settings(&mut reader, &view, BackendKind::Docker);
    settings.options = out.options.clone();
    let at = out.image.as_ref().map(|(_, span)| span.clone());
    let at = at.or(out.built.clone()).unwrap_or(word.span.clone());
    let image = out.image.as_ref().map(|(text, _)| text.clone());
    let built = out.built.is_some();
    if image.is_none() && !built {
        let help = "write `image: NAME@sha256:…`, or `build`";
        reader.report(
            Code::MissingKey,
            at.clone(),
            format!("the service `{name}` has no image"),
            help,
        );
    }
    let notes = notes(file, name, &out, &variables.unset);
    reader.mistakes.or(Service {
        settings,
        image: image.or_else(|| built.then(|| format!("{project}-{name}"))),
        built,
        notes,
        place: Place::bytes(&file.source, at, "the service's image"),
    })
}

/// What concerns the file as a whole.
fn check_file(file: &File<'_>, reader: &mut Reader<'_>) {
    use super::compose_keys::{TOP, fate};
    for (word, _) in file.tree.entries().unwrap_or_default() {
        if fate(TOP, &word.text).is_none() {
            let message = format!("Compose has no key `{}` at the top of the file", word.text);
            let names: Vec<&str> = TOP.iter().map(|(name, ..)| *name).collect();
            let help = crate::diag::suggest(&word.text, &names);
            reader.report(Code::UnknownKey, word.span.clone(), message, help);
        }
        if word.text == "include" {
            let help = "name the file that `docker compose config` prints";
            let message = "this version reads one Compose file, and `include` names more";
            reader.report(Code::NotExpressible, word.span.clone(), message, help);
        }
    }
    if let Some(other) = file.override_beside() {
        let message = format!("`{other}` lies beside this file, and Compose would merge it in");
        let help = "name what is deployed: the output of `docker compose config`, or this file under another name";
        reader.report(Code::NotExpressible, 0..0, message, help);
    }
}

/// The project's name as Compose finds it.
fn project(file: &File<'_>, variables: &mut super::compose_variables::Variables<'_>) -> String {
    let said = file
        .tree
        .get("name")
        .and_then(super::compose_yaml::Node::text);
    let said = said.and_then(|text| variables.fill(text).ok());
    let named = variables
        .get("COMPOSE_PROJECT_NAME")
        .filter(|name| !name.is_empty());
    let folder = || {
        let folder = file.folder();
        let folder = fs::canonicalize(&folder).unwrap_or(folder);
        folder
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    let name = named.or(said).unwrap_or_else(folder).to_lowercase();
    let good = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    let name: String = name.chars().filter(good).collect();
    name.trim_start_matches(['_', '-']).to_owned()
}

fn notes(
    file: &File<'_>,
    name: &str,
    out: &Converted,
    unset: &std::collections::BTreeSet<String>,
) -> Vec<String> {
    let mut notes = vec![format!(
        "settings of the service `{name}` of {}",
        file.source.path.display()
    )];
    if out.default_network {
        notes.push(
            "the service names no network: it is audited in the engine's bridge, and not in the project's own default network"
                .into(),
        );
    }
    if !out.ignored.is_empty() {
        let keys = out.ignored.join("`, `");
        notes.push(format!(
            "of no matter for isolation, and not taken over: `{keys}`"
        ));
    }
    if !unset.is_empty() {
        let names: Vec<&str> = unset.iter().map(String::as_str).collect();
        notes.push(format!(
            "set nowhere, and therefore empty, as Compose has it: `{}`",
            names.join("`, `")
        ));
    }
    notes
}

/// The image of the service, pinned in the Compose file or in the project's.
fn pinned(reader: &mut Reader<'_>, view: &View<'_, '_>, service: &Service) -> Option<Image> {
    let name = service.image.clone()?;
    let id = one(reader, view, "image_id", image::image_id);
    let pin = one(reader, view, "image", image::image);
    if id.is_some() && pin.is_some() {
        let message = "`image` and `image_id` both say what the container is made of";
        let help = "keep `image` for what a registry knows by this digest, `image_id` for what the engine alone holds";
        reader.report(Code::Contradiction, view.span_of("image_id"), message, help);
    }
    let written = match image::image(&name) {
        Ok(written) => written,
        Err(_) => {
            let message = format!("`{name}` is not the name of an image");
            let mistake =
                Diagnostic::new(Code::WrongValue, message, "correct `image` of the service");
            reader.mistakes.push(placed(mistake, &service.place));
            return None;
        }
    };
    let same = |pin: &Image| match pin {
        Image::Digest { reference, .. } => reference.split('@').next() == name.split('@').next(),
        _ => false,
    };
    match (written, pin, id) {
        (Image::Digest { .. }, None, Some(_)) => {
            let message = format!("the service says `{name}`");
            let help = "remove `image_id` here: the service pins its image itself";
            reader.report(Code::Contradiction, view.span_of("image_id"), message, help);
            None
        }
        (_, None, Some(id)) => Some(id),
        (Image::Tag(_), Some(Image::Digest { .. }), None) if service.built => {
            let message = format!(
                "the service builds its image, `{name}`, and `image` says what a registry has by that name"
            );
            let help =
                "`escape-audit pin` writes `image_id` in its place: the id of what was built";
            reader.report(Code::Contradiction, view.span_of("image"), message, help);
            None
        }
        (Image::Digest { .. }, Some(pin), _) if pin.to_string() != name => {
            let message = format!("the service says `{name}`");
            let help = "remove `image` here: the service pins its image itself";
            reader.report(Code::Contradiction, view.span_of("image"), message, help);
            None
        }
        (_, Some(pin @ Image::Digest { .. }), _) if same(&pin) => Some(pin),
        (written @ Image::Digest { .. }, ..) => Some(written),
        (_, Some(_), _) if view.has("image") => {
            let message =
                format!("`image` has to be that of the service, `{name}`, with its digest");
            let help = "`escape-audit pin` writes it";
            reader.report(Code::Contradiction, view.span_of("image"), message, help);
            None
        }
        (tag, ..) if view.flag("allow_tag") == Some(true) => Some(tag),
        _ if view.is_bad("image") || view.is_bad("image_id") => None,
        _ => {
            let (message, help) = match service.built {
                true => (
                    format!(
                        "the service builds its image, `{name}`, and nothing says which one is meant"
                    ),
                    format!(
                        "build it, then `escape-audit pin` writes `image_id = \"sha256:…\"` beside `service`; by hand: \
                         `docker image inspect --format '{{{{.Id}}}}' {name}`"
                    ),
                ),
                false => (
                    format!("the service's image `{name}` is not pinned by a digest"),
                    format!(
                        "`escape-audit pin` writes `image = \"{name}@sha256:…\"` beside `service`; or say `allow_tag = true` there"
                    ),
                ),
            };
            let mistake = Diagnostic::new(Code::NotPinned, message, help);
            let here = Place::bytes(reader.source, view.span_of("service"), "");
            let mut mistake = placed(mistake, &service.place).and(here);
            std::mem::swap(&mut mistake.place, &mut mistake.other);
            reader.mistakes.push(mistake);
            None
        }
    }
}

fn placed(mut mistake: Diagnostic, place: &Place) -> Diagnostic {
    mistake.place = Some(place.clone());
    mistake
}

#[cfg(test)]
#[path = "compose_tests.rs"]
mod tests;
