//! Where the report is written: the output, and how it looks.

use std::fmt::Display;
use std::io::{self, Write};

use crate::report::style::{Ink, Style};
use crate::safe_text::SafeText;

/// Columns of the words on the left.
const LABEL: usize = 10;
/// Characters of one paragraph: what is longer stands in the JSON report.
const PARAGRAPH: usize = 600;

pub(super) struct Page<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) style: Style,
}

impl Page<'_> {
    /// One line. What stands in it is safe already.
    pub(super) fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// A word on the left, and a paragraph beside it.
    pub(super) fn row(&mut self, label: &str, text: &str, ink: Ink) -> io::Result<()> {
        let text = SafeText::line_within(text.trim(), PARAGRAPH);
        for (n, line) in text
            .wrapped(self.style.columns() - LABEL - 2)
            .iter()
            .enumerate()
        {
            let label = if n == 0 { label } else { "" };
            let label = self.style.paint(Ink::Dim, format!("{label:LABEL$}"));
            let line = self.style.paint(ink, line);
            self.line(format_args!("  {label}{line}"))?;
        }
        Ok(())
    }
}
