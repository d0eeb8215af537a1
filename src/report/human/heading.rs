//! What is audited, and what was in force.

use std::io::{self, Write};

use super::row;
use crate::config::{BackendKind, Sandbox};
use crate::report::SandboxReport;
use crate::report::style::{Ink, Style};
use crate::safe_text::SafeText;

pub(super) fn write(report: &SandboxReport, out: &mut dyn Write, style: Style) -> io::Result<()> {
    let sandbox = &report.sandbox;
    let name = SafeText::line(&sandbox.name);
    writeln!(out, "{}", style.paint(Ink::Bold, &name))?;
    writeln!(
        out,
        "{}",
        style.paint(Ink::Dim, style.rule(style.columns()))
    )?;

    row("audited", &what(sandbox), Ink::Plain, out, style)?;
    if let Some(digest) = &report.digest {
        row("digest", digest, Ink::Plain, out, style)?;
    }
    if !sandbox.without.is_empty() {
        let names: Vec<_> = sandbox.without.iter().map(|p| p.name()).collect();
        row("without", &names.join(", "), Ink::Yellow, out, style)?;
    }
    if !report.in_force.is_empty() {
        let pairs: Vec<_> = report
            .in_force
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        row("in force", &pairs.join(style.dot()), Ink::Plain, out, style)?;
    }
    for note in &report.notes {
        row("note", note, Ink::Yellow, out, style)?;
    }
    if let Some(why) = &report.failed {
        row(
            "failed",
            &format!("could not be audited: {why}"),
            Ink::Red,
            out,
            style,
        )?;
    }
    writeln!(out)
}

/// In words: the backend, what stands behind it, the level.
fn what(sandbox: &Sandbox) -> String {
    let level = format!("{:?}", sandbox.policy.level).to_lowercase();
    let place = match sandbox.backend {
        BackendKind::Oci => match &sandbox.settings.rootfs {
            Some(folder) => format!("the embedded OCI sandbox on {}", folder.display()),
            None => "the embedded OCI sandbox, with nothing in it but the probe".into(),
        },
        BackendKind::Command => format!("the launcher `{}`", sandbox.command.join(" ")),
        BackendKind::Unsandboxed => {
            "no sandbox at all: the control that must come out ESCAPED".into()
        }
    };
    format!("{place}; level {level}")
}
