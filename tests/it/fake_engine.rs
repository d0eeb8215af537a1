//! A container engine that does as it is told: for what a real one cannot be made to do. It speaks as much of Docker's
//! interface (1.41) as an audit asks for, in the shapes of a real engine's answers; its containers are plain processes of
//! this machine, so that an audit through it comes to real verdicts, and a fault in one phase can spoil them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// The only image that it has.
pub const IMAGE: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It takes the question, and never answers.
    Hang,
    /// It does what it is told, and never says so.
    DoesAndHangs,
    /// It hangs up in the middle of its answer.
    HangUp,
    /// It answers this, whole, with the status 200 and as JSON.
    Says(&'static [u8]),
    /// It sends this instead of HTTP.
    Raw(&'static [u8]),
    /// A header of 10 MiB.
    HugeHeader,
    /// An answer that goes on, a piece after the other, for so many mebibytes or as long as somebody listens.
    Endless(usize),
    /// JSON in JSON, ten thousand levels of it.
    Deep,
    /// It promises more than it sends, and does not hang up.
    TooShort,
    /// It refuses with words that are not for a terminal.
    Refuses,
    /// It is gone, with its containers, and back after so many milliseconds.
    Restarts(u64),
}

/// What happens to whom: to every request with one of these words in its method and path, but for the first ones.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub words: &'static [&'static str],
    /// How many are answered before.
    pub after: usize,
    pub fault: Fault,
}

/// The words of an engine that wants to be taken for a terminal, a CI system or another report.
pub const WILD: &str = "\u{1b}[2J\u{1b}]0;owned\u{7} ##vso[task.complete result=Succeeded] ::error::x\r\n<b>]]>\u{fffe}\u{202e}";

/// The engine. Its threads end with the test's process, its containers when it is dropped.
pub struct FakeEngine {
    pub socket: PathBuf,
    state: Arc<State>,
    _folder: tempfile::TempDir,
}

#[derive(Default)]
struct State {
    rule: Option<Rule>,
    socket: PathBuf,
    seen: Mutex<usize>,
    connections: Mutex<Vec<UnixStream>>,
    containers: Mutex<BTreeMap<String, Container>>,
    ended: Condvar,
    /// Whether it is to be well again.
    healed: Mutex<bool>,
}

#[derive(Default)]
struct Container {
    name: String,
    asked: Value,
    input: Option<UnixStream>,
    output: Option<UnixStream>,
    child: Option<Arc<Mutex<Child>>>,
    pid: u32,
    status: Option<i32>,
}

impl FakeEngine {
    pub fn start(rule: Option<Rule>) -> Self {
        let folder = crate::support::folder();
        let socket = folder.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let state = Arc::new(State {
            rule,
            socket: socket.clone(),
            ..State::default()
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                state
                    .connections
                    .lock()
                    .unwrap()
                    .push(stream.try_clone().unwrap());
                std::thread::spawn(move || state.serve(stream));
            }
        });
        Self {
            socket,
            state,
            _folder: folder,
        }
    }

    /// From now on everything is answered as it should be. One that is being restarted is waited for.
    pub fn heal(&self) {
        *self.state.healed.lock().unwrap() = true;
        while !self.socket.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A container that an earlier run left, as its label says.
    pub fn plant(&self, name: &str, owner: &str) {
        let container = Container {
            name: name.to_owned(),
            asked: json!({"Labels": {"escape-audit.owner": owner, "escape-audit.run": name}}),
            ..Container::default()
        };
        let mut containers = self.state.containers.lock().unwrap();
        containers.insert("left".to_owned(), container);
    }

    /// The names of its containers.
    pub fn containers(&self) -> Vec<String> {
        let containers = self.state.containers.lock().unwrap();
        containers
            .values()
            .map(|found| found.name.clone())
            .collect()
    }

    /// Whether the fault came to pass.
    pub fn has_failed(&self) -> bool {
        let after = self.state.rule.map_or(0, |rule| rule.after);
        *self.state.seen.lock().unwrap() > after
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.state.end_all();
    }
}

/// Everything up to the empty line, and the body.
fn request(reader: &mut BufReader<UnixStream>) -> Option<(String, String, Vec<u8>)> {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    // Without the version, which is the client's to choose.
    let path = path.split_once("/v1.").map_or(path.clone(), |(_, rest)| {
        rest.find('/')
            .map_or(String::new(), |at| rest[at..].to_owned())
    });
    Some((method, path, body))
}

fn whole(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut answer =
        format!("HTTP/1.1 {status}\r\nApi-Version: 1.41\r\nServer: Docker/20.10.24 (linux)\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n")
            .into_bytes();
    answer.extend_from_slice(body);
    answer
}

fn says(status: &str, value: &Value) -> Vec<u8> {
    whole(status, "application/json", value.to_string().as_bytes())
}

const UPGRADED: &[u8] = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";

impl State {
    fn serve(self: &Arc<Self>, mut stream: UnixStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some((method, path, body)) = request(&mut reader) {
            let sent = match self.fault_for(&method, &path) {
                Some(fault) => {
                    if fault == Fault::DoesAndHangs
                        && !path.contains("/attach")
                        && !path.contains("/wait")
                    {
                        self.answer(&method, &path, &body);
                    }
                    return self.fail(fault, &mut stream);
                }
                None if method == "POST" && path.contains("/attach") => {
                    // Whoever hears that it is attached may start it at once.
                    let mut containers = self.containers.lock().unwrap();
                    let _ = stream.write_all(UPGRADED);
                    if let Some(container) = of(&mut containers, &path) {
                        match path.contains("stdin=true") {
                            true => container.input = Some(stream),
                            false => container.output = Some(stream),
                        }
                    }
                    return;
                }
                None => stream.write_all(&self.answer(&method, &path, &body)),
            };
            if sent.is_err() {
                return;
            }
        }
    }

    fn fault_for(&self, method: &str, path: &str) -> Option<Fault> {
        let rule = self.rule.filter(|_| !*self.healed.lock().unwrap())?;
        let asked = format!("{method} {path}");
        if !rule.words.iter().any(|word| asked.contains(word)) {
            return None;
        }
        let mut seen = self.seen.lock().unwrap();
        *seen += 1;
        match rule.fault {
            // Once; then it is as good as any other.
            Fault::Restarts(_) => (*seen == rule.after + 1).then_some(rule.fault),
            fault => (*seen > rule.after).then_some(fault),
        }
    }

    fn fail(&self, fault: Fault, stream: &mut UnixStream) {
        let json = "application/json";
        let _ = match fault {
            Fault::Hang | Fault::DoesAndHangs => Ok(()),
            Fault::HangUp => {
                let half = &whole("200 OK", json, &[b' '; 4096])[..300];
                let _ = stream.write_all(half);
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            Fault::Says(text) => stream.write_all(&whole("200 OK", json, text)),
            Fault::Raw(bytes) => stream.write_all(bytes),
            Fault::HugeHeader => stream
                .write_all(b"HTTP/1.1 200 OK\r\nX-Long: ")
                .and_then(|()| stream.write_all(&vec![b'x'; 10 << 20]))
                .and_then(|()| stream.write_all(b"\r\nContent-Length: 2\r\n\r\n{}")),
            Fault::Endless(most) => {
                let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n";
                let mut piece = b"100000\r\n".to_vec();
                piece.extend_from_slice(&vec![b' '; 1 << 20]);
                piece.extend_from_slice(b"\r\n");
                let mut sent = stream.write_all(head);
                for _ in 0..most {
                    sent = sent.and_then(|()| stream.write_all(&piece));
                }
                sent
            }
            Fault::Deep => {
                let deep = ["[".repeat(10_000), "]".repeat(10_000)].concat();
                stream.write_all(&whole("200 OK", json, deep.as_bytes()))
            }
            Fault::TooShort => stream.write_all(&whole("200 OK", json, &[b' '; 4096])[..300]),
            Fault::Refuses => {
                let words = json!({"message": WILD});
                stream.write_all(&says("500 Internal Server Error", &words))
            }
            Fault::Restarts(back) => {
                self.restart(Duration::from_millis(back));
                Ok(())
            }
        };
        // The line stays open until the client gives it up.
        let _ = stream.read(&mut [0; 1]);
    }

    fn restart(&self, back: Duration) {
        let aside = self.socket.with_extension("aside");
        std::fs::rename(&self.socket, &aside).unwrap();
        self.end_all();
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        std::thread::sleep(back);
        let _ = std::fs::rename(&aside, &self.socket);
    }

    fn end_all(&self) {
        for container in self.containers.lock().unwrap().values() {
            if let Some(child) = &container.child {
                let _ = child.lock().unwrap().kill();
            }
        }
    }

    fn answer(self: &Arc<Self>, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let none = json!({"message": "No such container: x"});
        let plain = path.split('?').next().unwrap_or_default();
        match (method, plain) {
            (_, "/_ping") => return whole("200 OK", "text/plain", b"OK"),
            ("GET", "/version") => return says("200 OK", &version()),
            ("GET", "/info") => return says("200 OK", &info()),
            ("GET", "/containers/json") => return says("200 OK", &self.list(path)),
            ("GET", "/volumes") => {
                return says("200 OK", &json!({"Volumes": [], "Warnings": null}));
            }
            ("GET", "/networks") => return says("200 OK", &json!([])),
            ("GET", path) if path.starts_with("/images/") => return says("200 OK", &image()),
            ("POST", "/containers/create") => return self.create(path, body),
            _ => {}
        }
        let mut containers = self.containers.lock().unwrap();
        let Some(container) = of(&mut containers, plain) else {
            return says("404 Not Found", &none);
        };
        match (method, plain.rsplit('/').next().unwrap_or_default()) {
            ("GET", "json") => says("200 OK", &container.described()),
            ("GET", "archive") => {
                whole("200 OK", "application/x-tar", &archive(&container.source()))
            }
            ("POST", "start") => {
                self.run(container);
                whole("204 No Content", "text/plain", b"")
            }
            ("POST", "kill" | "stop") => {
                if let Some(child) = &container.child {
                    let _ = child.lock().unwrap().kill();
                }
                whole("204 No Content", "text/plain", b"")
            }
            ("POST", "wait") => {
                let id = container.name.clone();
                let gone = |all: &mut BTreeMap<String, Container>| {
                    all.get(&id).is_some_and(|found| found.status.is_none())
                };
                let containers = self.ended.wait_while(containers, gone).unwrap();
                let status = containers.get(&id).and_then(|found| found.status);
                says("200 OK", &json!({"StatusCode": status.unwrap_or(137)}))
            }
            ("DELETE", _) => {
                if let Some(child) = &container.child {
                    let _ = child.lock().unwrap().kill();
                }
                containers.remove(plain.rsplit('/').next().unwrap_or_default());
                self.ended.notify_all();
                whole("204 No Content", "text/plain", b"")
            }
            _ => says("404 Not Found", &none),
        }
    }

    fn create(&self, path: &str, body: &[u8]) -> Vec<u8> {
        let name = path.split_once("name=").map_or("", |(_, name)| name);
        let name = name.split('&').next().unwrap_or_default().to_owned();
        let container = Container {
            name: name.clone(),
            asked: serde_json::from_slice(body).unwrap(),
            ..Container::default()
        };
        self.containers
            .lock()
            .unwrap()
            .insert(name.clone(), container);
        says("201 Created", &json!({"Id": name, "Warnings": []}))
    }

    fn run(self: &Arc<Self>, container: &mut Container) {
        let mut child = Command::new(container.source())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        container.pid = child.id();
        let child = Arc::new(Mutex::new(child));
        container.child = Some(Arc::clone(&child));
        if let Some(mut input) = container.input.take() {
            std::thread::spawn(move || {
                let mut buffer = [0; 8192];
                while let Ok(read @ 1..) = input.read(&mut buffer) {
                    if stdin.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
            });
        }
        let mut output = container.output.take();
        let (state, name) = (Arc::clone(self), container.name.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(read @ 1..) = stdout.read(&mut buffer) {
                if let Some(output) = &mut output {
                    let length = u32::try_from(read).unwrap().to_be_bytes();
                    let _ = output.write_all(&[&[1, 0, 0, 0][..], &length].concat());
                    let _ = output.write_all(&buffer[..read]);
                }
            }
            let status = loop {
                match child.lock().unwrap().try_wait().unwrap() {
                    Some(status) => break status.code().unwrap_or(137),
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
            };
            if let Some(output) = output {
                let _ = output.shutdown(Shutdown::Both);
            }
            if let Some(found) = state.containers.lock().unwrap().get_mut(&name) {
                found.status = Some(status);
            }
            state.ended.notify_all();
        });
    }

    fn list(&self, path: &str) -> Value {
        let containers = self.containers.lock().unwrap();
        let all = containers.iter().map(|(id, found)| {
            json!({"Id": id, "Names": [format!("/{}", found.name)], "Image": IMAGE, "ImageID": IMAGE,
                   "Created": 1_700_000_000, "Labels": found.asked["Labels"], "State": "running", "Status": "Up"})
        });
        // `filters={"label":["NAME=VALUE"]}`, escaped: what is asked for is this run's, or anybody's.
        let run = path
            .split("run-")
            .nth(1)
            .map(|rest| rest.split("%22").next().unwrap_or(rest));
        all.filter(|found| {
            let label = found["Labels"]["escape-audit.run"]
                .as_str()
                .unwrap_or_default();
            run.is_none_or(|run| label.ends_with(run))
        })
        .collect()
    }
}

impl Container {
    /// The probe's file on this machine.
    fn source(&self) -> String {
        let mounts = self.asked["HostConfig"]["Mounts"].as_array();
        let ours = mounts
            .iter()
            .copied()
            .flatten()
            .find(|mount| mount["Target"] == "/.escape-audit/probe");
        ours.map_or_else(String::new, |mount| {
            mount["Source"].as_str().unwrap_or_default().to_owned()
        })
    }

    fn described(&self) -> Value {
        let mut config = self.asked.clone();
        let host = config["HostConfig"].take();
        let mounts: Vec<Value> = host["Mounts"].as_array().cloned().unwrap_or_default();
        let mounts: Vec<Value> = mounts
            .iter()
            .map(|mount| {
                json!({"Type": mount["Type"], "Source": mount["Source"], "Destination": mount["Target"], "Mode": "",
                       "RW": mount["ReadOnly"] != true, "Propagation": "rprivate"})
            })
            .collect();
        let runs = self.pid != 0 && self.status.is_none();
        let word = match (self.pid, self.status) {
            (0, _) => "created",
            (_, None) => "running",
            (_, Some(_)) => "exited",
        };
        json!({
            "Id": self.name, "Name": format!("/{}", self.name), "Image": IMAGE, "Created": "2026-11-01T00:00:00Z",
            "State": {"Status": word, "Running": runs, "Paused": false, "Restarting": false, "OOMKilled": false, "Dead": false,
                      "Pid": if runs { self.pid } else { 0 }, "ExitCode": self.status.unwrap_or(0), "Error": ""},
            "HostConfig": host, "Config": config, "Mounts": mounts,
            "NetworkSettings": {"Networks": {"none": {}}},
        })
    }
}

fn of<'a>(
    containers: &'a mut BTreeMap<String, Container>,
    path: &str,
) -> Option<&'a mut Container> {
    let id = path.strip_prefix("/containers/")?;
    let id = id.split(['/', '?']).next().unwrap_or(id);
    containers.get_mut(id)
}

fn archive(file: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    if Path::new(file).is_file() {
        builder.append_path_with_name(file, "probe").unwrap();
    }
    builder.into_inner().unwrap()
}

fn version() -> Value {
    let components = json!([
        {"Name": "Engine", "Version": "20.10.24", "Details": {"ApiVersion": "1.41", "Arch": "amd64", "MinAPIVersion": "1.12", "Os": "linux"}},
        {"Name": "containerd", "Version": "1.6.20", "Details": {"GitCommit": "1"}},
        {"Name": "runc", "Version": "1.1.5", "Details": {"GitCommit": "1"}},
    ]);
    json!({"Platform": {"Name": ""}, "Components": components, "Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12",
           "GitCommit": "1", "GoVersion": "go1.19.8", "Os": "linux", "Arch": arch(), "KernelVersion": "6.1.0"})
}

fn info() -> Value {
    json!({"ID": "FAKE:FAKE", "Name": "fake", "Driver": "overlay2", "CgroupDriver": "systemd", "CgroupVersion": "1", "KernelVersion": "6.1.0",
           "Architecture": std::env::consts::ARCH, "OSType": "linux", "ServerVersion": "20.10.24", "DefaultRuntime": "runc",
           "Runtimes": {"runc": {"path": "runc"}}, "SecurityOptions": ["name=seccomp,profile=default"], "Warnings": null})
}

fn image() -> Value {
    json!({"Id": IMAGE, "RepoTags": [], "RepoDigests": [], "Created": "2026-11-01T00:00:00Z", "Architecture": arch(), "Os": "linux",
           "Config": {"User": "", "Env": ["PATH=/bin"], "Cmd": ["sh"], "Volumes": null, "Labels": null}, "Size": 1, "RootFS": {"Type": "layers"}})
}

/// As engines call it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
