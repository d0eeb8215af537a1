//! Arguments, wiring, opening files.

pub mod args;
pub mod audit;
pub mod proof;
pub mod terminal;

use clap::Parser;

use crate::exit_code;
use args::{Arguments, Command};

/// The program: reads the arguments, does what they say, and gives back the exit code.
pub fn main() -> i32 {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no mistakes, and go to standard output.
            let code = if error.use_stderr() {
                exit_code::USAGE
            } else {
                exit_code::HELD
            };
            let _ = error.print();
            return code;
        }
    };
    let done = match arguments.command {
        Command::Run(run) => audit::run(&run),
        Command::Prove(prove) => audit::prove(&prove),
        Command::Clean => audit::clean(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprint!("{}", terminal::complaint(&error));
            exit_code::USAGE
        }
    }
}
