//! `help [TOPIC]`: tables that are too long for `--help`, made from what the program goes by.

use std::io::{self, Write};

use anyhow::{Result, bail};
use clap::CommandFactory as _;

use super::args::{Arguments, Help};
use crate::diag::suggest;
use crate::exit_code;
use crate::protection::PROTECTIONS;
use crate::verdict::Verdict;

/// A topic: its name, and what writes it.
type Topic = (&'static str, fn(&mut dyn Write) -> io::Result<()>);

const TOPICS: [Topic; 3] = [
    ("exit-codes", exit_codes),
    ("protections", protections),
    ("verdicts", verdicts),
];

/// Explains a topic or a command; without either, the usual help.
pub fn help(arguments: &Help) -> Result<i32> {
    let mut program = Arguments::command();
    let Some(topic) = arguments.topic.as_deref() else {
        let usual = program.render_help();
        let topics: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
        return super::print(|out| {
            write!(out, "{usual}\nTopics of `help`: {}\n", topics.join(", "))
        });
    };
    if let Some((_, write)) = TOPICS.iter().find(|(name, _)| *name == topic) {
        return super::print(write);
    }
    program.build();
    if let Some(command) = program.find_subcommand_mut(topic) {
        let text = command.render_long_help();
        return super::print(|out| write!(out, "{text}"));
    }
    let commands = program.get_subcommands().map(clap::Command::get_name);
    let names: Vec<&str> = TOPICS
        .iter()
        .map(|(name, _)| *name)
        .chain(commands)
        .collect();
    bail!(
        "there is no topic `{topic}`\nhelp: {}",
        suggest(topic, &names)
    )
}

fn exit_codes(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "What the program exits with. No report format changes it; 1 outranks 3, and 3 outranks 4.\n"
    )?;
    for (code, sentence) in exit_code::ALL {
        writeln!(out, "{code:>5}  {sentence}")?;
    }
    Ok(())
}

fn protections(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "What can be taken away from a sandbox: `run --without NAME`, `without = [\"NAME\"]`.\n"
    )?;
    let width = PROTECTIONS
        .iter()
        .map(|(_, name, _)| name.len())
        .max()
        .unwrap_or(0);
    for (_, name, meaning) in PROTECTIONS {
        writeln!(out, "  {name:width$}  {meaning}")?;
    }
    Ok(())
}

fn verdicts(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "What a case comes to in a sandbox, the worst first.\n")?;
    for verdict in Verdict::ALL.into_iter().rev() {
        let meaning = match verdict {
            Verdict::Escaped => "it got through, and that is proven",
            Verdict::Broken => "what must work does not",
            Verdict::Error => "the sandbox or the harness failed, or is not as it was configured",
            Verdict::Inconclusive => "neither is proven, so nothing is",
            Verdict::Skipped => "not tried, for a reason that is given",
            Verdict::Blocked => "tried, able to get through, and stopped: all of it proven",
            Verdict::Allowed => "what must work does",
        };
        writeln!(out, "  {:12}  {meaning}", verdict.name())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_says_all_of_its_table() {
        let said = |name: &str| {
            let mut out = Vec::new();
            let (_, write) = TOPICS
                .iter()
                .find(|(topic, _)| *topic == name)
                .expect("a topic");
            write(&mut out).expect("written");
            String::from_utf8(out).expect("text")
        };
        for (code, sentence) in exit_code::ALL {
            assert!(said("exit-codes").contains(&format!("{code}  {sentence}")));
        }
        assert_eq!(said("protections").lines().count(), PROTECTIONS.len() + 2);
        assert_eq!(said("verdicts").lines().count(), Verdict::ALL.len() + 2);
    }

    #[test]
    fn a_topic_that_does_not_exist_is_told_from_those_that_do() {
        let topic = Some("exit-code".to_owned());
        let error = help(&Help { topic }).expect_err("none");
        assert!(
            error.to_string().contains("did you mean `exit-codes`?"),
            "{error}"
        );
    }
}
