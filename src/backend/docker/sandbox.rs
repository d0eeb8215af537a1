//! The backend: an engine that was found, an image that was proven, and a container a trial.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use bollard::models::{ContainerCreateBody, ContainerInspectResponse, VolumeCreateRequest};
use bollard::query_parameters::InspectNetworkOptions;

use tokio::sync::OnceCell;

use super::call::{Phase, call, status};
use super::container::{self, Container, Ending};
use super::engine::Engine;
use super::health::Health;
use super::image::{self, ImageFacts};
use super::in_force::{self, Declared};
use super::posts::{Plan, Standing};
use super::probe::Face;
use super::spec::{self, Context};
use super::streams::{Delivery, Streams};
use super::sweep::{Which, sweep};
use super::{host, owner, probe};
use crate::backend::{
    Backend, BackendError, Enforces, Launch, Life, Opening, Pending, Running, Stop,
};
use crate::config::model::NetworkMode;
use crate::config::{Sandbox, Settings, VolumeSource};
use crate::host::cgroup::Cgroup;
use crate::range::Range;
use crate::range::posts::Posts;

/// The backend.
pub struct Docker {
    engine: Engine,
    image: ImageFacts,
    probe: spec::Delivery,
    /// The probe's file here, and the volume with its set-uid copy once one was asked for.
    file: PathBuf,
    set_uid: tokio::sync::OnceCell<spec::Delivery>,
    name: String,
    word: String,
    run: String,
    seccomp_profile: Option<String>,
    health: Rc<Health>,
    /// Its network hangs on a bridge of the engine's machine.
    on_a_bridge: bool,
    /// What was read back of the first container.
    in_force: RefCell<Vec<(String, String)>>,
    swept: Vec<String>,
    network: NetworkMode,
    /// The canaries on the engine's side, once they were asked for.
    standing: OnceCell<Standing>,
}

impl Docker {
    /// Finds the engine, removes what killed runs left on it, proves the image and brings the probe.
    pub async fn open(sandbox: &Sandbox, opening: &Opening<'_>) -> Result<Self, BackendError> {
        let settings = &sandbox.settings;
        let image = settings.image.as_ref().ok_or_else(|| {
            BackendError::new("image-missing", "the sandbox names no image")
                .help("write `image = \"REPOSITORY@sha256:…\"` or `image_id = \"sha256:…\"`")
        })?;
        let seccomp_profile = profile(settings)?;
        let engine = Engine::open(settings.engine.as_deref()).await?;
        let swept = sweep(&engine.docker, Which::Dead).await?;
        let image = image::resolve(&engine, image, settings.deployed.as_ref(), &mut |line| {
            (opening.progress)(line)
        })
        .await?;
        let word = word(&sandbox.name);
        let docker = &engine.docker;
        let probe = probe::deliver(docker, &image.id, opening.run, &word, opening.probe).await;
        let probe = match probe {
            Ok(probe) => probe,
            Err(error) => return Err(halfway(docker, opening.run, error).await),
        };
        for volume in &settings.volumes {
            if let VolumeSource::Named(name) = &volume.source {
                let stands = stand_in_for(docker, name, opening.run, &word).await;
                if let Err(error) = stands {
                    return Err(halfway(docker, opening.run, error).await);
                }
            }
        }
        let on_a_bridge = is_bridge(&engine, &settings.network_mode).await;
        Ok(Self {
            image,
            probe,
            file: opening.probe.to_owned(),
            set_uid: tokio::sync::OnceCell::new(),
            name: sandbox.name.clone(),
            word,
            on_a_bridge,
            run: opening.run.to_owned(),
            seccomp_profile,
            health: Rc::default(),
            in_force: RefCell::default(),
            swept: swept.removed,
            network: sandbox.settings_in_force().network_mode,
            standing: OnceCell::new(),
            engine,
        })
    }

    /// Starts the canaries on the engine's side, where there is a network to stand in.
    async fn stand(&self, range: &Range) -> Result<(), BackendError> {
        if self.network == NetworkMode::None {
            return Ok(());
        }
        let plan = Plan {
            docker: &self.engine.docker,
            image: &self.image.id,
            probe: &self.probe,
            run: &self.run,
            network: &self.network,
        };
        self.health.check(&self.engine.docker).await?;
        let stands = self.standing.get_or_try_init(|| plan.stand(range));
        stands
            .await
            .map(drop)
            .map_err(|error| self.health.note(error))
    }

    /// A set-uid copy of the probe, where the attempt asks for one. What no root of this machine's could make, or no
    /// engine would see, the engine makes in a volume of its own.
    async fn set_uid(&self, launch: &Launch<'_>) -> Result<Option<spec::Delivery>, BackendError> {
        if !launch.gains {
            return Ok(None);
        }
        if let (Some(helper), spec::Delivery::Bind(_)) = (launch.set_uid, &self.probe) {
            return Ok(Some(spec::Delivery::Bind(
                helper.to_string_lossy().into_owned(),
            )));
        }
        let make = || async {
            let bytes = probe::read(&self.file)?;
            let (docker, image) = (&self.engine.docker, &self.image.id);
            probe::upload(docker, image, &self.run, &self.word, Face::SetUid, &bytes).await
        };
        self.set_uid.get_or_try_init(make).await.cloned().map(Some)
    }

    fn body(&self, launch: &Launch<'_>, set_uid: Option<spec::Delivery>) -> ContainerCreateBody {
        let settings = launch.settings;
        let mut environment = settings.environment.clone();
        if settings.inherit_environment {
            environment.extend(std::env::vars());
            environment.extend(launch.environment.iter().cloned());
        }
        let context = Context {
            image: &self.image.id,
            probe: &self.probe,
            labels: owner::labels(&self.run, launch.trial),
            environment,
            exposed: launch.exposed,
            set_uid,
            seccomp_profile: self.seccomp_profile.clone(),
        };
        let mut body = spec::body(settings, context);
        if let (Some(host), Some(limiter)) = (&mut body.host_config, self.limiter(launch)) {
            let group = limiter.absolute().to_string_lossy().into_owned();
            host.cgroup_parent.get_or_insert(group);
        }
        body
    }

    /// The limiter's group, where the container can stand below it: then what bounds and counts the trial holds it too.
    fn limiter<'a>(&self, launch: &Launch<'a>) -> Option<&'a Cgroup> {
        let here = matches!(self.probe, spec::Delivery::Bind(_));
        let by_path = self.engine.facts.cgroup_driver == "cgroupfs" && !self.engine.facts.rootless;
        launch.limiter.filter(|_| here && by_path)
    }

    async fn started(&self, launch: &Launch<'_>) -> Result<Running, BackendError> {
        let name = format!("escape-audit-{}-{}", self.run, launch.trial);
        let set_uid = self.set_uid(launch).await;
        let body = self.body(launch, set_uid.map_err(|error| self.health.note(error))?);
        let created = Container::create(&self.engine.docker, &name, body).await;
        let mut container = created.map_err(|error| self.health.note(error))?;
        match self.begin(&mut container, launch).await {
            Ok(begun) => Ok(running(container, begun, Rc::clone(&self.health))),
            Err(error) => {
                let error = self.health.note(error);
                self.given_up(container).await;
                Err(error)
            }
        }
    }

    /// Removes a container that never came to run; an engine that was lost is not asked to.
    async fn given_up(&self, mut container: Container) {
        if self.health.check(&self.engine.docker).await.is_ok() {
            container.remove().await;
        } else {
            container.forget();
        }
    }

    async fn begin(
        &self,
        container: &mut Container,
        launch: &Launch<'_>,
    ) -> Result<Begun, BackendError> {
        let created = container.verify(&self.image.id).await?;
        let weaker = self.compare(&created, container, launch);
        let streams = container.attach().await?;
        container.start().await?;
        let ending = container.ending();
        let started = container.inspect().await?;
        let pid = started.state.and_then(|state| state.pid);
        let pid = pid.and_then(|pid| host::visible(pid, &container.id));
        if let Some(pid) = pid {
            host::settle(pid).await;
        }
        Ok(Begun {
            payload: pid.and_then(|pid| Cgroup::of_process(pid, &container.id)),
            init: pid.filter(|_| !launch.settings.init),
            streams,
            ending,
            weaker,
        })
    }

    fn compare(
        &self,
        created: &ContainerInspectResponse,
        container: &Container,
        launch: &Launch<'_>,
    ) -> Vec<BackendError> {
        let found = in_force::compare(
            launch.settings,
            created,
            &self.engine.facts,
            &container.warnings,
            &Declared {
                image_volumes: &self.image.volumes,
                exposed: launch.exposed,
            },
        );
        let mut first = self.in_force.borrow_mut();
        // The unrestricted container in which cases are shown to be able is another sandbox.
        if first.is_empty() && launch.sandbox.name == self.name {
            *first = found.listed;
        }
        found.weaker
    }
}

/// A volume that is not there yet would be made by the engine, and stay. An empty one of ours stands in its place, which
/// goes with the run.
async fn stand_in_for(
    docker: &bollard::Docker,
    name: &str,
    run: &str,
    word: &str,
) -> Result<(), BackendError> {
    let there = async {
        match docker.inspect_volume(name).await {
            Ok(_) => Ok(true),
            Err(error) if status(&error) == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    };
    if !call(Phase::Upload, there).await? {
        let request = VolumeCreateRequest {
            name: Some(name.to_owned()),
            labels: Some(owner::labels(run, word)),
            ..VolumeCreateRequest::default()
        };
        call(Phase::Upload, docker.create_volume(request)).await?;
    }
    Ok(())
}

/// The opening failed when something of it may stand on the engine: it is removed where the engine is still there. What
/// could not be is part of the error.
async fn halfway(docker: &bollard::Docker, run: &str, mut error: BackendError) -> BackendError {
    let health = Health::default();
    error = health.note(error);
    let left = match health.check(docker).await {
        Ok(()) => match sweep(docker, Which::Run(run)).await {
            Ok(swept) => swept.left,
            Err(error) => vec![error.to_string()],
        },
        Err(_) => Vec::new(),
    };
    for left in left {
        error.text = format!("{}; left behind: {left}", error.text);
    }
    error
}

/// Removes what a run had made on the engine before it was told to stop.
pub async fn abandon(sandbox: &Sandbox, run: &str) -> Vec<String> {
    let swept = async {
        let engine = Engine::open(sandbox.settings.engine.as_deref()).await?;
        container::given_up().await;
        sweep(&engine.docker, Which::Run(run)).await
    };
    match swept.await {
        Ok(swept) => swept.left,
        Err(error) => vec![error.to_string()],
    }
}

/// A container that runs.
struct Begun {
    streams: Streams,
    ending: Ending,
    init: Option<i32>,
    payload: Option<Cgroup>,
    weaker: Vec<BackendError>,
}

impl Backend for Docker {
    fn start<'a>(&'a self, launch: &'a Launch<'a>) -> Pending<'a, Result<Running, BackendError>> {
        Box::pin(async move {
            self.health.may_start(&self.engine.docker).await?;
            self.started(launch).await
        })
    }

    fn enforces(&self, settings: &Settings) -> Enforces {
        Enforces {
            timeout: settings.enforce_timeout,
            output: settings.enforce_output,
        }
    }

    /// Starting a container takes longer than most attempts.
    fn shares(&self) -> bool {
        true
    }

    fn digest(&self, _sandbox: &Sandbox) -> Option<String> {
        Some(self.image.digest())
    }

    fn stand_by<'a>(&'a self, range: &'a Range) -> Pending<'a, Result<(), BackendError>> {
        Box::pin(self.stand(range))
    }

    fn posts(&self) -> Option<&Posts> {
        self.standing.get().map(|standing| &standing.posts)
    }

    fn comes_out_here(&self) -> bool {
        let standing = self.standing.get();
        self.on_a_bridge && standing.is_none_or(|standing| standing.here)
    }

    fn own_kernel(&self, sandbox: &Sandbox) -> Option<String> {
        let facts = &self.engine.facts;
        let runtime = sandbox.settings.runtime.as_ref();
        let runtime = runtime.unwrap_or(&facts.default_runtime);
        let own = facts.own_kernels.contains(runtime);
        own.then(|| format!("the engine runs it with `{runtime}`"))
    }

    fn facts(&self) -> Vec<(String, String)> {
        let mut facts = self.engine.facts.listed(&self.engine.endpoint);
        facts.extend(self.image.listed());
        facts.extend(self.in_force.borrow().iter().cloned());
        if let Some(standing) = self.standing.get() {
            facts.extend(standing.listed());
        }
        if !self.swept.is_empty() {
            facts.push(("swept of killed runs".into(), self.swept.join(", ")));
        }
        facts
    }

    fn close(&self) -> Pending<'_, Vec<String>> {
        Box::pin(async {
            if let Err(error) = self.health.check(&self.engine.docker).await {
                return vec![format!(
                    "the containers of this run, which the next run removes: {error}"
                )];
            }
            container::given_up().await;
            match sweep(&self.engine.docker, Which::Run(&self.run)).await {
                Ok(swept) => swept.left,
                Err(error) => vec![error.to_string()],
            }
        })
    }
}

fn running(container: Container, begun: Begun, health: Rc<Health>) -> Running {
    let Streams {
        stdin,
        stdout,
        stderr,
        delivery,
    } = begun.streams;
    Running {
        stdin: Some(Box::new(stdin)),
        stdout: Some(Box::new(stdout)),
        stderr: Some(Box::new(stderr)),
        init: begun.init,
        payload: begun.payload,
        life: Box::new(Held {
            container,
            ending: begun.ending,
            delivery,
            status: None,
            stopped: false,
            trouble: begun.weaker,
            health,
        }),
    }
}

/// A running container, held by the engine.
struct Held {
    container: Container,
    ending: Ending,
    delivery: Delivery,
    /// Once it has ended.
    status: Option<i32>,
    /// It was ended from here, and the engine said that it did so.
    stopped: bool,
    trouble: Vec<BackendError>,
    health: Rc<Health>,
}

impl Held {
    /// Its status, once all that it wrote has arrived.
    async fn end_of_all(&mut self) -> i32 {
        let status = match self.status {
            Some(status) => status,
            None => {
                let status = self.ending.status().await;
                let status = status.map(|status| i32::try_from(status).unwrap_or(-1));
                status.unwrap_or_else(|error| {
                    self.trouble.push(self.health.note(error));
                    -1
                })
            }
        };
        self.status = Some(status);
        self.delivery.complete().await;
        status
    }

    /// An engine that says that it ended a container, and never tells of its end, is not believed.
    async fn confirm_end(&mut self) {
        if !self.stopped || self.status.is_some() {
            return;
        }
        let told = tokio::time::timeout(Phase::Kill.deadline(), self.end_of_all());
        if told.await.is_err() {
            let text =
                "wait for the container: it was stopped, and the engine did not tell of its end";
            let error = BackendError::new("engine-timeout", text);
            self.trouble.push(self.health.note(error));
        }
    }
}

impl Life for Held {
    /// The engine started it.
    fn launcher(&self) -> Option<i32> {
        None
    }

    fn ended(&mut self) -> Pending<'_, i32> {
        Box::pin(self.end_of_all())
    }

    /// There is nobody between the engine and the harness, so whoever is to be killed, it is the container.
    fn stop(&mut self, how: Stop) -> Pending<'_, ()> {
        Box::pin(async move {
            self.delivery.swallow();
            let stopped = match how {
                Stop::Terminate => self.container.stop().await,
                Stop::Sandbox | Stop::Launcher | Stop::Group => self.container.kill().await,
            };
            match stopped {
                Ok(()) => self.stopped = true,
                Err(error) => self.trouble.push(self.health.note(error)),
            }
        })
    }

    fn end(&mut self) -> Pending<'_, Vec<String>> {
        self.delivery.swallow();
        Box::pin(async {
            self.confirm_end().await;
            match self.health.check(&self.container.docker).await {
                Ok(()) => {
                    let (left, why) = self.container.removed().await;
                    if let Some(error) = why {
                        self.health.note_left(error);
                    }
                    left
                }
                Err(error) => {
                    self.container.forget();
                    vec![format!("container {}: {error}", self.container.id)]
                }
            }
        })
    }

    fn trouble(&mut self) -> Vec<BackendError> {
        std::mem::take(&mut self.trouble)
    }
}

/// Whether a network of the user's own is a bridge: a macvlan has gateways that look like ours, and its packets go another
/// way.
async fn is_bridge(engine: &Engine, network: &NetworkMode) -> bool {
    let NetworkMode::Named(name) = network else {
        return true;
    };
    let asked = engine
        .docker
        .inspect_network(name, None::<InspectNetworkOptions>);
    let found = call(Phase::Inspect, asked).await;
    found.is_ok_and(|network| network.driver.as_deref() == Some("bridge"))
}

/// The text of the filter's own file: the engine takes the text, and not the path.
fn profile(settings: &Settings) -> Result<Option<String>, BackendError> {
    let Some(path) = &settings.seccomp_profile else {
        return Ok(None);
    };
    std::fs::read_to_string(path).map(Some).map_err(|error| {
        let text = format!("read the seccomp profile {}: {error}", path.display());
        BackendError::new("backend-failed", text)
            .help("`security_opt = [\"seccomp=FILE\"]` names a file of this machine")
    })
}

/// A name that an engine takes: letters, digits, dots, dashes.
fn word(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    name.chars().map(plain).collect()
}
