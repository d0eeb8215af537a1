//! Which sandboxes of a project file name an image that no digest pins, or whose pin is not that of the name any more.

use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use super::compose_project;
use super::compose_service::File;
use super::image;
use super::model::Image;
use crate::diag::{Code, Diagnostic, Diagnostics, Source};

/// A sandbox whose image is called by a name that may mean another one tomorrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpinned {
    /// The sandbox.
    pub sandbox: String,
    /// What the image is called.
    pub name: String,
    /// It is built, so that it has an id and no digest.
    pub built: bool,
    /// A Compose file names it; the pin stands beside `service`.
    pub composed: bool,
    /// What `image` or `image_id` says now.
    pub have: Option<String>,
    /// The sandbox's own `docker_host`.
    pub engine: Option<String>,
    /// Where a mistake about it is told: the bytes of `image`, or of `service`.
    pub at: Range<usize>,
    /// Where `image` and `image_id` say what they do now, which a pin is written over.
    pub pins: Vec<Range<usize>>,
}

/// The mistakes of a project file that are not mended by pinning what is open in it.
pub fn beyond(mut mistakes: Diagnostics, source: &Source, open: &[Unpinned]) -> Diagnostics {
    let mended = |mistake: &Diagnostic| {
        let place = mistake.place.as_ref();
        let at = place.filter(|place| place.path == source.path);
        let at = at.and_then(|place| Some(&place.span.as_ref()?.1));
        let is_pin = || {
            open.iter()
                .any(|open| at.is_some_and(|at| open.pins.contains(at)))
        };
        mistake.code == Code::NotPinned || is_pin()
    };
    mistakes.retain(|mistake| !mended(mistake));
    mistakes
}

/// The sandboxes whose pin an engine has to be asked for, in the order of the file. What cannot be read is left out: whoever
/// loads the file is told.
pub fn unpinned(source: &Source) -> Vec<Unpinned> {
    let (document, _) = DeTable::parse_recoverable(&source.text);
    let sandboxes = document.get_ref().get("sandbox");
    let Some(sandboxes) = sandboxes.and_then(|all| all.get_ref().as_table()) else {
        return Vec::new();
    };
    let mut found: Vec<Unpinned> = sandboxes
        .iter()
        .filter_map(|(name, table)| of(source, name.get_ref(), table.get_ref().as_table()?))
        .collect();
    found.sort_by_key(|unpinned| unpinned.at.start);
    found
}

fn of(source: &Source, sandbox: &str, table: &DeTable<'_>) -> Option<Unpinned> {
    let text = |key: &str| Some(table.get(key)?.get_ref().as_str()?.to_owned());
    let at = |key: &str| table.get(key).map(toml::Spanned::span);
    if text("backend")? != "docker" {
        return None;
    }
    let (image, id) = (text("image"), text("image_id"));
    let mut unpinned = Unpinned {
        sandbox: sandbox.to_owned(),
        name: String::new(),
        built: false,
        composed: false,
        have: image.clone().or(id),
        engine: text("docker_host"),
        at: at("image").unwrap_or_default(),
        pins: at("image").into_iter().chain(at("image_id")).collect(),
    };
    let Some(compose) = text("compose") else {
        unpinned.name = image?;
        let is_tag = matches!(image::image(&unpinned.name), Ok(Image::Tag(_)));
        return is_tag.then_some(unpinned);
    };
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let around = compose_project::machine();
    let file = File::read(&folder.join(compose), &around).ok()?;
    let service = compose_project::read(&file, &text("service")?).ok()?;
    unpinned.name = service.image?;
    unpinned.composed = true;
    unpinned.built = service.built;
    unpinned.at = at("service").unwrap_or_default();
    let pinned =
        image.is_some_and(|pin| pin.split('@').next() == Some(&unpinned.name) && pin.contains('@'));
    let open =
        matches!(image::image(&unpinned.name), Ok(Image::Tag(_))) && (service.built || !pinned);
    open.then_some(unpinned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use std::fs;

    #[test]
    fn tags_are_found_and_what_is_pinned_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let digest = format!("sha256:{}", "0a".repeat(32));
        let compose = format!(
            "services:\n  tag: {{image: 'busybox:1'}}\n  pinned: {{image: 'busybox@{digest}'}}\n  built: {{build: ., image: mine}}\n"
        );
        fs::write(folder.path().join("c.yaml"), compose).expect("written");
        let composed = |name: &str, service: &str, more: &str| {
            format!(
                "[sandbox.{name}]\nbackend = 'docker'\ncompose = 'c.yaml'\nservice = '{service}'\n{more}\n"
            )
        };
        let text = [
            "[sandbox.a]\nbackend = 'docker'\nimage = 'python:3'\ndocker_host = 'unix:///x'\n"
                .into(),
            format!("[sandbox.b]\nbackend = 'docker'\nimage = 'python:3@{digest}'\n"),
            "[sandbox.c]\nbackend = 'oci'\n".into(),
            composed("d", "tag", ""),
            composed("e", "tag", &format!("image = 'busybox:1@{digest}'")),
            composed("f", "tag", &format!("image = 'busybox:0@{digest}'")),
            composed("g", "pinned", ""),
            composed("h", "built", &format!("image_id = '{digest}'")),
        ]
        .concat();
        let found = unpinned(&Source::new(folder.path().join("p.toml"), &text));
        let names: Vec<(&str, &str)> = found
            .iter()
            .map(|u| (u.sandbox.as_str(), u.name.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                ("a", "python:3"),
                ("d", "busybox:1"),
                ("f", "busybox:1"),
                ("h", "mine")
            ]
        );
        assert_eq!(&text[found[0].at.clone()], "'python:3'");
        assert_eq!(
            (found[0].engine.as_deref(), found[0].composed),
            (Some("unix:///x"), false)
        );
        assert_eq!(&text[found[1].at.clone()], "'tag'");
        assert!(found[3].built && found[3].have.as_deref() == Some(&*digest));
    }

    /// A file with another mistake in it is not one whose images are all pinned.
    #[test]
    fn what_pinning_does_not_mend_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let digest = format!("sha256:{}", "0a".repeat(32));
        fs::write(
            folder.path().join("c.yaml"),
            "services: {built: {build: ., image: mine}, tag: {image: 'busybox:1'}}",
        )
        .expect("written");
        let composed = |service: &str, more: &str| {
            format!(
                "[sandbox.a]\nbackend = 'docker'\ncompose = 'c.yaml'\nservice = '{service}'\n{more}\n"
            )
        };
        let left = |text: &str| {
            let source = Source::new(folder.path().join("p.toml"), text);
            let mistakes = parse(&source).expect_err("a mistake");
            let left = beyond(mistakes, &source, &unpinned(&source));
            left.iter()
                .map(|mistake| mistake.code.name())
                .collect::<Vec<_>>()
        };
        let tag = "[sandbox.a]\nbackend = 'docker'\nimage = 'python:3'\n";
        for mended in [
            tag.to_owned(),
            composed("tag", ""),
            composed("tag", &format!("image = 'busybox:0@{digest}'")),
            composed("built", &format!("image = 'mine@{digest}'")),
        ] {
            assert_eq!(left(&mended), [""; 0], "{mended}");
        }
        for (text, code) in [
            (format!("{tag}red_only = true\n"), "unknown-key"),
            (format!("{tag}[[gate.waiver]]\ncase = 'x'\n"), "missing-key"),
            (composed("tag", "read_only = true"), "contradiction"),
            (
                format!(
                    "[sandbox.a]\nbackend = 'docker'\nimage = 'a@{digest}'\nimage_id = '{digest}'\n"
                ),
                "contradiction",
            ),
        ] {
            assert!(left(&text).contains(&code), "{text} {:?}", left(&text));
        }
    }
}
