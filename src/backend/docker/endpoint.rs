//! Where the engine listens: found as the `docker` command line finds it, and never anywhere else.
//!
//! The order is the sandbox's own `docker_host`, DOCKER_HOST, the context (DOCKER_CONTEXT, else `currentContext` of
//! `config.json`), the system's socket. There is no falling back: an engine that does not answer is an error, for an
//! audit of another engine would prove nothing. Contexts: <https://docs.docker.com/engine/manage-resources/contexts/>.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::backend::BackendError;

/// Where the engine of the system listens.
const SYSTEM_SOCKET: &str = "/var/run/docker.sock";

/// Who named an engine that nobody named.
pub const DEFAULT: &str = "default";

/// One engine's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket of this host.
    Unix(PathBuf),
    /// `host:port`, in the clear.
    Tcp(String),
    /// `host:port` over TLS, with the folder that holds `ca.pem`, `cert.pem` and `key.pem`.
    Tls(String, PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{}", without_user(address)),
            Self::Tls(address, _) => write!(f, "tcp://{} (TLS)", without_user(address)),
        }
    }
}

/// A password in an address is nobody's business.
fn without_user(address: &str) -> &str {
    address.rsplit_once('@').map_or(address, |(_, host)| host)
}

/// An address, and who named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where.
    pub address: Address,
    /// For the report: `DOCKER_HOST`, `context "ci"`.
    pub named_by: String,
}

/// What the search looks at, so that a test can stand in for the user.
pub struct Surroundings<'a> {
    /// Environment variables; an empty one counts as unset.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The user's home.
    pub home: PathBuf,
}

impl Surroundings<'_> {
    /// The process's own.
    pub fn own() -> Surroundings<'static> {
        Surroundings {
            variable: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
            home: std::env::var_os("HOME").map_or_else(|| "/root".into(), PathBuf::from),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }

    fn config_folder(&self) -> PathBuf {
        self.variable("DOCKER_CONFIG")
            .map_or_else(|| self.home.join(".docker"), PathBuf::from)
    }
}

/// Finds the engine. `setting` is the sandbox's own `docker_host`.
pub fn find(
    setting: Option<&str>,
    surroundings: &Surroundings<'_>,
) -> Result<Endpoint, BackendError> {
    let named = |address, named_by: &str| Endpoint {
        address,
        named_by: named_by.to_owned(),
    };
    if let Some(host) = setting {
        let certificates = certificates(surroundings);
        return Ok(named(parse(host, certificates)?, "docker_host"));
    }
    if let Some(host) = surroundings.variable("DOCKER_HOST") {
        let certificates = certificates(surroundings);
        return Ok(named(parse(&host, certificates)?, "DOCKER_HOST"));
    }
    match current_context(surroundings)? {
        Some(name) => {
            let address = context(&name, &surroundings.config_folder())?;
            Ok(named(address, &format!("context \"{name}\"")))
        }
        None => Ok(named(Address::Unix(SYSTEM_SOCKET.into()), DEFAULT)),
    }
}

/// The folder of the certificates, where the environment asks for TLS.
fn certificates(surroundings: &Surroundings<'_>) -> Option<PathBuf> {
    surroundings
        .variable("DOCKER_TLS_VERIFY")
        .or_else(|| surroundings.variable("DOCKER_TLS"))?;
    let folder = surroundings.variable("DOCKER_CERT_PATH");
    Some(folder.map_or_else(|| surroundings.config_folder(), PathBuf::from))
}

/// A host as `docker` takes it. Port 2376 without certificates is not guessed to be TLS: the engine's answer tells.
fn parse(host: &str, certificates: Option<PathBuf>) -> Result<Address, BackendError> {
    let wrong = |why: &str, help: &str| {
        let text = format!("the engine's address `{host}` cannot be used: {why}");
        Err(BackendError::new("engine-address", text).help(help))
    };
    let (scheme, rest) = host.split_once("://").unwrap_or(("tcp", host));
    match scheme {
        _ if rest.is_empty() => wrong("it names nothing", "write unix:///PATH or tcp://HOST:PORT"),
        "unix" => Ok(Address::Unix(rest.into())),
        "tcp" | "http" | "https" => {
            let rest = rest.trim_end_matches('/').to_owned();
            match certificates {
                Some(folder) => Ok(Address::Tls(rest, folder)),
                None if scheme == "https" => wrong(
                    "TLS needs certificates",
                    "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH",
                ),
                None => Ok(Address::Tcp(rest)),
            }
        }
        "ssh" => wrong(
            "ssh is not spoken here",
            "forward the socket (`ssh -N -L /tmp/docker.sock:/var/run/docker.sock HOST`) and use unix:///tmp/docker.sock",
        ),
        _ => wrong(
            "its scheme is unknown",
            "write unix:///PATH or tcp://HOST:PORT",
        ),
    }
}

/// The context in use; `None` where it is the default one.
fn current_context(surroundings: &Surroundings<'_>) -> Result<Option<String>, BackendError> {
    let name = match surroundings.variable("DOCKER_CONTEXT") {
        Some(name) => Some(name),
        None => {
            let path = surroundings.config_folder().join("config.json");
            match fs::read(&path) {
                Ok(bytes) => json(&bytes, &path)?["currentContext"]
                    .as_str()
                    .map(str::to_owned),
                Err(_) => None,
            }
        }
    };
    Ok(name.filter(|name| !name.is_empty() && name != "default"))
}

/// The address that a context's metadata names.
fn context(name: &str, config: &Path) -> Result<Address, BackendError> {
    let id = format!("{:x}", Sha256::digest(name.as_bytes()));
    let path = config.join("contexts/meta").join(&id).join("meta.json");
    let broken = |why: String| {
        let text = format!("the docker context `{name}` cannot be used: {why}");
        BackendError::new("engine-address", text)
            .help("`docker context ls` shows those there are; DOCKER_HOST goes before them")
    };
    let bytes = fs::read(&path).map_err(|error| broken(format!("{}: {error}", path.display())))?;
    let meta = json(&bytes, &path)?;
    let endpoint = &meta["Endpoints"]["docker"];
    let host = endpoint["Host"]
        .as_str()
        .ok_or_else(|| broken(format!("{} names no host", path.display())))?;
    if endpoint["SkipTLSVerify"].as_bool() == Some(true) {
        return Err(broken(
            "it does not verify who answers, and an audit has to".into(),
        ));
    }
    let certificates = config.join("contexts/tls").join(&id).join("docker");
    parse(host, certificates.is_dir().then_some(certificates))
}

fn json(bytes: &[u8], path: &Path) -> Result<Value, BackendError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = format!("read {}: {error}", path.display());
        BackendError::new("engine-address", text)
            .help("correct the file, or set DOCKER_HOST, which goes before it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        setting: Option<&str>,
        variables: &[(&str, &str)],
        home: &Path,
    ) -> Result<Endpoint, BackendError> {
        let variable = |name: &str| {
            let value = variables.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| (*value).to_owned())
        };
        let surroundings = Surroundings {
            variable: &variable,
            home: home.into(),
        };
        find(setting, &surroundings)
    }

    #[test]
    fn who_names_the_engine_first_is_heard() {
        let nowhere = Path::new("/nonexistent");
        let variables = [("DOCKER_HOST", "unix:///h"), ("DOCKER_CONTEXT", "c")];
        let setting = found(Some("unix:///s"), &variables, nowhere).expect("found");
        assert_eq!(setting.address, Address::Unix("/s".into()));
        let host = found(None, &variables, nowhere).expect("found");
        assert_eq!(
            (host.address, host.named_by.as_str()),
            (Address::Unix("/h".into()), "DOCKER_HOST")
        );
        let default = found(None, &[], nowhere).expect("found");
        assert_eq!(default.address, Address::Unix(SYSTEM_SOCKET.into()));
        let context = found(None, &variables[1..], nowhere).expect_err("no such context");
        assert_eq!(context.code, "engine-address");
    }

    #[test]
    fn a_context_is_read_from_its_metadata() {
        let home = tempfile::tempdir().expect("a folder");
        let docker = home.path().join(".docker");
        let id = format!("{:x}", Sha256::digest("ci"));
        let meta = docker.join("contexts/meta").join(&id);
        let tls = docker.join("contexts/tls").join(&id).join("docker");
        fs::create_dir_all(&meta).expect("made");
        fs::write(docker.join("config.json"), r#"{"currentContext": "ci"}"#).expect("written");
        let write = |text: &str| fs::write(meta.join("meta.json"), text).expect("written");
        write(r#"{"Name": "ci", "Endpoints": {"docker": {"Host": "tcp://ci.test:2376"}}}"#);
        let plain = found(None, &[], home.path()).expect("found");
        assert_eq!(plain.address, Address::Tcp("ci.test:2376".into()));
        assert_eq!(plain.named_by, "context \"ci\"");
        fs::create_dir_all(&tls).expect("made");
        let safe = found(None, &[], home.path()).expect("found");
        assert_eq!(safe.address, Address::Tls("ci.test:2376".into(), tls));
        write(r#"{"Endpoints": {"docker": {"Host": "tcp://x:1", "SkipTLSVerify": true}}}"#);
        assert!(found(None, &[], home.path()).is_err());
    }

    #[test]
    fn tls_is_what_the_environment_asks_for() {
        let nowhere = Path::new("/nonexistent");
        let host = ("DOCKER_HOST", "tcp://x.test:2376");
        let certificates = ("DOCKER_CERT_PATH", "/certs");
        let verify = ("DOCKER_TLS_VERIFY", "1");
        let tls = found(None, &[host, verify, certificates], nowhere).expect("found");
        let expected = Address::Tls("x.test:2376".into(), "/certs".into());
        assert_eq!(tls.address, expected);
        let plain = found(None, &[host, certificates], nowhere).expect("found");
        assert_eq!(plain.address, Address::Tcp("x.test:2376".into()));
        for wrong in ["ssh://x", "https://x", "npipe:////./pipe/x", "unix://"] {
            assert!(found(Some(wrong), &[], nowhere).is_err(), "{wrong}");
        }
    }
}
