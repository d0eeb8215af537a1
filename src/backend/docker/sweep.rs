//! What killed runs left on an engine: containers, volumes and networks with our labels, and an owner that is dead.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListNetworksOptionsBuilder, ListVolumesOptionsBuilder,
    RemoveVolumeOptionsBuilder,
};

use super::call::{Phase, call};
use super::container::{accept, remove};
use super::endpoint::{self, Surroundings};
use super::engine::Engine;
use super::owner::{OWNER, RUN, is_dead};
use crate::backend::BackendError;

/// Whose things are removed.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    /// Those whose owner is dead.
    Dead,
    /// Those of this run, which is over.
    Run(&'a str),
}

/// What a sweep did, each as `container NAME`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Removed.
    pub removed: Vec<String>,
    /// To be removed, and still there, with the reason.
    pub left: Vec<String>,
    /// The engine did not answer.
    silent: bool,
}

impl Swept {
    /// Removes one thing, unless the engine has fallen silent.
    async fn take(&mut self, what: String, removal: impl Future<Output = Result<(), Error>>) {
        if self.silent {
            self.left.push(what);
            return;
        }
        match call(Phase::Remove, removal).await {
            Ok(()) => self.removed.push(what),
            Err(error) => {
                self.silent = error.code == "engine-timeout";
                self.left.push(format!("{what}: {error}"));
            }
        }
    }
}

/// Removes what killed runs left on the engine that the environment or the context names. `None`: nobody named one, and
/// none listens at the system's own socket.
pub async fn clean() -> Result<Option<Swept>, BackendError> {
    let endpoint = endpoint::find(None, &Surroundings::own())?;
    let named = endpoint.named_by != endpoint::DEFAULT;
    match Engine::connect(endpoint).await {
        Ok(engine) => sweep(&engine.docker, Which::Dead).await.map(Some),
        Err(error) if !named && matches!(error.code, "engine-missing" | "engine-refused") => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Removes what is to be removed. Containers go first: they hold the others. An engine that does not answer once is not
/// waited for as often as it has things of ours.
pub async fn sweep(docker: &Docker, which: Which<'_>) -> Result<Swept, BackendError> {
    let mut swept = Swept::default();
    containers(docker, which, &mut swept).await?;
    if !swept.silent {
        volumes(docker, which, &mut swept).await?;
    }
    if !swept.silent {
        networks(docker, which, &mut swept).await?;
    }
    Ok(swept)
}

impl Which<'_> {
    /// The engine itself sorts out all that is not ours.
    fn filter(self) -> HashMap<String, Vec<String>> {
        let label = match self {
            Self::Dead => OWNER.to_owned(),
            Self::Run(run) => format!("{RUN}={run}"),
        };
        HashMap::from([("label".into(), vec![label])])
    }

    fn takes(self, labels: &HashMap<String, String>, age: Option<i64>, runs: bool) -> bool {
        match self {
            Self::Dead => labels
                .get(OWNER)
                .is_some_and(|owner| is_dead(owner, age, runs)),
            Self::Run(run) => labels.get(RUN).is_some_and(|label| label == run),
        }
    }
}

async fn containers(
    docker: &Docker,
    which: Which<'_>,
    swept: &mut Swept,
) -> Result<(), BackendError> {
    let options = ListContainersOptionsBuilder::default()
        .all(true)
        .filters(&which.filter())
        .build();
    let listed = call(Phase::List, docker.list_containers(Some(options))).await?;
    for container in listed {
        let labels = container.labels.clone().unwrap_or_default();
        let runs = container.state == Some(ContainerSummaryStateEnum::RUNNING);
        let age = container.created.map(|created| now() - created);
        if let (true, Some(id)) = (which.takes(&labels, age, runs), &container.id) {
            let what = format!("container {}", name(&container, id));
            swept.take(what, remove(docker, id)).await;
        }
    }
    Ok(())
}

fn name(container: &ContainerSummary, id: &str) -> String {
    let first = container.names.iter().flatten().next();
    first
        .map_or(id, |name| name.trim_start_matches('/'))
        .to_owned()
}

async fn volumes(docker: &Docker, which: Which<'_>, swept: &mut Swept) -> Result<(), BackendError> {
    let options = ListVolumesOptionsBuilder::default()
        .filters(&which.filter())
        .build();
    let listed = call(Phase::List, docker.list_volumes(Some(options))).await?;
    for volume in listed.volumes.unwrap_or_default() {
        let age = volume.created_at.as_deref().and_then(age);
        if which.takes(&volume.labels, age, false) {
            let options = RemoveVolumeOptionsBuilder::default().build();
            let removed = accept(docker.remove_volume(&volume.name, Some(options)), &[404]);
            swept.take(format!("volume {}", volume.name), removed).await;
        }
    }
    Ok(())
}

async fn networks(
    docker: &Docker,
    which: Which<'_>,
    swept: &mut Swept,
) -> Result<(), BackendError> {
    let options = ListNetworksOptionsBuilder::default()
        .filters(&which.filter())
        .build();
    let listed = call(Phase::List, docker.list_networks(Some(options))).await?;
    for network in listed {
        let labels = network.labels.unwrap_or_default();
        let age = network.created.as_deref().and_then(age);
        if let (true, Some(name)) = (which.takes(&labels, age, false), network.name) {
            let removed = accept(docker.remove_network(&name), &[404]);
            swept.take(format!("network {name}"), removed).await;
        }
    }
    Ok(())
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// Seconds since a moment that an engine writes as RFC 3339. To the day is near enough, and on the safe side: the time of
/// day and the zone are left out, so a thing counts as up to two days younger than it is.
fn age(created: &str) -> Option<i64> {
    let mut parts = created.get(..10)?.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    );
    // Days from the civil calendar: http://howardhinnant.github.io/date_algorithms.html#days_from_civil
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    const SECONDS: i64 = 24 * 3600;
    Some(now() - (days + 2) * SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dates_age_is_never_overstated() {
        const DAY: i64 = 24 * 3600;
        let epoch = age("1970-01-01T23:59:59.5-12:00").expect("a date");
        assert!((now() - epoch - 2 * DAY).abs() < 5);
        let leap = age("2024-02-29T00:00:00Z").expect("a date");
        assert!((now() - leap - 1_709_164_800 - 2 * DAY).abs() < 5);
        assert_eq!(age("yesterday"), None);
    }

    #[test]
    fn a_run_is_known_by_its_own_name() {
        let labels = HashMap::from([(RUN.to_owned(), "run-1-2-x".to_owned())]);
        assert!(Which::Run("run-1-2-x").takes(&labels, None, true));
        assert!(!Which::Run("run-1").takes(&labels, None, true));
        assert!(!Which::Dead.takes(&labels, Some(i64::MAX), false));
    }
}
