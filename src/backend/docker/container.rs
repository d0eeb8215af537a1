//! One container of ours, from its creation to its removal. Whoever drops it, it goes.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum, ContainerWaitResponse,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, KillContainerOptionsBuilder,
    RemoveContainerOptionsBuilder, StartContainerOptions, StopContainerOptionsBuilder,
    WaitContainerOptionsBuilder,
};
use futures_util::{Stream, StreamExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::call::{Phase, call, explain, silent, status};
use super::image::with_algorithm;
use super::streams::{self, Streams};
use crate::backend::BackendError;

/// Seconds between a request to end and the end. The first process of a process namespace does not even get a request
/// that it does not handle, so this is how long a polite end takes.
const STOP_GRACE: i32 = 1;

/// A container.
pub struct Container {
    /// The engine's client.
    pub docker: Docker,
    /// Its id; until the engine has told it, its name, which serves as well.
    pub id: String,
    /// What the engine warned of when it was created.
    pub warnings: Vec<String>,
    /// The volumes that the engine made for it alone: they are removed with it.
    pub volumes: Vec<String>,
    there: bool,
    /// The engine's answer to the request for it, until it came.
    creating: Option<JoinHandle<()>>,
}

impl Container {
    /// Creates it. A name that is taken is an error.
    pub async fn create(
        docker: &Docker,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<Self, BackendError> {
        // Before the engine is asked: it may make the container and we not hear of it.
        let mut made = Self {
            docker: docker.clone(),
            id: name.to_owned(),
            warnings: Vec::new(),
            volumes: Vec::new(),
            there: true,
            creating: None,
        };
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        // Once asked, an engine makes it, whoever goes on waiting: a request is never given up halfway.
        let (docker, (tell, told)) = (docker.clone(), oneshot::channel());
        made.creating = Some(tokio::spawn(async move {
            let asked = docker.create_container(Some(options), body);
            let _ = tell.send(call(Phase::Create, asked).await);
        }));
        let told = told.await;
        made.creating = None;
        let told = told.unwrap_or_else(|_| Err(silent(Phase::Create)));
        match told {
            Ok(answer) => {
                made.id = answer.id;
                made.warnings = answer.warnings;
                Ok(made)
            }
            Err(error) => {
                // Told no, there is nothing to remove; told nothing, there may be.
                made.there = error.code == "engine-timeout";
                Err(error)
            }
        }
    }

    /// What the engine says of it.
    pub async fn inspect(&self) -> Result<ContainerInspectResponse, BackendError> {
        let asked = self
            .docker
            .inspect_container(&self.id, None::<InspectContainerOptions>);
        call(Phase::Inspect, asked).await
    }

    /// Proves that it was made of the image with this id, and notes its volumes.
    pub async fn verify(&mut self, image: &str) -> Result<ContainerInspectResponse, BackendError> {
        let seen = self.inspect().await?;
        let made_of = with_algorithm(seen.image.as_deref().unwrap_or_default());
        if made_of != image {
            let text = format!("the container was made of the image {made_of}, not of {image}");
            return Err(BackendError::new("digest-mismatch", text)
                .help("the engine exchanged the image; nothing was run"));
        }
        let mounts = seen.mounts.iter().flatten();
        self.volumes = mounts
            .filter(|mount| mount.typ.as_deref() == Some("volume"))
            .filter_map(|mount| mount.name.clone())
            .filter(|name| is_anonymous(name))
            .collect();
        Ok(seen)
    }

    /// Attaches to its streams. Before the start, or the output of a short run is lost.
    pub async fn attach(&self) -> Result<Streams, BackendError> {
        streams::attach(&self.docker, &self.id).await
    }

    /// Starts it.
    pub async fn start(&self) -> Result<(), BackendError> {
        let started = self
            .docker
            .start_container(&self.id, None::<StartContainerOptions>);
        call(Phase::Start, started).await
    }

    /// Waits for its end, from now on. To be called after the start: the container stays until it is removed, so an end
    /// that came before is told at once. (Asked before the start, an engine counts "not yet running" as the end; a wait
    /// for the *next* end may be heard too late by it.)
    pub fn ending(&self) -> Ending {
        let options = WaitContainerOptionsBuilder::default()
            .condition("not-running")
            .build();
        Ending {
            news: Box::pin(self.docker.wait_container(&self.id, Some(options))),
            docker: self.docker.clone(),
            id: self.id.clone(),
        }
    }

    /// Ends it at once. One that has ended is no error.
    pub async fn kill(&self) -> Result<(), BackendError> {
        let options = KillContainerOptionsBuilder::default()
            .signal("SIGKILL")
            .build();
        let killed = self.docker.kill_container(&self.id, Some(options));
        call(Phase::Kill, accept(killed, &[404, 409])).await
    }

    /// Ends it as `docker stop` does: a request first, and the end of it when the grace is over.
    pub async fn stop(&self) -> Result<(), BackendError> {
        let options = StopContainerOptionsBuilder::default().t(STOP_GRACE).build();
        let stopped = self.docker.stop_container(&self.id, Some(options));
        call(Phase::Kill, accept(stopped, &[304, 404])).await
    }

    /// Leaves it to a later sweep.
    pub fn forget(&mut self) {
        self.there = false;
    }

    /// Removes it, running or not, with its own volumes. Gives back what could not be removed.
    pub async fn remove(&mut self) -> Vec<String> {
        self.removed().await.0
    }

    /// The same, with the error where the engine did not remove the container itself.
    pub async fn removed(&mut self) -> (Vec<String>, Option<BackendError>) {
        if !std::mem::take(&mut self.there) {
            return (Vec::new(), None);
        }
        let mut left = Vec::new();
        if let Err(error) = call(Phase::Remove, remove(&self.docker, &self.id)).await {
            left.push(format!("container {}: {error}", self.id));
            return (left, Some(error));
        }
        for volume in &self.volumes {
            let seen = self.docker.inspect_volume(volume);
            if call(Phase::Remove, seen).await.is_ok() {
                left.push(format!("volume {volume}"));
            }
        }
        (left, None)
    }
}

impl Drop for Container {
    /// Given up halfway. The removal goes on as long as the runtime does; the run's last sweep finds what it leaves.
    fn drop(&mut self) {
        if self.there
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (docker, id) = (self.docker.clone(), self.id.clone());
            let (creating, leaving) = (self.creating.take(), Leaving::begin());
            runtime.spawn(async move {
                if let Some(creating) = creating {
                    let _ = creating.await;
                }
                let _ = call(Phase::Remove, remove(&docker, &id)).await;
                drop(leaving);
            });
        }
    }
}

/// How many containers that were given up are being removed.
static LEAVING: AtomicUsize = AtomicUsize::new(0);

/// One of them.
struct Leaving;

impl Leaving {
    fn begin() -> Self {
        LEAVING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        LEAVING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until what was given up is gone, but no longer than an engine may take for it: one that is still to be made when
/// a last sweep looks would stay.
pub async fn given_up() {
    let until = tokio::time::Instant::now() + Phase::Create.deadline();
    while LEAVING.load(Ordering::Relaxed) > 0 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How often a container is asked for that somebody else removes.
const REMOVED_YET: Duration = Duration::from_millis(50);

/// Removes a container with its own volumes; one that is gone is no error. It is gone when the engine does not know it any
/// more, and not when it says so: somebody else may be removing it, an answer may be cut off, and until then its mounts hold
/// what is ours.
pub async fn remove(docker: &Docker, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptionsBuilder::default()
        .force(true)
        .v(true)
        .build();
    let being_removed = match docker.remove_container(id, Some(options)).await {
        Err(error) if status(&error) == Some(404) => return Ok(()),
        Err(error) if status(&error) == Some(409) => true,
        Err(error) => return Err(error),
        Ok(()) => false,
    };
    let gone = async {
        loop {
            let asked = docker.inspect_container(id, None::<InspectContainerOptions>);
            match asked.await {
                Err(error) if status(&error) == Some(404) => return Ok(()),
                Err(error) => return Err(error),
                Ok(_) => tokio::time::sleep(REMOVED_YET).await,
            }
        }
    };
    if being_removed {
        return gone.await;
    }
    let gone = tokio::time::timeout(Phase::Inspect.deadline(), gone).await;
    gone.unwrap_or(Err(Error::RequestTimeoutError))
}

/// Takes these answers for a yes.
pub async fn accept(
    answer: impl Future<Output = Result<(), Error>>,
    statuses: &[u16],
) -> Result<(), Error> {
    match answer.await {
        Err(error) if status(&error).is_some_and(|status| statuses.contains(&status)) => Ok(()),
        other => other,
    }
}

/// Engines name a volume that nobody named by 64 hexadecimal digits.
fn is_anonymous(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A container's end, waited for.
pub struct Ending {
    news: Pin<Box<dyn Stream<Item = Result<ContainerWaitResponse, Error>>>>,
    docker: Docker,
    id: String,
}

impl Ending {
    /// The status of its first process, as a shell gives it. A wait may be given up and begun again.
    pub async fn status(&mut self) -> Result<i64, BackendError> {
        match self.news.next().await {
            Some(Ok(end)) => Ok(end.status_code),
            // The library takes every status but 0 for an error.
            Some(Err(Error::DockerContainerWaitError { code, error })) if error.is_empty() => {
                Ok(code)
            }
            Some(Err(error)) => self.ask_again(Some(explain(Phase::Wait, &error))).await,
            None => self.ask_again(None).await,
        }
    }

    /// The line broke. The engine may be there again, and the container still be told of.
    async fn ask_again(&self, why: Option<BackendError>) -> Result<i64, BackendError> {
        let asked = self
            .docker
            .inspect_container(&self.id, None::<InspectContainerOptions>);
        let state = call(Phase::Inspect, asked).await?.state.unwrap_or_default();
        let ended = matches!(
            state.status,
            Some(ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD)
        );
        match (ended, state.exit_code) {
            (true, Some(code)) => Ok(code),
            _ => Err(why.unwrap_or_else(|| {
                BackendError::new(
                    "engine-gone",
                    "wait for the container: the engine hung up before its end",
                )
            })),
        }
    }
}
