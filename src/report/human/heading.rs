//! What is audited, and what was in force.

use std::io;

use super::page::Page;
use crate::config::{BackendKind, Sandbox};
use crate::report::SandboxReport;
use crate::report::style::Ink;
use crate::safe_text::SafeText;

pub(super) fn write(page: &mut Page<'_>, report: &SandboxReport) -> io::Result<()> {
    let (sandbox, style) = (&report.sandbox, page.style);
    page.line(style.paint(Ink::Bold, SafeText::line(&sandbox.name)))?;
    page.line(style.paint(Ink::Dim, style.rule(style.columns())))?;

    page.row("audited", &what(sandbox), Ink::Plain)?;
    if let Some(digest) = &report.digest {
        page.row("digest", digest, Ink::Plain)?;
    }
    if !sandbox.without.is_empty() {
        let names: Vec<_> = sandbox.without.iter().map(|p| p.name()).collect();
        page.row("without", &names.join(", "), Ink::Yellow)?;
    }
    let engine = report.in_force.iter().find(|(name, _)| name == "engine");
    if let Some((_, engine)) = engine {
        page.row("engine", engine, Ink::Plain)?;
    }
    let pairs: Vec<String> = report
        .in_force
        .iter()
        .filter(|(name, _)| !is_of_engine(name))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if !pairs.is_empty() {
        page.row("in force", &pairs.join(style.dot()), Ink::Plain)?;
    }
    for note in &report.notes {
        page.row("note", note, Ink::Yellow)?;
    }
    if let Some(why) = &report.failed {
        page.row("failed", &format!("could not be audited: {why}"), Ink::Red)?;
    }
    page.line("")
}

/// What an engine says of itself, of the image and of the settings that it was given. It is in the JSON report; the page
/// shows what the host read.
fn is_of_engine(name: &str) -> bool {
    ["engine", "image "]
        .iter()
        .any(|start| name.starts_with(start))
}

/// In words: the backend, what stands behind it, the level.
pub(in crate::report) fn what(sandbox: &Sandbox) -> String {
    let level = format!("{:?}", sandbox.policy.level).to_lowercase();
    let place = match sandbox.backend {
        BackendKind::Oci => match &sandbox.settings.rootfs {
            Some(folder) => format!("the embedded OCI sandbox on {}", folder.display()),
            None => "the embedded OCI sandbox, with nothing in it but the probe".into(),
        },
        BackendKind::Docker => a_container(sandbox),
        BackendKind::Command => format!("the launcher `{}`", sandbox.command.join(" ")),
        BackendKind::Unsandboxed => {
            "no sandbox at all: the control that must come out ESCAPED".into()
        }
    };
    format!("{place}; level {level}")
}

fn a_container(sandbox: &Sandbox) -> String {
    let settings = &sandbox.settings;
    let image = match &settings.image {
        Some(image) => format!("a container of {image}"),
        None => "a container".into(),
    };
    match &settings.runtime {
        Some(runtime) => format!("{image}, by the runtime {runtime}"),
        None => image,
    }
}
