//! Variables as Compose fills them in: `$NAME`, `${NAME:-default}` and its like, and the files that set them.
//!
//! The rules: <https://docs.docker.com/reference/compose-file/interpolation/>. The process's own variables go before
//! those of `.env`.

use std::collections::BTreeSet;

/// Where variables come from, and which were asked for in vain.
pub struct Variables<'a> {
    /// The process's own.
    pub own: &'a dyn Fn(&str) -> Option<String>,
    /// Those of `.env`, in its order.
    pub file: Vec<(String, String)>,
    /// Asked for, without a default, and set nowhere: empty, as Compose has it.
    pub unset: BTreeSet<String>,
}

impl Variables<'_> {
    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<String> {
        let in_file = || self.file.iter().rev().find(|(there, _)| there == name);
        (self.own)(name).or_else(|| in_file().map(|(_, value)| value.clone()))
    }

    /// The text with its variables filled in. The error says what is wrong with it.
    pub fn fill(&mut self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let end = closing(after).ok_or("a `${` that is never closed")?;
                out.push_str(&self.braced(&after[..end])?);
                rest = &after[end + 1..];
            } else {
                let name = name_of(rest);
                if name.is_empty() {
                    return Err("a `$` without a name: write `$$` for the sign itself".into());
                }
                out.push_str(&self.or_empty(name));
                rest = &rest[name.len()..];
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn or_empty(&mut self, name: &str) -> String {
        self.get(name).unwrap_or_else(|| {
            self.unset.insert(name.to_owned());
            String::new()
        })
    }

    /// What stands between the braces.
    fn braced(&mut self, inner: &str) -> Result<String, String> {
        let name = name_of(inner);
        let rule = &inner[name.len()..];
        if name.is_empty() {
            return Err(format!("`${{{inner}}}` names no variable"));
        }
        let set = self.get(name);
        let full = set.clone().filter(|value| !value.is_empty());
        let (value, word) = match rule.as_bytes() {
            [] => return Ok(self.or_empty(name)),
            [b':', b'-' | b'+' | b'?', ..] => (full, &rule[1..]),
            [b'-' | b'+' | b'?', ..] => (set, rule),
            _ => return Err(format!("`${{{inner}}}` is no way to name a variable")),
        };
        let (sign, word) = word.split_at(1);
        match (sign, value) {
            ("+", Some(_)) | ("-", None) => self.fill(word),
            ("+", None) => Ok(String::new()),
            ("?", None) => Err(format!("`{name}` has to be set: {word}")),
            (_, Some(value)) => Ok(value),
            (_, None) => Ok(String::new()),
        }
    }

    /// The lines of an environment file; later ones may name earlier ones. The error names the line.
    pub fn read_file(&mut self, text: &str) -> Result<Vec<(String, String)>, String> {
        let mut all: Vec<(String, String)> = Vec::new();
        let outside = self.file.len();
        // Some editors begin a file with a mark of its encoding, which is no part of the first name.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let line = line.trim_start();
            let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| format!("line {}: {why}", number + 1);
            let Some((name, value)) = line.split_once(['=', ':']) else {
                // A bare name is passed on from where Compose runs.
                if let Some(value) = self.get(line.trim_end()) {
                    all.push((line.trim_end().to_owned(), value));
                }
                continue;
            };
            let name = name.trim_end();
            if name.is_empty() || name.contains(char::is_whitespace) {
                return Err(wrong("this is no `NAME=VALUE`"));
            }
            let mut value = value.trim_start().to_owned();
            // Quotes hold line breaks.
            let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
            if let Some(quote) = quote {
                while quoted_end(&value, quote).is_none() {
                    let (_, more) = lines
                        .next()
                        .ok_or_else(|| wrong("a quote that is never closed"))?;
                    value.push('\n');
                    value.push_str(more);
                }
            }
            let value = match quote {
                Some(quote) => {
                    let end = quoted_end(&value, quote).unwrap_or(value.len());
                    let inner = &value[1..end];
                    match quote {
                        '"' => self.fill(&unescaped(inner)),
                        _ => Ok(inner.to_owned()),
                    }
                }
                None => {
                    let bare = value.split(" #").next().unwrap_or_default();
                    self.fill(bare.trim_end())
                }
            };
            let value = value.map_err(|why| wrong(&why))?;
            self.file.push((name.to_owned(), value.clone()));
            all.push((name.to_owned(), value));
        }
        self.file.truncate(outside);
        Ok(all)
    }
}

fn name_of(text: &str) -> &str {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.find(|c| !good(c)).unwrap_or(text.len());
    match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => "",
        false => &text[..end],
    }
}

/// Where the brace closes that was opened before this text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Where the quote closes with which this text begins.
fn quoted_end(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            c if c == quote => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some('$') => out.push_str("$$"),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (c, false) => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables<'static> {
        Variables {
            own: &|name| match name {
                "SET" => Some("here".into()),
                "EMPTY" => Some(String::new()),
                _ => None,
            },
            file: vec![
                ("SET".into(), "file".into()),
                ("F".into(), "of $file".into()),
            ],
            unset: BTreeSet::new(),
        }
    }

    #[test]
    fn variables_are_filled_in_as_compose_does() {
        for (text, filled) in [
            ("a $SET b", "a here b"),
            ("${SET}${F}", "hereof $file"),
            ("$$SET $$", "$SET $"),
            ("${NO:-d}|${NO-d}|${EMPTY:-d}|${EMPTY-d}", "d|d|d|"),
            ("${SET:+r}|${NO:+r}|${EMPTY:+r}|${EMPTY+r}", "r|||r"),
            ("${NO:-${SET}x}", "herex"),
            ("${SET:?e}", "here"),
            ("10%", "10%"),
        ] {
            assert_eq!(variables().fill(text).as_deref(), Ok(filled), "{text}");
        }
        let mut asked = variables();
        assert_eq!(asked.fill("[$NO]").as_deref(), Ok("[]"));
        assert_eq!(asked.unset.into_iter().collect::<Vec<_>>(), ["NO"]);
        for wrong in [
            "${SET",
            "$",
            "$ x",
            "${}",
            "${1}",
            "${SET!x}",
            "${NO?why}",
            "${EMPTY:?why}",
        ] {
            assert!(variables().fill(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_environment_file_is_read_as_compose_reads_it() {
        let text = "# c\nA=1\nexport B = two words # c\nC=\"q # \\\"$A\\\" \\$A\"\nD='$A'\nE=\n\nSET\nG: y\nH=\"a\nb\"\nNOWHERE\n";
        let read = variables().read_file(text).expect("read");
        let pairs: Vec<(&str, &str)> = read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("A", "1"),
                ("B", "two words"),
                ("C", "q # \"1\" $A"),
                ("D", "$A"),
                ("E", ""),
                ("SET", "here"),
                ("G", "y"),
                ("H", "a\nb")
            ]
        );
        for wrong in ["A=\"x\n", "=1\n", "A B=1\n", "A=${X:?no}\n"] {
            assert!(variables().read_file(wrong).is_err(), "{wrong}");
        }
    }
}
