//! Which variables hold a secret, as their names and values tell.

use std::ops::Range;

const WORDS: [&str; 6] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL"];
/// Short ones are parts of other words: `COMPASS`, `PATH`.
const WHOLE: [&str; 4] = ["PASS", "PASSPHRASE", "PAT", "PWD"];
/// The key of a public signature, which many images carry, and whose value is no secret.
const PUBLIC: [&str; 2] = ["GPG_KEY", "GPG_KEYS"];

/// Whether a variable of this name holds a secret, whatever its value is.
pub fn is_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let is_named = WORDS.iter().any(|word| upper.contains(word))
        || upper.split('_').any(|part| WHOLE.contains(&part));
    is_named && !is_public(name)
}

/// Whether a variable of this name is known to hold none.
pub fn is_public(name: &str) -> bool {
    PUBLIC.contains(&name.to_ascii_uppercase().as_str())
}

/// The bytes of the password in an address that begins here, such as a database's: `postgres://user:password@host`.
pub fn password_in(address: &str) -> Option<Range<usize>> {
    let begin = address.find("://")? + 3;
    let ends = |c: char| c.is_whitespace() || "/?#\"'".contains(c);
    let end = address[begin..]
        .find(ends)
        .map_or(address.len(), |at| begin + at);
    let user_end = begin + address[begin..end].rfind('@')?;
    let password = begin + address[begin..user_end].find(':')? + 1;
    (password < user_end).then_some(password..user_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_by_their_words() {
        for name in ["GH_TOKEN", "aws_secret_access_key", "DB_PASS", "MYSQL_PWD"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["PATH", "COMPASS", "GPG_KEY", "HOME"] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_password_stands_in_an_address() {
        let found = |text: &'static str| password_in(text).map(|at| &text[at]);
        assert_eq!(found("DB: postgres://me:pw@x@db/a@b"), Some("pw@x"));
        for none in ["http://host:80/a@b", "http://me@host", "a:b@c", "x://:@y"] {
            assert_eq!(found(none), None, "{none}");
        }
    }
}
