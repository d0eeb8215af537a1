//! Where the reports go: `--format F=PATH`, `--junit FILE`, `--json FILE`, read, claimed before anything runs, written at
//! the end.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use super::terminal;
use crate::report::Report;
use crate::report::format::{FORMATS, Format, Options, named};
use crate::report::junit::Profile;
use crate::report::write::{ReportFile, claim_all};

/// One report that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// In this format.
    pub format: &'static Format,
    /// To this place.
    pub place: Place,
}

/// Where a report goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Standard output, in place of the page for people.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl Output {
    /// A report in the format of this name, if there is one.
    pub fn file(format: &str, path: &Path) -> Option<Self> {
        Some(Self {
            format: named(format)?,
            place: Place::of(path),
        })
    }
}

impl Place {
    fn of(path: &Path) -> Self {
        match path == Path::new("-") {
            true => Self::Stdout,
            false => Self::File(path.to_owned()),
        }
    }
}

/// `F=PATH`; `-` as PATH is standard output.
pub fn parse(text: &str) -> Result<Output, String> {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    let Some((name, path)) = text.split_once('=') else {
        let example = if names.contains(&text) { text } else { "html" };
        return Err(format!(
            "it is written FORMAT=PATH, as `{example}=report.{example}` or `{example}=-` for standard output; the formats \
             are {}",
            names.join(", ")
        ));
    };
    let format = named(name)
        .ok_or_else(|| format!("no such format; {}", crate::diag::suggest(name, &names)))?;
    if path.is_empty() {
        return Err(format!("no file is named after `{name}=`"));
    }
    Ok(Output {
        format,
        place: Place::of(Path::new(path)),
    })
}

/// What `--help` says of the formats.
pub fn help() -> String {
    let width = FORMATS.iter().map(|format| format.name.len()).max();
    let lines = FORMATS.iter().map(|format| {
        let name = format!("{:1$}", format.name, width.unwrap_or(0));
        format!("\n  {name}  {}", format.doc)
    });
    format!(
        "Write a report; may be given more than once. `-` as PATH is standard output, in place of the page for people; \
         folders that are missing are made.{}",
        lines.collect::<String>()
    )
}

/// The reports of a run, with their files claimed: no mistake may leave an older run's report standing for this one's.
#[derive(Debug, Default)]
pub struct Outputs {
    /// The record's, which others write.
    pub attest: Option<ReportFile>,
    files: Vec<(&'static Format, ReportFile)>,
    stdout: Option<&'static Format>,
    profile: Profile,
}

impl Outputs {
    /// Claims every file, or says of each that cannot be had why.
    pub fn claim(wanted: &[Output], profile: Profile, attest: Option<&Path>) -> Result<Self> {
        let mut paths = Vec::new();
        let (mut formats, mut stdout) = (Vec::new(), None);
        for output in wanted {
            match &output.place {
                Place::File(path) => {
                    paths.push(path.as_path());
                    formats.push(output.format);
                }
                Place::Stdout if stdout.is_none() => stdout = Some(output.format),
                Place::Stdout => bail!(
                    "two reports cannot both go to standard output\nhelp: write one of them to a file"
                ),
            }
        }
        let mut files = claim_all(paths.into_iter().chain(attest)).map_err(super::audit::all_of)?;
        Ok(Self {
            attest: attest.and_then(|_| files.pop()),
            files: formats.into_iter().zip(files).collect(),
            stdout,
            profile,
        })
    }

    /// Writes the files, then what goes to standard output: the format that was asked for, or else the page of `tell`.
    /// Every one is tried; what could not be written is handed back.
    pub fn write(
        &self,
        report: &Report,
        tell: impl FnOnce(&Report, &mut dyn Write) -> io::Result<()>,
    ) -> Vec<anyhow::Error> {
        let mut options = Options {
            style: terminal::style(&io::stdout()),
            junit: self.profile,
        };
        let mut out = io::stdout().lock();
        let page = |options: &Options, out: &mut dyn Write| match self.stdout {
            Some(format) => (format.write)(report, options, out),
            None => tell(report, out),
        };
        let color = std::mem::replace(&mut options.style.color, false);
        // The files first: a terminal that cannot be written to must not cost the build its reports.
        let mut written: Vec<Result<()>> = self
            .files
            .iter()
            .map(|(format, file)| Ok(file.write(|out| (format.write)(report, &options, out))?))
            .collect();
        options.style.color = color;
        let shown = page(&options, &mut out).and_then(|()| out.flush());
        written.push(shown.or_else(closed_pipe));
        written.into_iter().filter_map(Result::err).collect()
    }
}

/// A reader that has seen enough (`| head`) does not change the verdict.
fn closed_pipe(error: io::Error) -> Result<()> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(anyhow!(error).context("write to standard output")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_asked_for_by_name_and_place() {
        let html = parse("json=out/report=1.json").expect("parsed");
        assert_eq!(html.format.name, "json");
        assert_eq!(html.place, Place::File("out/report=1.json".into()));
        assert_eq!(parse("junit=-").expect("parsed").place, Place::Stdout);
        let table = [
            ("junt=x", "did you mean `junit`"),
            ("json=", "no file is named"),
            ("json", "as `json=report.json`"),
            ("report.html", "the formats are human, json"),
        ];
        for (wrong, said) in table {
            let error = parse(wrong).expect_err("refused");
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn the_help_has_every_format() {
        let help = help();
        for format in &FORMATS {
            assert!(help.contains(&format!("\n  {}", format.name)), "{help}");
        }
    }

    #[test]
    fn two_reports_do_not_share_a_place() {
        let twice = ["json=-", "junit=-"].map(|text| parse(text).expect("parsed"));
        let error = Outputs::claim(&twice, Profile::Rich, None).expect_err("refused");
        assert!(
            error
                .to_string()
                .contains("help: write one of them to a file")
        );
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report");
        let same = ["json", "junit"].map(|format| Output::file(format, &path).expect("there"));
        let error = Outputs::claim(&same, Profile::Rich, None).expect_err("refused");
        assert!(error.to_string().contains("same file"), "{error}");
    }
}
