//! What was printed, as reports show it.

use crate::evidence::Printed;
use crate::safe_text::{Cap, SafeText};

/// With its lines: both ends and what is known of the rest.
pub fn block(printed: &Printed) -> SafeText {
    let shown = (printed.head.len() + printed.tail.len()) as u64;
    if shown >= printed.bytes {
        return SafeText::capped([&*printed.head, &*printed.tail].concat(), Cap::STREAM);
    }
    let sha256 = printed.sha256.as_deref();
    SafeText::excerpt(&printed.head, &printed.tail, printed.bytes, sha256)
}
