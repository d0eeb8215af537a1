//! `verify`: whether a record says that this image was audited as this project file configures it, and held.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};

use super::args::{LibraryName, Verify};
use super::{attest, audit, terminal};
use crate::case::{Level, Library};
use crate::config::{self, Project, Sandbox};
use crate::exit_code;
use crate::record::{self, Finding, LARGEST, Record, Wanted, is_hex};
use crate::report::style::{Ink, Style};
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// Says so, and gives back the exit code: 0 where everything holds, 1 where something does not. An error means that
/// nothing could be said.
pub fn verify(arguments: &Verify) -> Result<i32> {
    let project = audit::project(arguments.config.as_deref())?;
    let sandbox = the_sandbox(project.as_ref(), arguments.sandbox.as_deref())?;
    let configured = attest::configured(&sandbox, project.as_ref())?;
    let named = arguments.image.as_deref().map(digest).transpose()?;
    let pinned = configured
        .image
        .as_deref()
        .and_then(|image| image.strip_prefix("sha256:"));
    let image = named.as_deref().or(pinned);
    if configured.has_image && image.is_none() {
        bail!(
            "the sandbox `{}` names its image by a tag, which may mean another one tomorrow\n\
             help: say which image is meant, by its digest: `--image sha256:…`",
            sandbox.name
        );
    }
    let library = match arguments.library {
        LibraryName::Current => Some(Library::load(&arguments.folders)?),
        LibraryName::Any => None,
    };
    let digest = project.as_ref().map(attest::digest).transpose()?;
    let record = read(&arguments.file)?;
    let wanted = Wanted {
        sandbox: &configured,
        image,
        level: arguments.level.map_or(configured.level, Level::from),
        library: library.as_ref(),
        project: digest.as_deref(),
        now: now(),
        max_age: arguments.max_age,
        allow_partial: arguments.allow_partial,
        allow_waived: arguments.allow_waived,
    };
    let findings = record::verify(&record, &wanted);
    super::print(|out| {
        write(
            out,
            &arguments.file,
            &record,
            &findings,
            terminal::style(&io::stdout()),
        )
    })?;
    Ok(match findings.iter().all(|finding| finding.holds) {
        true => exit_code::HELD,
        false => exit_code::ESCAPED,
    })
}

fn write(
    out: &mut dyn Write,
    file: &Path,
    record: &Record,
    findings: &[Finding],
    style: Style,
) -> io::Result<()> {
    writeln!(
        out,
        "{}",
        style.paint(Ink::Bold, SafeText::line(file.to_string_lossy().as_bytes()))
    )?;
    for finding in findings {
        let (ink, mark) = match finding.holds {
            true => (Ink::Green, style.mark(Verdict::Allowed)),
            false => (Ink::Red, style.mark(Verdict::Escaped)),
        };
        let text = SafeText::line_within(&finding.text, 2000);
        writeln!(
            out,
            "  {} {:9} {text}",
            style.paint(ink, mark),
            finding.what
        )?;
    }
    let version = SafeText::line_within(&record.run.version, 60);
    writeln!(
        out,
        "  {} {:9} escape-audit {version}",
        style.paint(Ink::Dim, "-"),
        "tool"
    )?;
    let mut refused: Vec<&str> = findings
        .iter()
        .filter(|finding| !finding.holds)
        .map(|finding| finding.what)
        .collect();
    refused.dedup();
    match refused.is_empty() {
        true => writeln!(
            out,
            "\n{}",
            style.paint(Ink::Green, "it was audited like this, and held")
        )?,
        false => {
            let text = format!("not to be relied on: {}", refused.join(", "));
            writeln!(out, "\n{}", style.paint(Ink::Red, text))?;
        }
    }
    writeln!(
        out,
        "The record itself is not signed, and says whatever its writer wanted: check the signature around it first."
    )
}

/// The one that is named, or the only one there is.
fn the_sandbox(project: Option<&Project>, name: Option<&str>) -> Result<Sandbox> {
    let configured = project.map_or(&[][..], |project| &project.sandboxes);
    match (name, configured) {
        (Some(name), _) => Ok(config::find(project, name)?),
        (None, []) => Ok(config::find(None, "oci")?),
        (None, [only]) => Ok(only.clone()),
        (None, several) => {
            let names: Vec<&str> = several
                .iter()
                .map(|sandbox| sandbox.name.as_str())
                .collect();
            bail!(
                "the project file configures several sandboxes: {}\nhelp: say which one is meant: `--sandbox {}`",
                names.join(", "),
                names[0]
            )
        }
    }
}

/// The digest in `sha256:…`, `NAME@sha256:…` or 64 digits.
fn digest(text: &str) -> Result<String> {
    let digest = text
        .rsplit_once("sha256:")
        .map_or(text, |(_, digest)| digest)
        .to_ascii_lowercase();
    if is_hex(&digest) {
        return Ok(digest);
    }
    bail!(
        "--image: `{}` names no digest, and a tag may mean another image tomorrow\n\
         help: write `sha256:…` or `NAME@sha256:…`, of 64 hexadecimal digits; `docker image inspect` shows it",
        SafeText::line_within(text, 200)
    )
}

fn read(path: &Path) -> Result<Record> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
        .with_context(|| format!("read the record `{}`", path.display()))
        .map_err(|error| {
            anyhow!("{error:#}\nhelp: name the file that `run --attest FILE` wrote")
        })?;
    record::read(&bytes).map_err(|why| {
        anyhow!(
            "`{}` is no record that can be relied on: {why}\n\
             help: it has to be the statement itself, as `run --attest` wrote it or as the platform gave it back",
            path.display()
        )
    })
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_by_its_digest_alone() {
        let hex = "0123456789abcdef".repeat(4);
        for text in [
            hex.clone(),
            format!("sha256:{hex}"),
            format!("reg:5000/a/b:1@sha256:{hex}"),
            hex.to_uppercase(),
        ] {
            assert_eq!(digest(&text).expect("a digest"), hex);
        }
        for text in [
            "python:3.12",
            "",
            "sha256:",
            "sha512:00",
            &hex[1..],
            &format!("{hex}0"),
        ] {
            let error = digest(text).expect_err("refused").to_string();
            assert!(error.contains("\nhelp: "), "{error}");
        }
    }
}
