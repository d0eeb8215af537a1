//! The range, for real: as whoever runs the tests, and as an ordinary user. Whatever leaves loopback does so inside
//! the namespace that the range made.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use escape_audit::case::{Attempt, CanaryKind, Position, Transport, UnixTarget};
use escape_audit::range::post::{Ground, Post};
use escape_audit::range::posts::Posts;
use escape_audit::range::sentinel::Sentinel;
use escape_audit::range::{Mode, ON_THE_WAY, Options, Range, Stand, TargetSpec};
use tokio::process::Command;

use crate::support::{copy_of, folder};

/// Where a test that was executed again, as another user or in the namespace, finds the program.
const PROGRAM: &str = "ESCAPE_AUDIT_TEST_PROGRAM";
/// What a test that was executed again inside is to touch: an address, a blank, a token.
const TOUCH: &str = "ESCAPE_AUDIT_TEST_TOUCH";

fn program() -> PathBuf {
    std::env::var_os(PROGRAM)
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_escape-audit").into())
        .into()
}

fn shared_program() -> (tempfile::TempDir, PathBuf) {
    copy_of(&program())
}

fn open(folder: &Path, own_namespace: bool) -> Range {
    let options = Options {
        program: program(),
        stand: if own_namespace {
            Stand::Own
        } else {
            Stand::Loopback
        },
        ..Options::new(folder)
    };
    Range::open(&options).unwrap()
}

fn connect(transport: Transport, positions: &[Position]) -> Attempt {
    Attempt::Connect {
        transport,
        positions: positions.to_vec(),
    }
}

const EVERYWHERE: [Position; 5] = [
    Position::Loopback,
    Position::Gateway,
    Position::Host,
    Position::Sibling,
    Position::Internet,
];

fn network_attempts() -> Vec<Attempt> {
    vec![
        connect(Transport::Tcp, &EVERYWHERE),
        connect(Transport::Udp, &EVERYWHERE),
        connect(Transport::Tcp6, &EVERYWHERE),
        Attempt::Http {
            urls: [
                "169.254.169.254/latest/meta-data/",
                "169.254.170.2/v2/credentials",
                "100.100.100.200/latest/",
                "[fd00:ec2::254]/latest/",
                "203.0.113.10/",
            ]
            .map(|rest| format!("http://{rest}"))
            .to_vec(),
            method: "GET".into(),
            headers: Vec::new(),
        },
        Attempt::Dns,
        Attempt::ConnectUnix {
            to: UnixTarget::Abstract,
        },
        Attempt::ConnectUnix {
            to: UnixTarget::Path,
        },
        Attempt::EngineSocket { paths: Vec::new() },
        Attempt::RawSocket,
    ]
}

/// Executes a test of this file again, as a child that tells by its status whether it passed.
fn again(test: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args([test, "--exact", "--include-ignored", "--nocapture"])
        .env(PROGRAM, program())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Sends the token to the target from a child, which entered the range or not.
async fn touch_from_child(range: &Range, target: &TargetSpec, token: &str, inside: bool) -> bool {
    let mut command = again("range::helper_touches_from_a_child");
    command.env(TOUCH, format!("{} {token}", target.address));
    if inside {
        let entry = range.entry();
        // SAFETY: `enter` is made for this place; it does nothing but system calls.
        unsafe { command.pre_exec(move || entry.enter()) };
    }
    let output = command.output().await.unwrap();
    output.status.success()
}

#[test]
fn helper_touches_from_a_child() {
    let Ok(order) = std::env::var(TOUCH) else {
        return;
    };
    let (address, token) = order.split_once(' ').unwrap();
    let place: SocketAddr = address.strip_prefix("tcp://").unwrap().parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&place, Duration::from_secs(2)).unwrap();
    stream.write_all(token.as_bytes()).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| status.lines().find(|l| l.starts_with(name)).unwrap();
    let root = line("Uid:").split_whitespace().nth(2) == Some("0");
    assert!(root || line("CapEff:").ends_with("0000000000000000"));
}

#[tokio::test]
async fn every_canary_is_alive_and_reached_from_inside_alone() {
    let folder = folder();
    let mut range = open(folder.path(), true);
    assert_eq!(range.mode(), &Mode::Own);
    for attempt in network_attempts() {
        let targets = range.targets(&attempt);
        assert!(!targets.is_empty() || !range.has_ipv6(), "{attempt:?}");
        for target in targets {
            let six = target.address.contains('[');
            assert!(
                range.alive(&target).await || (six && !range.has_ipv6()),
                "{target:?}"
            );
        }
    }

    let internet = range.targets(&connect(Transport::Tcp, &[Position::Internet]));
    let loopback = range.targets(&connect(Transport::Tcp, &[Position::Loopback]));
    let (token, start) = (range.watch(), Instant::now());
    assert!(touch_from_child(&range, &internet[0], token.as_str(), true).await);
    assert!(touch_from_child(&range, &loopback[0], token.as_str(), true).await);
    let end = Instant::now();
    // From outside, the range's loopback is another one. (No other address is ever tried from there.)
    assert!(!touch_from_child(&range, &loopback[0], token.as_str(), false).await);
    let touches = range.touches(&token, start, Some(end));
    let seen: Vec<_> = touches.iter().map(|t| t.address.as_str()).collect();
    assert_eq!(seen, [&internet[0].address, &loopback[0].address]);
    assert!(
        touches
            .iter()
            .all(|t| !t.late && t.canary == CanaryKind::Tcp)
    );
    let long_ago = start.checked_sub(ON_THE_WAY).unwrap();
    let late = range.touches(&token, start, Some(long_ago));
    assert!(late.iter().all(|t| t.late));

    range.kill_listener(CanaryKind::Tcp);
    assert!(!range.alive(&internet[0]).await);
    let udp = range.targets(&connect(Transport::Udp, &[Position::Internet]));
    assert!(range.alive(&udp[0]).await);
}

#[tokio::test]
async fn an_ordinary_user_has_the_same_range() {
    if !nix::unistd::geteuid().is_root() {
        return; // the test above was it
    }
    let (_shared, copy) = shared_program();
    let output = again("range::every_canary_is_alive_and_reached_from_inside_alone")
        .env(PROGRAM, &copy)
        .uid(65534)
        .gid(65534)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{output:?}"
    );
}

#[tokio::test]
async fn without_a_namespace_only_loopback_is_ever_a_target() {
    let folder = folder();
    let range = open(folder.path(), false);
    assert!(matches!(range.mode(), Mode::LoopbackOnly { .. }));
    for attempt in network_attempts() {
        for target in range.targets(&attempt) {
            let stays = ["//127.", "//[::1]", "abstract:", "path:"];
            let http = target.canary == CanaryKind::Http;
            assert!(
                http || stays.iter().any(|s| target.address.contains(s)),
                "{target:?}"
            );
            // The helper refuses to address anything but loopback, so that a metadata service is never asked.
            assert_eq!(range.alive(&target).await, !http, "{target:?}");
        }
    }
    let tcp = connect(Transport::Tcp, &[Position::Internet, Position::Host]);
    assert_eq!(range.targets(&tcp), []);
}

#[tokio::test]
async fn a_flood_of_garbage_neither_fills_the_memory_nor_hides_a_token() {
    let folder = folder();
    let range = open(folder.path(), false);
    let target = &range.targets(&connect(Transport::Tcp, &[Position::Loopback]))[0];
    let place: SocketAddr = target.address["tcp://".len()..].parse().unwrap();
    let (token, start) = (range.watch(), Instant::now());
    // More conversations than the canary holds, all of them silent and kept open; and one with a token at the end.
    let clinging: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(place).unwrap();
            stream.write_all(&[0xff; 50]).unwrap();
            stream
        })
        .collect();
    let mut last = TcpStream::connect(place).unwrap();
    last.write_all(&[token.as_ref(), &[b'x'; 100_000]].concat())
        .ok();
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if !range.touches(&token, start, None).is_empty() {
            break;
        }
    }
    let touches = range.touches(&token, start, None);
    assert_eq!(touches.len(), 1);
    assert!(touches[0].saw.len() <= 4096);
    drop(clinging);
}

#[tokio::test]
async fn a_program_that_is_no_helper_is_an_error_that_names_the_step() {
    let folder = folder();
    let options = Options {
        program: "/bin/true".into(),
        stand: Stand::Loopback,
        ..Options::new(folder.path())
    };
    let error = Range::open(&options).unwrap_err().to_string();
    assert!(error.contains("hear from the range's helper"), "{error}");
}

/// Sends SIGURG with a value, as the probe does.
fn signal(pid: i32, value: i32) -> std::io::Result<()> {
    let value = nix::libc::sigval {
        sival_ptr: value as usize as *mut nix::libc::c_void,
    };
    // SAFETY: the value is a number to both sides; nobody follows it.
    let sent = unsafe { nix::libc::sigqueue(pid, nix::libc::SIGURG, value) };
    if sent == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        holds()
    })
}

#[test]
fn a_sentinel_is_known_by_a_name_that_no_argument_holds_and_tells_who_signalled_it() {
    let mut sentinel = Sentinel::start(&program(), None).unwrap();
    let proc = |file: &str| {
        let path = format!("/proc/{}/{file}", sentinel.pid());
        String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
    };
    assert_eq!(proc("comm").trim_end(), sentinel.name());
    assert!(!proc("cmdline").contains(sentinel.name()));
    assert_eq!(proc("environ"), "");

    assert!(!sentinel.signalled_with(77));
    signal(sentinel.pid(), 78).unwrap();
    assert!(eventually(|| sentinel.signalled_with(78)));
    assert!(!sentinel.signalled_with(77));
    assert!(sentinel.alive());
    signal(sentinel.pid(), 77).unwrap();
    assert!(eventually(|| sentinel.signalled_with(77)));

    let pid = nix::unistd::Pid::from_raw(sentinel.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert!(eventually(|| !sentinel.alive()));
}

#[test]
fn a_sentinel_can_be_another_user() {
    if !nix::unistd::geteuid().is_root() {
        return; // only root can start one
    }
    let (_shared, copy) = shared_program();
    let sentinel = Sentinel::start(&copy, Some(65534)).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", sentinel.pid())).unwrap();
    let uid = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .unwrap();
    assert!(
        uid.split_whitespace().skip(1).all(|id| id == "65534"),
        "{uid}"
    );
}

/// Stands for a harness that is killed: nobody is left to end its helpers, but their pipes close.
#[test]
fn a_sentinel_and_a_helper_end_with_the_harness() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    let pair = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    );
    let (line, theirs) = pair.unwrap();
    let start = |arguments: &[&str], input: std::process::Stdio| {
        let mut command = std::process::Command::new(program());
        let output = std::process::Stdio::null();
        command
            .args(arguments)
            .stdin(input)
            .stdout(output)
            .spawn()
            .unwrap()
    };
    let helper = start(&["__range", "loopback"], theirs.into());
    let mut sentinel = start(&["__sentinel"], std::process::Stdio::piped());
    let mut pipe = sentinel.stdin.take().unwrap();
    writeln!(pipe, "name").unwrap();
    let children = &mut [helper, sentinel];
    std::thread::sleep(Duration::from_millis(100));
    for child in children.iter_mut() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended too early");
    }
    drop((line, pipe));
    for child in children.iter_mut() {
        let ended = eventually(|| child.try_wait().unwrap().is_some());
        child.kill().ok();
        assert!(ended);
    }
}

#[tokio::test]
async fn nothing_of_a_range_is_left() {
    let folder = folder();
    let range = open(folder.path(), true);
    let sockets = range.socket_folders().to_vec();
    assert!(sockets.len() > 1 && sockets.iter().all(|folder| folder.is_dir()));
    let children = || {
        let task = format!("/proc/self/task/{}/children", nix::unistd::gettid());
        std::fs::read_to_string(task).unwrap()
    };
    assert_ne!(children(), "");
    drop(range);
    assert_eq!(children(), "");
    assert!(sockets.iter().all(|folder| !folder.exists()));
}

/// A probe that listens, on the loopback of the range's machine, as its canary there.
#[tokio::test]
async fn a_probe_that_listens_elsewhere_is_heard_as_a_canary() {
    let folder = folder();
    let range = open(folder.path(), false);
    let probe = escape_audit::host::probe::install(folder.path()).unwrap();
    let mut child = Command::new(&probe)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let loopback = Ground::Beside(vec!["127.0.0.1".parse().unwrap()]);
    let post = Post::open(&range, ("0123abcd", "ea-post"), input, output, &loopback)
        .await
        .unwrap();
    assert!(post.shares_network_with(&range).await);
    let attempt = connect(Transport::Tcp, &[Position::Sibling]);
    let targets = post.targets(&attempt);
    assert_eq!(targets.len(), 1, "{targets:?}");
    assert!(
        post.targets(&connect(Transport::Tcp, &[Position::Host]))
            .is_empty()
    );
    let address = targets[0].address.clone();
    assert!(post.alive(&address).await);
    assert!(!post.alive("tcp://127.0.0.1:1").await, "none of its own");
    // Who shows a token that is looked out for is told of as by any other canary.
    let (token, start) = (range.watch(), Instant::now());
    let at: SocketAddr = address.strip_prefix("tcp://").unwrap().parse().unwrap();
    TcpStream::connect(at)
        .unwrap()
        .write_all(token.as_ref())
        .unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while range.touches(&token, start, None).is_empty() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let touches = range.touches(&token, start, None);
    assert_eq!(touches.len(), 1, "{touches:?}");
    assert_eq!(
        (touches[0].canary, &touches[0].address),
        (CanaryKind::Tcp, &address)
    );
    // What nobody reached where nothing should stop it proves nothing by its silence.
    let posts = Posts::new(Some(post), None);
    assert!(posts.holds(&address) && !posts.is_vouched(&address));
    posts.vouch(&touches);
    assert!(posts.is_vouched(&address) && !posts.is_vouched("tcp://127.0.0.1:1"));
    let here = range.targets(&connect(Transport::Tcp, &[Position::Loopback]));
    assert_eq!(posts.targets(&attempt, here.clone()).len(), here.len() + 1);
    child.kill().await.unwrap();
    assert_eq!(posts.alive(&address).await, Some(false));
}
