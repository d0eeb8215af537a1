//! What `prove` says: for each set of protections, whether the cases that name it get through without it.

use std::io::{self, Write};

use crate::report::style::{Ink, Style};
use crate::report::{Report, Trial};
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// Writes the proof and gives back how many cases of status stable are not proven.
pub fn write(report: &Report, out: &mut dyn Write, style: Style) -> io::Result<usize> {
    let mut unproven = 0;
    for sandbox in &report.sandboxes {
        writeln!(out, "{}", style.paint(Ink::Bold, &sandbox.sandbox.name))?;
        for trial in report
            .trials
            .iter()
            .filter(|t| t.sandbox == sandbox.sandbox.name)
        {
            unproven += usize::from(!is_proven(trial) && trial.gates);
            let (word, ink) = match trial.judgement.verdict {
                Verdict::Escaped => ("proven", Ink::Green),
                Verdict::Skipped => ("skipped", Ink::Yellow),
                _ => ("NOT PROVEN", Ink::Red),
            };
            write!(
                out,
                "  {} {}",
                style.paint(ink, format!("{word:<10}")),
                trial.case
            )?;
            match trial.judgement.verdict {
                Verdict::Escaped => writeln!(out)?,
                other => writeln!(
                    out,
                    ": {} ({}): {}",
                    other.name(),
                    trial.judgement.reason,
                    SafeText::line(trial.judgement.sentence.as_bytes())
                )?,
            }
        }
    }
    let proven = report
        .trials
        .iter()
        .filter(|trial| is_proven(trial))
        .count();
    writeln!(
        out,
        "\n{proven} of {} cases are shown to be able to fail",
        report.trials.len()
    )?;
    Ok(unproven)
}

/// A skip says that this machine cannot show it; it proves nothing and accuses nobody.
fn is_proven(trial: &Trial) -> bool {
    matches!(trial.judgement.verdict, Verdict::Escaped | Verdict::Skipped)
}
