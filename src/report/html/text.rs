//! Text of strangers in HTML: between tags and in attributes, which are always quoted.

use std::fmt;

use crate::safe_text::SafeText;

/// On one line, at most so many characters.
pub(super) struct Text<'a>(pub(super) &'a str, pub(super) usize);

/// The same, and what stands between back-ticks is shown as code.
pub(super) struct Prose<'a>(pub(super) &'a str, pub(super) usize);

/// With its lines.
pub(super) struct Block(pub(super) SafeText);

/// An address that may be followed: `https`, and no character that an address does not have. Else it is a text.
pub(super) struct Link<'a>(pub(super) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(SafeText::line_within(self.0.trim(), self.1).as_str(), f)
    }
}

impl fmt::Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Text(self.0, self.1).to_string();
        let parts: Vec<&str> = text.split('`').collect();
        if parts.len().is_multiple_of(2) {
            return f.write_str(&text); // one of them stands alone
        }
        for (n, part) in parts.iter().enumerate() {
            match n % 2 {
                0 => f.write_str(part)?,
                _ => write!(f, "<code>{part}</code>")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0.as_str(), f)
    }
}

impl fmt::Display for Link<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Text(self.0, 500);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/#?=&%+,:@".contains(c);
        match self.0.strip_prefix("https://") {
            Some(rest) if rest.chars().all(plain) => {
                write!(
                    f,
                    r#"<a href="{text}" rel="noopener noreferrer">{text}</a>"#
                )
            }
            _ => write!(f, "{text}"),
        }
    }
}

fn escape(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        match c {
            '&' => f.write_str("&amp;")?,
            '<' => f.write_str("&lt;")?,
            '>' => f.write_str("&gt;")?,
            '"' => f.write_str("&quot;")?,
            '\'' => f.write_str("&#39;")?,
            c => write!(f, "{c}")?,
        }
    }
    Ok(())
}
