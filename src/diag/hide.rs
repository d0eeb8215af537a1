//! A line of somebody's file as it may be shown: what it gives a secret's name is hidden, since errors end in public logs.

use crate::secret_words::{is_name, password_in};

/// The text with the values of secrets made unreadable. Every byte keeps its place, and so does every sign between letters
/// and digits: they are what a mistake is made with.
pub fn without_secrets(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
}

fn line(line: &str) -> String {
    if let Some(at) = value_of_a_secret(line) {
        return [&line[..at], &hidden(&line[at..])].concat();
    }
    match password_in(line) {
        Some(at) => [
            &line[..at.start],
            &hidden(&line[at.clone()]),
            &line[at.end..],
        ]
        .concat(),
        None => line.to_owned(),
    }
}

/// Where the value begins, if the line sets a variable that holds a secret: `NAME=VALUE` or `NAME: VALUE`, its name in
/// capitals as those of variables are.
fn value_of_a_secret(line: &str) -> Option<usize> {
    let in_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut from = 0;
    while let Some(begin) = line[from..].find(in_a_name).map(|at| from + at) {
        let end = line[begin..]
            .find(|c| !in_a_name(c))
            .map_or(line.len(), |at| begin + at);
        let name = &line[begin..end];
        let sets = line[end..]
            .trim_start_matches(['"', '\''])
            .trim_start()
            .starts_with(['=', ':']);
        if sets && is_name(name) && !name.contains(|c: char| c.is_ascii_lowercase()) {
            return Some(end);
        }
        from = end;
    }
    None
}

/// The names of variables that are filled in, and what is said where one is missing, are no secrets; a default may be one.
fn hidden(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find("${") {
        out.push_str(&masked(&rest[..begin]));
        rest = &rest[begin..];
        let Some(name) = rest.find(['-', '+', '?', '}']) else {
            break;
        };
        let end = match rest[name..].starts_with('?') {
            true => rest.find('}').unwrap_or(name),
            false => name,
        };
        out.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    out.push_str(&masked(rest));
    out
}

fn masked(text: &str) -> String {
    text.chars()
        .map(|c| match c.is_alphanumeric() {
            true => "*".repeat(c.len_utf8()),
            false => c.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_secret_is_set_to_cannot_be_read_and_the_rest_can() {
        for (text, shown) in [
            (
                "  DB_PASSWORD: \"pw$ 1é\"\n",
                "  DB_PASSWORD: \"**$ ***\"\n",
            ),
            ("- GH_TOKEN=ghp_1", "- GH_TOKEN=***_*"),
            (
                "\"API_KEY\" = 'x'\nuser = \"a\"",
                "\"API_KEY\" = '*'\nuser = \"a\"",
            ),
            ("URL: pg://me:secret@db/x", "URL: pg://me:******@db/x"),
            ("secrets = [\"AWS_*\"]", "secrets = [\"AWS_*\"]"),
            ("PATH: /usr/bin", "PATH: /usr/bin"),
            ("TOKEN: ${NAME:?who pays}", "TOKEN: ${NAME:?who pays}"),
            ("TOKEN: pw${ab", "TOKEN: **${**"),
            ("TOKEN: a${NAME:-dflt}b", "TOKEN: *${NAME:-****}*"),
            ("image: ${TAG", "image: ${TAG"),
        ] {
            assert_eq!(without_secrets(text), shown);
            assert_eq!(shown.len(), text.len());
        }
    }
}
