//! A token: a word that nobody can guess, by which a canary knows whose trial touched it.

use std::fmt;

use escape_audit_probe::token::{self, ALPHABET, LENGTH, PREFIX};

/// `ea-` and 24 characters of lower-case base 32.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl Token {
    /// A new one.
    pub fn random() -> Self {
        let mut text = String::from(PREFIX);
        for byte in rand::random::<[u8; LENGTH]>() {
            text.push(char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
        }
        Self(text)
    }

    /// The text that has to travel.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Every token in these bytes. Upper case counts too: resolvers mix the case of the names that they ask for.
    pub fn find(bytes: &[u8]) -> Vec<Self> {
        token::find(bytes).into_iter().map(Self).collect()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl AsRef<[u8]> for Token {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_wherever_it_stands_and_in_any_case() {
        let (a, b) = (Token::random(), Token::random());
        assert_ne!(a, b);
        let mut bytes = vec![0xff, 0, 27];
        bytes.extend(a.as_str().to_ascii_uppercase().bytes());
        bytes.extend(b"ea-too-short ");
        bytes.extend(b.as_str().bytes());
        assert_eq!(Token::find(&bytes), [a.clone(), b]);
        assert_eq!(Token::find(&a.as_ref()[..26]), []);
        assert_eq!(Token::find(b"ea-0000000000000000000000001"), []);
    }
}
