//! The report as SARIF 2.1.0, for code scanning: an alert for each thing that escaped or is broken.
//!
//! Nothing else is a result. What could not be decided, a sandbox that could not be audited and an audit that did not come
//! to its end are notifications of the run, which is then no successful one.
//!
//! An alert stays the same one while its case, its sandbox and its image's repository do: an image's digest changes with
//! every build, and is no part of the fingerprint.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use serde_json::ser::PrettyFormatter;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::json::visible;
use super::standing::{self, Finding, Standing, findings};
use super::style::word;
use super::{Report, SandboxReport, Trial, advice, repeat};
use crate::case::{Case, Expect, Severity};
use crate::config::model::Image;
use crate::exit_code;
use crate::safe_text::SafeText;

/// Characters of one line of a message.
const LINE: usize = 2000;
/// Pieces of evidence in a message.
const EVIDENCE: usize = 10;

/// Writes the report.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut rules = Rules::default();
    let (mut results, mut notifications) = (Vec::new(), Vec::new());
    for finding in findings(report) {
        match finding {
            Finding::NotAudited(sandbox, why) => {
                let name = &sandbox.sandbox.name;
                let text = format!("The sandbox {name} could not be audited: {why}");
                notifications.push(notification("not-audited", &text));
            }
            Finding::Gate(remark) => {
                notifications.push(notification(remark.code, &remark.sentence))
            }
            Finding::Trial(trial) => match standing::of(trial) {
                Standing::Failed => results.push(result(trial, report, &mut rules)),
                Standing::Silent(_) if trial.judgement.verdict.escapes() => {
                    let mut result = result(trial, report, &mut rules);
                    result["level"] = "note".into();
                    results.push(result);
                }
                Standing::Waived(waived) => {
                    let mut result = result(trial, report, &mut rules);
                    let why = message(&waived.to_string());
                    result["suppressions"] = json!([{"kind": "external", "justification": why}]);
                    results.push(result);
                }
                _ => notifications.push(undecided(trial)),
            },
        }
    }
    if let Some(why) = &report.incomplete {
        notifications.push(notification("incomplete", why));
    }
    let decided =
        notifications.is_empty() && [exit_code::HELD, exit_code::ESCAPED].contains(&report.found());
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": report.tool.name,
                "semanticVersion": report.tool.version,
                "informationUri": "https://github.com/escape-audit/escape-audit",
                "rules": rules.list,
                "properties": {"library": line(&report.tool.library)},
            }},
            "automationDetails": {"id": run_id(report)},
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": report.incomplete.is_none() && decided,
                "startTimeUtc": report.started,
                "exitCode": report.exit_code,
                "exitCodeDescription": line(&report.gate.sentence),
                "toolExecutionNotifications": notifications,
            }],
            "results": results,
            "properties": {"summary": report.summary},
        }],
    });
    visible(&log, PrettyFormatter::new(), out)?;
    out.write_all(b"\n")
}

/// The rules that results refer to, each once.
#[derive(Default)]
struct Rules {
    list: Vec<Value>,
    places: BTreeMap<String, usize>,
}

impl Rules {
    fn place_of(&mut self, case: &Case) -> usize {
        let next = self.list.len();
        let place = *self.places.entry(case.id.clone()).or_insert(next);
        if place == next {
            self.list.push(rule(case));
        }
        place
    }
}

fn rule(case: &Case) -> Value {
    let mut tags: Vec<Value> = case.techniques.iter().map(line).collect();
    let mut rule = json!({
        "id": line(&case.id),
        "shortDescription": {"text": message(&case.title)},
        "fullDescription": {"text": message(&case.why)},
        "help": {"text": message(&format!("{}\n\n{}", case.why.trim(), case.fix.trim()))},
        "defaultConfiguration": {"level": level(case.severity)},
    });
    // What must work is no question of security.
    match case.expect {
        Expect::Allowed => tags.insert(0, "correctness".into()),
        Expect::Blocked => {
            tags.insert(0, "security".into());
            rule["properties"]["security-severity"] = score(case.severity).into();
        }
    }
    rule["properties"]["precision"] = "very-high".into();
    rule["properties"]["tags"] = tags.into();
    if let Some(first) = case.references.iter().find(|text| is_link(text)) {
        rule["helpUri"] = line(first);
    }
    rule
}

fn result(trial: &Trial, report: &Report, rules: &mut Rules) -> Value {
    let case = &trial.source;
    let sandbox = report.sandbox_of(trial);
    json!({
        "ruleId": line(&case.id),
        "ruleIndex": rules.place_of(case),
        "level": level(case.severity),
        "message": {"text": message(&told(trial, report))},
        "locations": [{
            "physicalLocation": {
                "artifactLocation": {"uri": uri(&case.source)},
                "region": {"startLine": 1},
            },
            "logicalLocations": [{"name": line(&trial.sandbox), "kind": "resource"}],
        }],
        "partialFingerprints": {"escapeAudit/v1": fingerprint(trial, sandbox)},
        "properties": {
            "verdict": trial.judgement.verdict.name(),
            "reason": trial.judgement.reason,
            "severity": word(case.severity),
            "sandbox": line(&trial.sandbox),
            "gates": trial.counts(),
        },
    })
}

/// All that a reader of an alert needs to act.
fn told(trial: &Trial, report: &Report) -> String {
    let judgement = &trial.judgement;
    let cut = |text: &str| SafeText::line_within(text.trim(), LINE).to_string();
    let mut text = format!(
        "{} in the sandbox {}: {}\n",
        judgement.verdict.name(),
        cut(&trial.sandbox),
        cut(&judgement.sentence)
    );
    for evidence in judgement.evidence.iter().take(EVIDENCE) {
        text.push_str(&format!("- {}\n", cut(evidence)));
    }
    let holding = advice::holding(trial, report);
    if !holding.is_empty() {
        text.push_str(&format!(
            "What would have held it: {}\n",
            advice::told(&holding)
        ));
    }
    text.push_str(&format!("Fix: {}\n", cut(&trial.source.fix)));
    if let Some(sandbox) = report.sandbox_of(trial) {
        text.push_str(&format!(
            "To repeat it: {}\n",
            cut(&repeat::command(trial, sandbox))
        ));
    }
    text
}

fn undecided(trial: &Trial) -> Value {
    let judgement = &trial.judgement;
    let (verdict, sandbox, case) = (judgement.verdict.name(), &trial.sandbox, &trial.case);
    let text = format!(
        "{verdict} {case} in the sandbox {sandbox}: {}",
        judgement.sentence
    );
    let mut notification = notification(judgement.reason, &text);
    notification["associatedRule"] = json!({"id": line(case)});
    if !trial.counts() {
        notification["level"] = "note".into();
    }
    notification
}

fn notification(code: &str, text: &str) -> Value {
    json!({
        "level": "error",
        "descriptor": {"id": code},
        "message": {"text": message(text)},
    })
}

/// Text on one line.
fn line(text: impl AsRef<[u8]>) -> Value {
    SafeText::line_within(text, LINE).as_str().into()
}

/// A message of more than one line. In a message `[text](target)` would be a link, and there is none in ours.
fn message(text: &str) -> Value {
    let lines: Vec<String> = text
        .trim()
        .lines()
        .map(|line| SafeText::line_within(line, LINE).to_string())
        .collect();
    let text = SafeText::block(lines.join("\n")).to_string();
    text.replace("](", "] (").into()
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical | Severity::High => "error",
        Severity::Medium => "warning",
        Severity::Low | Severity::Info => "note",
    }
}

/// In the middle of the range that code scanning calls by the severity's name.
fn score(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "9.5",
        Severity::High => "8.0",
        Severity::Medium => "5.5",
        Severity::Low => "2.0",
        Severity::Info => "0.0",
    }
}

fn is_link(text: &str) -> bool {
    text.starts_with("https://") && uri_text(text) == text
}

/// The case's file: relative as it was found, `file://…` where it is not.
fn uri(path: &Path) -> String {
    let text = uri_text(&path.to_string_lossy());
    match path.is_absolute() {
        true => format!("file://{text}"),
        false => text.replace(':', "%3A"), // or its first part would be a scheme
    }
}

/// Percent-encoded, but for what may stand in a path or divides the parts of an address.
fn uri_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'-' | b'.' | b'_' | b'~' | b'/' | b':' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn fingerprint(trial: &Trial, sandbox: Option<&SandboxReport>) -> String {
    let image = sandbox.and_then(|sandbox| sandbox.sandbox.settings.image.as_ref());
    let parts = [&*trial.case, &*trial.sandbox, image.map_or("", repository)];
    format!("{:x}", Sha256::digest(parts.join("\0")))
}

/// `registry:5000/agent` of `registry:5000/agent:1.2@sha256:…`. The id of a built image names nothing that stays.
fn repository(image: &Image) -> &str {
    let reference = match image {
        Image::Digest { reference, .. } | Image::Tag(reference) => reference,
        Image::Id(_) => return "",
    };
    let name = reference.split('@').next().unwrap_or_default();
    let path = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[path..].find(':') {
        Some(colon) => &name[..path + colon],
        None => name,
    }
}

/// One for each run: what was audited, and when. Code scanning takes what stands before the last `/` for the category, in
/// which a later upload replaces an earlier one.
fn run_id(report: &Report) -> String {
    let plain = |name: &str| -> String {
        let kept = |c: char| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '-'
            }
        };
        name.chars().take(40).map(kept).collect()
    };
    let names: Vec<String> = report
        .sandboxes
        .iter()
        .map(|sandbox| plain(&sandbox.sandbox.name))
        .collect();
    format!("escape-audit/{}/{}", names.join("+"), report.started)
}

#[cfg(test)]
mod tests;
