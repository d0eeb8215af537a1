//! `man [DIR]`: the manual page, made from what clap knows; exit codes and files stand at its end.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, bold, roman};

use super::args::{Arguments, Man};
use crate::exit_code;

/// Writes the page to standard output, or one page a command into a folder.
pub fn man(arguments: &Man) -> Result<i32> {
    let Some(folder) = &arguments.folder else {
        return super::print(|out| page(Arguments::command(), out));
    };
    let doing = || format!("write the manual to `{}`", folder.display());
    fs::create_dir_all(folder).with_context(doing)?;
    for (name, command) in commands() {
        let mut text = Vec::new();
        page(command, &mut text).with_context(doing)?;
        fs::write(folder.join(format!("{name}.1")), text).with_context(doing)?;
    }
    announce(folder)
}

fn announce(folder: &Path) -> Result<i32> {
    let count = commands().len();
    super::print(|out| {
        let folder = crate::safe_text::SafeText::line(&*folder.to_string_lossy());
        writeln!(
            out,
            "{count} pages in {folder}: `man -l {folder}/escape-audit.1`"
        )
    })
}

/// The program and its commands, each by the name of its page.
fn commands() -> Vec<(String, clap::Command)> {
    let mut program = Arguments::command();
    program.build();
    let below = program.get_subcommands().cloned();
    let named = |command: clap::Command| {
        let name = command.get_display_name().unwrap_or(command.get_name());
        (name.to_owned(), command)
    };
    let mut all = vec![named(program.clone())];
    all.extend(below.map(named));
    all
}

fn page(command: clap::Command, out: &mut dyn Write) -> io::Result<()> {
    let page = Page::new(command.version(env!("CARGO_PKG_VERSION")));
    page.render(out)?;
    let mut more = Roff::new();
    more.control("SH", ["EXIT STATUS"]);
    for (code, sentence) in exit_code::ALL {
        more.control("TP", []);
        more.text([bold(code.to_string())]);
        more.text([roman(*sentence)]);
    }
    more.control("SH", ["FILES"]);
    more.control("TP", []);
    more.text([bold(crate::config::FILE_NAME)]);
    more.text([roman("the sandboxes of a project, and what they promise")]);
    more.to_writer(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_exit_code_and_each_command_a_page() {
        let mut out = Vec::new();
        page(Arguments::command(), &mut out).expect("written");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains(".TH escape-audit 1"), "{text}");
        for (code, _) in exit_code::ALL {
            assert!(text.contains(&format!("\\fB{code}\\fR")), "{code}\n{text}");
        }
        let names: Vec<String> = commands().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"escape-audit-run".to_owned()), "{names:?}");
    }
}
