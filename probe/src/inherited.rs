//! What whoever started the sandbox left open: descriptors, and the working folder where it lies outside the root. A folder
//! leads to everything that lies around it, whatever the sandbox's own root shows: `openat` climbs out by `..`.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::attempt::Attempt;
use crate::sys;

/// The highest number that is looked at: the usual bound of one process.
const HIGHEST: RawFd = 1023;
/// So many folders are tried.
const FOLDERS: usize = 8;
/// Deeper than folders lie. At the root there is nowhere to climb to.
const CLIMB: usize = 32;

/// What was found open.
pub struct Inherited {
    /// Folders, with what to call them.
    pub folders: Vec<(String, File)>,
    /// Files, with what to call them.
    pub files: Vec<(String, File)>,
}

/// Looks for folders and files behind the three standard streams; what this program has open itself are pipes.
pub fn find(attempt: &mut Attempt) -> Inherited {
    // Before anything is opened here.
    let given: Vec<RawFd> = (sys::STDERR + 1..=HIGHEST)
        .filter(|number| sys::is_open(*number))
        .collect();
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    if let Some(folder) = hidden_working_folder() {
        folders.push(("working folder".to_owned(), folder));
    }
    for number in given {
        let Some(file) = sys::copy(number) else {
            continue;
        };
        match file.metadata() {
            Ok(meta) if meta.is_dir() => folders.push((format!("descriptor {number}"), file)),
            Ok(meta) if meta.is_file() => files.push((format!("descriptor {number}"), file)),
            _ => {}
        }
    }
    let folders = attempt.bounded(folders, FOLDERS, "open-folders");
    Inherited { folders, files }
}

/// The working folder, if it is another one than its path leads to: one outside of the root has none, and over another
/// something was mounted.
fn hidden_working_folder() -> Option<File> {
    let folder = File::open(".").ok()?;
    let path = std::env::current_dir();
    let (this, that) = (folder.metadata().ok()?, path.and_then(std::fs::metadata));
    let is_same = that.is_ok_and(|that| (that.dev(), that.ino()) == (this.dev(), this.ino()));
    (!is_same).then_some(folder)
}

/// What the file holds, from its beginning; where it stands is left as it is, for others may read on from there.
pub fn content(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut part = [0; 4096];
    while (content.len() as u64) < most {
        match file.read_at(&mut part, content.len() as u64)? {
            0 => break,
            read => content.extend_from_slice(&part[..read]),
        }
    }
    content.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    Ok(content)
}

/// Opens an absolute path by way of a folder: up to where it ends, and down from there; else the file of that name in it.
pub fn open_by(folder: &File, path: &Path) -> io::Result<File> {
    let mut way = PathBuf::from("../".repeat(CLIMB));
    way.push(path.strip_prefix("/").unwrap_or(path));
    sys::open_at(folder, &way).or_else(|error| {
        let name = path.file_name().ok_or(error.kind())?;
        sys::open_at(folder, Path::new(name)).map_err(|_| error)
    })
}
