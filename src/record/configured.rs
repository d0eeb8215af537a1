//! A sandbox as the project file configures it, in the form that a record holds and `verify` compares.
//!
//! The image is not a setting here but the subject of the record, and where an engine listens is no property of a
//! sandbox. What may hold a secret (the values of variables, a launcher's arguments) stands there as one hash.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::canonical;
use crate::case::Level;
use crate::config::{BackendKind, Image, Sandbox, VolumeSource};

/// What one sandbox is configured to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Configured {
    /// Its name.
    pub name: String,
    /// The level of its policy.
    pub level: Level,
    /// Its settings, by name.
    pub settings: Map<String, Value>,
    /// Its policy, by name; the level is in it.
    pub policy: Map<String, Value>,
    /// The image that it is pinned to, `sha256:…`, where the project file names one.
    pub image: Option<String>,
    /// It is made of an image, which a record has to name.
    pub has_image: bool,
}

impl Configured {
    /// Of this sandbox. `folder` is the project file's own: a path below it is written relative to it, so that the
    /// project may lie elsewhere on the machine that verifies. `files` are the files that the settings name, with the
    /// SHA-256 of what is in them.
    pub fn of(sandbox: &Sandbox, folder: &Path, files: &[(String, String)]) -> Self {
        let mut inner = sandbox.settings.clone();
        for path in inner.rootfs.iter_mut().chain(&mut inner.seccomp_profile) {
            *path = below(path, folder);
        }
        for volume in &mut inner.volumes {
            if let VolumeSource::Host(path) = &mut volume.source {
                *path = below(path, folder);
            }
        }
        let mut settings = members(&inner);
        settings.remove("image");
        settings.remove("engine");
        let environment = match &inner.environment[..] {
            [] => Value::Null,
            pairs => json!({
                "names": pairs.iter().map(|(name, _)| name).collect::<Vec<_>>(),
                "sha256": canonical::sha256(&json!(pairs)),
            }),
        };
        settings.insert("environment".into(), environment);
        let command = match sandbox.command.first() {
            None => Value::Null,
            Some(program) => json!({
                "program": program,
                "arguments": sandbox.command.len() - 1,
                "sha256": canonical::sha256(&json!(sandbox.command)),
            }),
        };
        settings.insert("command".into(), command);
        settings.insert("backend".into(), json!(sandbox.backend.name()));
        settings.insert("range".into(), json!(sandbox.range));
        settings.insert("without".into(), json!(sandbox.without));
        let files: Map<String, Value> = files
            .iter()
            .map(|(name, digest)| {
                (
                    below(Path::new(name), folder).display().to_string(),
                    json!(digest),
                )
            })
            .collect();
        settings.insert("files".into(), files.into());
        Self {
            name: sandbox.name.clone(),
            level: sandbox.policy.level,
            settings,
            policy: members(&sandbox.policy),
            image: match &sandbox.settings.image {
                Some(Image::Digest { digest, .. } | Image::Id(digest)) => Some(digest.clone()),
                Some(Image::Tag(_)) | None => None,
            },
            has_image: sandbox.backend == BackendKind::Docker,
        }
    }
}

/// The members of what is written as an object, their numbers as a record holds them.
fn members(value: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(value).map(canonical::plain) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    }
}

fn below(path: &Path, folder: &Path) -> std::path::PathBuf {
    match path.strip_prefix(folder) {
        Ok(rest) if !folder.as_os_str().is_empty() => rest.to_owned(),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn of(change: impl FnOnce(&mut Sandbox)) -> Configured {
        let mut sandbox = Sandbox::new("agent", BackendKind::Docker);
        change(&mut sandbox);
        Configured::of(&sandbox, Path::new("/project"), &[])
    }

    fn settings(change: impl FnOnce(&mut Sandbox)) -> String {
        canonical::text(&of(change).settings.into())
    }

    #[test]
    fn every_setting_counts_but_the_image_and_where_the_engine_listens() {
        let plain = settings(|_| {});
        let image = |sandbox: &mut Sandbox| {
            sandbox.settings.image = Some(Image::Id("sha256:00".into()));
            sandbox.settings.engine = Some("unix:///run/other.sock".into());
        };
        assert_eq!(settings(image), plain);
        assert_eq!(of(image).image.as_deref(), Some("sha256:00"));
        let changes: [fn(&mut Sandbox); 6] = [
            |sandbox| sandbox.settings.mem_limit = Some(1),
            |sandbox| sandbox.settings.environment = vec![("A".into(), "x".into())],
            |sandbox| sandbox.settings.environment = vec![("A".into(), "y".into())],
            |sandbox| sandbox.command = vec!["runner".into(), "--token=x".into()],
            |sandbox| sandbox.command = vec!["runner".into(), "--token=y".into()],
            |sandbox| sandbox.without = [crate::protection::Protection::Pids].into(),
        ];
        let mut seen = vec![plain];
        for change in changes {
            let text = settings(change);
            assert!(!seen.contains(&text), "{text}");
            assert!(!text.contains("token"), "{text}");
            seen.push(text);
        }
    }

    #[test]
    fn a_path_of_the_project_is_relative_to_it() {
        let of = |path: &str| {
            settings(|sandbox| sandbox.settings.seccomp_profile = Some(PathBuf::from(path)))
        };
        assert!(of("/project/filters/a.json").contains("\"filters/a.json\""));
        assert!(of("/elsewhere/a.json").contains("\"/elsewhere/a.json\""));
    }
}
