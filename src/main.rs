//! The program. Hidden subcommands first: they are this program executed again as a helper, and need a process
//! without threads.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    let status = match first.as_deref().and_then(|word| word.to_str()) {
        Some(escape_audit::backend::oci::HELPER) => {
            match arguments.next().and_then(|fd| fd.to_str()?.parse().ok()) {
                Some(socket) => escape_audit::backend::oci_helper::main(socket),
                None => 2,
            }
        }
        Some(escape_audit::range::netns::HELPER) => escape_audit::range::netns::helper_main(),
        Some(escape_audit::range::sentinel::HELPER) => {
            escape_audit::range::sentinel::sentinel_main()
        }
        _ => escape_audit::cli::main(),
    };
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}
