//! `waive`: one waiver more in the project file. What stands there keeps its place, its form and its comments: the waiver
//! is written at the end, and the file is replaced at once or not at all.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use super::args::Waive;
use super::gating::today;
use crate::case::Library;
use crate::config::{self, Waiver, waiver};
use crate::diag::{Code, Diagnostic, Diagnostics, Place, Source};
use crate::exit_code;
use crate::safe_text::SafeText;

/// Appends the waiver. Nothing is changed where anything is wrong.
pub fn waive(arguments: &Waive) -> Result<i32> {
    let path = match &arguments.config {
        Some(path) => path.clone(),
        None => PathBuf::from(config::FILE_NAME),
    };
    if !path.exists() {
        bail!(
            "a waiver stands in the project file, and `{}` is not there\n\
             help: name it with `--config`, or write one; docs/project-file.md says how",
            path.display()
        );
    }
    let project = super::pin::load(&path)?;
    let library = Library::load(&arguments.folders)?;
    let new = Waiver {
        case: arguments.case.clone(),
        sandbox: arguments.sandbox.clone(),
        until: arguments.until,
        reason: arguments.reason.trim().to_owned(),
        ticket: arguments.ticket.clone(),
        place: None,
    };
    let mut mistakes = Diagnostics::default();
    if library.get(&new.case).is_none() {
        mistakes.push(waiver::unknown_case(&new.case, &library));
    }
    if let Err(more) = config::find(Some(&project), &new.sandbox) {
        mistakes.append(more);
    }
    if new.until < today() {
        let message = format!("--until {}: this day is past", new.until);
        let help = "name the last day on which the waiver counts";
        mistakes.push(Diagnostic::new(Code::WrongValue, message, help));
    }
    let is_same = |old: &&Waiver| (&old.case, &old.sandbox) == (&new.case, &new.sandbox);
    if let Some(old) = project.waivers.iter().find(is_same) {
        let message = format!(
            "`{}` is waived in `{}` until {} already",
            old.case, old.sandbox, old.until
        );
        let help = "change that one, so that its end and its reason stay one decision";
        let mut mistake = Diagnostic::new(Code::Repeated, message, help);
        mistake.place =
            (old.place.as_ref()).map(|(source, span)| Place::bytes(source, span.clone(), ""));
        mistakes.push(mistake);
    }
    mistakes.or(())?;

    let before = fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()))?;
    let after = format!("{before}{}", entry(&new, &before));
    check(&path, &after, &project, &new)?;
    replace(&path, &after)?;
    println!(
        "{}: {} is waived in {} until {}",
        SafeText::line(path.to_string_lossy().as_ref()),
        SafeText::line(&new.case),
        SafeText::line(&new.sandbox),
        new.until
    );
    Ok(exit_code::HELD)
}

/// The waiver as it is written, with the file's own line ends.
fn entry(waiver: &Waiver, before: &str) -> String {
    let text = |value: &str| toml::Value::from(value).to_string();
    let mut lines = vec![
        "[[gate.waiver]]".to_owned(),
        format!("case = {}", text(&waiver.case)),
        format!("sandbox = {}", text(&waiver.sandbox)),
        format!("until = {}", waiver.until),
        format!("reason = {}", text(&waiver.reason)),
    ];
    lines.extend((waiver.ticket.as_ref()).map(|ticket| format!("ticket = {}", text(ticket))));
    let end = if before.contains("\r\n") {
        "\r\n"
    } else {
        "\n"
    };
    let mut entry = String::new();
    if !before.is_empty() {
        entry.push_str(if before.ends_with('\n') { end } else { "" });
        entry.push_str(if before.ends_with('\n') { "" } else { end });
    }
    for line in lines {
        entry.push_str(&line);
        entry.push_str(end);
    }
    entry
}

/// The file has to mean what it meant, and the waiver.
fn check(path: &Path, after: &str, project: &config::Project, new: &Waiver) -> Result<()> {
    let bare = |waiver: &Waiver| Waiver {
        place: None,
        ..waiver.clone()
    };
    let wanted: Vec<Waiver> = project.waivers.iter().chain([new]).map(bare).collect();
    let read = config::parse(&Source::new(path, after)).map_err(|mistakes| {
        let by_hand = "the waiver cannot be written at the end of this file";
        let help = "write it by hand, in the form that the file has; nothing was changed";
        anyhow!("{by_hand}:\n{mistakes}help: {help}")
    })?;
    let found: Vec<Waiver> = read.waivers.iter().map(bare).collect();
    if found != wanted || read.sandboxes != project.sandboxes || read.range != project.range {
        bail!(
            "with the waiver at its end, `{}` would mean something else\n\
             help: it was changed meanwhile, or it has an unusual form: write the waiver by hand; nothing was changed",
            path.display()
        );
    }
    Ok(())
}

/// Beside it first, then renamed; a link stays a link, and the file keeps its mode.
fn replace(path: &Path, text: &str) -> Result<()> {
    let doing = || {
        format!(
            "write `{}`; nothing was changed (help: name a file that this user may replace)",
            path.display()
        )
    };
    let target = fs::canonicalize(path).with_context(doing)?;
    let folder = target.parent().unwrap_or(Path::new("/"));
    let mode = fs::metadata(&target).with_context(doing)?.permissions();
    let mut file = tempfile::Builder::new()
        .prefix(".escape-audit-")
        .suffix(".tmp")
        .tempfile_in(folder)
        .with_context(doing)?;
    file.write_all(text.as_bytes()).with_context(doing)?;
    file.as_file().set_permissions(mode).with_context(doing)?;
    file.as_file().sync_all().with_context(doing)?;
    file.persist(&target).with_context(doing)?;
    Ok(())
}
