//! Arguments, wiring, opening files.

pub mod args;
pub mod attest;
pub mod audit;
pub mod baseline;
pub mod canary;
pub mod completions;
pub mod diff;
pub mod docs;
pub mod doctor;
pub mod explain;
pub mod gating;
pub mod help;
pub mod init;
pub mod lint;
pub mod list;
pub mod man;
pub mod outputs;
pub mod pin;
pub mod proof;
pub mod repeat;
pub mod signals;
pub mod terminal;
pub mod verify;
pub mod waive;

use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::Parser;

use crate::case::Library;
use crate::exit_code;
use crate::safe_text::SafeText;
use args::{Arguments, Command};

/// The program: reads the arguments, does what they say, and gives back the exit code.
pub fn main() -> i32 {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let error = args::with_tip(error);
            // Help and version are no mistakes, and go to standard output.
            let mistake = error.use_stderr();
            tell(&error);
            return if mistake {
                exit_code::USAGE
            } else {
                exit_code::HELD
            };
        }
    };
    let done = match &arguments.command {
        Command::Run(run) => audit::run(run),
        Command::Prove(prove) => audit::prove(prove),
        Command::List(list) => show_list(list),
        Command::Explain(explain) => show_case(explain),
        Command::Lint(lint) => check_cases(lint),
        Command::Baseline(command) => baseline::baseline(command),
        Command::Diff(arguments) => diff::compare(arguments),
        Command::Waive(waive) => waive::waive(waive),
        Command::Verify(arguments) => verify::verify(arguments),
        Command::Clean => audit::clean(),
        Command::Canary(arguments) => canary::serve(arguments),
        Command::Init(init) => init::init(init),
        Command::Doctor(doctor) => doctor::doctor(doctor),
        Command::Pin(pin) => pin::pin(pin),
        Command::Completions(completions) => print(|out| completions::write(completions, out)),
        Command::Man(man) => man::man(man),
        Command::Help(help) => help::help(help),
    };
    done.unwrap_or_else(|error| {
        let _ = write!(io::stderr(), "{}", terminal::complaint(&error));
        exit_code::USAGE
    })
}

/// Shows what clap has to say. A mistake quotes the arguments, and in a CI system one of them may come from a stranger.
fn tell(error: &clap::Error) {
    let plain = error.render().to_string();
    let safe = SafeText::block(&plain);
    let _ = match plain == safe.as_str() {
        true => error.print(), // in colour, where there is any
        false => write!(io::stderr(), "{safe}"),
    };
}

fn show_list(arguments: &args::List) -> Result<i32> {
    let library = Library::load(&arguments.selection.folders)?;
    let cases = arguments.selection.filter().select(&library)?;
    print(|out| match arguments.json {
        true => list::json(&cases, &library.digest, out),
        false => list::table(&cases, out),
    })
}

fn show_case(arguments: &args::Explain) -> Result<i32> {
    let library = Library::load(&arguments.folders)?;
    let case = explain::find(&library, &arguments.case)?;
    print(|out| explain::explain(case, out))
}

fn check_cases(arguments: &args::Lint) -> Result<i32> {
    let library = lint::lint(arguments.folder.as_deref())?;
    print(|out| lint::praise(&library, out))
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no mistake.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<i32> {
    let mut out = io::stdout().lock();
    let written = write(&mut out).and_then(|()| out.flush());
    closed_pipe(written)?;
    Ok(exit_code::HELD)
}

fn closed_pipe(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("write to standard output")
        }
        _ => Ok(()),
    }
}
