//! Canaries in containers of ours: beside the sandbox in its own network, and in the network of the engine's machine where
//! that is not this one's. In each the probe listens, in the audited image itself, with nothing that it does not need.

use std::net::IpAddr;

use bollard::models::ContainerInspectResponse;

use super::container::Container;
use super::owner;
use super::spec::{self, Context};
use super::streams::{Delivery, Streams};
use crate::backend::BackendError;
use crate::config::{NetworkMode, Settings, User};
use crate::range::Range;
use crate::range::post::{Ground, Post};
use crate::range::posts::Posts;

const MIB: u64 = 1024 * 1024;

/// What the containers are made of, and whose they are.
pub struct Plan<'a> {
    /// The engine's client.
    pub docker: &'a bollard::Docker,
    /// The image's id.
    pub image: &'a str,
    /// How the probe comes in.
    pub probe: &'a spec::Delivery,
    /// The run's name.
    pub run: &'a str,
    /// The network that the sandbox stands in.
    pub network: &'a NetworkMode,
}

/// The canaries, and the containers that they stand in: dropped, they are removed.
pub struct Standing {
    /// The canaries.
    pub posts: Posts,
    /// Whether the engine's machine has the network that this one's canaries stand in.
    pub here: bool,
    _held: Vec<Held>,
}

/// A container in which the probe listens. Its streams end before it does.
struct Held {
    _delivery: Delivery,
    container: Container,
}

impl Standing {
    /// For the report, as name and value.
    pub fn listed(&self) -> Vec<(String, String)> {
        let machine = match self.here {
            true => "in this network",
            false => "in another network: canaries stand in a container there",
        };
        let sibling = self.posts.sibling.iter().flat_map(Post::addresses);
        let sibling: Vec<String> = sibling.map(|ip| ip.to_string()).collect();
        let facts = [
            ("engine machine", machine.to_owned()),
            ("sibling", sibling.join(" ")),
        ];
        let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
        facts
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

impl Plan<'_> {
    /// Starts them. A sandbox without a network of its own has no sibling.
    pub async fn stand(&self, range: &Range) -> Result<Standing, BackendError> {
        let has_own = !matches!(self.network, NetworkMode::None | NetworkMode::Host);
        let sibling = async {
            match has_own {
                true => self.start("sibling", self.network, range).await.map(Some),
                false => Ok(None),
            }
        };
        let machine = self.start("machine", &NetworkMode::Host, range);
        let (sibling, (machine, mut held)) = tokio::try_join!(sibling, machine)?;
        let here = machine.shares_network_with(range).await;
        let machine = match here {
            // What stands on this machine already is there, too.
            true => {
                drop(machine);
                held.container.remove().await;
                None
            }
            false => Some((machine, held)),
        };
        let (sibling, first) = sibling.unzip();
        let (machine, second) = machine.unzip();
        Ok(Standing {
            posts: Posts::new(sibling, machine),
            here,
            _held: first.into_iter().chain(second).collect(),
        })
    }

    async fn start(
        &self,
        what: &str,
        network: &NetworkMode,
        range: &Range,
    ) -> Result<(Post, Held), BackendError> {
        let context = Context {
            image: self.image,
            probe: self.probe,
            labels: owner::labels(self.run, what),
            environment: Vec::new(),
            exposed: &[],
            set_uid: None,
            seccomp_profile: None,
        };
        let secret = || format!("ea{:016x}", rand::random::<u64>());
        let name = format!("escape-audit-{}-{what}-{}", self.run, secret());
        let body = spec::body(&settings(network), context);
        let mut container = Container::create(self.docker, &name, body).await?;
        container.verify(self.image).await?;
        let Streams {
            stdin,
            stdout,
            stderr: _,
            delivery,
        } = container.attach().await?;
        container.start().await?;
        let ground = match network {
            NetworkMode::Host => Ground::Machine,
            _ => Ground::Beside(addresses(&container.inspect().await?)),
        };
        let (nonce, name) = (secret(), secret());
        let opened = Post::open(range, (&nonce, &name), stdin, stdout, &ground).await;
        let post = opened.map_err(|error| {
            BackendError::new("backend-failed", format!("{error} ({what}, {network})"))
        })?;
        let _delivery = delivery;
        Ok((
            post,
            Held {
                _delivery,
                container,
            },
        ))
    }
}

/// Nothing that listening does not need.
fn settings(network: &NetworkMode) -> Settings {
    Settings {
        network_mode: network.clone(),
        read_only: true,
        mem_limit: Some(64 * MIB),
        memswap_limit: Some(64 * MIB),
        pids_limit: Some(16),
        capabilities: Vec::new(),
        no_new_privileges: true,
        user: User::Ids(65534, 65534),
        ..Settings::docker()
    }
}

/// The addresses that the engine gave the container.
fn addresses(seen: &ContainerInspectResponse) -> Vec<IpAddr> {
    let settings = seen.network_settings.as_ref();
    let networks = settings.and_then(|settings| settings.networks.as_ref());
    let each = networks.into_iter().flat_map(|networks| networks.values());
    let texts = each.flat_map(|network| [&network.ip_address, &network.global_ipv6_address]);
    texts
        .flatten()
        .filter_map(|text| text.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_stands_where_the_sandbox_does_and_may_do_nothing_else() {
        let network = NetworkMode::Named("theirs".into());
        let context = Context {
            image: "sha256:aa",
            probe: &spec::Delivery::Bind("/run/x/probe".into()),
            labels: owner::labels("r", "sibling"),
            environment: Vec::new(),
            exposed: &[],
            set_uid: None,
            seccomp_profile: None,
        };
        let body = spec::body(&settings(&network), context);
        let body = serde_json::to_value(body).expect("a body");
        assert_eq!(body["Entrypoint"], json!([spec::PROBE]));
        assert_eq!(body["Healthcheck"]["Test"], json!(["NONE"]));
        assert_eq!(body["User"], json!("65534:65534"));
        let host = &body["HostConfig"];
        assert_eq!(host["NetworkMode"], json!("theirs"));
        assert_eq!(
            (&host["CapDrop"], &host["CapAdd"]),
            (&json!(["ALL"]), &json!(null))
        );
        assert_eq!(host["ReadonlyRootfs"], json!(true));
        assert_eq!(host["PidsLimit"], json!(16));
    }

    #[test]
    fn its_addresses_are_those_that_the_engine_tells() {
        let seen = json!({"NetworkSettings": {"Networks": {"a": {
            "IPAddress": "172.17.0.3", "GlobalIPv6Address": ""
        }}}});
        let seen = serde_json::from_value(seen).expect("an answer");
        let known: IpAddr = "172.17.0.3".parse().expect("an address");
        assert_eq!(addresses(&seen), [known]);
    }
}
