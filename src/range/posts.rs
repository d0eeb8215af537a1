//! The posts of one sandbox: which of its targets they are, whether they live, and whether anybody reached them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::TargetSpec;
use super::post::Post;
use crate::case::{Attempt, Position};
use crate::evidence::Touch;

/// Canaries on an engine's side.
#[derive(Debug, Default)]
pub struct Posts {
    /// In the sandbox's own network, beside it.
    pub sibling: Option<Post>,
    /// In the network of the engine's machine, where that is not this one's.
    pub machine: Option<Post>,
    /// The addresses that were reached where nothing should stop it.
    vouched: Mutex<BTreeSet<String>>,
}

impl Posts {
    /// These posts, which nobody has reached yet.
    pub fn new(sibling: Option<Post>, machine: Option<Post>) -> Self {
        Self {
            sibling,
            machine,
            vouched: Mutex::default(),
        }
    }

    /// What this attempt aims at, given what it would aim at in the harness's own network. Of another machine's network
    /// nothing that stands here is a part; what plays the internet is beyond both.
    pub fn targets(&self, attempt: &Attempt, here: Vec<TargetSpec>) -> Vec<TargetSpec> {
        if !matches!(attempt, Attempt::Connect { .. }) {
            return here;
        }
        let mut targets = here;
        if let Some(machine) = &self.machine {
            targets.retain(|target| target.position == Position::Internet);
            targets.extend(machine.targets(attempt));
        }
        targets.extend(self.sibling.iter().flat_map(|post| post.targets(attempt)));
        // Where a canary of ours stands, an address of nobody's adds nothing.
        if targets.iter().any(|target| target.ours) {
            targets.retain(|target| target.ours);
        }
        targets
    }

    /// Whether a canary of a post stands at this address.
    pub fn holds(&self, address: &str) -> bool {
        self.at(address).is_some()
    }

    /// Whether it is alive; `None` where no canary of a post stands there.
    pub async fn alive(&self, address: &str) -> Option<bool> {
        Some(self.at(address)?.alive(address).await)
    }

    /// Takes note of what was reached where nothing should stop it: there is a way to these.
    pub fn vouch<'a>(&self, touches: impl IntoIterator<Item = &'a Touch>) {
        let mut vouched = self.vouched.lock().unwrap_or_else(PoisonError::into_inner);
        let touches = touches.into_iter().map(|touch| &touch.address);
        vouched.extend(touches.filter(|address| self.holds(address)).cloned());
    }

    /// Whether this address was reached where nothing should stop it.
    pub fn is_vouched(&self, address: &str) -> bool {
        let vouched = self.vouched.lock().unwrap_or_else(PoisonError::into_inner);
        vouched.contains(address)
    }

    fn at(&self, address: &str) -> Option<&Post> {
        let mut posts = self.sibling.iter().chain(&self.machine);
        posts.find(|post| post.holds(address))
    }
}
