//! Whether a process that the engine tells of is one that this host sees, under the same number.

use std::fs;
use std::time::Duration;

use crate::host::proc;

/// How far up a container's process its runtime stands.
const STEPS: usize = 4;

/// The engine's number for a container's first process, where it is the same here. An engine in another machine, or in
/// another process namespace, has numbers of its own, and ours of that number is somebody else.
pub fn visible(pid: i64, container: &str) -> Option<i32> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    (groups.contains(container) || held_for(pid, container)).then_some(pid)
}

/// Waits, but not for long, until the process is what it is to be: an engine tells of one that is started a moment before
/// its runtime has turned into the probe.
pub async fn settle(pid: i32) {
    let runtimes = |name: String| name.starts_with("runc") || name.starts_with("crun");
    for _ in 0..25 {
        if !proc::comm(pid).is_some_and(runtimes) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Whether it, or one of those that started it, was started for this container: a runtime with a kernel of its own may
/// leave the container's group empty.
fn held_for(pid: i32, container: &str) -> bool {
    let chain = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|pid| *pid > 1));
    chain.take(STEPS).any(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(container)
    })
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.rsplit_once(')')?.1;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_knows_nothing_of_the_container_is_somebody_else() {
        let me = i64::from(std::process::id());
        assert_eq!(visible(me, "0123456789abcdef0123456789abcdef"), None);
        assert_eq!(visible(0, ""), None, "it has ended");
        assert_eq!(visible(i64::MAX, ""), None);
        let program = std::env::args().next().expect("a name");
        assert_eq!(visible(me, &program), i32::try_from(me).ok());
    }
}
