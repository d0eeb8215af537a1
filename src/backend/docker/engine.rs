//! The engine that answered: connected to by name, asked who it is, and never exchanged for another.

use std::path::Path;

use bollard::models::{SystemInfo, SystemVersion};
use bollard::{API_DEFAULT_VERSION, Docker};

use super::call::{Phase, call, explain};
use super::endpoint::{self, Address, Endpoint, Surroundings};
use crate::backend::BackendError;

/// The transport's own timeout, in seconds. It also runs while a `wait` is pending, so it has to be long; every call has
/// a deadline of its own.
const TRANSPORT_TIMEOUT: u64 = 24 * 3600;

/// Whose engine it is, by the components that it names. Podman's compatible interface calls itself Docker's elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Docker Engine.
    Docker,
    /// Podman.
    Podman,
    /// Something else, by its own name.
    Other(String),
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Docker => f.write_str("Docker Engine"),
            Self::Podman => f.write_str("Podman"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// What the engine says of itself. An empty text: it does not say.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Whose it is.
    pub kind: Option<Kind>,
    /// Its version.
    pub version: String,
    /// The newest version of the interface that it speaks.
    pub api: String,
    /// Its identity: differs between any two Docker engines.
    pub id: String,
    /// The name of its machine.
    pub name: String,
    /// `amd64`, `arm64`: as images name it.
    pub architecture: String,
    /// The release of its kernel.
    pub kernel: String,
    /// `1` or `2`.
    pub cgroup_version: String,
    /// `cgroupfs`, `systemd`.
    pub cgroup_driver: String,
    /// `overlay2`.
    pub storage_driver: String,
    /// Names of the runtimes.
    pub runtimes: Vec<String>,
    /// Those of them that bring a kernel of their own, as their program tells.
    pub own_kernels: Vec<String>,
    /// The one that is taken where none is named.
    pub default_runtime: String,
    /// `name=seccomp,profile=default`, …
    pub security: Vec<String>,
    /// Runs as an ordinary user.
    pub rootless: bool,
    /// Container users are other users of the host.
    pub user_namespaces: bool,
    /// The engine's own warnings: `WARNING: No swap limit support`.
    pub warnings: Vec<String>,
}

/// A connected, identified engine.
#[derive(Clone)]
pub struct Engine {
    /// The client.
    pub docker: Docker,
    /// Where it listens, and who named it.
    pub endpoint: Endpoint,
    /// What it says of itself.
    pub facts: Facts,
}

impl Engine {
    /// Connects to the engine that the sandbox, the environment or the context names. `setting`: the sandbox's own.
    pub async fn open(setting: Option<&str>) -> Result<Self, BackendError> {
        Self::connect(endpoint::find(setting, &Surroundings::own())?).await
    }

    /// Connects to this engine, agrees on a version of the interface, and asks who it is.
    pub async fn connect(endpoint: Endpoint) -> Result<Self, BackendError> {
        let docker = client(&endpoint)?;
        let docker = call(Phase::Connect, docker.negotiate_version())
            .await
            .map_err(|error| named(over_what(error, &endpoint), &endpoint))?;
        let version = call(Phase::Identify, docker.version()).await?;
        let info = call(Phase::Identify, docker.info()).await?;
        let facts = facts(version, info);
        Ok(Self {
            docker,
            endpoint,
            facts,
        })
    }
}

/// A client that has sent nothing yet.
fn client(endpoint: &Endpoint) -> Result<Docker, BackendError> {
    match &endpoint.address {
        Address::Unix(path) => {
            look_at(path).map_err(|error| named(error, endpoint))?;
            let path = path.to_string_lossy();
            Docker::connect_with_unix(&path, TRANSPORT_TIMEOUT, API_DEFAULT_VERSION)
        }
        Address::Tcp(address) => {
            Docker::connect_with_http(address, TRANSPORT_TIMEOUT, API_DEFAULT_VERSION)
        }
        Address::Tls(address, certificates) => return over_tls(endpoint, address, certificates),
    }
    .map_err(|error| named(explain(Phase::Connect, &error), endpoint))
}

fn over_tls(
    endpoint: &Endpoint,
    address: &str,
    certificates: &Path,
) -> Result<Docker, BackendError> {
    let file = |name: &str| certificates.join(name);
    // The library takes missing files of ours for a client without a certificate, and the engine's refusal says little.
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        if let Err(error) = std::fs::File::open(file(name)) {
            let text = format!("read {}: {error}", file(name).display());
            return Err(named(BackendError::new("engine-tls", text), endpoint).help(
                "DOCKER_CERT_PATH names the folder that holds ca.pem, cert.pem and key.pem",
            ));
        }
    }
    Docker::connect_with_ssl(
        address,
        &file("key.pem"),
        &file("cert.pem"),
        &file("ca.pem"),
        TRANSPORT_TIMEOUT,
        API_DEFAULT_VERSION,
    )
    .map_err(|error| {
        let error = explain(Phase::Connect, &error);
        named(BackendError::new("engine-tls", error.text), endpoint)
            .help("check the certificates in DOCKER_CERT_PATH, and that this system has a store of its own")
    })
}

/// The socket's file, looked at first: the library calls a folder that may not be entered a missing socket.
fn look_at(path: &Path) -> Result<(), BackendError> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => Ok(()),
        Ok(_) => {
            let text = format!(
                "{}: {} is no socket",
                Phase::Connect.doing(),
                path.display()
            );
            Err(BackendError::new("engine-missing", text)
                .help("name the socket that the engine listens on"))
        }
        Err(err) => Err(explain(Phase::Connect, &err.into())),
    }
}

/// An engine that does not like our certificate, or has none, hangs up during the handshake.
fn over_what(mut error: BackendError, endpoint: &Endpoint) -> BackendError {
    if error.code == "engine-gone" && matches!(endpoint.address, Address::Tls(..)) {
        error.code = "engine-tls";
        error.help = Some("check the certificate and the key in DOCKER_CERT_PATH, and that the engine speaks TLS there".into());
    }
    error
}

/// The error with the address that was tried, and with who named it.
fn named(mut error: BackendError, endpoint: &Endpoint) -> BackendError {
    error.text = format!(
        "{} [{}, named by {}]",
        error.text, endpoint.address, endpoint.named_by
    );
    error
}

/// gVisor and Kata Containers. A name can be anything; where the engine tells the program, that one counts.
fn brings_a_kernel(name: &str, path: Option<&str>) -> bool {
    let program = path.filter(|path| !path.is_empty()).unwrap_or(name);
    let program = program.rsplit('/').next().unwrap_or(program);
    program == "runsc" || program.contains("runsc-v") || program.contains("kata")
}

fn facts(version: SystemVersion, info: SystemInfo) -> Facts {
    let text = |text: Option<String>| text.unwrap_or_default();
    let kind = kind(&version);
    let known = info.runtimes.unwrap_or_default();
    let mut own_kernels: Vec<String> = known
        .iter()
        .filter(|(name, runtime)| brings_a_kernel(name, runtime.path.as_deref()))
        .map(|(name, _)| name.clone())
        .collect();
    own_kernels.sort();
    let mut runtimes: Vec<String> = known.into_keys().collect();
    runtimes.sort();
    let security = info.security_options.unwrap_or_default();
    let says = |word: &str| {
        let name = format!("name={word}");
        security
            .iter()
            .any(|option| option.split(',').any(|part| part == name || part == word))
    };
    Facts {
        kind: Some(kind),
        version: text(version.version),
        api: text(version.api_version),
        id: text(info.id),
        name: text(info.name),
        architecture: as_images_say(&text(version.arch)).to_owned(),
        kernel: text(info.kernel_version),
        cgroup_version: info
            .cgroup_version
            .map_or_else(String::new, |version| version.to_string()),
        cgroup_driver: info
            .cgroup_driver
            .map_or_else(String::new, |driver| driver.to_string()),
        storage_driver: text(info.driver),
        runtimes,
        own_kernels,
        default_runtime: text(info.default_runtime),
        rootless: says("rootless"),
        user_namespaces: says("userns"),
        warnings: info.warnings.unwrap_or_default(),
        security,
    }
}

fn kind(version: &SystemVersion) -> Kind {
    let components = version.components.as_deref().unwrap_or_default();
    let named = |word: &str| components.iter().any(|part| part.name.contains(word));
    let platform = version.platform.as_ref().map(|platform| &platform.name);
    if named("Podman") {
        Kind::Podman
    } else if components.iter().any(|part| part.name == "Engine") {
        Kind::Docker
    } else {
        let first = components.first().map(|part| &part.name);
        let name = first.or(platform).cloned().unwrap_or_default();
        Kind::Other(if name.is_empty() {
            "unknown engine".into()
        } else {
            name
        })
    }
}

/// The architecture as images name it, whoever's word it is.
pub fn as_images_say(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Facts {
    /// Name and value, for the report.
    pub fn listed(&self, endpoint: &Endpoint) -> Vec<(String, String)> {
        let kind = self.kind.as_ref().map(Kind::to_string);
        let engine = format!("{} {}", kind.unwrap_or_default(), self.version);
        let address = format!("{} ({})", endpoint.address, endpoint.named_by);
        let facts = [
            ("engine", engine),
            ("engine address", address),
            ("engine id", self.id.clone()),
            ("engine host", self.name.clone()),
            ("engine api", self.api.clone()),
            ("engine kernel", self.kernel.clone()),
            ("engine architecture", self.architecture.clone()),
            (
                "engine cgroups",
                format!("v{} {}", self.cgroup_version, self.cgroup_driver),
            ),
            ("engine storage", self.storage_driver.clone()),
            ("engine runtimes", self.runtimes.join(" ")),
            ("engine default runtime", self.default_runtime.clone()),
            ("engine security", self.security.join(" ")),
            ("engine rootless", yes(self.rootless)),
            ("engine warnings", self.warnings.join("; ")),
        ];
        facts
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

fn yes(it_is: bool) -> String {
    if it_is { "yes".into() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::SystemVersionComponents;

    fn of(names: &[&str]) -> Kind {
        let components = names
            .iter()
            .map(|name| SystemVersionComponents {
                name: (*name).into(),
                ..Default::default()
            })
            .collect();
        kind(&SystemVersion {
            components: Some(components),
            ..Default::default()
        })
    }

    #[test]
    fn an_engine_is_known_by_its_components() {
        assert_eq!(of(&["Engine", "containerd", "runc"]), Kind::Docker);
        assert_eq!(of(&["Podman Engine", "Conmon"]), Kind::Podman);
        assert_eq!(of(&["Other Thing"]), Kind::Other("Other Thing".into()));
        assert_eq!(of(&[]), Kind::Other("unknown engine".into()));
    }

    #[tokio::test]
    async fn a_missing_socket_names_itself_and_who_named_it() {
        let path = tempfile::tempdir().expect("a folder").path().join("none");
        let endpoint = Endpoint {
            address: Address::Unix(path.clone()),
            named_by: "DOCKER_HOST".into(),
        };
        let error = Engine::connect(endpoint).await.err().expect("no engine");
        assert_eq!(error.code, "engine-missing");
        assert!(error.text.contains(&*path.to_string_lossy()), "{error}");
        assert!(error.text.contains("DOCKER_HOST"), "{error}");
        assert!(error.help.is_some());
    }
}
