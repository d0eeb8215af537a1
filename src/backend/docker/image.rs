//! The image: found or pulled, and proven to be the one that was asked for.
//!
//! An image has up to four digests : its own id, its manifest's, the index's, and what a registry called it. Containers
//! are created from the inspected **id**, so that nothing can move in between; the report holds all of them.

use bollard::models::ImageInspect;

use super::call::{Phase, call, status};
use super::engine::{Engine, as_images_say};
use super::pull::pull;
use crate::backend::BackendError;
use crate::config::Image;
use crate::config::model::Deployed;

/// What the engine says of the image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageFacts {
    /// The id that containers are created from.
    pub id: String,
    /// What registries call it: `repository@sha256:…`.
    pub repo_digests: Vec<String>,
    /// The descriptor's digest, where the engine keeps one.
    pub descriptor: Option<String>,
    /// `linux`.
    pub os: String,
    /// `amd64`.
    pub architecture: String,
    /// Whom it runs as; empty: root.
    pub user: String,
    /// The folders that get a volume of their own in every container: writable and unsized, whatever `read_only` says.
    pub volumes: Vec<String>,
    /// It brings a health check, which would run beside the probe; we switch it off.
    pub healthcheck: bool,
    /// The names of the variables that it sets. They come in beside ours.
    pub environment: Vec<String>,
}

impl ImageFacts {
    /// The digest that pins it, for the report: what the registry calls it, else the id.
    pub fn digest(&self) -> String {
        let registry = self.repo_digests.first();
        registry.unwrap_or(&self.id).clone()
    }

    /// Name and value, for the report.
    pub fn listed(&self) -> Vec<(String, String)> {
        let health = if self.healthcheck { "switched off" } else { "" };
        let descriptor = self.descriptor.clone().unwrap_or_default();
        let facts = [
            ("image id", self.id.clone()),
            ("image digests", self.repo_digests.join(" ")),
            ("image descriptor", descriptor),
            (
                "image platform",
                format!("{}/{}", self.os, self.architecture),
            ),
            ("image user", self.user.clone()),
            ("image volumes", self.volumes.join(" ")),
            ("image health check", health.to_owned()),
            ("image variables", self.environment.join(" ")),
        ];
        facts
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn of(image: ImageInspect) -> Self {
        let config = image.config.unwrap_or_default();
        let test = config.healthcheck.and_then(|check| check.test);
        let none = |test: &[String]| test.is_empty() || test == ["NONE"];
        let name = |pair: &String| pair.split('=').next().unwrap_or_default().to_owned();
        let id = image.id.unwrap_or_default();
        Self {
            id: with_algorithm(&id),
            repo_digests: image.repo_digests.unwrap_or_default(),
            descriptor: image.descriptor.and_then(|descriptor| descriptor.digest),
            os: image.os.unwrap_or_default(),
            architecture: image.architecture.unwrap_or_default(),
            user: config.user.unwrap_or_default(),
            volumes: config.volumes.unwrap_or_default(),
            healthcheck: test.is_some_and(|test| !none(&test)),
            environment: config.env.unwrap_or_default().iter().map(name).collect(),
        }
    }

    /// Whether it is the image of this digest.
    fn carries(&self, digest: &str) -> bool {
        self.descriptor.as_deref() == Some(digest)
            || self
                .repo_digests
                .iter()
                .any(|known| known.rsplit_once('@').map(|(_, digest)| digest) == Some(digest))
    }
}

/// Podman leaves the algorithm out.
pub fn with_algorithm(id: &str) -> String {
    match id.contains(':') || id.is_empty() {
        true => id.to_owned(),
        false => format!("sha256:{id}"),
    }
}

/// Finds the image, pulls it where it is missing and may be pulled, and proves that it is the one. `progress` hears of
/// a pull, a line now and then.
pub async fn resolve(
    engine: &Engine,
    image: &Image,
    deployed: Option<&Deployed>,
    progress: &mut dyn FnMut(&str),
) -> Result<ImageFacts, BackendError> {
    let name = name(image);
    let facts = match inspect(engine, &name).await? {
        Some(facts) => facts,
        None if matches!(image, Image::Id(_)) => return Err(not_there(image)),
        None if deployed.is_some_and(|deployed| deployed.built) => return Err(not_built(image)),
        None => {
            pull(engine, &name, progress).await?;
            inspect(engine, &name)
                .await?
                .ok_or_else(|| not_there(image))?
        }
    };
    verify(image, &facts)?;
    fits(engine, image, &facts)?;
    if let Some(deployed) = deployed {
        is_deployed(engine, image, deployed, &facts).await?;
    }
    Ok(facts)
}

/// What is pinned has to be what is deployed. By name, the engine that deploys it may hold another image by now; one that is
/// pinned by its id alone has to be there under that name, for nothing else ties the two together.
async fn is_deployed(
    engine: &Engine,
    image: &Image,
    deployed: &Deployed,
    facts: &ImageFacts,
) -> Result<(), BackendError> {
    let name = match deployed.name.contains('@') || has_tag(&deployed.name) {
        true => deployed.name.clone(),
        false => format!("{}:latest", deployed.name),
    };
    match inspect(engine, &name).await? {
        Some(there) if there.id == facts.id => Ok(()),
        Some(there) => {
            let text = format!(
                "the service's image `{name}` is {} on this engine, and what is pinned, `{image}`, is {}",
                there.id, facts.id
            );
            Err(BackendError::new("digest-mismatch", text)
                .help("`escape-audit pin` pins what is deployed now; nothing was run"))
        }
        None if matches!(image, Image::Id(_)) => {
            let text = format!(
                "the service's image `{name}` is not on this engine: nothing shows that it is what is pinned, `{image}`"
            );
            Err(BackendError::new("image-missing", text)
                .help("build or pull it, and then `escape-audit pin`"))
        }
        None => Ok(()),
    }
}

fn not_built(image: &Image) -> BackendError {
    let text = format!("the engine has no image `{image}`, and the service builds it");
    BackendError::new("image-missing", text).help(
        "build it first (`docker compose build`): a registry's image of that name would be a stranger's",
    )
}

/// What the engine is asked for: by digest without the tag, which says nothing beside it.
fn name(image: &Image) -> String {
    match image {
        Image::Id(id) => id.clone(),
        Image::Tag(reference) => match has_tag(reference) {
            true => reference.clone(),
            false => format!("{reference}:latest"),
        },
        Image::Digest { reference, digest } => {
            let name = reference.split('@').next().unwrap_or_default();
            let name = match has_tag(name) {
                true => name.rsplit_once(':').map_or(name, |(name, _)| name),
                false => name,
            };
            format!("{name}@{digest}")
        }
    }
}

/// A colon in the last part of a name begins a tag; one before belongs to the registry's port.
fn has_tag(name: &str) -> bool {
    name.rsplit('/')
        .next()
        .is_some_and(|last| last.contains(':'))
}

pub(super) async fn inspect(
    engine: &Engine,
    name: &str,
) -> Result<Option<ImageFacts>, BackendError> {
    let found = async {
        match engine.docker.inspect_image(name).await {
            Ok(image) => Ok(Some(ImageFacts::of(image))),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    };
    call(Phase::InspectImage, found).await
}

fn not_there(image: &Image) -> BackendError {
    let text = format!("the engine has no image `{image}`");
    BackendError::new("image-missing", text).help(match image {
        Image::Id(_) => "an image that is pinned by its id is never pulled: build or load it first",
        _ => "check the name, and whether the engine can reach the registry",
    })
}

/// It has to be the very image.
fn verify(image: &Image, facts: &ImageFacts) -> Result<(), BackendError> {
    let expected = match image {
        Image::Tag(_) => return Ok(()),
        Image::Id(id) if facts.id == with_algorithm(id) => return Ok(()),
        Image::Digest { digest, .. } if facts.carries(digest) => return Ok(()),
        Image::Id(id) => id,
        Image::Digest { digest, .. } => digest,
    };
    let text = format!(
        "the engine's image for `{image}` is not {expected}: its id is {}, its digests are [{}]",
        facts.id,
        facts.repo_digests.join(", ")
    );
    Err(BackendError::new("digest-mismatch", text)
        .help("remove the image from the engine and let it be pulled again; nothing was run"))
}

/// The probe is of this machine's architecture, and so has the engine to be; an image for another one would run, if at
/// all, by emulation.
fn fits(engine: &Engine, image: &Image, facts: &ImageFacts) -> Result<(), BackendError> {
    let ours = as_images_say(std::env::consts::ARCH);
    let (engines, images) = (
        engine.facts.architecture.as_str(),
        facts.architecture.as_str(),
    );
    if !engines.is_empty() && engines != ours {
        let text = format!("the engine runs on {engines}, and this program's probe is for {ours}");
        return Err(BackendError::new("engine-architecture", text)
            .help(format!("run escape-audit for {engines}")));
    }
    let linux = facts.os.is_empty() || facts.os == "linux";
    if linux && (images.is_empty() || as_images_say(images) == ours) {
        return Ok(());
    }
    let text = format!(
        "the image `{image}` is for {}/{images}, and the engine runs on linux/{ours}",
        facts.os
    );
    Err(BackendError::new("image-architecture", text)
        .help("pin the digest of this platform's own manifest, or build the image for it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123";

    fn pinned(reference: &str) -> Image {
        Image::Digest {
            reference: reference.into(),
            digest: DIGEST.into(),
        }
    }

    #[test]
    fn an_image_is_asked_for_by_its_digest_alone() {
        let cases = [
            ("python:3.12@sha256:0123", "python@sha256:0123"),
            ("h.test:5000/a/b@sha256:0123", "h.test:5000/a/b@sha256:0123"),
            ("h.test:5000/b:1@sha256:0123", "h.test:5000/b@sha256:0123"),
        ];
        for (written, asked) in cases {
            assert_eq!(name(&pinned(written)), asked);
        }
        assert_eq!(name(&Image::Tag("a:b".into())), "a:b");
        assert_eq!(name(&Image::Tag("h:5000/a".into())), "h:5000/a:latest");
    }

    #[test]
    fn another_image_under_the_same_name_is_a_mismatch() {
        let facts = ImageFacts {
            id: "sha256:aa".into(),
            repo_digests: vec!["python@sha256:0123".into()],
            ..ImageFacts::default()
        };
        assert!(verify(&pinned("python@sha256:0123"), &facts).is_ok());
        assert!(verify(&Image::Id("sha256:aa".into()), &facts).is_ok());
        assert!(verify(&Image::Id("aa".into()), &facts).is_ok());
        let other = ImageFacts {
            repo_digests: vec!["python@sha256:0124".into()],
            ..facts
        };
        let error = verify(&pinned("python@sha256:0123"), &other).expect_err("another");
        assert_eq!(error.code, "digest-mismatch");
        assert!(verify(&Image::Id("sha256:ab".into()), &other).is_err());
    }
}
