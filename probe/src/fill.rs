//! The attempt to fill disks.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::attempt::Attempt;
use crate::files;
use crate::sys;

/// No more is written, over all places.
const MOST: u64 = 2 << 30;

/// No more files are open at once, over all places.
const MOST_FILES: u64 = 4096;

/// A file takes no less than this part of a place's dose, unless it is not allowed to.
const PART: u64 = 64;

/// Fills each place with several files, and holds them.
///
/// Every file loses its name as soon as it is open: its blocks stay taken for as long as this process lives, and are
/// free again however it ends.
pub fn fill(attempt: &mut Attempt) {
    // Files that may hold little each are many.
    sys::raise_open_files(MOST_FILES + 64);
    let mut left = MOST;
    let mut held = Vec::new();
    let asked = attempt.all("dir").len();
    let mut devices = Vec::new();
    let places = files::places(attempt);
    for (number, place) in places.iter().enumerate() {
        if attempt.is_over() || left == 0 {
            break;
        }
        let device = std::fs::metadata(place).map(|about| about.dev()).ok();
        // Of the places that nobody asked for: not those that do not exist, nor a second one of a file system that
        // was filled already.
        if number >= asked && device.is_none_or(|device| devices.contains(&device)) {
            continue;
        }
        let dose = attempt.capped("bytes", 0, left);
        let mut written = 0;
        let result = fill_place(attempt, place, dose, &mut written, &mut held);
        left -= written;
        let target = place.as_os_str().as_bytes();
        attempt.step("write", target, sys::io_outcome(&result));
        if written > 0 {
            devices.extend(device);
        }
        attempt.count("written", target, written);
    }
    attempt.hold();
}

/// Writes until the dose is complete, an error comes, or the time is over.
fn fill_place(
    attempt: &Attempt,
    place: &Path,
    dose: u64,
    written: &mut u64,
    held: &mut Vec<File>,
) -> io::Result<()> {
    let block = noise();
    let file_bytes = attempt.capped("file_bytes", 16 << 20, MOST);
    let file_bytes = file_bytes.max(dose / PART).max(1);
    while *written < dose {
        let name = format!("escape-audit-fill-{}-{}", sys::pid(), held.len());
        let path = place.join(name);
        let mut file = files::create(&path)?;
        let unlinked = std::fs::remove_file(&path);
        let begun = *written;
        let end = dose.min(begun + file_bytes);
        let result = write_until(attempt, &mut file, &block, written, end);
        held.push(file);
        unlinked?;
        match result {
            // A bound on each file is none on all of them: the next one goes on.
            Err(error) if error.raw_os_error() == Some(libc::EFBIG) && *written > begun => {}
            result => result?,
        }
        if held.len() as u64 >= MOST_FILES && *written < dose {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
    }
    Ok(())
}

fn write_until(
    attempt: &Attempt,
    file: &mut File,
    block: &[u8],
    written: &mut u64,
    end: u64,
) -> io::Result<()> {
    while *written < end {
        if attempt.is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let piece = (end - *written).min(block.len() as u64) as usize;
        match file.write(&block[..piece])? {
            0 => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            n => *written += n as u64,
        }
    }
    Ok(())
}

/// Bytes that a file system cannot compress away (xorshift64).
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(256 << 10);
    while block.len() < 256 << 10 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    block
}
