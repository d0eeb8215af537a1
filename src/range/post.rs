//! Canaries that stand where the harness itself cannot: a probe listens there, and tells by lines who touched it. What it
//! hears goes into the same registry as what our own canaries hear.
//!
//! The lines come out of a place that an attacker can reach. Each carries a secret word and a number: one that is
//! missing, repeated or too long ends the post, and a post that has ended is not alive.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use escape_audit_probe::wire::{MAX_LINE, Message};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::canary::conversation;
use super::places::{is_metadata, of_machine};
use super::registry::Registry;
use super::{Range, RangeError, TargetSpec, Token, is_aimed_at};
use crate::case::{Attempt, CanaryKind, Position, Transport};

/// How long the probe may take to say where it listens.
const READY: Duration = Duration::from_secs(20);
/// It ends by itself after so long, whatever became of the harness.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// So many addresses are kept.
const ADDRESSES: usize = 256;
/// So many touches may wait for their turn.
const ASKED: usize = 64;
/// A touch of its own is heard within this, or tried again.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whose network the probe listens in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ground {
    /// The sandbox's, beside it: at these addresses it is a sibling.
    Beside(Vec<IpAddr>),
    /// That of the machine that an engine runs on.
    Machine,
}

impl Ground {
    /// What an address there is to the sandbox; nothing, where it is no target.
    fn position(&self, ip: IpAddr, interface: &str) -> Option<Position> {
        match self {
            Self::Beside(known) => known.contains(&ip).then_some(Position::Sibling),
            Self::Machine => (!is_metadata(ip)).then(|| of_machine(ip, interface)),
        }
    }
}

/// One probe that listens, as a task. Dropped, its input ends, and with it the probe.
#[derive(Debug)]
pub struct Post {
    specs: Vec<TargetSpec>,
    registry: Arc<Registry>,
    asks: mpsc::Sender<Message>,
    task: JoinHandle<()>,
}

impl Post {
    /// Has the probe at the other end of these streams listen; `nonce` and `name` are the probe's.
    pub async fn open(
        range: &Range,
        (nonce, name): (&str, &str),
        mut input: impl AsyncWrite + Unpin + Send + 'static,
        output: impl AsyncRead + Unpin + Send + 'static,
        ground: &Ground,
    ) -> Result<Self, RangeError> {
        let failed = |why: &str| RangeError::new("have a probe listen in a container", why);
        let hello = Message::new(&["hello"]).with("nonce", nonce);
        let listen = Message::new(&["listen"]).with("seconds", LIFETIME.as_secs().to_string());
        let said = say(&mut input, &hello.with("name", name)).await;
        said.map_err(|error| failed(&error.to_string()))?;
        let said = say(&mut input, &listen).await;
        said.map_err(|error| failed(&error.to_string()))?;
        let mut lines = Lines::new(nonce, output);
        let mut specs = Vec::new();
        let ready = async {
            while let Some(told) = lines.next().await {
                match told.words[2].as_str() {
                    "ready" => return true,
                    "listens" if specs.len() < ADDRESSES => specs.extend(spec(&told, ground)),
                    _ => {}
                }
            }
            false
        };
        match tokio::time::timeout(READY, ready).await {
            Ok(true) => {}
            Ok(false) => return Err(failed("it ended before it listened")),
            Err(_) => return Err(failed("it did not say where it listens")),
        }
        let registry = Arc::clone(&range.registry);
        let (asks, asked) = mpsc::channel(ASKED);
        let ear = Ear {
            specs: specs.clone(),
            registry: Arc::clone(&registry),
        };
        Ok(Self {
            specs,
            registry,
            asks,
            task: tokio::spawn(ear.attend(lines, input, asked)),
        })
    }

    /// The addresses that this attempt aims at.
    pub fn targets(&self, attempt: &Attempt) -> Vec<TargetSpec> {
        let aimed = |spec: &&TargetSpec| is_aimed_at(spec, attempt);
        self.specs.iter().filter(aimed).cloned().collect()
    }

    /// Where it listens, each address once.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let each = self
            .specs
            .iter()
            .filter_map(|spec| spec.address.split_once("://"));
        each.filter_map(|(_, at)| Some(at.parse::<SocketAddr>().ok()?.ip()))
            .collect()
    }

    /// Whether this address is one of its own.
    pub fn holds(&self, address: &str) -> bool {
        self.specs.iter().any(|spec| spec.address == address)
    }

    /// Whether it is alive at this address: really reached, from inside its network, and telling of it.
    pub async fn alive(&self, address: &str) -> bool {
        if !self.holds(address) {
            return false;
        }
        for _ in 0..3 {
            if self.task.is_finished() {
                return false;
            }
            if self.touches(address, &self.registry).await {
                return true;
            }
        }
        false
    }

    /// Whether the network that it stands in is the one that this range's canaries stand in: it reaches them on loopback,
    /// which is in every network its own.
    pub async fn shares_network_with(&self, range: &Range) -> bool {
        let loopback = range.targets(&Attempt::Connect {
            transport: Transport::Tcp,
            positions: vec![Position::Loopback],
        });
        for spec in loopback.iter().take(1).cycle().take(2) {
            if self.touches(&spec.address, &range.registry).await {
                return true;
            }
        }
        false
    }

    /// Lets the probe touch an address of its network, and waits for a canary to tell of it.
    async fn touches(&self, address: &str, registry: &Registry) -> bool {
        let token = Token::random();
        registry.watch(&token);
        let ask = Message::new(&["touch"]).with("address", address);
        let sent = self.asks.send(ask.with("payload", &token)).await;
        let seen = sent.is_ok() && registry.wait(&token, PATIENCE).await;
        registry.forget(&token);
        seen
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn say(input: &mut (impl AsyncWrite + Unpin), message: &Message) -> std::io::Result<()> {
    let line = format!("{}\n", message.encode());
    input.write_all(line.as_bytes()).await?;
    input.flush().await
}

/// What a `listens` line tells of.
fn spec(told: &Message, ground: &Ground) -> Option<TargetSpec> {
    let (scheme, at) = told.text("address")?.split_once("://")?;
    let canary = match (told.text("kind")?, scheme) {
        ("tcp", "tcp") => CanaryKind::Tcp,
        ("udp", "udp") => CanaryKind::Udp,
        _ => return None,
    };
    let at: SocketAddr = at.parse().ok()?;
    let interface = told.text("interface").unwrap_or_default();
    Some(TargetSpec {
        canary,
        position: ground.position(at.ip(), interface)?,
        address: format!("{scheme}://{at}"),
        ours: true,
        beyond: false,
    })
}

/// What hears the lines of one post.
struct Ear {
    specs: Vec<TargetSpec>,
    registry: Arc<Registry>,
}

impl Ear {
    /// Until the lines end, or nobody asks any more.
    async fn attend(
        self,
        mut lines: Lines<impl AsyncRead + Unpin>,
        mut input: impl AsyncWrite + Unpin,
        mut asked: mpsc::Receiver<Message>,
    ) {
        loop {
            tokio::select! {
                told = lines.next() => match told {
                    Some(told) => self.hear(&told),
                    None => return,
                },
                ask = asked.recv() => {
                    let Some(ask) = ask else { return };
                    if say(&mut input, &ask).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn hear(&self, told: &Message) {
        let address = told.text("address").unwrap_or_default();
        let spec = self.specs.iter().find(|spec| spec.address == address);
        if let ("touch", Some(spec), Some(token)) =
            (told.words[2].as_str(), spec, told.bytes("token"))
        {
            self.registry
                .hear(conversation(), spec, Instant::now(), token);
        }
    }
}

/// The records of one probe, in their order.
struct Lines<R> {
    nonce: String,
    next: u64,
    from: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(nonce: &str, from: R) -> Self {
        Self {
            nonce: nonce.to_owned(),
            next: 0,
            from,
            buffer: Vec::new(),
        }
    }

    /// The next record; `None` at the end, and where a record is not what has to come. A wait may be given up and begun
    /// again.
    async fn next(&mut self) -> Option<Message> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let Ok(message) = Message::decode(line.trim_ascii_end()) else {
                    continue;
                };
                let [nonce, number, _] = message.words.as_slice() else {
                    continue;
                };
                if *nonce != self.nonce {
                    continue;
                }
                let expected = *number == self.next.to_string();
                self.next += 1;
                return expected.then_some(message);
            }
            let mut piece = [0; 4096];
            match self.from.read(&mut piece).await {
                Ok(length @ 1..) if self.buffer.len() <= MAX_LINE => {
                    self.buffer.extend_from_slice(&piece[..length]);
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(said: &str) -> Vec<String> {
        let mut lines = Lines::new("n1", said.as_bytes());
        let mut told = Vec::new();
        while let Some(message) = lines.next().await {
            told.push(message.words[2].clone());
        }
        told
    }

    #[tokio::test]
    async fn a_line_that_is_not_the_next_one_ends_it() {
        let whole = "EA1 n1 0 start\nEA1 n1 1 listens\nEA1 n1 2 ready\n";
        assert_eq!(told(whole).await, ["start", "listens", "ready"]);
        let noise = whole.replace("EA1 n1 1", "noise\nEA1 n2 1 touch\nEA1 n1 1");
        assert_eq!(told(&noise).await, ["start", "listens", "ready"]);
        for forged in ["EA1 n1 0", "EA1 n1 7"] {
            let forged = whole.replace("EA1 n1 1", forged);
            assert_eq!(told(&forged).await, ["start"]);
        }
        let endless = format!("{whole}{}", "x".repeat(4 * MAX_LINE));
        assert_eq!(told(&endless).await.len(), 3);
    }

    #[test]
    fn an_address_is_a_target_where_it_has_a_place() {
        let listens = |kind: &str, address: &str| {
            let told = Message::new(&["n1", "1", "listens"]).with("kind", kind);
            let told = told.with("address", address).with("interface", "eth0");
            let beside = ["192.0.2.7", "2001:db8::7"].map(|ip| ip.parse().unwrap());
            spec(&told, &Ground::Beside(beside.to_vec()))
        };
        let target = listens("udp", "udp://[2001:db8::7]:9").expect("a target");
        assert_eq!(target.address, "udp://[2001:db8::7]:9");
        assert_eq!((target.canary, target.ours), (CanaryKind::Udp, true));
        for (kind, address) in [
            ("tcp", "udp://192.0.2.7:9"),
            ("tcp", "tcp://192.0.2.8:9"),
            ("tcp", "tcp://name:9"),
            ("unix", "unix://192.0.2.7:9"),
        ] {
            assert_eq!(listens(kind, address), None, "{kind} {address}");
        }
    }
}
