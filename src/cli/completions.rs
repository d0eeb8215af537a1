//! `completions SHELL`: what a shell needs to complete our words.

use std::io::{self, Write};

use clap::CommandFactory as _;

use super::args::{Arguments, Completions};

/// Writes the script for a shell.
pub fn write(arguments: &Completions, out: &mut dyn Write) -> io::Result<()> {
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    out.write_all(&script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn every_shell_learns_our_commands() {
        for shell in clap_complete::Shell::value_variants() {
            let mut out = Vec::new();
            write(&Completions { shell: *shell }, &mut out).expect("written");
            let script = String::from_utf8(out).expect("text");
            assert!(
                script.contains("prove") && script.contains("without"),
                "{shell}"
            );
        }
    }
}
