//! `list`: every selected case on a line, or all that is known of them as JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::case::{Case, Status};
use crate::diag::schema::Named as _;

/// The version of the JSON layout: raised when a field changes its meaning or goes away.
pub const VERSION: u32 = 1;

/// One line a case: id, severity, level, title; the count at the end.
pub fn table(cases: &[&Case], out: &mut dyn Write) -> io::Result<()> {
    let wide =
        |text: fn(&Case) -> &str| cases.iter().map(|case| text(case).len()).max().unwrap_or(0);
    let id = wide(|case| &case.id);
    let severity = wide(|case| case.severity.word());
    let level = wide(|case| case.level.word());
    for case in cases {
        let note = match case.status {
            Status::Stable => "",
            Status::Experimental => " (experimental)",
        };
        writeln!(
            out,
            "{:id$}  {:severity$}  {:level$}  {}{note}",
            case.id,
            case.severity.word(),
            case.level.word(),
            case.title,
        )?;
    }
    match cases.len() {
        1 => writeln!(out, "\n1 case"),
        n => writeln!(out, "\n{n} cases"),
    }
}

/// One JSON document: `{"version": 1, "library": DIGEST, "cases": […]}`.
pub fn json(cases: &[&Case], library: &str, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Listing<'a> {
        version: u32,
        library: &'a str,
        cases: &'a [&'a Case],
    }
    let listing = Listing {
        version: VERSION,
        library,
        cases,
    };
    serde_json::to_writer_pretty(&mut *out, &listing)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Filter, Library};

    fn listed(write: impl Fn(&[&Case], &str, &mut dyn Write) -> io::Result<()>) -> String {
        let library = Library::load(&[]).expect("valid");
        let cases = Filter::default().select(&library).expect("all");
        let mut out = Vec::new();
        write(&cases, &library.digest, &mut out).expect("written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn columns_stand_under_each_other() {
        let text = listed(|cases, _, out| table(cases, out));
        let lines: Vec<&str> = text.lines().collect();
        let titles = |line: &&&str| line.find(" standard").or(line.find(" strict"));
        let first = lines
            .iter()
            .filter(|line| line.contains('/'))
            .map(|line| titles(&line));
        assert_eq!(
            first.collect::<std::collections::BTreeSet<_>>().len(),
            1,
            "{text}"
        );
        assert!(text.ends_with(" cases\n"));
    }

    #[test]
    fn the_json_names_every_case() {
        let text = listed(json);
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["version"], 1);
        assert!(
            value["cases"]
                .as_array()
                .is_some_and(|cases| cases.len() > 40)
        );
        assert_eq!(value["cases"][0]["id"], "credentials/ci-token");
    }
}
