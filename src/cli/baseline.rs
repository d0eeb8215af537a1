//! `baseline write` and `baseline check`: a memory of what held, and an audit held against it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use anyhow::{Result, anyhow, bail};

use super::args::Baseline as Command;
use super::terminal;
use crate::diag::{Code, Diagnostic, Diagnostics, Source};
use crate::exit_code;
use crate::gate::baseline::Baseline;
use crate::gate::{self, baseline_file};
use crate::report::human;
use crate::report::saved::Saved;
use crate::report::write::ReportFile;

/// Larger than any report that the program writes.
const LARGEST_REPORT: u64 = 512 << 20;
/// Larger than a baseline of a thousand sandboxes.
const LARGEST_BASELINE: u64 = 16 << 20;

/// Does what was asked for.
pub fn baseline(command: &Command) -> Result<i32> {
    match command {
        Command::Write { report, output } => write(report, output.as_deref()),
        Command::Check { baseline, report } => check(baseline, report),
    }
}

fn write(report: &Path, output: Option<&Path>) -> Result<i32> {
    let saved = load_report(report)?;
    let baseline = Baseline::of(&saved).map_err(|reasons| {
        anyhow!(
            "`{}` cannot become a baseline:\n- {}\n\
             help: audit the sandboxes as they are and to the end, and write the baseline from that report",
            report.display(),
            reasons.join("\n- ")
        )
    })?;
    let text = baseline_file::write(&baseline);
    match output {
        Some(path) => {
            let write = |out: &mut dyn io::Write| out.write_all(text.as_bytes());
            ReportFile::claim(path)?.write(write)?;
        }
        None => return super::print(|out| out.write_all(text.as_bytes())),
    }
    if !saved.selection.is_empty() {
        eprintln!(
            "warning: the audit was restricted by {}; the baseline knows of nothing else",
            crate::safe_text::SafeText::line(saved.selection.join(" "))
        );
    }
    Ok(exit_code::HELD)
}

fn check(baseline: &Path, report: &Path) -> Result<i32> {
    let known = load(baseline)?;
    let saved = load_report(report)?;
    let (code, remarks) = gate::check_saved(&known, &saved);
    let style = terminal::style(&io::stdout());
    let mut out = io::stdout().lock();
    let said = human::remarks(&remarks, &mut out, style).and_then(|()| {
        let sentence = exit_code::sentence(code);
        writeln!(out, "exit {code}: {sentence}")
    });
    super::closed_pipe(said)?;
    Ok(code)
}

/// Reads a baseline's file.
pub fn load(path: &Path) -> Result<Baseline> {
    let text = String::from_utf8(read(path, LARGEST_BASELINE)?).map_err(|_| {
        let message = "this file is no baseline: it is not UTF-8 text";
        Diagnostics::from(mistake(message.into()).in_file(path))
    })?;
    Ok(parse(&Source::new(path, &text))?)
}

/// Reads a baseline's text; what is wrong with it has its place.
pub fn parse(source: &Source) -> Result<Baseline, Diagnostics> {
    baseline_file::parse(&source.text).map_err(|unreadable| {
        let mistake = mistake(format!("this file is no baseline: {}", unreadable.message));
        match unreadable.span {
            Some(span) => mistake.at(source, span, "").into(),
            None => mistake.in_file(&source.path).into(),
        }
    })
}

fn mistake(message: String) -> Diagnostic {
    let help = "name a file that `escape-audit baseline write` made";
    Diagnostic::new(Code::NotABaseline, message, help)
}

/// Reads a JSON report.
pub fn load_report(path: &Path) -> Result<Saved> {
    let bytes = read(path, LARGEST_REPORT)?;
    Saved::parse(&bytes).map_err(|why| {
        anyhow!(
            "`{}` cannot be used: {why}\n\
             help: name a JSON report, as `escape-audit run --json FILE` of this version writes it",
            path.display()
        )
    })
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => bail!(
            "cannot read `{}`: {error}\nhelp: check the path",
            path.display()
        ),
        Ok(_) if bytes.len() as u64 > most => bail!(
            "`{}` is larger than {} MiB\nhelp: is it the right file?",
            path.display(),
            most >> 20
        ),
        Ok(_) => Ok(bytes),
    }
}
