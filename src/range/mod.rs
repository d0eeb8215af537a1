//! The range: canaries that a sandbox must not reach, and the namespace they stand in, which no packet can leave.
//!
//! ```text
//! Range::open(&Options) -> Result<Range, RangeError>     inside a tokio runtime; falls back to loopback alone
//!   .mode() -> &Mode                                     Own | LoopbackOnly { why }
//!   .has_ipv6() -> bool
//!   .socket_folders() -> &[PathBuf]                      what exposes host files has to expose these
//!   .entry() -> Arc<Entry>                               Entry::enter() in Command::pre_exec
//!   .targets(&Attempt) -> Vec<TargetSpec>                { canary, position, address }
//!   .watch() -> Token, .forget(&Token)
//!   .touches(&Token, start, end: Option<Instant>) -> Vec<Touch>
//!   .alive(&TargetSpec).await -> bool                    really reached, from inside the namespace
//! netns::helper_main() -> i32                            what `escape-audit __range` is
//! post::Post::open(&range, …).await                        a probe that listens elsewhere, and is heard here
//! plant::Plants::plant(run_dir) -> Result<Plants, _>     environment, files, home, drop_dirs, …
//! plant::reap(journal)                                   removes what a killed run left
//! sentinel::Sentinel::start(&program, uid) / sentinel::sentinel_main() -> i32   (`__sentinel`)
//! ```

mod canary;
mod dns;
mod helper;
mod http;
mod journal;
mod line;
mod netlink;
pub mod netns;
pub mod outpost;
mod places;
pub mod plant;
pub mod post;
pub mod posts;
mod registry;
mod secrets;
pub mod sentinel;
mod token;
pub mod turn;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::case::{Attempt, CanaryKind, Position, Transport, UnixTarget};
use crate::evidence::Touch;

use canary::Listener;
use netns::{Helper, Socket};
use outpost::near::Outpost;
use places::Ground;
use registry::Registry;

pub use netns::{Entry, RangeError};
pub use token::Token;

/// What was sent before the end of a run may be read a moment later on a busy machine. It is no sign of a survivor:
/// one of those beacons again.
pub const ON_THE_WAY: Duration = Duration::from_millis(300);

/// How the range is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program whose `__range` is executed: this one, but in tests.
    pub program: PathBuf,
    /// The run's own folder, which other users may enter. One of the Unix sockets stands there, and the journal of
    /// the others: [`plant::reap`] removes what a killed run left.
    pub folder: PathBuf,
    /// Where the canaries are to stand.
    pub stand: Stand,
}

/// Where the canaries are to stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// In a network namespace of our own, where the machine allows one, else on loopback alone.
    Own,
    /// On loopback alone.
    Loopback,
    /// In the harness's own network, on every address that this machine has: where the containers of an engine come
    /// out.
    Here {
        /// Canaries on other machines, where they answer audits: what a firewall lets go beyond this machine they hear.
        internet: Vec<SocketAddr>,
    },
}

impl Options {
    /// The usual: this very program, and a namespace of our own where the machine allows one.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            program: myself(),
            folder: folder.into(),
            stand: Stand::Own,
        }
    }
}

/// The running program, by a path that holds even when its file was replaced since.
pub fn myself() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Where the canaries stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// In a network namespace of our own with no uplink: every position.
    Own,
    /// On this host's loopback alone, because no namespace could be made.
    LoopbackOnly {
        /// The step that failed, and why.
        why: String,
    },
    /// On every address of this machine.
    Here,
}

/// One address that an attempt aims at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSpec {
    /// What listens there.
    pub canary: CanaryKind,
    /// Where it stands, seen from the sandbox.
    pub position: Position,
    /// `tcp://A:P`, `udp://A:P`, `path:/P` or `abstract:NAME`.
    pub address: String,
    /// A canary of ours stands there, or ought to. Else whoever stands there is somebody else's: it can be tried, and
    /// its silence means nothing.
    pub ours: bool,
    /// It stands on another machine: this one has to pass on what is to reach it.
    pub beyond: bool,
}

/// Canaries that listen, as tasks of the runtime that opened it. Dropping it closes everything.
#[derive(Debug)]
pub struct Range {
    mode: Mode,
    entry: Arc<Entry>,
    listeners: Vec<Listener>,
    outposts: Vec<Outpost>,
    registry: Arc<Registry>,
    helper: Helper,
    socket_folders: Vec<PathBuf>,
    addresses: Vec<IpAddr>,
}

impl Range {
    /// Opens the range, in a namespace of its own where that can be made, else on loopback alone.
    ///
    /// Call it inside a tokio runtime: the canaries are tasks of it. It blocks for the few milliseconds that the
    /// helper needs.
    pub fn open(options: &Options) -> Result<Self, RangeError> {
        let program = &options.program;
        let on_loopback = |why: String| {
            let opened = netns::open(program, &Ground::Loopback)?;
            Ok((Mode::LoopbackOnly { why }, opened))
        };
        let (mut addresses, mut outposts) = (Vec::new(), Vec::new());
        let (mode, opened) = match &options.stand {
            Stand::Own => match netns::open(program, &Ground::Own) {
                Ok(opened) => (Mode::Own, opened),
                // Only where the kernel refuses: want of descriptors or of memory must not turn into skipped cases.
                Err(error) if !error.refused => return Err(error),
                Err(error) => on_loopback(error.to_string())?,
            },
            Stand::Loopback => on_loopback("a namespace of our own was not asked for".into())?,
            Stand::Here { internet } => {
                let found = places::of_this_machine()
                    .map_err(|error| RangeError::new("list this machine's addresses", error))?;
                addresses.extend(
                    found
                        .iter()
                        .map(|(_, ip)| *ip)
                        .filter(|ip| !ip.is_loopback()),
                );
                for control in internet {
                    if found.iter().any(|(_, ip)| *ip == control.ip()) {
                        let why = "it is this machine's own, and what a firewall lets go beyond the machine it decides \
                                   elsewhere\nhelp: name a host of yours out there that runs `escape-audit canary`";
                        let step = format!("let {} play the internet", control.ip());
                        return Err(RangeError::new(step, why));
                    }
                    outposts.push(Outpost::open(*control)?);
                }
                let beyond = internet.iter().map(SocketAddr::ip);
                let found = found
                    .into_iter()
                    .chain(beyond.map(|ip| (Position::Internet, ip)))
                    .collect();
                (Mode::Here, netns::open(program, &Ground::Here(found))?)
            }
        };
        let sockets = if mode == Mode::Here {
            "socket-here"
        } else {
            "socket"
        };
        let (socket_folders, file_sockets) = netns::file_sockets(&options.folder, sockets)?;
        let mut range = Self {
            mode,
            entry: Arc::new(opened.entry),
            listeners: Vec::new(),
            outposts,
            registry: Arc::default(),
            helper: opened.helper,
            socket_folders,
            addresses,
        };
        for (spec, socket) in opened.sockets.into_iter().chain(file_sockets) {
            let listener = Listener::start(spec, socket, &range.registry)?;
            range.listeners.push(listener);
        }
        for outpost in &mut range.outposts {
            outpost.start(&range.registry)?;
        }
        Ok(range)
    }

    /// Where the canaries stand.
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// The addresses of the network that the canaries stand in, loopback left out: that is everybody's own.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Whether the IPv6 canaries could be set up.
    pub fn has_ipv6(&self) -> bool {
        self.listeners.iter().any(|l| l.spec.address.contains('['))
    }

    fn specs(&self) -> impl Iterator<Item = &TargetSpec> {
        let beyond = self.outposts.iter().flat_map(Outpost::specs);
        self.listeners.iter().map(|l| &l.spec).chain(beyond)
    }

    /// How a child comes into the namespace. On loopback alone there is nothing to enter.
    pub fn entry(&self) -> Arc<Entry> {
        Arc::clone(&self.entry)
    }

    /// The folders that hold the Unix sockets: what exposes host files has to expose them too.
    pub fn socket_folders(&self) -> &[PathBuf] {
        &self.socket_folders
    }

    /// The addresses that this attempt aims at. Empty where the attempt has no target, or where none of its positions
    /// can exist here.
    pub fn targets(&self, attempt: &Attempt) -> Vec<TargetSpec> {
        let all = self.specs();
        match attempt {
            Attempt::Connect {
                transport,
                positions,
            } => {
                let mut found: Vec<TargetSpec> =
                    all.filter(|t| is_aimed_at(t, attempt)).cloned().collect();
                if found.is_empty()
                    && self.mode == Mode::Here
                    && positions.contains(&Position::Internet)
                {
                    found.push(nobody(*transport));
                }
                found
            }
            Attempt::Http { urls, .. } => urls.iter().filter_map(|url| self.http(url)).collect(),
            Attempt::Dns => {
                let mut servers: Vec<TargetSpec> = all
                    .filter(|t| t.canary == CanaryKind::Dns && !t.address.contains('['))
                    .cloned()
                    .collect();
                if servers.iter().all(|t| t.beyond) {
                    servers.extend(self.where_servers_would_stand());
                }
                servers
            }
            Attempt::ConnectUnix { to } => {
                let scheme = match to {
                    UnixTarget::Abstract => "abstract:",
                    UnixTarget::Path => "path:",
                };
                all.filter(|t| t.canary == CanaryKind::Unix && t.address.starts_with(scheme))
                    .cloned()
                    .collect()
            }
            Attempt::EngineSocket { .. } => all
                .filter(|t| t.canary == CanaryKind::Engine)
                .cloned()
                .collect(),
            Attempt::RawSocket => self.farthest(CanaryKind::Udp),
            Attempt::Outlive { .. } => {
                let mut beacons = self.farthest(CanaryKind::Tcp);
                beacons.extend(
                    all.filter(|t| t.address.starts_with("abstract:"))
                        .cloned()
                        .collect::<Vec<_>>(),
                );
                beacons
            }
            _ => Vec::new(),
        }
    }

    /// A fresh token that the canaries look out for from now on.
    pub fn watch(&self) -> Token {
        let token = Token::random();
        self.registry.watch(&token);
        token
    }

    /// No longer looks out for this token, and forgets what was seen of it.
    pub fn forget(&self, token: &Token) {
        self.registry.forget(token);
    }

    /// What the canaries saw of this token so far, in order. Times count from `start`; what came after `end`, and the
    /// [`ON_THE_WAY`] that belongs to it, is late.
    pub fn touches(&self, token: &Token, start: Instant, end: Option<Instant>) -> Vec<Touch> {
        self.registry
            .seen(token)
            .into_iter()
            .map(|seen| Touch {
                canary: seen.canary,
                address: seen.address,
                at_ms: u64::try_from(seen.at.saturating_duration_since(start).as_millis())
                    .unwrap_or(u64::MAX),
                late: end.is_some_and(|end| seen.at > end + ON_THE_WAY),
                saw: seen.saw,
            })
            .collect()
    }

    /// Whether the target is alive: it is really reached, from inside the namespace, and tells of it within three
    /// seconds. A listener that died, or is drowned in a flood, is not alive.
    pub async fn alive(&self, target: &TargetSpec) -> bool {
        if !target.ours {
            return false;
        }
        let here = |l: &Listener| l.spec.address == target.address && l.is_running();
        let beyond = |o: &Outpost| o.is_running() && o.specs().any(|spec| spec == target);
        if !self.listeners.iter().any(here) && !self.outposts.iter().any(beyond) {
            return false;
        }
        let token = self.watch();
        let mut seen = false;
        for _ in 0..3 {
            self.helper.touch(&target.address, &token);
            seen = self.registry.wait(&token, Duration::from_secs(1)).await;
            if seen {
                break;
            }
        }
        self.forget(&token);
        seen
    }

    /// Whether the target's address is still one of this network's. A machine's own networks come and go; a canary in a
    /// namespace of ours stands as long as the range does.
    pub fn stands(&self, target: &TargetSpec) -> bool {
        let address = target.address.split_once("://").map(|(_, rest)| rest);
        let address = address.and_then(|rest| rest.parse::<SocketAddr>().ok());
        let (Some(address), Mode::Here, Position::Loopback | Position::Gateway | Position::Host) =
            (address, &self.mode, target.position)
        else {
            return true;
        };
        let now = places::of_this_machine();
        now.map_or(true, |now| now.iter().any(|(_, ip)| *ip == address.ip()))
    }

    /// Ends all listeners of a kind, so that a test sees what a dead canary does to a verdict.
    #[doc(hidden)]
    pub fn kill_listener(&mut self, kind: CanaryKind) {
        for listener in self.listeners.iter_mut().filter(|l| l.spec.canary == kind) {
            listener.stop();
        }
    }

    /// The target for a URL: whether or not something listens there, since a dead target has to be seen as dead.
    fn http(&self, url: &str) -> Option<TargetSpec> {
        let address = format!("tcp://{}", http::authority(url)?);
        let position = self
            .listeners
            .iter()
            .find(|l| l.spec.address == address)
            .map_or(Position::Host, |l| l.spec.position);
        // In a network that is not our own this may be a real service.
        let ours =
            self.mode != Mode::Here || self.listeners.iter().any(|l| l.spec.address == address);
        Some(TargetSpec {
            canary: CanaryKind::Http,
            position,
            address,
            ours,
            beyond: false,
        })
    }

    /// Only root may listen on port 53, and only where nobody else does. Without a canary, this machine's addresses are
    /// tried all the same: a sandbox with no way out refuses them, and of any other nothing is proven by it.
    fn where_servers_would_stand(&self) -> Vec<TargetSpec> {
        let each = self.addresses.iter().flat_map(|ip| {
            let at = std::net::SocketAddr::new(*ip, 53);
            [format!("udp://{at}"), format!("tcp://{at}")]
        });
        each.map(|address| TargetSpec {
            canary: CanaryKind::Dns,
            position: Position::Host,
            address,
            ours: false,
            beyond: false,
        })
        .collect()
    }

    /// The IPv4 canary of this kind that is farthest from the sandbox: the internet, else loopback.
    fn farthest(&self, kind: CanaryKind) -> Vec<TargetSpec> {
        self.listeners
            .iter()
            .map(|l| &l.spec)
            .filter(|t| t.canary == kind && !t.address.contains('['))
            .max_by_key(|t| t.position)
            .cloned()
            .into_iter()
            .collect()
    }
}

/// Whether an attempt over TCP or UDP aims at this target: its kind, its family, its position.
fn is_aimed_at(target: &TargetSpec, attempt: &Attempt) -> bool {
    let Attempt::Connect {
        transport,
        positions,
    } = attempt
    else {
        return false;
    };
    let kind = match transport {
        Transport::Tcp | Transport::Tcp6 => CanaryKind::Tcp,
        Transport::Udp => CanaryKind::Udp,
    };
    let six = *transport == Transport::Tcp6;
    target.canary == kind
        && six == target.address.contains('[')
        && positions.contains(&target.position)
}

/// A machine without an address of the family has no place for a canary. An attempt is made all the same, to an address
/// that nobody has (RFC 5737, RFC 3849): its refusal counts where the host sees that the sandbox has no way out.
fn nobody(transport: Transport) -> TargetSpec {
    let (canary, address) = match transport {
        Transport::Tcp => (CanaryKind::Tcp, "tcp://203.0.113.10:4711"),
        Transport::Tcp6 => (CanaryKind::Tcp, "tcp://[2001:db8::10]:4711"),
        Transport::Udp => (CanaryKind::Udp, "udp://203.0.113.10:4711"),
    };
    TargetSpec {
        canary,
        position: Position::Internet,
        address: address.into(),
        ours: false,
        beyond: false,
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        for folder in &self.socket_folders {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// What is opened for a listener, beside what it is.
type Opened = (TargetSpec, Socket);
