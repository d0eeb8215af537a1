//! The conversation with one probe: its pipes, its records, the launcher's end. Nothing is decided here.

use std::time::Duration;

use escape_audit_probe::wire::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use super::records::{Event, Records};
use crate::backend::Running;
use crate::backend::launch::{Reader, Writer};

/// After the launcher's end, what was written is in the pipes already: this is only the time to notice it.
const NOTICE: Duration = Duration::from_millis(5);
/// And this the bound where a survivor goes on writing.
const DRAIN: Duration = Duration::from_millis(300);

/// One conversation.
pub struct Session {
    /// The sandbox.
    pub running: Running,
    /// What the probe told so far.
    pub records: Records,
    stdin: Option<Writer>,
    stdout: Option<Reader>,
    stderr: Option<Reader>,
    exited: Option<i32>,
    /// The launcher's status, where it left before its probe spoke (`setsid`): the open pipe stands for it then.
    handed_over: Option<i32>,
}

/// What happened next.
#[derive(Debug, PartialEq, Eq)]
pub enum Happening {
    /// The probe told something; never empty.
    Told(Vec<Event>),
    /// Output came that told nothing.
    Noise,
    /// The launcher, or the container's first process, ended.
    Exited(i32),
    /// The time is over.
    Late,
}

impl Session {
    /// Takes a started sandbox over, for so many attempts.
    pub fn new(mut running: Running, nonce: &str, attempts: usize) -> Self {
        Self {
            stdin: running.stdin.take(),
            stdout: running.stdout.take(),
            stderr: running.stderr.take(),
            running,
            records: Records::new(nonce, attempts),
            exited: None,
            handed_over: None,
        }
    }

    /// Sends messages. A probe that does not listen any more is no error: its end is seen otherwise.
    pub async fn say(&mut self, messages: &[Message]) {
        let Some(stdin) = &mut self.stdin else { return };
        let mut text = String::new();
        for message in messages {
            text.push_str(&message.encode());
            text.push('\n');
        }
        let sent = async {
            stdin.write_all(text.as_bytes()).await?;
            stdin.flush().await
        };
        let patience = Duration::from_secs(5);
        if !matches!(tokio::time::timeout(patience, sent).await, Ok(Ok(()))) {
            self.stdin = None;
        }
    }

    /// Takes no more output: what is printed while the sandbox is being ended reaches nobody.
    pub fn cut_off(&mut self) {
        self.stdout = None;
        self.stderr = None;
        self.records.close();
    }

    /// Lets the probe's standard input end.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// The launcher has left. Whether what it started may go on without it: then the run ends when the pipe is closed.
    pub fn hand_over(&mut self) -> bool {
        if self.stdout.is_some() {
            self.handed_over = self.exited.take();
        }
        self.handed_over.is_some()
    }

    /// Whether the launcher has ended.
    pub fn exited(&self) -> Option<i32> {
        self.exited
    }

    /// Waits for what happens next, but not beyond `until`.
    pub async fn next(&mut self, until: Instant) -> Happening {
        // Who prints without a pause would else never let the time run out.
        if Instant::now() >= until {
            return Happening::Late;
        }
        let mut buffer = [0; 16 * 1024];
        let mut errors = [0; 4096];
        let Self {
            running,
            records,
            stdout,
            stderr,
            exited,
            handed_over,
            ..
        } = self;
        tokio::select! {
            biased;
            read = read(stdout, &mut buffer) => {
                if read == 0 {
                    *stdout = None;
                    records.close();
                    return match handed_over.take() {
                        Some(status) => {
                            *exited = Some(status);
                            Happening::Exited(status)
                        }
                        None => Happening::Noise,
                    };
                }
                let events = records.output(&buffer[..read]);
                if events.is_empty() { Happening::Noise } else { Happening::Told(events) }
            }
            read = read(stderr, &mut errors) => {
                if read == 0 {
                    *stderr = None;
                } else {
                    records.error(&errors[..read]);
                }
                Happening::Noise
            }
            status = running.life.ended(), if exited.is_none() && handed_over.is_none() => {
                *exited = Some(status);
                Happening::Exited(status)
            }
            () = sleep_until(until) => Happening::Late,
        }
    }

    /// Reads what is still in the pipes after the end. They need not be closed: a helper, or a survivor, may hold them.
    pub async fn drain(&mut self) -> Vec<Event> {
        let until = Instant::now() + DRAIN;
        let mut events = Vec::new();
        while (self.stdout.is_some() || self.stderr.is_some()) && Instant::now() < until {
            match self.next(Instant::now() + NOTICE).await {
                Happening::Told(told) => events.extend(told),
                Happening::Noise | Happening::Exited(_) => {}
                Happening::Late => break,
            }
        }
        self.records.close();
        events
    }
}

async fn read(stream: &mut Option<Reader>, buffer: &mut [u8]) -> usize {
    match stream {
        Some(stream) => stream.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Life, Pending, Stop};

    /// A sandbox that never ends.
    struct Endless;

    impl Life for Endless {
        fn launcher(&self) -> Option<i32> {
            None
        }
        fn ended(&mut self) -> Pending<'_, i32> {
            Box::pin(std::future::pending())
        }
        fn stop(&mut self, _: Stop) -> Pending<'_, ()> {
            Box::pin(std::future::ready(()))
        }
        fn end(&mut self) -> Pending<'_, Vec<String>> {
            Box::pin(std::future::ready(Vec::new()))
        }
    }

    #[tokio::test]
    async fn output_without_a_pause_does_not_stop_the_clock() {
        let running = Running {
            stdin: None,
            stdout: Some(Box::new(tokio::io::repeat(b'x'))),
            stderr: Some(Box::new(tokio::io::repeat(b'\n'))),
            init: None,
            payload: None,
            life: Box::new(Endless),
        };
        let mut session = Session::new(running, "n", 1);
        let until = Instant::now() + Duration::from_millis(100);
        let began = std::time::Instant::now();
        while session.next(until).await != Happening::Late {
            assert!(began.elapsed() < Duration::from_secs(10), "it never ends");
        }
        assert!(session.records.output_bytes() > 0);
    }
}
