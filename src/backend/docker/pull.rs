//! An image is pulled: with a deadline on silence and none on the whole, and with a registry's refusals told apart.

use bollard::errors::Error;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::{Stream, StreamExt, pin_mut};

use super::call::{Phase, answer, explain};
use super::engine::Engine;
use crate::backend::BackendError;

/// Pulls the image of this name, for as long as there is news; `progress` hears of it.
pub async fn pull(
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

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
