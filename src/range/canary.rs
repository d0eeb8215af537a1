//! The canaries that listen: they take what arrives, answer as little as their kind needs, and note every token.
//!
//! What arrives is an attacker's. A conversation is cut at 4 KiB or after two seconds of silence, a listener takes
//! 64 KiB a second and holds 64 conversations, of which the oldest gives way. A canary that is drowned all the same
//! does not answer the harness's own touch, and then nothing is concluded from its silence.

use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::{AbortHandle, JoinHandle};

use super::netns::{RangeError, Socket};
use super::registry::Registry;
use super::{TargetSpec, dns, http};
use crate::case::CanaryKind;

/// What is kept of one conversation, in bytes.
const KEPT: usize = 4096;
/// How long a conversation may be silent.
const SILENCE: Duration = Duration::from_secs(2);
/// How many conversations a listener holds at once.
const CONVERSATIONS: usize = 64;
/// What a listener takes in a second, in bytes; a conversation that says nothing counts for [`GREETING`].
const BYTES_PER_SECOND: usize = 64 * 1024;
const GREETING: usize = 64;

/// One canary that listens, as a task. Dropping it closes its socket and every conversation.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) spec: TargetSpec,
    task: Option<JoinHandle<()>>,
}

impl Listener {
    pub(super) fn start(
        spec: TargetSpec,
        socket: Socket,
        registry: &Arc<Registry>,
    ) -> Result<Self, RangeError> {
        let ear = Ear {
            spec: Arc::new(spec.clone()),
            registry: Arc::clone(registry),
        };
        let task = ear
            .listen(socket)
            .map_err(|error| RangeError::new(format!("listen on {}", spec.address), error))?;
        Ok(Self { spec, task })
    }

    pub(super) fn is_running(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Ends it, as if it had crashed.
    pub(super) fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What every conversation of one canary shares.
#[derive(Clone)]
struct Ear {
    spec: Arc<TargetSpec>,
    registry: Arc<Registry>,
}

impl Ear {
    fn listen(self, socket: Socket) -> io::Result<Option<JoinHandle<()>>> {
        Ok(match socket {
            Socket::Stream(socket) => Some(self.listen_tcp(socket)?),
            Socket::Datagram(socket) => Some(self.listen_udp(socket)?),
            Socket::Unix(socket) => {
                socket.set_nonblocking(true)?;
                let socket = tokio::net::UnixListener::from_std(socket)?;
                Some(tokio::spawn(async move {
                    let mut crowd = Crowd::default();
                    loop {
                        let accepted = socket.accept().await;
                        self.welcome(accepted, &mut crowd).await;
                    }
                }))
            }
            Socket::Closed => None,
        })
    }

    fn listen_tcp(self, socket: TcpListener) -> io::Result<JoinHandle<()>> {
        socket.set_nonblocking(true)?;
        let socket = tokio::net::TcpListener::from_std(socket)?;
        Ok(tokio::spawn(async move {
            let mut crowd = Crowd::default();
            loop {
                let accepted = socket.accept().await;
                self.welcome(accepted, &mut crowd).await;
            }
        }))
    }

    fn listen_udp(self, socket: UdpSocket) -> io::Result<JoinHandle<()>> {
        socket.set_nonblocking(true)?;
        let socket = tokio::net::UdpSocket::from_std(socket)?;
        Ok(tokio::spawn(async move {
            let mut pace = Pace::default();
            let mut bytes = vec![0; KEPT];
            loop {
                match socket.recv_from(&mut bytes).await {
                    Ok((length, peer)) => {
                        let heard = &bytes[..length];
                        self.registry
                            .hear(conversation(), &self.spec, Instant::now(), heard);
                        if self.spec.canary == CanaryKind::Dns
                            && let Some(answer) = dns::answer(heard)
                        {
                            let _ = socket.try_send_to(&answer, peer);
                        }
                        pace.take(length.max(GREETING)).await;
                    }
                    // An earlier answer came back as unreachable.
                    Err(_) => pace.take(GREETING).await,
                }
            }
        }))
    }

    async fn welcome<S, A>(&self, accepted: io::Result<(S, A)>, crowd: &mut Crowd)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match accepted {
            Ok((stream, _)) => {
                let conversation = self.clone().converse(stream, Arc::clone(&crowd.pace.bytes));
                crowd.join(tokio::spawn(conversation));
                crowd.pace.take(GREETING).await;
            }
            // No descriptors left, most likely: others have to close theirs first.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }

    async fn converse<S>(self, mut stream: S, taken: Arc<AtomicUsize>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (conversation, began) = (conversation(), Instant::now());
        let mut heard = Vec::new();
        let mut part = [0; 1024];
        while heard.len() < KEPT {
            let read = tokio::time::timeout(SILENCE, stream.read(&mut part)).await;
            let Ok(Ok(length @ 1..)) = read else { break };
            heard.extend_from_slice(&part[..length.min(KEPT - heard.len())]);
            taken.fetch_add(length, Ordering::Relaxed);
            let known = self.registry.hear(conversation, &self.spec, began, &heard);
            let enough = match self.spec.canary {
                CanaryKind::Http | CanaryKind::Engine => http::is_whole(&heard),
                CanaryKind::Dns => dns::in_stream(&heard).is_some(),
                _ => known,
            };
            if enough {
                break;
            }
        }
        let answer = match self.spec.canary {
            CanaryKind::Http if !heard.is_empty() => Some(http::answer(&heard)),
            CanaryKind::Engine if !heard.is_empty() => Some(http::ping(&heard)),
            CanaryKind::Dns => dns::in_stream(&heard)
                .and_then(dns::answer)
                .and_then(|answer| {
                    let length = u16::try_from(answer.len()).ok()?;
                    Some([&length.to_be_bytes(), answer.as_slice()].concat())
                }),
            _ => None,
        };
        if let Some(answer) = answer {
            let _ = tokio::time::timeout(SILENCE, stream.write_all(&answer)).await;
        }
    }
}

/// The conversations of one listener, oldest first; all end with it.
#[derive(Default)]
struct Crowd {
    running: VecDeque<AbortHandle>,
    pace: Pace,
}

impl Crowd {
    fn join(&mut self, conversation: JoinHandle<()>) {
        self.running.retain(|running| !running.is_finished());
        while self.running.len() >= CONVERSATIONS {
            // One that clings to its place must not keep the others out.
            if let Some(oldest) = self.running.pop_front() {
                oldest.abort();
            }
        }
        self.running.push_back(conversation.abort_handle());
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.running.iter().for_each(AbortHandle::abort);
    }
}

/// How much was taken in the current second.
#[derive(Default)]
struct Pace {
    since: Option<Instant>,
    bytes: Arc<AtomicUsize>,
}

impl Pace {
    /// Counts so many bytes, and rests until the second is over where they are too many.
    async fn take(&mut self, bytes: usize) {
        const SECOND: Duration = Duration::from_secs(1);
        let since = *self.since.get_or_insert_with(Instant::now);
        let taken = bytes + self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if taken > BYTES_PER_SECOND {
            tokio::time::sleep(SECOND.saturating_sub(since.elapsed())).await;
        }
        if since.elapsed() >= SECOND {
            self.since = None;
            self.bytes.store(0, Ordering::Relaxed);
        }
    }
}

/// A number that no other conversation of this process has.
pub(super) fn conversation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
