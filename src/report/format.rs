//! The formats that a report can be written in: one table, from which the command line, its help and the documents read.

use std::fmt;
use std::io::{self, Write};

use super::junit::Profile;
use super::{Report, Style, github, html, human, json, jsonl, junit, markdown, sarif, tap};

/// A form that a report can be written in.
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub doc: &'static str,
    /// Who reads it.
    pub readers: &'static str,
    /// How much of a report it takes.
    pub limits: &'static str,
    /// It says what was found, and not whether that is good: what `prove` can be written in.
    pub neutral: bool,
    /// Writes it.
    pub write: fn(&Report, &Options, &mut dyn Write) -> io::Result<()>,
}

/// What a caller may choose about a format.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// For people: how the page looks.
    pub style: Style,
    /// For JUnit: how much is said beyond the published schemas.
    pub junit: Profile,
}

/// Every format.
pub static FORMATS: [Format; 9] = [
    Format {
        name: "human",
        doc: "the page that is shown on a terminal",
        readers: "people, logs",
        limits: "long texts are cut; the JSON report has them whole",
        neutral: false,
        write: |report, options, out| human::write(report, out, options.style),
    },
    Format {
        name: "json",
        doc: "everything, in one document with a published schema",
        readers: "scripts, archives",
        limits: "none",
        neutral: true,
        write: |report, _, out| json::write(report, out),
    },
    Format {
        name: "jsonl",
        doc: "everything, one JSON object a line: the head, each trial, the summary",
        readers: "log pipelines, `jq`, `grep`",
        limits: "none",
        neutral: true,
        write: |report, _, out| jsonl::write(report, out),
    },
    Format {
        name: "junit",
        doc: "JUnit XML, one suite a sandbox",
        readers: "GitLab, Jenkins, Azure Pipelines, test dashboards",
        limits: "64 KiB of the beginning and of the end of each output",
        neutral: false,
        write: |report, options, out| junit::write(report, options.junit, out),
    },
    Format {
        name: "sarif",
        doc: "SARIF 2.1.0: an alert for each thing that escaped or is broken",
        readers: "GitHub code scanning, editors",
        limits: "what held or was skipped is not in it",
        neutral: false,
        write: |report, _, out| sarif::write(report, out),
    },
    Format {
        name: "markdown",
        doc: "a page for a job's summary or a comment",
        readers: "people, in GitHub's job summary (`$GITHUB_STEP_SUMMARY`)",
        limits: "900 KiB, the worst first; what is left out is counted",
        neutral: false,
        write: |report, _, out| markdown::write(report, out),
    },
    Format {
        name: "html",
        doc: "one self-contained page with filters, evidence, why and fix",
        readers: "people, in a browser or on paper",
        limits: "64 KiB of the beginning and of the end of each output",
        neutral: false,
        write: |report, _, out| html::write(report, out),
    },
    Format {
        name: "github",
        doc: "annotations of GitHub Actions, as `::error …` lines",
        readers: "the runner, on standard output: `--format github=-`",
        limits: "ten errors, ten warnings and ten notices, the worst first; the last says how many more",
        neutral: false,
        write: |report, _, out| github::write(report, out),
    },
    Format {
        name: "tap",
        doc: "TAP 14, one point a trial, worst first",
        readers: "`prove`, `node-tap`, other harnesses",
        limits: "long texts are cut",
        neutral: false,
        write: |report, _, out| tap::write(report, out),
    },
];

/// The format of this name.
pub fn named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

impl Format {
    /// The report in this format, as text.
    #[cfg(test)]
    pub(crate) fn text(&self, report: &Report) -> String {
        let mut out = Vec::new();
        (self.write)(report, &Options::default(), &mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("UTF-8")
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// There is one of each name.
impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

#[cfg(test)]
mod tests;
