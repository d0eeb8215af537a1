//! The probe's file: carried inside this program, written out where a launcher can execute it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The static probe, built beside this program.
pub const BYTES: &[u8] = include_bytes!(env!("ESCAPE_AUDIT_PROBE"));

/// Writes the probe into the folder, executable for everybody.
pub fn install(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("probe");
    fs::write(&path, BYTES)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Writes a set-uid copy of the probe, for the attempt that tries to gain by one; only root can. Started with a
/// changed user id the probe prints that id and ends, whatever it is told, so that the copy is of no use to anybody.
pub fn install_set_uid(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join("set-uid-probe");
    fs::write(&path, BYTES)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755))?;
    Ok(path)
}
