//! What the canaries saw: for each token that is looked out for, who touched what, and when. Bounded, whatever arrives.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::outpost::{self, Hash};
use super::{TargetSpec, Token, canary};
use crate::case::CanaryKind;

/// More touches of one token tell nothing new.
const TOUCHES: usize = 64;

/// One touch.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Which conversation it was: what arrives later in the same one is added to it.
    conversation: u64,
    pub(super) canary: CanaryKind,
    pub(super) address: String,
    pub(super) at: Instant,
    pub(super) saw: Vec<u8>,
}

/// All touches of all tokens that are looked out for.
#[derive(Default)]
pub(super) struct Registry {
    seen: Mutex<HashMap<Token, Vec<Seen>>>,
    news: Notify,
    tell: Option<Box<dyn Fn(Hash) + Send + Sync>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    /// One that looks out for every token there is, keeps none, and tells of each by its hash.
    pub(super) fn telling(tell: impl Fn(Hash) + Send + Sync + 'static) -> Self {
        Self {
            tell: Some(Box::new(tell)),
            ..Self::default()
        }
    }

    /// A poisoned lock is taken over: each change below leaves the map whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Vec<Seen>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(&self, token: &Token) {
        self.lock().entry(token.clone()).or_default();
    }

    pub(super) fn forget(&self, token: &Token) {
        self.lock().remove(token);
    }

    pub(super) fn seen(&self, token: &Token) -> Vec<Seen> {
        self.lock().get(token).cloned().unwrap_or_default()
    }

    /// Takes note of all that was heard so far in one conversation, and says whether a token that is looked out for
    /// is in it. Tokens of others are not kept, so that a stranger cannot fill our memory.
    pub(super) fn hear(
        &self,
        conversation: u64,
        target: &TargetSpec,
        at: Instant,
        bytes: &[u8],
    ) -> bool {
        let mut known = false;
        for token in Token::find(bytes) {
            if let Some(tell) = &self.tell {
                tell(outpost::hash(&token));
                known = true;
                continue;
            }
            let mut map = self.lock();
            let Some(list) = map.get_mut(&token) else {
                continue;
            };
            known = true;
            if let Some(seen) = list.iter_mut().find(|s| s.conversation == conversation) {
                seen.saw = bytes.to_vec();
            } else if list.len() < TOUCHES {
                list.push(Seen {
                    conversation,
                    canary: target.canary,
                    address: target.address.clone(),
                    at,
                    saw: bytes.to_vec(),
                });
            }
        }
        if known {
            self.news.notify_waiters();
        }
        known
    }

    /// Takes note of a touch that a canary elsewhere tells of, and which names the token by its hash.
    pub(super) fn hear_of(&self, hash: &Hash, target: &TargetSpec, at: Instant) {
        let token = self
            .lock()
            .keys()
            .find(|t| outpost::hash(t) == *hash)
            .cloned();
        if let Some(token) = token {
            self.hear(canary::conversation(), target, at, token.as_ref());
        }
    }

    /// Waits until the token is seen, at most so long.
    pub(super) async fn wait(&self, token: &Token, limit: Duration) -> bool {
        let seen = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                // Listens before it looks: nothing can slip between the two.
                news.as_mut().enable();
                if self.lock().get(token).is_some_and(|list| !list.is_empty()) {
                    return;
                }
                news.await;
            }
        };
        tokio::time::timeout(limit, seen).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Position;

    fn target() -> TargetSpec {
        TargetSpec {
            canary: CanaryKind::Tcp,
            position: Position::Loopback,
            address: "tcp://127.0.0.1:1".into(),
            ours: true,
            beyond: false,
        }
    }

    #[test]
    fn only_tokens_that_are_looked_out_for_are_kept_and_never_too_many() {
        let registry = Registry::default();
        let (ours, foreign) = (Token::random(), Token::random());
        registry.watch(&ours);
        for conversation in 0..1000 {
            registry.hear(conversation, &target(), Instant::now(), ours.as_ref());
            assert!(!registry.hear(conversation, &target(), Instant::now(), foreign.as_ref()));
        }
        assert_eq!(registry.seen(&ours).len(), TOUCHES);
        assert!(registry.seen(&foreign).is_empty());
        registry.forget(&ours);
        assert!(registry.seen(&ours).is_empty());
    }

    #[test]
    fn one_conversation_is_one_touch_that_grows() {
        let registry = Registry::default();
        let token = Token::random();
        registry.watch(&token);
        let longer = format!("{token} and more");
        registry.hear(7, &target(), Instant::now(), token.as_ref());
        registry.hear(7, &target(), Instant::now(), longer.as_bytes());
        let seen = registry.seen(&token);
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].saw, longer.as_bytes());
    }
}
