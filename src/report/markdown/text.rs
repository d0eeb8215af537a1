//! Text of strangers in Markdown: in a paragraph or a cell, as code, and where Markdown is not read.

use std::fmt;

use crate::safe_text::SafeText;

/// In a paragraph or a cell of a table: on one line, and nothing in it is a mark. At most so many characters.
pub(super) struct Md<'a>(pub(super) &'a str, pub(super) usize);

/// The same, as code. Between back-ticks a text with back-ticks would end them.
pub(super) struct Code<'a>(pub(super) &'a str, pub(super) usize);

/// Within a line of HTML, where Markdown is not read.
pub(super) struct Html<'a>(pub(super) &'a str, pub(super) usize);

impl fmt::Display for Md<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = SafeText::line_within(self.0.trim(), self.1);
        let mut chars = text.as_str().chars().peekable();
        let mut before = ' ';
        while let Some(c) = chars.next() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                // A back-slash before these, too, would be read as a mark of mathematics, a person or an issue.
                '$' => f.write_str("&#36;")?,
                '@' => f.write_str("&#64;")?,
                '#' => f.write_str("&#35;")?,
                // An address in a text is no link that we would vouch for.
                ':' if chars.peek() == Some(&'/') => f.write_str("&#58;")?,
                '.' if before.eq_ignore_ascii_case(&'w') => f.write_str("&#46;")?,
                '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' => write!(f, "\\{c}")?,
                c => write!(f, "{c}")?,
            }
            before = c;
        }
        Ok(())
    }
}

impl fmt::Display for Code<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<code>{}</code>", Md(self.0, self.1))
    }
}

impl fmt::Display for Html<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&html(SafeText::line_within(self.0.trim(), self.1).as_str()))
    }
}

/// What was printed, with its lines: no more than `most` characters of it. Markdown is not read before `</pre>`.
pub(super) fn pre(text: &SafeText, most: usize) -> String {
    let shown: String = text.as_str().chars().take(most).collect();
    let cut = match text.as_str().len() - shown.len() {
        0 => String::new(),
        more => format!("\n[... {more} more bytes in the other reports]"),
    };
    format!("<pre>{}{cut}</pre>", html(&shown))
}

fn html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
