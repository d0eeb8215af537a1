//! A baseline as a file: sorted, one case a line, so that a difference between two can be read in a review.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Deserialize;

use super::baseline::{Audited, Baseline, Known};
use crate::case::Level;
use crate::safe_text::must_escape;
use crate::verdict::Verdict;

/// The version that is written and read.
const VERSION: u32 = 1;

/// A file that is no baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// What is wrong with it.
    pub message: String,
    /// Where, in bytes.
    pub span: Option<std::ops::Range<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    baseline: u32,
    tool: String,
    library: String,
    #[serde(default)]
    sandbox: BTreeMap<String, FileSandbox>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSandbox {
    level: Level,
    digest: Option<String>,
    #[serde(default)]
    promises: BTreeMap<String, f64>,
    #[serde(default)]
    writable: BTreeSet<String>,
    #[serde(default)]
    cases: BTreeMap<String, FileCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCase {
    verdict: Verdict,
    definition: String,
    #[serde(default = "yes")]
    gates: bool,
}

fn yes() -> bool {
    true
}

/// The file's text.
pub fn write(baseline: &Baseline) -> String {
    let mut text = String::from(
        "# What this project's sandboxes held when this was written. `escape-audit baseline write` makes it; commit it.\n\n",
    );
    // Writing to a String cannot fail.
    let _ = writeln!(text, "baseline = {VERSION}");
    let _ = writeln!(text, "tool     = {}", quoted(&baseline.tool));
    let _ = writeln!(text, "library  = {}", quoted(&baseline.library));
    for (name, sandbox) in &baseline.sandboxes {
        let name = quoted(name);
        let _ = writeln!(text, "\n[sandbox.{name}]");
        let _ = writeln!(text, "level  = {}", quoted(sandbox.level.name()));
        if let Some(digest) = &sandbox.digest {
            let _ = writeln!(text, "digest = {}", quoted(digest));
        }
        if !sandbox.writable.is_empty() {
            let places: Vec<String> = sandbox.writable.iter().map(|place| quoted(place)).collect();
            let _ = writeln!(text, "writable = [{}]", places.join(", "));
        }
        if !sandbox.promises.is_empty() {
            let _ = writeln!(text, "\n[sandbox.{name}.promises]");
        }
        for (what, promised) in &sandbox.promises {
            let _ = writeln!(text, "{what} = {promised}");
        }
        let _ = writeln!(text, "\n[sandbox.{name}.cases]");
        for (id, case) in &sandbox.cases {
            let silent = if case.gates { "" } else { ", gates = false" };
            let (id, verdict) = (quoted(id), case.verdict.name());
            let definition = quoted(&case.definition);
            let _ = writeln!(
                text,
                "{id} = {{ verdict = \"{verdict}\", definition = {definition}{silent} }}"
            );
        }
    }
    text
}

/// A text on one line, also as a key. What would act on a terminal or hide there is written as its number.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            _ if must_escape(c) => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
            _ => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Reads a file's text.
pub fn parse(text: &str) -> Result<Baseline, Unreadable> {
    let file: File = toml::from_str(text).map_err(|error| Unreadable {
        message: error.message().replace('\n', ", "),
        span: error.span(),
    })?;
    if file.baseline != VERSION {
        let message = format!(
            "it is a baseline of version {}, and this program reads version {VERSION}",
            file.baseline
        );
        return Err(Unreadable {
            message,
            span: None,
        });
    }
    let sandboxes = file.sandbox.into_iter().map(|(name, sandbox)| {
        let cases = sandbox.cases.into_iter().map(|(id, case)| {
            let known = Known {
                verdict: case.verdict,
                gates: case.gates,
                definition: case.definition,
            };
            (id, known)
        });
        let audited = Audited {
            level: sandbox.level,
            digest: sandbox.digest,
            promises: sandbox.promises,
            writable: sandbox.writable,
            cases: cases.collect(),
        };
        (name, audited)
    });
    let baseline = Baseline {
        tool: file.tool,
        library: file.library,
        sandboxes: sandboxes.collect(),
    };
    // An empty memory would let everything pass.
    let is_empty = |sandbox: &Audited| sandbox.cases.is_empty();
    match baseline.sandboxes.is_empty() || baseline.sandboxes.values().any(is_empty) {
        true => Err(Unreadable {
            message: "it knows of no sandbox, or of one without cases".into(),
            span: None,
        }),
        false => Ok(baseline),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::saved::Saved;

    fn sample() -> Baseline {
        let mut report = sample::report();
        report.sandboxes.pop(); // the one that could not be audited
        Baseline::of(&Saved::of(&report)).expect("a baseline")
    }

    #[test]
    fn what_is_written_is_read_back_whatever_the_names_are() {
        let mut baseline = sample();
        assert_eq!(parse(&write(&baseline)).as_ref(), Ok(&baseline));
        let name = String::from_utf8_lossy(&sample::hostile()).into_owned();
        let oci = baseline.sandboxes["oci"].clone();
        baseline.sandboxes.insert(name, oci);
        assert_eq!(parse(&write(&baseline)), Ok(baseline));
    }

    #[test]
    fn a_case_is_a_line() {
        let text = write(&sample());
        let held =
            "\"network/blocked\" = { verdict = \"BLOCKED\", definition = \"dddddddddddddddd\" }\n";
        let silent = "\"kernel/new\" = { verdict = \"ESCAPED\", definition = \"dddddddddddddddd\", gates = false }\n";
        for line in [
            held,
            silent,
            "[sandbox.\"oci\"]\nlevel  = \"standard\"\ndigest = \"sha256:aaa",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_is_no_baseline_is_refused() {
        let text = write(&sample());
        let table = [
            (String::new(), "missing field `baseline`"),
            (text.replace("baseline = 1", "baseline = 2"), "of version 2"),
            (
                text.replace("\"BLOCKED\"", "\"FINE\""),
                "unknown variant `FINE`",
            ),
            (
                text.replace("definition =", "hash ="),
                "unknown field `hash`",
            ),
            (text[..text.len() - 9].to_owned(), "inline table"),
            (
                text[..text.find("[sandbox").expect("one")].to_owned(),
                "knows of no sandbox",
            ),
            (
                text[..text.find("\"network").expect("one")].to_owned(),
                "without cases",
            ),
        ];
        for (text, reason) in table {
            let error = parse(&text).expect_err(reason);
            assert!(
                error.message.contains(reason),
                "{reason}: {}",
                error.message
            );
        }
    }
}
