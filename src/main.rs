//! The program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let status = escape_audit::hidden::dispatch().unwrap_or_else(escape_audit::cli::main);
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}
