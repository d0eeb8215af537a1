//! What was printed on one stream: its beginning, its end, how much there was, and a hash of all of it. Pure, and never
//! grows without bound.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};

use crate::evidence::Printed;

/// How much of each end is kept while a secret may still be cut in two at its edge.
const KEPT: usize = 8192;
/// How much of each end is shown, where not all can be.
const SHOWN: usize = 4096;

/// What came on one stream so far.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    head: Vec<u8>,
    /// Of what came after the head.
    tail: VecDeque<u8>,
    bytes: u64,
    hash: Sha256,
}

impl Stream {
    /// Takes what came.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
        let room = KEPT.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        let rest = &bytes[room..];
        let rest = &rest[rest.len().saturating_sub(KEPT)..];
        let too_many = (self.tail.len() + rest.len()).saturating_sub(KEPT);
        self.tail.drain(..too_many);
        self.tail.extend(rest);
    }

    /// As it is reported: without what `redact` takes out, and cut where it could not have seen a secret whole.
    pub fn printed(&self, redact: impl Fn(&[u8]) -> Vec<u8>) -> Printed {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let kept = (self.head.len() + tail.len()) as u64;
        let sha256 = Some(format!("{:x}", self.hash.clone().finalize()));
        if kept < self.bytes {
            let mut head = redact(&self.head);
            head.truncate(SHOWN);
            let tail = redact(&tail);
            return Printed {
                head,
                tail: last(&tail).to_vec(),
                bytes: self.bytes,
                sha256,
            };
        }
        let whole = redact(&[&*self.head, &*tail].concat());
        if whole.len() <= 2 * SHOWN {
            return Printed {
                bytes: whole.len() as u64,
                head: whole,
                tail: Vec::new(),
                sha256: None,
            };
        }
        Printed {
            head: whole[..SHOWN].to_vec(),
            tail: last(&whole).to_vec(),
            bytes: whole.len() as u64,
            sha256,
        }
    }
}

fn last(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(SHOWN)..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn printed(chunks: &[Vec<u8>]) -> Printed {
        let mut stream = Stream::default();
        for chunk in chunks {
            stream.keep(chunk);
        }
        stream.printed(<[u8]>::to_vec)
    }

    #[test]
    fn what_is_short_is_whole_and_what_is_long_keeps_both_ends() {
        let short = printed(&[b"abc".to_vec(), b"def".to_vec()]);
        assert_eq!((&*short.head, &*short.tail), (&b"abcdef"[..], &b""[..]));
        assert_eq!((short.bytes, short.sha256), (6, None));
        let long: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
        let cut = printed(std::slice::from_ref(&long));
        assert_eq!(cut.head, long[..SHOWN]);
        assert_eq!(cut.tail, long[long.len() - SHOWN..]);
        assert_eq!(cut.bytes, 1_000_000);
        assert_eq!(cut.sha256, Some(format!("{:x}", Sha256::digest(&long))));
    }

    /// A secret that lies across the edge of what is kept is seen by neither end's redaction, and shown by neither.
    #[test]
    fn no_part_of_a_secret_is_shown() {
        let secret = b"correct-horse-battery-staple";
        for edge in [KEPT, 3 * KEPT] {
            for shift in 0..=secret.len() {
                let mut text = vec![b'.'; 4 * KEPT];
                let at = edge - shift;
                text[at..at + secret.len()].copy_from_slice(secret);
                let mut stream = Stream::default();
                stream.keep(&text);
                let shown = stream.printed(|bytes| {
                    let text = String::from_utf8_lossy(bytes);
                    text.replace("correct-horse-battery-staple", "[it]")
                        .into_bytes()
                });
                let shown = [shown.head, shown.tail].concat();
                assert!(
                    shown.iter().all(|c| *c == b'.' || b"[it]".contains(c)),
                    "{edge} {shift}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn where_it_is_cut_does_not_matter(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9000), 0..6)) {
            let whole = printed(&[chunks.concat()]);
            prop_assert_eq!(&printed(&chunks), &whole);
            prop_assert!(whole.head.len() <= 2 * SHOWN && whole.tail.len() <= SHOWN);
        }
    }
}
