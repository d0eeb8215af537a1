//! What a name means today: the digest or the id that pins it, asked of the engine.

use super::call::{Phase, call, status};
use super::engine::Engine;
use super::image::{ImageFacts, inspect};
use crate::backend::BackendError;

/// What pins an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// A registry knows it by this digest: the whole reference, `python:3.12@sha256:…`.
    Digest(String),
    /// The engine alone holds it: its id.
    Id(String),
}

impl Pin {
    /// The key of the project file, and its value.
    pub fn line(&self) -> (&'static str, &str) {
        match self {
            Self::Digest(reference) => ("image", reference),
            Self::Id(id) => ("image_id", id),
        }
    }
}

/// What the engine itself holds by this name; `None`: nothing. Nothing leaves the engine's machine. `built`: it is built here.
pub async fn local(engine: &Engine, name: &str, built: bool) -> Result<Option<Pin>, BackendError> {
    let found = inspect(engine, name).await?;
    Ok(found.map(|facts| of(name, &facts, built)))
}

/// What the registry means by this name, asked through the engine.
pub async fn remote(engine: &Engine, name: &str) -> Result<Pin, BackendError> {
    let asked = async {
        match engine.docker.inspect_registry_image(name, None).await {
            Ok(found) => Ok(found.descriptor.digest),
            Err(error) if matches!(status(&error), Some(401 | 403 | 404)) => Ok(None),
            Err(error) => Err(error),
        }
    };
    match call(Phase::InspectImage, asked).await? {
        Some(digest) => Ok(Pin::Digest(format!("{name}@{digest}"))),
        None => {
            let text = format!("the engine does not hold `{name}`, and no registry answers for it");
            Err(BackendError::new("image-missing", text)
                .help("check the name; pull it (`docker pull`) or build it first"))
        }
    }
}

/// By the digest that this very repository gave it; without one, by its id. Of what is built the id alone counts: engines
/// give it a digest, too, by which no registry has to know it.
fn of(name: &str, facts: &ImageFacts, built: bool) -> Pin {
    let repository = repository(name);
    let mut known = facts.repo_digests.iter().filter(|_| !built);
    let digest = known.find_map(|known| {
        let (there, digest) = known.split_once('@')?;
        (plain(there) == repository).then_some(digest)
    });
    match digest {
        Some(digest) => Pin::Digest(format!("{name}@{digest}")),
        None => Pin::Id(facts.id.clone()),
    }
}

/// A name without its tag.
fn repository(name: &str) -> &str {
    let (folder, last) = match name.rsplit_once('/') {
        Some((folder, last)) => (folder.len() + 1, last),
        None => (0, name),
    };
    let end = last.find(':').unwrap_or(last.len());
    plain(&name[..folder + end])
}

/// Podman writes the default registry out.
fn plain(repository: &str) -> &str {
    let short = repository.strip_prefix("docker.io/").unwrap_or(repository);
    short.strip_prefix("library/").unwrap_or(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_same_repository() {
        let facts = ImageFacts {
            id: "sha256:id".into(),
            repo_digests: vec![
                "h.test:5000/python@sha256:other".into(),
                "docker.io/library/python@sha256:own".into(),
            ],
            ..ImageFacts::default()
        };
        let digest = |text: &str| Pin::Digest(text.into());
        assert_eq!(
            of("python:3.12", &facts, false),
            digest("python:3.12@sha256:own")
        );
        assert_eq!(of("python", &facts, false), digest("python@sha256:own"));
        let private = digest("h.test:5000/python:3@sha256:other");
        assert_eq!(of("h.test:5000/python:3", &facts, false), private);
        let id = Pin::Id("sha256:id".into());
        assert_eq!(of("python:3.12", &facts, true), id);
        assert_eq!(of("mine", &facts, false), Pin::Id("sha256:id".into()));
        assert_eq!(
            of("h.test:5000/mine", &facts, false),
            Pin::Id("sha256:id".into())
        );
    }
}
