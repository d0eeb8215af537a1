//! The image: found or pulled, and proven to be the one that was asked for.
//!
//! An image has up to four digests : its own id, its manifest's, the index's, and what a registry called it. Containers
//! are created from the inspected **id**, so that nothing can move in between; the report holds all of them.

use bollard::errors::Error;
use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::{Stream, StreamExt, pin_mut};

use super::call::{Phase, answer, call, explain, status};
use super::engine::{Engine, as_images_say};
use crate::backend::BackendError;
use crate::config::Image;

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
    progress: &mut dyn FnMut(&str),
) -> Result<ImageFacts, BackendError> {
    let name = name(image);
    let facts = match inspect(engine, &name).await? {
        Some(facts) => facts,
        None if matches!(image, Image::Id(_)) => return Err(not_there(image)),
        None => {
            pull(engine, &name, progress).await?;
            inspect(engine, &name)
                .await?
                .ok_or_else(|| not_there(image))?
        }
    };
    verify(image, &facts)?;
    fits(engine, image, &facts)?;
    Ok(facts)
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

async fn inspect(engine: &Engine, name: &str) -> Result<Option<ImageFacts>, BackendError> {
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

/// Pulls, for as long as there is news.
async fn pull(
    engine: &Engine,
    name: &str,
    progress: &mut dyn FnMut(&str),
) -> Result<(), BackendError> {
    let options = CreateImageOptionsBuilder::default()
        .from_image(name)
        .build();
    let news = engine.docker.create_image(Some(options), None, None);
    follow(name, news, progress).await
}

/// Reads a pull's news to its end. Errors come inside the stream, after a status that says that all is well.
async fn follow(
    name: &str,
    news: impl Stream<Item = Result<CreateImageInfo, Error>>,
    progress: &mut dyn FnMut(&str),
) -> Result<(), BackendError> {
    pin_mut!(news);
    loop {
        let next = tokio::time::timeout(Phase::Pull.deadline(), news.next());
        match next.await {
            Err(_) => return Err(silent(name)),
            Ok(None) => return Ok(()),
            Ok(Some(Ok(step))) => progress(&line(&step)),
            Ok(Some(Err(error))) => return Err(refusal(name, &error)),
        }
    }
}

fn line(step: &CreateImageInfo) -> String {
    let what = step.status.as_deref().unwrap_or_default();
    let layer = step.id.as_deref().unwrap_or_default();
    let share = step.progress_detail.as_ref().and_then(|detail| {
        let (now, all) = (detail.current?, detail.total.filter(|all| *all > 0)?);
        Some(format!(" {}%", now.saturating_mul(100) / all))
    });
    format!("{layer} {what}{}", share.unwrap_or_default())
        .trim()
        .to_owned()
}

fn silent(name: &str) -> BackendError {
    let text = format!(
        "pull `{name}`: no news from the engine for {} s",
        Phase::Pull.deadline().as_secs()
    );
    BackendError::new("registry-timeout", text)
        .help("the registry hangs or the line is down; try `docker pull` yourself")
}

/// What the registry said, in the engine's words, wherever they came: as a status, or inside the stream.
fn refusal(name: &str, error: &Error) -> BackendError {
    let (status, words) = match (error, answer(error)) {
        (Error::DockerStreamError { error }, _) => (0, error.as_str()),
        (_, Some((status, words))) => (status, words),
        _ => return explain(Phase::Pull, error),
    };
    let (code, help) = classify(status, words);
    BackendError::new(code, format!("pull `{name}`: {}", words.trim())).help(help)
}

/// Engines hand a registry's status on as text, or as another status; the words are the more reliable.
fn classify(status: u16, words: &str) -> (&'static str, &'static str) {
    let low = words.to_lowercase();
    let says = |list: &[&str]| list.iter().any(|word| low.contains(word));
    if says(&["toomanyrequests", "too many requests", "rate limit", " 429"]) || status == 429 {
        let help = "wait, log in to the registry, or pull through a mirror";
        return ("registry-rate-limited", help);
    }
    let denied = ["unauthorized", "authentication required", "denied"];
    if says(&denied) || says(&["no basic auth", " 401", " 403"]) || matches!(status, 401 | 403) {
        let help = "pull it yourself first (`docker login`, then `docker pull`): it is then found by its digest. Registries also say this of a repository that does not exist";
        return ("registry-unauthorized", help);
    }
    if says(&["not found", "manifest unknown", "name unknown", " 404"]) || status == 404 {
        let help = "check the name and the digest: the registry has no such image";
        return ("image-missing", help);
    }
    if says(&[
        "no matching manifest",
        "does not match the specified platform",
    ]) {
        let help = "the image was not built for the engine's architecture";
        return ("image-architecture", help);
    }
    let lost = [
        "no such host",
        "connection refused",
        "network is unreachable",
    ];
    if says(&lost) || says(&["timeout", "deadline exceeded", "awaiting headers"]) {
        let help = "the engine does not reach the registry: check its network and its proxy";
        return ("registry-unreachable", help);
    }
    (
        "registry-failed",
        "try `docker pull` yourself: it is the engine's answer",
    )
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
    use futures_util::stream;

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

    #[test]
    fn what_a_registry_refuses_has_a_code_whoever_wraps_it() {
        let cases = [
            (
                404,
                "manifest for a@sha256:0 not found: manifest unknown",
                "image-missing",
            ),
            (
                500,
                "unauthorized: authentication required",
                "registry-unauthorized",
            ),
            (
                404,
                "pull access denied for a, repository does not exist or may require 'docker login'",
                "registry-unauthorized",
            ),
            (
                0,
                "toomanyrequests: You have reached your pull rate limit",
                "registry-rate-limited",
            ),
            (
                500,
                "received unexpected HTTP status: 429 Too Many Requests",
                "registry-rate-limited",
            ),
            (
                500,
                "Get \"http://x/v2/\": dial tcp: lookup x: no such host",
                "registry-unreachable",
            ),
            (
                0,
                "no matching manifest for linux/amd64 in the manifest list entries",
                "image-architecture",
            ),
            (500, "something else", "registry-failed"),
        ];
        for (status, words, code) in cases {
            assert_eq!(classify(status, words).0, code, "{words}");
        }
    }

    #[tokio::test]
    async fn an_error_inside_the_stream_ends_a_pull() {
        let step = CreateImageInfo {
            status: Some("Pulling".into()),
            ..CreateImageInfo::default()
        };
        let refused = Error::DockerStreamError {
            error: "toomanyrequests: slow down".into(),
        };
        let mut heard = Vec::new();
        let news = stream::iter([Ok(step), Err(refused)]);
        let error = follow("a", news, &mut |line| heard.push(line.to_owned())).await;
        assert_eq!(error.expect_err("refused").code, "registry-rate-limited");
        assert_eq!(heard, ["Pulling"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pull_without_news_is_given_up() {
        let error = follow("a", stream::pending(), &mut |_| {}).await;
        assert_eq!(error.expect_err("silent").code, "registry-timeout");
    }
}
