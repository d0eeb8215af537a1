//! An attached container's streams, taken apart into what a process has: standard input, output and error.
//!
//! Input and output are attached on connections of their own. An engine closes an attached connection as soon as **one**
//! of its outputs ends if that connection also carries the input, and what is left of the other output is lost.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bollard::Docker;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::errors::Error;
use bollard::query_parameters::AttachContainerOptionsBuilder;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::call::{Phase, call};
use crate::backend::BackendError;

/// What is buffered of each output. Where nobody reads, the engine waits, and with it who writes.
const BUFFER: usize = 64 * 1024;

/// How long the engine may take to deliver what was written before the container's end.
const DELIVERY: Duration = Duration::from_secs(2);

/// A container's streams.
pub struct Streams {
    /// To the container; its end is the end of the container's input.
    pub stdin: Input,
    /// From the container.
    pub stdout: DuplexStream,
    /// From the container.
    pub stderr: DuplexStream,
    /// Tells when all that was written has arrived.
    pub delivery: Delivery,
}

/// Attaches to a container that has not started, so that nothing of a short run is lost.
pub async fn attach(docker: &Docker, id: &str) -> Result<Streams, BackendError> {
    let options = |input: bool| {
        AttachContainerOptionsBuilder::default()
            .stream(true)
            .stdin(input)
            .stdout(!input)
            .stderr(!input)
            .build()
    };
    let (input, output) = tokio::try_join!(
        call(
            Phase::Attach,
            docker.attach_container(id, Some(options(true)))
        ),
        call(
            Phase::Attach,
            docker.attach_container(id, Some(options(false)))
        ),
    )?;
    let (to_stdout, stdout) = tokio::io::duplex(BUFFER);
    let (to_stderr, stderr) = tokio::io::duplex(BUFFER);
    let (swallow, swallowing) = watch::channel(false);
    // Its input is not used, but closing it would close the connection.
    let AttachContainerResults {
        output,
        input: kept,
    } = output;
    let task = tokio::spawn(async move {
        take_apart(output, to_stdout, to_stderr, swallowing).await;
        drop(kept);
    });
    Ok(Streams {
        stdin: Input(input),
        stdout,
        stderr,
        delivery: Delivery {
            task: Some(task),
            swallow,
        },
    })
}

/// Sorts what comes, until the engine says that nothing comes any more. An output that nobody reads any longer is
/// swallowed, so that it does not hold up the other; `swallowing`, so is one that nobody reads at the moment.
async fn take_apart(
    mut output: impl Stream<Item = Result<LogOutput, Error>> + Unpin,
    stdout: DuplexStream,
    stderr: DuplexStream,
    mut swallowing: watch::Receiver<bool>,
) {
    let mut sinks = [Some(stdout), Some(stderr)];
    while let Some(Ok(piece)) = output.next().await {
        let which = match piece {
            LogOutput::StdErr { .. } => 1,
            _ => 0,
        };
        if let Some(sink) = &mut sinks[which]
            && !pour(sink, piece.as_ref(), &mut swallowing).await
        {
            sinks[which] = None;
        }
        if sinks.iter().all(Option::is_none) {
            return;
        }
    }
}

/// Whether it was taken. A reader that has no room while all is to be swallowed takes nothing more.
async fn pour(
    sink: &mut DuplexStream,
    bytes: &[u8],
    swallowing: &mut watch::Receiver<bool>,
) -> bool {
    tokio::select! {
        biased;
        written = sink.write_all(bytes) => written.is_ok(),
        Ok(_) = swallowing.wait_for(|on| *on) => false,
    }
}

/// Whether all that was written has arrived.
pub struct Delivery {
    task: Option<JoinHandle<()>>,
    swallow: watch::Sender<bool>,
}

impl Delivery {
    /// From now on no output waits for its reader. To be called before a container is ended: an engine tells of its end
    /// when all that it wrote was taken, and whoever waits for that does not read.
    pub fn swallow(&self) {
        self.swallow.send_replace(true);
    }

    /// Waits, but not for long: a process that survived the container may hold its output open. A wait may be given up
    /// and begun again.
    pub async fn complete(&mut self) {
        if let Some(task) = &mut self.task {
            let _ = tokio::time::timeout(DELIVERY, task).await;
        }
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// A container's standard input. Dropped, the connection is closed, and the container reads its end.
pub struct Input(AttachContainerResults);

impl AsyncWrite for Input {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.input.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.input.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.input.as_mut().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use tokio::io::AsyncReadExt;

    fn out(text: &'static str) -> Result<LogOutput, Error> {
        let message = text.into();
        Ok(LogOutput::StdOut { message })
    }

    fn err(text: &'static str) -> Result<LogOutput, Error> {
        let message = text.into();
        Ok(LogOutput::StdErr { message })
    }

    #[tokio::test]
    async fn each_output_keeps_its_order() {
        let (to_stdout, mut stdout) = tokio::io::duplex(64);
        let (to_stderr, mut stderr) = tokio::io::duplex(64);
        let pieces = stream::iter([out("a"), err("x"), out("b"), err("y")]);
        let (_swallow, swallowing) = watch::channel(false);
        take_apart(pieces, to_stdout, to_stderr, swallowing).await;
        let (mut said, mut complained) = (String::new(), String::new());
        stdout.read_to_string(&mut said).await.expect("read");
        stderr.read_to_string(&mut complained).await.expect("read");
        assert_eq!((said.as_str(), complained.as_str()), ("ab", "xy"));
    }

    #[tokio::test]
    async fn an_output_that_nobody_reads_does_not_hold_up_the_other() {
        let (to_stdout, mut stdout) = tokio::io::duplex(64);
        let (to_stderr, stderr) = tokio::io::duplex(2);
        drop(stderr);
        let pieces = stream::iter([err("more than fits"), err("again"), out("a")]);
        let (_swallow, swallowing) = watch::channel(false);
        take_apart(pieces, to_stdout, to_stderr, swallowing).await;
        let mut said = String::new();
        stdout.read_to_string(&mut said).await.expect("read");
        assert_eq!(said, "a");
    }
    #[tokio::test]
    async fn a_flood_that_nobody_reads_is_swallowed_when_its_end_is_near() {
        let (to_stdout, mut stdout) = tokio::io::duplex(4);
        let (to_stderr, mut stderr) = tokio::io::duplex(64);
        let (swallow, swallowing) = watch::channel(false);
        swallow.send_replace(true);
        let pieces = stream::iter([out("noise"), out("noise"), err("x")]);
        take_apart(pieces, to_stdout, to_stderr, swallowing).await;
        let (mut said, mut complained) = (String::new(), String::new());
        stdout.read_to_string(&mut said).await.expect("read");
        stderr.read_to_string(&mut complained).await.expect("read");
        assert_eq!((said.as_str(), complained.as_str()), ("nois", "x"));
    }
}
