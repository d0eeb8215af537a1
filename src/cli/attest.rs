//! `run --attest FILE`: what is configured is taken down before anything runs, and the record is written at the end.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::case::Library;
use crate::config::{BackendKind, Project, Sandbox};
use crate::record::{self, Configured, canonical};
use crate::report::write::ReportFile;
use crate::report::{Report, json};

/// A record that will be written.
pub struct Attest {
    file: ReportFile,
    configured: Vec<Configured>,
    project: Option<String>,
}

impl Attest {
    /// Takes down what is going to be audited. Nothing runs where that could not be said afterwards.
    pub fn take_down(
        file: ReportFile,
        sandboxes: &[Sandbox],
        project: Option<&Project>,
    ) -> Result<Self> {
        for sandbox in sandboxes {
            let unpinned = match sandbox.backend {
                BackendKind::Unsandboxed => "there is no sandbox that it could be about",
                _ if sandbox.settings.rootfs.is_some() => {
                    "its root file system is a folder, which no digest pins"
                }
                _ => continue,
            };
            bail!(
                "--attest: nothing could be said of the sandbox `{}`: {unpinned}\n\
                 help: choose others with `--sandbox`, or leave `--attest` out",
                sandbox.name
            );
        }
        Ok(Self {
            file,
            configured: sandboxes
                .iter()
                .map(|sandbox| configured(sandbox, project))
                .collect::<Result<_>>()?,
            project: project.map(digest).transpose()?,
        })
    }

    /// Writes the record of this report.
    pub fn write(self, report: &Report, library: &Library) -> Result<()> {
        let record = record::of_report(report, library, &self.configured, self.project);
        if record.subject.is_empty() {
            bail!(
                "no record is written to `{}`: no digest is known of what was to be audited",
                self.file.path().display()
            );
        }
        let statement = record::write(&record);
        Ok(self.file.write(|out| json::write_value(&statement, out))?)
    }
}

/// The sandbox as the project file configures it, with what is in the files that it names.
pub fn configured(sandbox: &Sandbox, project: Option<&Project>) -> Result<Configured> {
    let folder = project.and_then(|project| project.file.parent());
    let mut files = Vec::new();
    for path in sandbox.settings.seccomp_profile.iter() {
        let bytes = fs::read(path).with_context(|| {
            format!(
                "read the system call filter `{}` of the sandbox `{}`",
                path.display(),
                sandbox.name
            )
        })?;
        files.push((path.display().to_string(), canonical::hex(&bytes)));
    }
    Ok(Configured::of(
        sandbox,
        folder.unwrap_or(Path::new("")),
        &files,
    ))
}

/// SHA-256 of the project file.
pub fn digest(project: &Project) -> Result<String> {
    let bytes = fs::read(&project.file)
        .with_context(|| format!("read `{}` once more", project.file.display()))?;
    Ok(canonical::hex(&bytes))
}
