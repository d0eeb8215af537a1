//! Any bytes as what a sandbox prints: the reader never panics, keeps little, and reads the same however the bytes are cut.
//! Without this session's nonce nothing counts; with it, a session that is told whole has all its numbers.
//!
//! The first byte says where the rest is cut, and whether it is printed by somebody who knows the nonce: then each line
//! that begins with `=` is a record with the next number, so that the fuzzer gets past the door.

#![no_main]

use escape_audit::evidence::{Inside, Start};
use escape_audit::run::records::Records;
use libfuzzer_sys::fuzz_target;

const NONCE: &str = "0123456789abcdef";
const ATTEMPTS: usize = 3;
/// More than everything that the reader is meant to keep of text.
const MOST: usize = 64 * 1024;
/// And this of what is printed: 64 KiB at each end, as reports show it.
const MOST_PRINTED: usize = 2 * MOST;

fn all(records: &Records) -> Vec<Inside> {
    (0..ATTEMPTS).map(|id| records.inside(id)).collect()
}

/// The lines as somebody prints them who knows the nonce, and counts.
fn as_told(bytes: &[u8]) -> Vec<u8> {
    let mut told = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        match line.strip_prefix(b"=") {
            Some(rest) => {
                told.extend_from_slice(format!("EA1 {NONCE} {number} ").as_bytes());
                told.extend_from_slice(rest);
            }
            None => told.extend_from_slice(line),
        }
        told.push(b'\n');
    }
    told
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let knows = first & 1 == 1;
    let said = if knows { as_told(rest) } else { rest.to_vec() };
    let cut = usize::from(first >> 1) * said.len() / 128;

    let mut whole = Records::new(NONCE, ATTEMPTS);
    let events = whole.output(&said);
    whole.close();
    let mut parts = Records::new(NONCE, ATTEMPTS);
    let mut again = parts.output(&said[..cut]);
    again.extend(parts.output(&said[cut..]));
    parts.close();
    assert_eq!(events, again);
    assert_eq!(all(&whole), all(&parts));
    assert_eq!(
        (&whole.start, &whole.contradictions),
        (&parts.start, &parts.contradictions)
    );

    let kept: usize = whole.contradictions.iter().map(String::len).sum();
    assert!(
        kept <= MOST
            && all(&whole)
                .iter()
                .all(|inside| inside.output.head.len() + inside.output.tail.len() <= MOST_PRINTED)
    );
    assert_eq!(whole.output_bytes(), said.len() as u64);
    let spoken = said
        .windows(NONCE.len())
        .any(|window| window == NONCE.as_bytes());
    if !spoken {
        assert!(
            !matches!(whole.start, Start::Seen { .. }),
            "started without the nonce"
        );
        assert!(
            !whole.ended()
                && all(&whole)
                    .iter()
                    .all(|inside| !inside.begun && inside.done.is_none())
        );
    }
    // Nobody ends, or is done, who never started and began.
    let started = matches!(whole.start, Start::Seen { .. });
    assert!(started || !whole.ended());
    for inside in all(&whole) {
        assert!(
            inside.begun
                || (inside.done.is_none() && inside.steps.is_empty() && inside.facts.is_empty())
        );
        assert!(started || !inside.begun);
    }
});
