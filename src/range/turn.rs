//! Audits take turns where their canaries need the same ports: a metadata service and a name server have fixed ones, and in
//! a network that is not our own only one canary can stand there.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A name without a file belongs to the network namespace, as the ports do, and goes with its owner, however that ends.
const NAME: &str = "escape-audit.turn";

/// How often it is asked for again.
const AGAIN: Duration = Duration::from_millis(200);

/// The turn of this process, until it is dropped.
#[derive(Debug)]
pub struct Turn(#[allow(dead_code)] UnixListener);

/// Waits for the turn, not beyond `limit`: whoever goes on without it finds the ports taken, and then nothing is concluded
/// from what stands there. `waiting` is called once, where there is something to wait for.
pub async fn wait(limit: Duration, waiting: impl FnOnce()) -> Option<Turn> {
    let until = Instant::now() + limit;
    let mut waiting = Some(waiting);
    loop {
        match take() {
            Ok(turn) => return Some(turn),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {}
            Err(_) => return None,
        }
        if let Some(waiting) = waiting.take() {
            waiting();
        }
        sleep(AGAIN).await;
    }
}

fn take() -> io::Result<Turn> {
    let name = SocketAddr::from_abstract_name(NAME)?;
    UnixListener::bind_addr(&name).map(Turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_waits_until_the_first_is_through() {
        let patience = Duration::from_secs(60);
        let first = wait(patience, || {}).await.expect("a turn");
        let mut waited = false;
        let none = wait(Duration::from_millis(250), || waited = true).await;
        assert!(none.is_none() && waited);
        drop(first);
        assert!(wait(patience, || {}).await.is_some());
    }
}
