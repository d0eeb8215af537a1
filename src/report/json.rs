//! The report as JSON: the whole of it, in the form that `schema/report-1.schema.json` describes.
//!
//! Text of strangers stands in it unchanged for a reader of JSON; in the file every character that acts is written as
//! `\uXXXX`, and so is what would make a CI system obey, so that the file can be shown as it is.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

use super::Report;
use crate::safe_text::must_escape;

/// Writes the report, indented, with a line feed at its end.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write_value(report, out)
}

/// Writes anything else in the same way.
pub fn write_value(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    visible(value, PrettyFormatter::new(), out)?;
    out.write_all(b"\n")
}

/// Writes a value in this layout, with no character in a string that acts.
pub(super) fn visible(
    value: &impl Serialize,
    layout: impl Formatter,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut out = serde_json::Serializer::with_formatter(out, Visible(layout));
    Ok(value.serialize(&mut out)?)
}

#[cfg(test)]
mod schema_test;

/// A layout, and no character in a string that acts.
struct Visible<F>(F);

impl<F: Formatter> Formatter for Visible<F> {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut before = '\0';
        for c in text.chars() {
            // `##[…` and `[[ATTACHMENT|` are obeyed anywhere in a line; `::` only at its start, where a quote stands.
            let command = before == c && matches!(c, '#' | '[');
            if command || must_escape(c) {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            } else {
                out.write_all(c.encode_utf8(&mut [0; 4]).as_bytes())?;
            }
            before = c;
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }
    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }
    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn written(report: &Report) -> String {
        let mut out = Vec::new();
        write(report, &mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn a_reader_gets_every_text_back_and_a_terminal_gets_none_of_it_raw() {
        let report = sample::report();
        let text = written(&report);
        assert!(text.ends_with("}\n"));
        for c in text.chars().filter(|c| *c != '\n') {
            assert!(!must_escape(c), "{c:?}");
        }
        for line in text.lines() {
            assert!(!line.trim_start().starts_with("::"));
            for mark in ["##", "[["] {
                assert!(!line.contains(mark), "{line}");
            }
        }
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value, serde_json::to_value(&report).expect("JSON"));
    }

    #[test]
    fn durations_are_seconds_and_verdicts_are_words() {
        let value: serde_json::Value =
            serde_json::from_str(&written(&sample::report())).expect("JSON");
        assert_eq!(value["schema"], 1);
        assert_eq!(value["elapsed"], 4.21);
        assert_eq!(value["trials"][6]["verdict"], "ESCAPED");
        assert_eq!(value["trials"][6]["duration"], 0.012);
        assert_eq!(value["summary"]["escaped"], 3);
        assert_eq!(value["exit_code"], 1);
    }
}
