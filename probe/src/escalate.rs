//! The attempt to gain privileges by executing a set-uid program, and the program's other face: what it is when it
//! plays that set-uid program itself.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use escape_audit_probe::wire::Outcome;

use crate::attempt::Attempt;
use crate::child;
use crate::sys::{self, Try};

/// The name under which a copy of this program only tells its effective user.
const HELPER: &str = "escape-audit-euid";

/// Whether this process was started under the helper's name, or is a set-uid program in force. A set-uid copy of the
/// probe lies where others can execute it: whatever they call it, it must never make attempts with its owner's rights.
pub fn called_as_helper() -> bool {
    // SAFETY: getauxval reads a word that the kernel gave to this process.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let name = std::env::args_os().next().unwrap_or_default();
    secure || name.as_bytes() == HELPER.as_bytes()
}

/// Tells the effective user, and nothing else: a set-uid program must not do more.
pub fn helper() -> i32 {
    let line = format!("euid={}\n", sys::ids().1);
    i32::from(sys::write_all(sys::STDOUT, line.as_bytes()).is_err())
}

/// Executes each helper and reports which user it ran as.
pub fn gain_privileges(attempt: &mut Attempt) {
    let forbidden = match sys::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0) {
        Ok(value) => value.to_string(),
        Err(errno) => format!("errno:{errno}"),
    };
    attempt.fact("no-new-privs", "", forbidden);
    attempt.count("euid", "self", sys::ids().1.into());
    for path in attempt.all("helper") {
        if is_nosuid(path) {
            attempt.count("nosuid", path, 1);
        }
        match ask(path) {
            Err(errno) => attempt.step("exec", path, Outcome::Errno(errno)),
            Ok((answer, ended)) => {
                let answer = String::from_utf8_lossy(&answer);
                let (word, value) = answer.trim_end().split_once('=').unwrap_or_default();
                match (word, value.parse::<u32>()) {
                    ("euid", Ok(euid)) => {
                        attempt.step("exec", path, Outcome::Ok);
                        attempt.count("euid", path, euid.into());
                    }
                    ("errno", Ok(errno)) => {
                        attempt.step("exec", path, Outcome::Errno(errno as i32));
                    }
                    // It ran, but it is not our helper, or it was killed.
                    _ => attempt.step("exec", path, ended),
                }
            }
        }
    }
}

/// Whether the mount that a file lies on ignores set-uid; false where that is not told.
fn is_nosuid(path: &[u8]) -> bool {
    let Ok(path) = sys::c_string(path) else {
        return false;
    };
    // SAFETY: all zeroes is a valid statvfs; the kernel writes that structure alone, and the path ends with a NUL.
    unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &mut about) == 0 && about.f_flag & libc::ST_NOSUID != 0
    }
}

/// What a helper says, and how it ends. Where it cannot be executed, the child says `errno=N` in its place.
fn ask(path: &[u8]) -> Try<(Vec<u8>, Outcome)> {
    let (answers, out) = sys::pipe()?;
    let pid = child::offspring(5, || {
        sys::duplicate(sys::raw(&out), sys::STDOUT);
        let errno = execute(path);
        let _ = sys::write_all(sys::STDOUT, format!("errno={errno}").as_bytes());
        1
    })?;
    drop(out);
    Ok((read_answer(&answers), child::end_of(pid)))
}

/// Executes a program under the helper's name, with an empty environment; returns only if that fails.
fn execute(path: &[u8]) -> i32 {
    let (Ok(path), Ok(name)) = (sys::c_string(path), sys::c_string(HELPER)) else {
        return libc::ENOENT;
    };
    let arguments = [name.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];
    // SAFETY: NUL-terminated strings and null-terminated lists, alive during the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    sys::last_error()
}

fn read_answer(answers: &OwnedFd) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut piece = [0; 64];
    while answer.len() < 256 {
        match sys::read(sys::raw(answers), &mut piece) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&piece[..n]),
            Err(libc::EAGAIN | libc::EINTR) => {
                sys::wait_readable([Some(sys::raw(answers)), None], Duration::from_millis(50));
            }
            Err(_) => break,
        }
    }
    answer
}
