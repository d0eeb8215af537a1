//! One call to the engine: with a deadline of its own, and with an error that says what was being done.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::time::Duration;

use bollard::errors::Error;

use crate::backend::BackendError;

/// What the engine is being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Phase {
    Connect,
    Identify,
    InspectImage,
    Pull,
    Create,
    Upload,
    Download,
    Attach,
    Start,
    Inspect,
    Wait,
    Kill,
    Remove,
    List,
}

impl Phase {
    /// In an error: what was being done.
    pub fn doing(self) -> &'static str {
        match self {
            Self::Connect => "connect to the container engine",
            Self::Identify => "ask the engine who it is",
            Self::InspectImage => "look at the image",
            Self::Pull => "pull the image",
            Self::Create => "create the container",
            Self::Upload => "bring the probe to the engine",
            Self::Download => "read the probe back from the engine",
            Self::Attach => "attach to the container",
            Self::Start => "start the container",
            Self::Inspect => "look at the container",
            Self::Wait => "wait for the container",
            Self::Kill => "stop the container",
            Self::Remove => "remove the container",
            Self::List => "list what earlier runs left",
        }
    }

    /// How long the engine may take to answer. For a pull: how long it may stay silent.
    pub fn deadline(self) -> Duration {
        Duration::from_secs(match self {
            Self::Connect | Self::Identify | Self::InspectImage | Self::Attach => 10,
            Self::Inspect | Self::Kill | Self::List => 10,
            Self::Create | Self::Upload | Self::Download | Self::Start | Self::Remove => 30,
            Self::Pull => 60,
            // A container's end is bounded by the trial, not here.
            Self::Wait => 3600,
        })
    }
}

/// Waits for an answer, but not beyond the phase's deadline.
pub async fn call<T>(
    phase: Phase,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, BackendError> {
    match tokio::time::timeout(phase.deadline(), answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(explain(phase, &error)),
        Err(_) => Err(silent(phase)),
    }
}

/// The engine said nothing within the phase's deadline.
pub fn silent(phase: Phase) -> BackendError {
    let text = format!(
        "{}: the engine did not answer within {} s",
        phase.doing(),
        phase.deadline().as_secs()
    );
    BackendError::new("engine-timeout", text).help(
        "the engine hangs or is overloaded: try `docker ps`, and restart it if that hangs too",
    )
}

/// The engine's own status and words, where it answered at all.
pub fn answer(error: &Error) -> Option<(u16, &str)> {
    match error {
        Error::DockerResponseServerError {
            status_code,
            message,
        } => Some((*status_code, message)),
        _ => None,
    }
}

/// The engine's status, where it answered at all.
pub fn status(error: &Error) -> Option<u16> {
    answer(error).map(|(status, _)| status)
}

/// What went wrong, for a person.
pub fn explain(phase: Phase, error: &Error) -> BackendError {
    if let Some((status, message)) = answer(error) {
        return refused(phase, status, message);
    }
    if let Error::RequestTimeoutError = error {
        return silent(phase);
    }
    let chain = chain(error);
    let text = format!("{}: {chain}", phase.doing());
    match io_kind(error) {
        _ if chain.contains("certificate") || chain.contains("tls handshake") => {
            BackendError::new("engine-tls", text)
                .help("check `ca.pem`, `cert.pem` and `key.pem` in DOCKER_CERT_PATH, and the name in the host's URL")
        }
        Some(io::ErrorKind::PermissionDenied) => BackendError::new("engine-permission", text)
            .help("add this user to the group that owns the socket (`usermod -aG docker USER`, then log in again), or use a rootless engine"),
        Some(io::ErrorKind::NotFound) => BackendError::new("engine-missing", text)
            .help("start the engine, or name the right one: `docker_host` of the sandbox, DOCKER_HOST, or a docker context"),
        Some(io::ErrorKind::ConnectionRefused) => BackendError::new("engine-refused", text)
            .help("nothing listens there: start the engine, or name the right one in `docker_host` or DOCKER_HOST"),
        Some(_) => BackendError::new("engine-gone", text)
            .help("the engine stopped or was restarted while it was used; nothing was decided by what it did not say"),
        None => BackendError::new("engine-failed", text),
    }
}

/// The engine answered, and the answer is no.
fn refused(phase: Phase, status: u16, message: &str) -> BackendError {
    let message = message.trim();
    let text = format!("{}: the engine answers {status}: {message}", phase.doing());
    let says = |words: &str| message.contains(words);
    match phase {
        _ if says("client version") && says("is too") => BackendError::new("engine-version", text)
            .help("this engine speaks no version of the API that this program knows"),
        _ if says("HTTP request to an HTTPS server") => BackendError::new("engine-tls", text)
            .help("this engine wants TLS: set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH"),
        _ if says("runtime name") || says("unknown runtime") || says("default OCI runtime") => {
            BackendError::new("runtime-missing", text)
                .help("register the runtime in the engine's daemon.json, or correct `runtime`; `docker info` lists those it has")
        }
        Phase::Create | Phase::Start if status == 404 && says("network") => {
            BackendError::new("network-missing", text)
                .help("this engine has no such network: `docker network ls` shows those it has, and `docker compose create` makes those of a Compose project")
        }
        Phase::Create if says("bind source path does not exist") || says("statfs") => {
            BackendError::new("mount-missing", text)
                .help("the engine does not see that file or folder: the path is one of the engine's machine")
        }
        _ if status == 404 && says("No such container") => BackendError::new("container-gone", text)
            .help("somebody else removed it: nothing was decided"),
        _ => BackendError::new("engine-failed", text),
    }
}

/// The error and what it stands on, each once.
pub fn chain(error: &Error) -> String {
    let mut parts: Vec<String> = vec![error.to_string()];
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        if !parts.iter().any(|part| part.ends_with(&text)) {
            parts.push(text);
        }
        next = error.source();
    }
    // The library's own layers say nothing to a person.
    let layer =
        |part: &String| part.starts_with("Error in the hyper") || part.starts_with("client error");
    if !parts.iter().all(layer) {
        parts.retain(|part| !layer(part));
    }
    parts.join(": ")
}

/// The system's own word, from wherever in the chain it stands.
fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    // The library hands this one's own source on, and not itself.
    let mut found = match error {
        Error::IOError { err } => Some(err.kind()),
        _ => None,
    };
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            found = Some(io.kind());
        }
        next = error.source();
    }
    let http = matches!(
        error,
        Error::HyperLegacyError { .. } | Error::HyperResponseError { .. }
    );
    found.or(http.then_some(io::ErrorKind::Other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(phase: Phase, status_code: u16, message: &str) -> &'static str {
        let message = message.into();
        explain(
            phase,
            &Error::DockerResponseServerError {
                status_code,
                message,
            },
        )
        .code
    }

    #[test]
    fn the_engines_refusals_have_codes_of_their_own() {
        let runtime = "Unknown runtime specified runsc";
        assert_eq!(code(Phase::Start, 400, runtime), "engine-failed");
        let runtime = "unknown or invalid runtime name: runsc";
        assert_eq!(code(Phase::Create, 400, runtime), "runtime-missing");
        let network = "network nowhere not found";
        assert_eq!(code(Phase::Start, 404, network), "network-missing");
        let gone = "No such container: abc";
        assert_eq!(code(Phase::Inspect, 404, gone), "container-gone");
        let version = "client version 1.20 is too old. Minimum supported API version is 1.24";
        assert_eq!(code(Phase::Identify, 400, version), "engine-version");
    }

    #[test]
    fn a_refused_connection_is_told_from_a_missing_socket() {
        let io = |kind| Error::IOError {
            err: io::Error::from(kind),
        };
        let code = |kind| explain(Phase::Connect, &io(kind)).code;
        assert_eq!(code(io::ErrorKind::ConnectionRefused), "engine-refused");
        assert_eq!(code(io::ErrorKind::NotFound), "engine-missing");
        assert_eq!(code(io::ErrorKind::PermissionDenied), "engine-permission");
        assert_eq!(code(io::ErrorKind::ConnectionReset), "engine-gone");
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_says_nothing_is_an_error_of_that_phase() {
        let never = std::future::pending::<Result<(), Error>>();
        let error = call(Phase::Start, never).await.expect_err("late");
        assert_eq!(error.code, "engine-timeout");
        assert!(error.text.contains("start the container"), "{error}");
    }
}
