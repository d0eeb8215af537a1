//! Report files: whole or not there. That a file can be written is found out before anything runs, and an old one is
//! removed then, so that it cannot be taken for the new one.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A place where a report will be written.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    way: Way,
}

/// How a report gets to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Beside its place first, then renamed.
    Rename,
    /// Straight into what is there: a device or a pipe.
    Into,
}

/// A report file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} `{}`: {why}\nhelp: {help}", path.display())]
pub struct WriteError {
    /// What was being done.
    pub doing: &'static str,
    /// To which file.
    pub path: PathBuf,
    /// Why it failed.
    pub why: String,
    /// What to do.
    pub help: &'static str,
}

impl ReportFile {
    /// Makes sure that a report can be written to `path`, and removes an old one. Folders that are missing are made.
    pub fn claim(path: &Path) -> Result<Self, WriteError> {
        let fail = |doing, help| {
            move |why: io::Error| WriteError {
                doing,
                path: path.to_owned(),
                why: why.to_string(),
                help,
            }
        };
        let kind = fs::metadata(path).map(|found| found.file_type()).ok();
        match kind {
            Some(kind) if kind.is_dir() => {
                let why = io::Error::other("it is a folder");
                return Err(fail("write the report", "name a file in it")(why));
            }
            Some(kind) if kind.is_char_device() || kind.is_fifo() => {
                return Ok(Self {
                    path: path.to_owned(),
                    way: Way::Into,
                });
            }
            _ => {}
        }
        let help = "name a place where this user may create files";
        let place = folder(path);
        fs::create_dir_all(place).map_err(fail("make the folder of", help))?;
        // One file has one name, however it was spelt; and a link stays a link: what it leads to is replaced.
        let path = match path.file_name() {
            _ if kind.is_some() => fs::canonicalize(path),
            Some(name) => fs::canonicalize(place).map(|place| place.join(name)),
            None => Err(io::Error::other("it names no file")),
        }
        .map_err(fail("write the report", help))?;
        temp_file(&path).map_err(fail("write the report", help))?;
        if kind.is_some() {
            let help = "delete it, or name another file";
            fs::remove_file(&path).map_err(fail("remove the old report", help))?;
        }
        Ok(Self {
            path,
            way: Way::Rename,
        })
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the report: all of it, or nothing. May be called again; the last one stays.
    pub fn write(
        &self,
        report: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        let written = match self.way {
            Way::Rename => self.by_rename(report),
            Way::Into => self.straight(report),
        };
        written.map_err(|why| WriteError {
            doing: "write the report",
            path: self.path.clone(),
            why: why.to_string(),
            help: "see that there is space, and that the folder is still there",
        })
    }

    fn by_rename(&self, report: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut file = temp_file(&self.path)?;
        let mut buffer = BufWriter::new(&mut file);
        report(&mut buffer)?;
        buffer.flush()?;
        drop(buffer);
        file.persist(&self.path)?;
        Ok(())
    }

    fn straight(&self, report: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let file = fs::OpenOptions::new().write(true).open(&self.path)?;
        let mut buffer = BufWriter::new(file);
        report(&mut buffer)?;
        buffer.flush()
    }
}

/// Claims every file, or says of each that cannot be had why; two reports in one file are a mistake too.
pub fn claim_all<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
) -> Result<Vec<ReportFile>, Vec<WriteError>> {
    let mut claimed: Vec<ReportFile> = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        match ReportFile::claim(path) {
            Ok(file)
                if claimed
                    .iter()
                    .any(|other| other.way == Way::Rename && other.path == file.path) =>
            {
                errors.push(WriteError {
                    doing: "write the report",
                    path: path.to_owned(),
                    why: "another report goes to the same file".into(),
                    help: "give each report its own file",
                });
            }
            Ok(file) => claimed.push(file),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        Ok(claimed)
    } else {
        Err(errors)
    }
}

fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// In the same folder, because a rename cannot leave its file system; readable as any other file of the user's.
fn temp_file(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".escape-audit-")
        .suffix(".tmp")
        .permissions(fs::Permissions::from_mode(0o666)) // less the umask
        .tempfile_in(folder(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("readable")
            .map(|entry| {
                entry
                    .expect("readable")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn an_old_report_is_gone_before_the_new_one_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("new/folder/report.xml");
        let file = ReportFile::claim(&path).expect("claimed");
        file.write(|out| out.write_all(b"first")).expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"first");

        let file = ReportFile::claim(&path).expect("claimed again");
        assert!(!path.exists());
        file.write(|out| out.write_all(b"partial"))
            .expect("written");
        file.write(|out| out.write_all(b"second"))
            .expect("written over");
        assert_eq!(fs::read(&path).expect("there"), b"second");
        assert_eq!(names(folder(&path)), ["report.xml"]);
    }

    #[test]
    fn half_a_report_is_no_report() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("report.xml");
        let file = ReportFile::claim(&path).expect("claimed");
        let error = file
            .write(|out| {
                out.write_all(&[b'x'; 100_000])?;
                Err(io::Error::other("no space left"))
            })
            .expect_err("it fails");
        assert!(
            error
                .to_string()
                .contains("report.xml`: no space left\nhelp: "),
            "{error}"
        );
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn what_cannot_be_written_is_found_out_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("file");
        fs::write(&file, "x").expect("written");
        let below = file.join("report.xml");
        let paths = [dir.path(), below.as_path(), Path::new("/proc/report.xml")];
        let errors = claim_all(paths).expect_err("none can be had");
        assert_eq!(errors.len(), 3);
        for error in errors {
            assert!(error.to_string().contains("\nhelp: "), "{error}");
        }
        let twice = dir.path().join("twice");
        let spelt = dir.path().join("./twice");
        let errors = claim_all([twice.as_path(), &spelt]).expect_err("twice");
        assert!(errors[0].why.contains("same file"));
    }

    #[test]
    fn a_device_is_written_to_and_a_link_stays_a_link() {
        let null = ReportFile::claim(Path::new("/dev/null")).expect("claimed");
        null.write(|out| out.write_all(b"x")).expect("written");
        assert!(Path::new("/dev/null").exists());

        let dir = tempfile::tempdir().expect("a folder");
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "old").expect("written");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        let file = ReportFile::claim(&link).expect("claimed");
        file.write(|out| out.write_all(b"new")).expect("written");
        assert!(link.is_symlink());
        assert_eq!(fs::read(&target).expect("there"), b"new");
    }
}
