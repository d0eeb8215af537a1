//! The program that runs inside a sandbox: it reads a list of attempts on standard input, makes each one in a
//! process of its own, and says what happened, one record a line (`escape_audit_probe::wire`).
//!
//! It has to start where hardly anything exists: an empty root file system, no environment, closed descriptors, no
//! `/proc`, a filter on system calls, perhaps no second process. So it is static, it has a C `main` (the start-up
//! code of Rust's `main` aborts without descriptors 0 to 2), it needs no file and starts no thread.
//!
//! Everything it does to its host is dosed: every attempt has an upper bound of its own in this program, whatever it
//! is asked for, and ends by itself.

#![no_main]

mod attempt;
mod capabilities;
mod child;
mod dns;
mod engine_socket;
mod environment;
mod escalate;
mod files;
mod fill;
mod inherited;
mod input;
mod listen;
mod namespaces;
mod network;
mod processes;
mod resources;
mod session;
mod survivor;
mod sys;

/// Where the C start-up code enters. Its arguments are not used: what the probe is to do arrives on standard input,
/// because other processes of an image could read an argument or a variable.
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    if escalate::called_as_helper() {
        return escalate::helper();
    }
    session::run()
}
