//! A token: the word by which a canary knows whose trial touched it. Who listens in a container has to know one when it
//! comes, too.

/// What every token begins with.
pub const PREFIX: &str = "ea-";

/// How many characters follow: 120 bits.
pub const LENGTH: usize = 24;

/// Base 32 (RFC 4648) in lower case: survives host names, URLs and file names.
pub const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Every token in these bytes. Upper case counts too: resolvers mix the case of the names that they ask for.
pub fn find(bytes: &[u8]) -> Vec<String> {
    bytes
        .windows(PREFIX.len() + LENGTH)
        .filter_map(|window| {
            let text = window.to_ascii_lowercase();
            let rest = text.strip_prefix(PREFIX.as_bytes())?;
            rest.iter().all(|b| ALPHABET.contains(b)).then_some(())?;
            String::from_utf8(text).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_wherever_it_stands_and_nothing_else_is_one() {
        let token = format!("ea-{}", "a2".repeat(12));
        let text = format!("\u{7f}x{}ea-too-short", token.to_ascii_uppercase());
        assert_eq!(find(text.as_bytes()), std::slice::from_ref(&token));
        assert!(find(&token.as_bytes()[..26]).is_empty());
        assert!(find(b"ea-0000000000000000000000001").is_empty());
    }
}
