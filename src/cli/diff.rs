//! `diff`: two reports side by side, the cause beside the effect, for a person or as JSON.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Result;

use super::args;
use super::baseline::load_report;
use super::terminal;
use crate::exit_code;
use crate::gate::diff::{Change, Diff, Effect, Kind, diff};
use crate::report::Style;
use crate::report::style::{Ink, ink};
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// Columns of a verdict's name.
const VERDICT: usize = "INCONCLUSIVE".len();
/// Characters of one value.
const VALUE: usize = 120;

/// Compares, and gives back whether anything is worse.
pub fn compare(arguments: &args::Diff) -> Result<i32> {
    let before = load_report(&arguments.before)?;
    let after = load_report(&arguments.after)?;
    let diff = diff(&before, &after);
    let style = terminal::style(&io::stdout());
    super::print(|out| match arguments.json {
        true => json(&diff, out),
        false => table(&diff, out, style),
    })?;
    Ok(match diff.worse {
        true => exit_code::ESCAPED,
        false => exit_code::HELD,
    })
}

/// One JSON document. What acts on a terminal is escaped, as in a report.
fn json(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    crate::report::json::write_value(diff, out)
}

fn table(diff: &Diff, out: &mut dyn Write, style: Style) -> io::Result<()> {
    changes(&diff.changes, out, style)?;
    for sandbox in &diff.sandboxes {
        writeln!(
            out,
            "{}",
            style.paint(Ink::Bold, SafeText::line(&sandbox.name))
        )?;
        writeln!(
            out,
            "{}",
            style.paint(Ink::Dim, style.rule(style.columns()))
        )?;
        changes(&sandbox.changes, out, style)?;
        for effect in &sandbox.effects {
            told(effect, out, style)?;
        }
        writeln!(out)?;
    }
    summary(diff, out, style)
}

fn changes(changes: &[Change], out: &mut dyn Write, style: Style) -> io::Result<()> {
    let arrow = if style.unicode { "→" } else { "->" };
    for change in changes {
        let value = |value: &Option<String>| match value {
            Some(value) => SafeText::line_within(value, VALUE).to_string(),
            None => "nothing".to_owned(),
        };
        let what = SafeText::line_within(&change.what, VALUE);
        let (before, after) = (value(&change.before), value(&change.after));
        let label = style.paint(Ink::Dim, "changed   ");
        writeln!(out, "  {label}{what}: {before} {arrow} {after}")?;
    }
    match changes.is_empty() {
        true => Ok(()),
        false => writeln!(out),
    }
}

/// `X ESCAPED  network/tcp-egress  newly escaped, was BLOCKED`, and what happened where that is news.
fn told(effect: &Effect, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let (mark, colour, name) = match effect.after {
        Some(verdict) => (style.mark(verdict), ink(verdict), verdict.name()),
        None => ("-", Ink::Red, "VANISHED"),
    };
    let mut words = vec![match effect.after {
        Some(Verdict::Broken) if effect.kind == Kind::Escaped => "newly broken".to_owned(),
        _ => word(effect.kind).to_owned(),
    }];
    words.extend(
        effect
            .before
            .map(|verdict| format!("was {}", verdict.name())),
    );
    words.extend(
        effect
            .renamed_from
            .as_ref()
            .map(|id| format!("as `{}`", SafeText::line(id))),
    );
    let case = SafeText::line_within(&effect.case, 60);
    writeln!(
        out,
        "  {} {}  {}  {}",
        style.paint(colour, mark),
        style.paint(colour, format_args!("{name:VERDICT$}")),
        style.paint(Ink::Bold, case),
        style.paint(Ink::Dim, words.join(", ")),
    )?;
    if !matches!(effect.kind, Kind::Escaped | Kind::Worse) {
        return Ok(());
    }
    let text = format!("{}: {}", effect.reason, effect.sentence);
    let text = SafeText::line_within(text, 600);
    for line in text.wrapped(style.columns() - VERDICT - 6) {
        writeln!(out, "    {:VERDICT$}  {line}", "")?;
    }
    Ok(())
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Escaped => "newly escaped",
        Kind::Vanished => "not tried any more",
        Kind::NoLongerGates => "does not count any more",
        Kind::Worse => "worse",
        Kind::Better => "better",
        Kind::Fixed => "fixed",
        Kind::Renamed => "renamed",
        Kind::New => "new",
    }
}

/// `1 newly escaped, 2 fixed`, and what the exit code says.
fn summary(diff: &Diff, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let effects = diff.sandboxes.iter().flat_map(|sandbox| &sandbox.effects);
    let kinds: Vec<Kind> = effects.map(|effect| effect.kind).collect();
    let mut counts = Vec::new();
    for kind in [
        Kind::Escaped,
        Kind::Vanished,
        Kind::NoLongerGates,
        Kind::Worse,
        Kind::Better,
        Kind::Fixed,
        Kind::Renamed,
        Kind::New,
    ] {
        let count = kinds.iter().filter(|other| **other == kind).count();
        if count > 0 {
            counts.push(format!("{count} {}", word(kind)));
        }
    }
    if counts.is_empty() {
        counts.push("no verdict is another one".into());
    }
    writeln!(out, "{}", counts.join(", "))?;
    let said: &dyn Display = match diff.worse {
        true => &style.paint(Ink::Red, "exit 1: something is worse than before"),
        false => &style.paint(Ink::Green, "exit 0: nothing is worse than before"),
    };
    writeln!(out, "{said}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::saved::Saved;
    use crate::safe_text::must_escape;

    fn hostile() -> Diff {
        let mut before = sample::report();
        let after = before.clone();
        before.trials.truncate(3);
        before.sandboxes[0].in_force[0].1 = String::from_utf8_lossy(&sample::hostile()).into();
        diff(&Saved::of(&before), &Saved::of(&after))
    }

    #[test]
    fn nothing_of_a_stranger_reaches_the_terminal_raw() {
        let diff = hostile();
        let (mut page, mut data) = (Vec::new(), Vec::new());
        table(&diff, &mut page, Style::default()).expect("written");
        json(&diff, &mut data).expect("written");
        for text in [page, data] {
            let text = String::from_utf8(text).expect("UTF-8");
            assert!(text.contains("processes/nasty"), "{text}");
            for c in text.chars().filter(|c| *c != '\n') {
                assert!(!must_escape(c), "{c:?}");
            }
            for mark in ["##[", "##vso[", "[[ATTACHMENT|"] {
                assert!(!text.contains(mark), "{text}");
            }
        }
    }

    #[test]
    fn the_cause_stands_above_the_effect() {
        let mut page = Vec::new();
        table(&hostile(), &mut page, Style::default()).expect("written");
        let page = String::from_utf8(page).expect("UTF-8");
        let at = |word: &str| page.find(word).unwrap_or_else(|| panic!("{word}\n{page}"));
        assert!(at("changed   in force: memory: ]]>") < at("X ESCAPED       network/escaped"));
        at("newly escaped\n                  canary: The canary at 10.0.0.1:80");
        at("exit 1: something is worse than before");
    }
}
