//! Text from untrusted bytes, made safe to show: the only way by which such bytes reach a terminal or a report.
//!
//! What a sandbox prints can move a cursor, end a CDATA section, or speak to the CI system that shows it. A
//! [`SafeText`] holds no character that is invisible or acts (it stands there as `\x1b` or `\u{202e}`), only
//! characters that XML allows, and no command of a CI system at a place where one would be obeyed.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};

/// Text that is safe to show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct SafeText(String);

/// How much of a long text is kept: so many bytes of its beginning and of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// Bytes of the beginning.
    pub head: usize,
    /// Bytes of the end.
    pub tail: usize,
}

impl Cap {
    /// What a report keeps of one output stream: some readers refuse a text of more than 10,000,000 bytes.
    pub const STREAM: Self = Self {
        head: 64 * 1024,
        tail: 64 * 1024,
    };
}

impl SafeText {
    /// On one line: a line break is shown as `\n`.
    pub fn line(bytes: impl AsRef<[u8]>) -> Self {
        Self(break_commands(&escape(bytes.as_ref(), Breaks::Shown)))
    }

    /// On one line of at most `most` characters; three dots say that there was more.
    pub fn line_within(bytes: impl AsRef<[u8]>, most: usize) -> Self {
        let bytes = bytes.as_ref();
        // No character has more than four bytes: what follows cannot be shown, so it need not be looked at.
        let enough = bytes.len().min(most.saturating_mul(4).saturating_add(4));
        let whole = Self::line(&bytes[..boundary(bytes, enough)]);
        if whole.0.chars().count() <= most {
            return whole;
        }
        let kept: String = whole.0.chars().take(most.saturating_sub(3)).collect();
        Self(break_commands(&(kept + "...")))
    }

    /// With its line breaks.
    pub fn block(bytes: impl AsRef<[u8]>) -> Self {
        Self(break_commands(&escape(bytes.as_ref(), Breaks::Kept)))
    }

    /// With its line breaks, and no more of it than `cap`; what is left out is counted and hashed.
    pub fn capped(bytes: impl AsRef<[u8]>, cap: Cap) -> Self {
        let bytes = bytes.as_ref();
        if bytes.len() <= cap.head.saturating_add(cap.tail) {
            return Self::block(bytes);
        }
        let (head, tail) = (
            &bytes[..boundary(bytes, cap.head)],
            &bytes[boundary(bytes, bytes.len() - cap.tail)..],
        );
        let hash = format!("{:x}", Sha256::digest(bytes));
        Self::excerpt(head, tail, bytes.len() as u64, Some(&hash))
    }

    /// Of a stream that was cut while it ran: what was kept of it, how many bytes it had, and its SHA-256 if known.
    pub fn excerpt(head: &[u8], tail: &[u8], total: u64, sha256: Option<&str>) -> Self {
        let left_out = total.saturating_sub((head.len() + tail.len()) as u64);
        if left_out == 0 {
            return Self::block([head, tail].concat());
        }
        let hash = sha256.map_or_else(String::new, |hash| format!(", sha256 {hash}"));
        let head = Self::block(head).0;
        let gap = format!("[... {left_out} of {total} bytes left out{hash}]");
        let line_break = if head.is_empty() || head.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        Self(break_commands(&format!(
            "{head}{line_break}{gap}\n{}",
            Self::block(tail)
        )))
    }

    /// In lines of at most `width` columns, broken between words alone: a path that is longer stays whole, so that it can
    /// be copied.
    pub fn wrapped(&self, width: usize) -> Vec<Self> {
        let options = textwrap::Options::new(width.max(10))
            .break_words(false)
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .word_splitter(textwrap::WordSplitter::NoHyphenation)
            .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit);
        // A command that was harmless within a line may now stand at the beginning of one.
        textwrap::wrap(&self.0, options)
            .iter()
            .map(|line| Self(break_commands(line)))
            .collect()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Nothing to show.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For a writer that puts text between `<![CDATA[` and `]]>` as it is: an end mark within is divided between
    /// two sections, so that a reader gets the same text back.
    pub fn cdata(&self) -> String {
        self.0.replace("]]>", "]]]]><![CDATA[>")
    }
}

impl fmt::Display for SafeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for SafeText {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// What becomes of line breaks.
#[derive(Clone, Copy, PartialEq)]
enum Breaks {
    Kept,
    Shown,
}

/// Whether a character must not be shown as it is: it acts, it is invisible, it reorders its neighbours, or XML
/// does not allow it.
pub fn must_escape(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'       // Mongolian selectors
            | '\u{200b}'..='\u{200f}'       // zero width, marks of direction
            | '\u{2028}'..='\u{202e}'       // line and paragraph separators, bidi embeddings and overrides
            | '\u{2060}'..='\u{206f}'       // word joiner, invisible operators, bidi isolates
            | '\u{3164}' | '\u{fdd0}'..='\u{fdef}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'       // interlinear annotation
            | '\u{1d173}'..='\u{1d17a}'     // invisible musical marks
            | '\u{e0000}'..='\u{e0fff}') // tags: invisible ASCII
        || u32::from(c) & 0xfffe == 0xfffe // the last two of every plane are no characters
}

fn escape(bytes: &[u8], breaks: Breaks) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut chars = chunk.valid().chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\n' if breaks == Breaks::Kept => out.push('\n'),
                '\r' if breaks == Breaks::Kept && chars.peek() == Some(&'\n') => {}
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if !must_escape(c) => out.push(c),
                c if u32::from(c) < 0x100 => hex(&mut out, u32::from(c)),
                c => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            }
        }
        for byte in chunk.invalid() {
            hex(&mut out, u32::from(*byte));
        }
    }
    out
}

fn hex(out: &mut String, byte: u32) {
    out.push_str(&format!("\\x{byte:02x}"));
}

/// Puts a space into what a CI system would obey: `: :error::`, `## [group]`, `## vso[…]`, `[[ ATTACHMENT|…]]`.
fn break_commands(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (n, line) in text.split('\n').enumerate() {
        if n > 0 {
            out.push('\n');
        }
        break_commands_of_line(line, &mut out);
    }
    out
}

fn break_commands_of_line(line: &str, out: &mut String) {
    let body = line.trim_start();
    // GitHub obeys `::name` behind white space only. `::1` is an address.
    let second_colon = body
        .strip_prefix("::")
        .filter(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        .map(|_| line.len() - body.len() + 1);
    for (at, c) in line.char_indices() {
        if Some(at) == second_colon {
            out.push(' ');
        }
        if c == '[' {
            // GitHub and Azure obey these anywhere in a line.
            let before = out.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            if before.ends_with("##") {
                out.insert(before.len(), ' ');
            }
        }
        out.push(c);
        if c == '[' && line[..at].ends_with('[') && starts_with_attachment(&line[at + 1..]) {
            out.push(' ');
        }
    }
}

fn starts_with_attachment(text: &str) -> bool {
    const MARK: &[u8] = b"ATTACHMENT|";
    text.as_bytes()
        .get(..MARK.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(MARK))
}

/// The nearest place at or before `at` that does not cut a UTF-8 character.
fn boundary(bytes: &[u8], at: usize) -> usize {
    let is_start = |at: &usize| bytes.get(*at).is_none_or(|b| b & 0xc0 != 0x80);
    (at.saturating_sub(3)..=at)
        .rev()
        .find(is_start)
        .unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assert_safe(text: &str) {
        for c in text.chars().filter(|c| *c != '\n') {
            assert!(!c.is_control(), "control character in {text:?}");
            assert!(!must_escape(c), "{c:?} in {text:?}");
            assert!(
                matches!(c, '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..),
                "no XML character: {c:?}"
            );
        }
        for line in text.split('\n') {
            let lower = line.to_ascii_lowercase();
            let start = line
                .trim_start()
                .strip_prefix("::")
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
            assert!(!start, "command at the start of {line:?}");
            for mark in ["##[", "##vso[", "##teamcity[", "[[attachment|"] {
                assert!(!lower.contains(mark), "{mark} in {line:?}");
            }
        }
    }

    #[test]
    fn what_acts_is_shown_and_the_rest_stays_readable() {
        let cases: &[(&[u8], &str)] = &[
            (b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
            (b"a\0b\x7f\xc2\x9b", "a\\x00b\\x7f\\x9b"),
            ("Zürich ✓ 東京".as_bytes(), "Zürich ✓ 東京"),
            ("ab\u{202e}cd\u{200b}".as_bytes(), "ab\\u{202e}cd\\u{200b}"),
            (
                "\u{fffe}\u{ffff}\u{1fffe}".as_bytes(),
                "\\u{fffe}\\u{ffff}\\u{1fffe}",
            ),
            (b"\xff\xed\xa0\x80", "\\xff\\xed\\xa0\\x80"),
            (b"one\r\ntwo\rthree\tfour", "one\ntwo\\rthree\\tfour"),
            (b"::error file=x::y", ": :error file=x::y"),
            (b"ok\n \t::stop-commands::x", "ok\n \\t::stop-commands::x"),
            (b"ok\n  ::warning::x", "ok\n  : :warning::x"),
            (b"::1 and std::fmt", "::1 and std::fmt"),
            (b"x ##[error]y ###[g]", "x ## [error]y ### [g]"),
            (b"##vso[task.complete]", "## vso[task.complete]"),
            (b"##TeamCity[x", "## TeamCity[x"),
            (b"[[ATTACHMENT|/etc/passwd]]", "[[ ATTACHMENT|/etc/passwd]]"),
            (b"a]]>b", "a]]>b"),
        ];
        for (raw, shown) in cases {
            let text = SafeText::block(raw);
            assert_eq!(text.as_str(), *shown);
            assert_safe(text.as_str());
        }
        assert_eq!(
            SafeText::line("a\r\n::error::b").as_str(),
            "a\\r\\n::error::b"
        );
    }

    #[test]
    fn the_end_of_a_cdata_section_is_divided() {
        let text = SafeText::block("x]]>y]]]>").cdata();
        assert_eq!(text, "x]]]]><![CDATA[>y]]]]]><![CDATA[>");
    }

    #[test]
    fn long_text_keeps_both_ends_a_count_and_a_hash() {
        let raw = format!("{}é{}", "a".repeat(9), "z".repeat(100));
        let text = SafeText::capped(&raw, Cap { head: 10, tail: 5 });
        let hash = format!("{:x}", Sha256::digest(&raw));
        assert_eq!(
            text.as_str(),
            format!("aaaaaaaaa\n[... 97 of 111 bytes left out, sha256 {hash}]\nzzzzz")
        );
        assert_eq!(
            SafeText::capped("short", Cap { head: 3, tail: 2 }).as_str(),
            "short"
        );
        assert_eq!(SafeText::line_within("abcdefgh", 6).as_str(), "abc...");
        assert_eq!(SafeText::line_within("abcdef", 6).as_str(), "abcdef");
        assert_eq!(
            SafeText::line_within("\u{1f600}".repeat(9), 8).as_str(),
            "\u{1f600}".repeat(5) + "..."
        );
    }

    #[test]
    fn a_long_word_is_not_broken() {
        let path = format!("/tmp/{}", "a".repeat(40));
        let lines = SafeText::line(format!("found in {path} twice")).wrapped(20);
        let lines: Vec<&str> = lines.iter().map(SafeText::as_str).collect();
        assert_eq!(lines, ["found in", &path, "twice"]);
    }

    #[test]
    fn a_command_does_not_come_to_the_start_of_a_line_by_wrapping() {
        for width in 10..30 {
            for line in
                SafeText::line("some words ::error::and xxxxxxxxxxxx::more::words").wrapped(width)
            {
                assert_safe(line.as_str());
            }
        }
    }

    /// Bytes that look for trouble: fragments of commands and marks between arbitrary bytes.
    fn trouble() -> impl Strategy<Value = Vec<u8>> {
        let fragment = prop_oneof![
            Just(b"::".to_vec()),
            Just(b"##".to_vec()),
            Just(b"[".to_vec()),
            Just(b"vso[".to_vec()),
            Just(b"[[ATTACHMENT|".to_vec()),
            Just(b"]]>".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n ".to_vec()),
            Just("\u{202e}".as_bytes().to_vec()),
            Just("\u{a0}".as_bytes().to_vec()),
            Just(b"error".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..6),
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
        ];
        proptest::collection::vec(fragment, 0..40).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn nothing_unsafe_comes_through(raw in trouble(), head in 0usize..40, tail in 0usize..40, width in 0usize..60) {
            let block = SafeText::block(&raw);
            assert_safe(block.as_str());
            let line = SafeText::line(&raw);
            assert_safe(line.as_str());
            prop_assert!(!line.as_str().contains('\n'));
            assert_safe(SafeText::capped(&raw, Cap { head, tail }).as_str());
            assert_safe(SafeText::line_within(&raw, head).as_str());
            for part in line.wrapped(width) {
                assert_safe(part.as_str());
            }
            // What is safe stays as it is.
            prop_assert_eq!(SafeText::block(block.as_str()), block);
            prop_assert_eq!(SafeText::line(line.as_str()), line);
        }

        #[test]
        fn a_cdata_section_ends_only_where_the_writer_ends_it(raw in trouble()) {
            let text = SafeText::block(&raw);
            let joined = text.cdata().replace("]]]]><![CDATA[>", "]]>");
            prop_assert_eq!(joined, text.as_str());
            for section in text.cdata().split("]]><![CDATA[") {
                prop_assert!(!section.contains("]]>"));
            }
        }
    }
}
