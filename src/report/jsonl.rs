//! The report as JSON Lines: the head, each trial, worst first, and the summary, one object a line.
//!
//! A line is told apart by its `line`: `head`, `trial`, `summary`. Together they hold what the JSON report holds, under
//! the same names, and characters that act are written as there.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use serde_json::ser::CompactFormatter;

use super::decided::Decided;
use super::json::visible;
use super::model::seconds;
use super::standing::worst_first;
use super::{Report, SandboxReport, Summary, Tool, Trial};

#[derive(Serialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum Line<'a> {
    Head {
        schema: u32,
        tool: &'a Tool,
        started: &'a str,
        selection: &'a [String],
        sandboxes: &'a [SandboxReport],
    },
    Trial(&'a Trial),
    Summary {
        #[serde(serialize_with = "seconds")]
        elapsed: Duration,
        incomplete: Option<&'a str>,
        summary: &'a Summary,
        gate: &'a Decided,
        exit_code: i32,
    },
}

/// Writes the report.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut line = |line: Line<'_>| {
        visible(&line, CompactFormatter, out)?;
        out.write_all(b"\n")
    };
    line(Line::Head {
        schema: report.schema,
        tool: &report.tool,
        started: &report.started,
        selection: &report.selection,
        sandboxes: &report.sandboxes,
    })?;
    for trial in worst_first(report) {
        line(Line::Trial(trial))?;
    }
    line(Line::Summary {
        elapsed: report.elapsed,
        incomplete: report.incomplete.as_deref(),
        summary: &report.summary,
        gate: &report.gate,
        exit_code: report.exit_code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use serde_json::Value;

    #[test]
    fn the_lines_hold_what_the_json_report_holds() {
        let report = sample::report();
        let mut out = Vec::new();
        write(&report, &mut out).expect("a Vec takes everything");
        let text = String::from_utf8(out).expect("UTF-8");
        let mut lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let whole = serde_json::to_value(&report).expect("JSON");

        let mut together = serde_json::Map::new();
        let mut trials = Vec::new();
        let kinds: Vec<String> = lines
            .iter_mut()
            .map(|line| {
                let line = line.as_object_mut().expect("an object");
                let kind = line.remove("line").expect("a kind");
                match kind.as_str() {
                    Some("trial") => trials.push(Value::Object(line.clone())),
                    _ => together.extend(line.clone()),
                }
                kind.as_str().expect("a word").to_owned()
            })
            .collect();
        assert_eq!(kinds.first().map(String::as_str), Some("head"));
        assert_eq!(kinds.last().map(String::as_str), Some("summary"));
        let mut wanted = whole["trials"].as_array().expect("a list").clone();
        assert_eq!(trials[0]["verdict"], "ESCAPED");
        // In another order, the worst first.
        let by_id = |trial: &Value| format!("{}{}", trial["sandbox"], trial["case"]);
        trials.sort_by_key(by_id);
        wanted.sort_by_key(by_id);
        assert_eq!(trials, wanted);
        together.insert("trials".into(), whole["trials"].clone());
        assert_eq!(Value::Object(together), whole);
    }
}
