//! Attempts on files: reading given ones, creating new ones. Nothing that exists is ever written to.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use escape_audit_probe::mounts;
use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::{inherited, sys};

/// Of a longer file the beginning is read.
const LONGEST: u64 = 1 << 20;

/// Where files are tried besides the mount points: what image authors leave writable.
const PLACES: &[&str] = &[
    "/",
    "/etc",
    "/usr",
    "/usr/local",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/boot",
    "/var",
    "/var/lib",
    "/var/log",
    "/var/cache",
    "/var/spool",
    "/root",
    "/home",
    "/opt",
    "/srv",
    "/mnt",
    "/media",
    "/tmp",
    "/var/tmp",
    "/run",
    "/run/lock",
    "/run/user",
    "/dev",
    "/dev/shm",
    "/dev/mqueue",
    "/dev/pts",
    "/proc",
    "/proc/sys/kernel",
    "/sys",
    "/sys/fs/cgroup",
    "/scratch",
    "/workspace",
    "/app",
    "/data",
];

/// Reads files and reports the hash of what they hold: by their paths, and by what whoever started the sandbox left open.
/// `~/` stands for the user's home: the variable's, and the one in the sandbox's `/etc/passwd`.
pub fn read(attempt: &mut Attempt) {
    let open = inherited::find(attempt);
    for (name, file) in &open.files {
        tell(attempt, name.as_bytes(), inherited::content(file, LONGEST));
    }
    for asked in attempt.all("path") {
        for path in expanded(asked) {
            let name = path.as_os_str().as_bytes();
            tell(attempt, name, read_file(&path));
            for (by, folder) in &open.folders {
                let file = inherited::open_by(folder, &path);
                let name = [by.as_bytes(), b", ", name].concat();
                tell(attempt, &name, file.and_then(beginning));
            }
            if attempt.is_over() {
                return;
            }
        }
    }
}

fn tell(attempt: &mut Attempt, name: &[u8], content: io::Result<Vec<u8>>) {
    attempt.step("read", name, sys::io_outcome(&content));
    if let Ok(content) = content {
        let hash = attempt.hash(&content);
        attempt.fact("file", name, hash);
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe without a writer must not stop the attempt.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    beginning(file)
}

fn beginning(file: std::fs::File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(LONGEST).read_to_end(&mut content)?;
    Ok(content)
}

fn expanded(asked: &[u8]) -> Vec<PathBuf> {
    let Some(rest) = asked.strip_prefix(b"~/") else {
        return vec![path(asked)];
    };
    homes().iter().map(|home| home.join(path(rest))).collect()
}

/// The user's home: the variable's, and the one in the sandbox's `/etc/passwd`.
fn homes() -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = std::env::var_os("HOME")
        .into_iter()
        .map(PathBuf::from)
        .collect();
    homes.extend(home_of(sys::ids().0));
    homes.dedup();
    homes
}

/// So deep are folders looked at that nobody thought of, no more than so many, and so many are tried.
const DEEP: usize = 3;
const FOLDERS: usize = 20_000;
const TRIED: usize = 16;

/// The first folders near the root that an ordinary user may write, but for the kernel's own. Root may write them all,
/// unless nobody may.
fn writable() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = if sys::ids().1 == 0 { 0 } else { FOLDERS };
    let mut level = vec![PathBuf::from("/")];
    for _ in 0..DEEP {
        let mut next = Vec::new();
        for folder in level {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let folder = entry.path();
                if !is_folder || left == 0 || is_kernels(&folder) {
                    continue;
                }
                left -= 1;
                if found.len() < TRIED && sys::may_write(&folder) {
                    found.push(folder.clone());
                }
                next.push(folder);
            }
        }
        level = next;
    }
    found
}

fn is_kernels(folder: &Path) -> bool {
    ["/proc", "/sys", "/dev"]
        .iter()
        .any(|own| folder == Path::new(own))
}

fn home_of(uid: u32) -> Option<PathBuf> {
    let passwd = std::fs::read("/etc/passwd").ok()?;
    let mut lines = passwd.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let of_user = *fields.get(2)? == uid.to_string().as_bytes();
        of_user.then(|| fields.get(5).map(|home| path(home)))?
    })
}

/// A path of any bytes.
pub fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// Creates a file in each place, shows them to the harness, and removes them again.
pub fn write(attempt: &mut Attempt) {
    let (name, content) = (attempt.bytes("name"), attempt.bytes("content"));
    if name.is_empty() || name.contains(&b'/') {
        return attempt.step("malformed", name, Outcome::Errno(libc::EINVAL));
    }
    let mut made = Vec::new();
    for directory in places(attempt) {
        if attempt.is_over() {
            break;
        }
        let file = directory.join(path(name));
        let target = file.as_os_str().as_bytes();
        match create(&file) {
            Err(error) => attempt.step("write", target, sys::io_error(&error)),
            Ok(mut open) => {
                // A file that takes no bytes (a message queue, a full disk) was created all the same.
                attempt.step("create", target, Outcome::Ok);
                let written = open.write_all(content);
                attempt.step("write", target, sys::io_outcome(&written));
                made.push(file);
            }
        }
    }
    attempt.hold();
    for file in made {
        let _ = std::fs::remove_file(file);
    }
}

/// A new file, or nothing: never one that exists, never through a link.
pub fn create(path: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// The directories that were asked for, and with `mounts=1` every mount point and every usual place; each once.
pub fn places(attempt: &mut Attempt) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = attempt.all("dir").into_iter().map(path).collect();
    if attempt.is_on("mounts") {
        let mountinfo = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let points = attempt.bounded(mounts::points(&mountinfo), 1024, "mounts");
        places.extend(points.iter().map(|point| path(point)));
        places.extend(PLACES.iter().map(PathBuf::from));
        places.extend(homes());
        places.extend(std::env::current_dir());
        places.extend(writable());
    }
    let mut seen = std::collections::BTreeSet::new();
    places.retain(|place| seen.insert(place.clone()));
    places
}
