//! The docker backend against a real engine, the range's: what it must not lose, whom it must not believe, what it must
//! not leave, and what it says when something is not there.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use bollard::query_parameters::{ListContainersOptionsBuilder, ListVolumesOptionsBuilder};
use escape_audit::backend::BackendError;
use escape_audit::backend::docker::container::Container;
use escape_audit::backend::docker::endpoint::{Address, Endpoint};
use escape_audit::backend::docker::engine::{Engine, Kind};
use escape_audit::backend::docker::probe::Face;
use escape_audit::backend::docker::spec::{self, Delivery};
use escape_audit::backend::docker::sweep::{Which, sweep};
use escape_audit::backend::docker::{image, owner, probe};
use escape_audit::config::model::Image;
use escape_audit::config::{NetworkMode, Settings};
use escape_audit::host;
use futures_util::stream::{self, StreamExt as _};
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use crate::support::{Audit, Seen, folder, have, range_image};

/// What the engine's own clients run on, and the harness too: one thread.
fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

fn image_id(line: &str) -> String {
    range_image(line).unwrap_or_else(|| panic!("the range has no {line}"))
}

/// The body of a hardened container of this image with our probe.
fn body(image: &str, run: &str, delivery: &Delivery) -> bollard::models::ContainerCreateBody {
    let settings = Settings {
        network_mode: NetworkMode::None,
        mem_limit: Some(64 << 20),
        memswap_limit: Some(64 << 20),
        capabilities: Vec::new(),
        ..Settings::default()
    };
    let context = spec::Context {
        image,
        probe: delivery,
        labels: owner::labels(run, "t"),
        environment: Vec::new(),
        exposed: &[],
        set_uid: None,
        seccomp_profile: None,
    };
    spec::body(&settings, context)
}

/// A run of our own, for what a test makes without the program.
fn run_name(test: &str) -> String {
    format!("it-{}-{test}", std::process::id())
}

/// Starts a container whose probe finds no input, says so, and is gone. Gives back what it said, and its status.
async fn brief(
    engine: &Engine,
    name: &str,
    body: bollard::models::ContainerCreateBody,
) -> (String, i64) {
    let mut container = Container::create(&engine.docker, name, body).await.unwrap();
    let mut streams = container.attach().await.unwrap();
    drop(streams.stdin);
    container.start().await.unwrap();
    let mut ending = container.ending();
    let mut said = String::new();
    streams.stdout.read_to_string(&mut said).await.unwrap();
    let status = ending.status().await.unwrap();
    streams.delivery.complete().await;
    assert_eq!(container.remove().await, Vec::<String>::new());
    (said, status)
}

/// What the engine has with this label.
async fn labelled(engine: &Engine, label: &str) -> Vec<String> {
    let filter = HashMap::from([("label", vec![label])]);
    let options = ListContainersOptionsBuilder::default()
        .all(true)
        .filters(&filter)
        .build();
    let containers = engine.docker.list_containers(Some(options)).await.unwrap();
    let options = ListVolumesOptionsBuilder::default()
        .filters(&filter)
        .build();
    let volumes = engine.docker.list_volumes(Some(options)).await.unwrap();
    let names = containers
        .into_iter()
        .filter_map(|found| found.names?.pop());
    names
        .chain(
            volumes
                .volumes
                .into_iter()
                .flatten()
                .map(|volume| volume.name),
        )
        .collect()
}

#[test]
fn the_engine_that_answers_is_named() {
    if !have(&["docker"]) {
        return;
    }
    let engine = on_a_runtime(Engine::open(None)).unwrap();
    assert_eq!(engine.endpoint.named_by, "DOCKER_HOST");
    assert_eq!(engine.facts.kind, Some(Kind::Docker));
    let facts: BTreeMap<String, String> =
        engine.facts.listed(&engine.endpoint).into_iter().collect();
    for fact in [
        "engine",
        "engine id",
        "engine api",
        "engine kernel",
        "engine default runtime",
    ] {
        assert!(facts.contains_key(fact), "{fact}: {facts:?}");
    }
}

/// 200 of them, when it was written; fewer here, for they take the engine their time.
#[test]
fn no_record_of_a_short_run_is_lost() {
    if !have(&["root", "docker"]) {
        return;
    }
    let many: usize = std::env::var("ESCAPE_AUDIT_BRIEF_RUNS")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(24);
    let run = run_name("brief");
    let folder = folder();
    let file = host::probe::install(folder.path()).unwrap();
    let delivery = Delivery::Bind(file.to_string_lossy().into_owned());
    on_a_runtime(async {
        let engine = Engine::open(None).await.unwrap();
        let image = image_id("EMPTY_ID");
        let said: Vec<(String, i64)> = stream::iter(0..many)
            .map(|number| {
                let (body, name) = (body(&image, &run, &delivery), format!("{run}-{number}"));
                let engine = &engine;
                async move { brief(engine, &name, body).await }
            })
            .buffer_unordered(8)
            .collect()
            .await;
        let whole = said.iter().filter(|(said, _)| said == "EA1 - 0 no-input\n");
        assert_eq!(whole.count(), many, "{said:?}");
        assert_eq!(
            labelled(&engine, &format!("{}={run}", owner::RUN)).await,
            Vec::<String>::new()
        );
    });
}

#[test]
fn the_probe_comes_in_through_a_volume_where_the_engine_does_not_see_it() {
    if !have(&["root", "docker"]) {
        return;
    }
    let run = run_name("volume");
    on_a_runtime(async {
        let engine = Engine::open(None).await.unwrap();
        let image = image_id("EMPTY_ID");
        let delivery = probe::upload(
            &engine.docker,
            &image,
            &run,
            "w",
            Face::Probe,
            host::probe::BYTES,
        )
        .await;
        let delivery = delivery.unwrap();
        assert!(matches!(delivery, Delivery::Volume(_)));
        let (said, _) = brief(&engine, &run, body(&image, &run, &delivery)).await;
        assert_eq!(said, "EA1 - 0 no-input\n");
        let swept = sweep(&engine.docker, Which::Run(&run)).await.unwrap();
        assert_eq!((swept.removed.len(), swept.left.len()), (1, 0), "{swept:?}");
        // And where it does, it is proven by what the engine gives back.
        let folder = folder();
        let file = host::probe::install(folder.path()).unwrap();
        let seen = probe::deliver(&engine.docker, &image, &run, "w", &file)
            .await
            .unwrap();
        assert!(matches!(seen, Delivery::Bind(_)));
        assert_eq!(
            labelled(&engine, &format!("{}={run}", owner::RUN)).await,
            Vec::<String>::new()
        );
    });
}

#[test]
fn an_image_that_is_not_the_one_is_refused() {
    if !have(&["docker"]) {
        return;
    }
    let digest = |of: &str| format!("sha256:{}", of.repeat(64));
    let pinned = |name: &str, digest: String| Image::Digest {
        reference: format!("{name}@{digest}"),
        digest,
    };
    on_a_runtime(async {
        let engine = Engine::open(None).await.unwrap();
        let refused = async |image: Image| {
            let resolved = image::resolve(&engine, &image, None, &mut |_| {}).await;
            resolved.expect_err("refused").code
        };
        let registry = "127.0.0.1:5000/escape-audit-test/busybox";
        assert_eq!(refused(Image::Id(digest("0"))).await, "image-missing");
        assert_eq!(
            refused(pinned(registry, digest("0"))).await,
            "image-missing"
        );
        assert_eq!(
            refused(pinned("127.0.0.1:1/a", digest("0"))).await,
            "registry-unreachable"
        );
        let foreign = Image::Id(image_id("FOREIGN_ARCH_ID"));
        assert_eq!(refused(foreign).await, "image-architecture");
        let busybox = image_id("BUSYBOX_DIGEST");
        let (name, digest) = busybox.rsplit_once('@').unwrap();
        let facts = image::resolve(&engine, &pinned(name, digest.into()), None, &mut |_| {}).await;
        let facts = facts.unwrap();
        assert_eq!(facts.id, image_id("BUSYBOX_ID"));
        assert!(facts.repo_digests.contains(&busybox), "{facts:?}");
    });
}

/// A registry that knows one answer.
fn registry(status: &'static str, body: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming().take(32) {
            let Ok(mut connection) = connection else {
                return;
            };
            let _ = connection.set_read_timeout(Some(Duration::from_secs(2)));
            let _ = connection.read(&mut [0; 4096]);
            let _ = write!(
                connection,
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    port
}

#[test]
fn what_a_registry_answers_is_told_apart() {
    if !have(&["docker"]) {
        return;
    }
    let answers = [
        (
            "401 Unauthorized",
            r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#,
            "registry-unauthorized",
        ),
        (
            "404 Not Found",
            r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#,
            "image-missing",
        ),
        (
            "429 Too Many Requests",
            r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit"}]}"#,
            "registry-rate-limited",
        ),
        ("500 Internal Server Error", "oops", "registry-failed"),
    ];
    on_a_runtime(async {
        let engine = Engine::open(None).await.unwrap();
        for (status, body, code) in answers {
            let digest = format!("sha256:{}", "1".repeat(64));
            let reference = format!("127.0.0.1:{}/a/b@{digest}", registry(status, body));
            let image = Image::Digest { reference, digest };
            let error = image::resolve(&engine, &image, None, &mut |_| {}).await;
            let error = error.expect_err("refused");
            assert_eq!(error.code, code, "{status}: {error}");
            assert!(error.help.is_some(), "{error}");
        }
    });
}

/// An engine that takes a connection and says nothing.
#[test]
fn an_engine_that_hangs_is_an_error_within_its_deadline() {
    let folder = folder();
    let socket = folder.path().join("engine.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let connect = |address: Address| -> BackendError {
        let named_by = "a test".to_owned();
        let connected = on_a_runtime(Engine::connect(Endpoint { address, named_by }));
        connected.err().expect("no engine")
    };
    let began = Instant::now();
    let error = connect(Address::Unix(socket.clone()));
    assert_eq!(error.code, "engine-timeout", "{error}");
    assert!(began.elapsed() < Duration::from_secs(15));
    drop(listener);
    let error = connect(Address::Unix(socket.clone()));
    assert_eq!(error.code, "engine-refused", "{error}");
    fs::remove_file(&socket).unwrap();
    assert_eq!(
        connect(Address::Unix(socket.clone())).code,
        "engine-missing"
    );
    fs::write(&socket, "").unwrap();
    assert_eq!(connect(Address::Unix(socket)).code, "engine-missing");
    let certificates = folder.path().to_owned();
    let tls = Address::Tls("127.0.0.1:1".into(), certificates);
    assert_eq!(connect(tls).code, "engine-tls");
}

/// A hardened container of this image, as a project's file.
fn project(image: &str) -> String {
    format!(
        r#"
[sandbox.hardened]
backend = "docker"
image_id = "{image}"
network_mode = "none"
read_only = true
mem_limit = "64m"
memswap_limit = "64m"
cpus = 0.5
pids_limit = 64
shm_size = "1m"
tmpfs = ["/scratch:size=16m,mode=1777"]
cap_drop = ["ALL"]
security_opt = ["no-new-privileges"]
user = "65534:65534"
"#
    )
}

/// Starts an audit of the hardened container.
fn audit(folder: &Path, image: &str, arguments: &[&str]) -> Audit {
    let config = folder.join("escape-audit.toml");
    fs::write(&config, project(image)).unwrap();
    let config = config.to_string_lossy().into_owned();
    let mut all = vec!["--config", config.as_str(), "--sandbox", "hardened"];
    all.extend(arguments);
    Audit::run(&all)
}

/// What of this run is on the engine, whatever its names.
pub fn on_the_engine(pid: i32) -> Vec<String> {
    on_a_runtime(async {
        let engine = Engine::open(None).await.unwrap();
        let all = labelled(&engine, owner::RUN).await;
        let run = format!("run-{pid}-");
        all.into_iter().filter(|name| name.contains(&run)).collect()
    })
}

fn finished(audit: Audit) -> Seen {
    let pid = audit.pid;
    let seen = audit.finish();
    assert_eq!(on_the_engine(pid), Vec::<String>::new());
    seen
}

#[test]
fn a_hostile_image_changes_no_verdict() {
    if !have(&["root", "docker"]) {
        return;
    }
    let cases = [
        "--case",
        "works/*",
        "--case",
        "network/tcp-egress",
        "--case",
        "processes/outlive-timeout",
        "--case",
        "resources/output-flood",
        "--case",
        "privilege/mount",
        "--case",
        "processes/see-host-process",
    ];
    let folder = folder();
    let plain = finished(audit(folder.path(), &image_id("BUSYBOX_ID"), &cases));
    let hostile = finished(audit(folder.path(), &image_id("HOSTILE_ID"), &cases));
    assert_eq!(plain.status, 0, "{}{}", plain.out, plain.err);
    assert_eq!(hostile.verdicts(), plain.verdicts(), "{}", hostile.out);
    assert_eq!(hostile.status, 0, "{}{}", hostile.out, hostile.err);
    let in_force = hostile.report["sandboxes"][0]["in_force"].to_string();
    for word in ["/data", "switched off", "LD_PRELOAD"] {
        assert!(in_force.contains(word), "{word}: {in_force}");
    }
}

#[test]
fn a_sandbox_that_cannot_be_opened_is_an_error_of_all_its_trials() {
    if !have(&["root", "docker"]) {
        return;
    }
    let folder = folder();
    let missing = format!("sha256:{}", "0".repeat(64));
    let seen = finished(audit(folder.path(), &missing, &["--case", "works/*"]));
    assert_eq!(seen.status, 3, "{}{}", seen.out, seen.err);
    for trial in seen.trials() {
        assert_eq!(
            (&trial["verdict"], &trial["reason"]),
            (&Value::from("ERROR"), &Value::from("image-missing"))
        );
    }
}

#[test]
fn containers_go_with_the_run_however_it_ends() {
    if !have(&["root", "docker"]) {
        return;
    }
    let folder = folder();
    let busybox = image_id("BUSYBOX_ID");
    let in_the_middle = || {
        let mut audit = audit(folder.path(), &busybox, &["--case", "processes/*"]);
        audit.until("a container", |audit| !on_the_engine(audit.pid).is_empty());
        audit
    };
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut audit = in_the_middle();
        audit.signal(signal);
        finished(audit);
    }
    // A killed run can remove nothing. The next one does, and leaves a live one's alone; so does `clean`. And so does
    // any run of another test beside this one: whoever comes too late to see what was left kills once more.
    let killed = || {
        let left_something = |_| {
            let mut killed = in_the_middle();
            killed.signal(Signal::SIGKILL);
            let pid = killed.pid;
            let (_, left) = killed.finish_with_traces();
            (!left.is_empty() && !on_the_engine(pid).is_empty()).then_some(pid)
        };
        (0..5)
            .find_map(left_something)
            .expect("a killed run leaves something")
    };
    let (dead, live) = (killed(), in_the_middle());
    let next = finished(audit(folder.path(), &busybox, &["--case", "works/run"]));
    assert_eq!(next.status, 0, "{}{}", next.out, next.err);
    assert_eq!(on_the_engine(dead), Vec::<String>::new());
    let cleaned = (0..5).any(|_| {
        let dead = killed();
        let clean = Audit::start_in("clean", &[], |_| {}).finish();
        assert_eq!(clean.status, 0, "{}{}", clean.out, clean.err);
        assert_eq!(on_the_engine(dead), Vec::<String>::new());
        clean.out.contains("container escape-audit-run-")
    });
    assert!(cleaned, "`clean` does not say what it removed");
    let seen = finished(live);
    assert_eq!(seen.status, 0, "{}{}", seen.out, seen.err);
}
