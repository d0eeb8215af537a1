//! How text looks on a terminal: colour and marks, each only when the caller asks for it; and how times are told.

use std::time::Duration;

use crate::verdict::Verdict;

/// How to write for a person. The caller knows the terminal and the environment (`NO_COLOR` over `CLICOLOR_FORCE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Colours, as ANSI escapes.
    pub color: bool,
    /// Marks beyond ASCII.
    pub unicode: bool,
    /// Columns.
    pub width: usize,
}

impl Default for Style {
    /// What is safe everywhere: no colour, ASCII, 100 columns.
    fn default() -> Self {
        Self {
            color: false,
            unicode: false,
            width: 100,
        }
    }
}

/// An ANSI colour or weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Ink {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Magenta,
}

impl Style {
    /// `text` in this ink, or as it is where there is no colour.
    pub fn paint(self, ink: Ink, text: impl std::fmt::Display) -> String {
        if !self.color || ink == Ink::Plain {
            return text.to_string();
        }
        let code = match ink {
            Ink::Plain => "0",
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Red => "1;31",
            Ink::Green => "32",
            Ink::Yellow => "33",
            Ink::Magenta => "35",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// The sign before a verdict.
    pub fn mark(self, verdict: Verdict) -> &'static str {
        let (fancy, plain) = match verdict {
            Verdict::Allowed | Verdict::Blocked => ("✓", "+"),
            Verdict::Skipped => ("○", "o"),
            Verdict::Inconclusive => ("?", "?"),
            Verdict::Error => ("!", "!"),
            Verdict::Broken | Verdict::Escaped => ("✗", "X"),
        };
        if self.unicode { fancy } else { plain }
    }

    /// What stands between the parts of a line.
    pub fn dot(self) -> &'static str {
        if self.unicode { " · " } else { ", " }
    }

    /// The line below a heading, `columns` wide.
    pub fn rule(self, columns: usize) -> String {
        if self.unicode { "─" } else { "-" }.repeat(columns)
    }

    /// Columns that are used: not so few that nothing fits, nor so many that a line cannot be read.
    pub fn columns(self) -> usize {
        self.width.clamp(40, 120)
    }
}

/// The colour of a verdict.
pub fn ink(verdict: Verdict) -> Ink {
    match verdict {
        Verdict::Allowed | Verdict::Blocked => Ink::Green,
        Verdict::Skipped => Ink::Dim,
        Verdict::Inconclusive => Ink::Yellow,
        Verdict::Error => Ink::Magenta,
        Verdict::Broken | Verdict::Escaped => Ink::Red,
    }
}

/// A word of the vocabulary (a severity, a level), as it is written in files.
pub fn word(name: impl std::fmt::Debug) -> String {
    format!("{name:?}").to_lowercase()
}

/// `1 trial`, `2 trials`.
pub fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// A time for a person: `12 ms`, `1.25 s`, `3 m 05 s`.
pub fn time(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{:02} s", ms / 1000, ms % 1000 / 10),
        _ => format!("{} m {:02} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let table = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1250, "1.25 s"),
            (59_999, "59.99 s"),
            (185_000, "3 m 05 s"),
        ];
        for (ms, shown) in table {
            assert_eq!(time(Duration::from_millis(ms)), shown);
        }
    }

    #[test]
    fn without_colour_there_is_no_escape() {
        let plain = Style::default();
        for verdict in Verdict::ALL {
            assert_eq!(plain.paint(ink(verdict), "x"), "x");
            assert!(plain.mark(verdict).is_ascii());
        }
        let colored = Style {
            color: true,
            ..plain
        };
        assert_eq!(colored.paint(Ink::Green, "x"), "\x1b[32mx\x1b[0m");
    }
}
