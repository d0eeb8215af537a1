//! SIGINT, SIGTERM and SIGHUP: the first stops the audit in order, the second ends the program at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit_code;
use crate::gate::Interrupted;

/// The signals, caught from the moment this is made: one that arrives while the audit is being set up stops it as soon
/// as it begins.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Call it inside the runtime.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Interrupted {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupted::Interrupt,
            _ = self.terminate.recv() => Interrupted::Terminate,
            _ = self.hang_up.recv() => Interrupted::HangUp,
        }
    }

    /// Ends with the first signal, which may have come before, and tells which it was.
    pub async fn first(mut self, before: Option<Interrupted>, caught: &mut Option<Interrupted>) {
        *caught = match before {
            Some(signal) => Some(signal),
            None => Some(self.next().await),
        };
        eprintln!("stopping: what runs is being cleaned up; once more to leave at once");
        leave_at_the_next("sandboxes may still be there; `escape-audit clean` removes them");
    }
}

/// From now on a signal ends the program at once, with this warning: a report may go into a pipe that nobody reads.
pub fn leave_at_the_next(warning: &'static str) {
    // On a thread of its own, since the first one may be waiting for a sandbox to go.
    std::thread::spawn(move || leave(warning));
}

fn leave(warning: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return };
    let status = runtime.block_on(async {
        let Ok(mut signals) = Signals::listen() else {
            return std::future::pending().await;
        };
        match signals.next().await {
            Interrupted::Interrupt => exit_code::INTERRUPTED,
            Interrupted::Terminate => exit_code::TERMINATED,
            Interrupted::HangUp => exit_code::HUNG_UP,
        }
    });
    eprintln!("left at once: {warning}");
    std::process::exit(status);
}
