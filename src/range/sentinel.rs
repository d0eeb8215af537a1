//! A sentinel: a harmless process of the host that must be neither seen nor signalled from inside a sandbox.
//!
//! It is this program, executed again. Its secret name comes over a pipe and never stands in an argument or a
//! variable; it waits for SIGURG, whose default action is nothing, and ends when the harness does.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::journal::hex;

/// The hidden subcommand that is the sentinel.
pub const HELPER: &str = "__sentinel";

/// Longer than a start ever takes, even on a machine under load.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running sentinel. Dropping it ends it.
#[derive(Debug)]
pub struct Sentinel {
    child: Child,
    name: String,
    heard: Vec<u8>,
}

impl Sentinel {
    /// Starts one, as another user if asked to (which takes root), and waits until it is ready. `program` is this
    /// program ([`super::myself`]), but in tests.
    pub fn start(program: &Path, uid: Option<u32>) -> io::Result<Self> {
        let mut command = Command::new(program);
        command
            .arg(HELPER)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        // A thread's name has room for fifteen bytes.
        let mut sentinel = Self {
            child: command.spawn()?,
            name: format!("ea-{}", hex(6)),
            heard: Vec::new(),
        };
        if let Some(stdin) = &mut sentinel.child.stdin {
            writeln!(stdin, "{}", sentinel.name)?;
        }
        if let Some(stdout) = &sentinel.child.stdout {
            use std::os::fd::AsRawFd as _;
            fcntl(stdout.as_raw_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let until = Instant::now() + PATIENCE;
        while !sentinel.has_said("ready") {
            if !sentinel.alive() || Instant::now() > until {
                return Err(io::Error::other("the sentinel process did not start"));
            }
            sentinel.wait_for_words(Duration::from_millis(100));
        }
        Ok(sentinel)
    }

    /// Its process id on the host.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Its secret name, which only who sees it in `/proc` can know.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it got a SIGURG with this value.
    pub fn signalled_with(&mut self, value: i32) -> bool {
        self.has_said(&format!("signal {value}"))
    }

    fn has_said(&mut self, line: &str) -> bool {
        let mut part = [0; 1024];
        if let Some(stdout) = &mut self.child.stdout {
            while let Ok(length @ 1..) = stdout.read(&mut part) {
                self.heard.extend_from_slice(&part[..length]);
                // Somebody who signals it without end must not fill our memory.
                self.heard.truncate(64 * 1024);
            }
        }
        self.heard
            .split(|b| *b == b'\n')
            .any(|heard| heard == line.as_bytes())
    }

    fn wait_for_words(&self, limit: Duration) {
        if let Some(stdout) = &self.child.stdout {
            let mut ready = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
            let _ = poll(&mut ready, limit);
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `escape-audit __sentinel` is. Must run before the process has a second thread.
pub fn sentinel_main() -> i32 {
    i32::from(watch().is_err())
}

fn watch() -> io::Result<()> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGURG);
    set.thread_block()?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let stdin = io::stdin();
    let mut name = String::new();
    stdin.read_line(&mut name)?;
    let name = std::ffi::CString::new(name.trim_end())?;
    nix::sys::prctl::set_name(&name)?;
    println!("ready");
    loop {
        let mut ready = [
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut ready, PollTimeout::NONE)?;
        // Nothing more is ever said to it: its input becomes readable when the harness has ended.
        if ready[0].any() != Some(false) {
            return Ok(());
        }
        while let Some(signal) = signals.read_signal()? {
            println!("signal {}", signal.ssi_int);
        }
    }
}
