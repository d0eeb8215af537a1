//! What the gate has to say: waivers, what is missing, and of the trials those that do not fail the build.

use std::io;

use super::page::Page;
use crate::report::decided::{Remark, Weight};
use crate::report::style::{Ink, Style};
use crate::report::{Report, Trial};

/// Every remark, what fails first.
pub(super) fn write(page: &mut Page<'_>, remarks: &[Remark]) -> io::Result<()> {
    for remark in remarks {
        let (label, ink) = match remark.weight {
            Weight::Fails => ("fails", Ink::Red),
            Weight::Warning => ("warning", Ink::Yellow),
            Weight::Note => ("note", Ink::Plain),
        };
        page.row(label, &remark.sentence, ink)?;
    }
    match remarks.is_empty() {
        true => Ok(()),
        false => page.line(""),
    }
}

/// For the line of counts: which of the trials do not count, and which needed a second try.
pub(super) fn of_them(report: &Report, style: Style) -> Vec<String> {
    let count = |is: &dyn Fn(&Trial) -> bool| report.trials.iter().filter(|t| is(t)).count();
    let least = report.gate.fail_on.name();
    let loud = |text: String| style.paint(Ink::Yellow, text);
    let mut told = Vec::new();
    let mut tell = |n: usize, text: String| {
        if n > 0 {
            told.push(text);
        }
    };
    let silent = count(&|trial| !trial.gates);
    tell(silent, format!("{silent} of them not gating"));
    let waived = count(&|trial| trial.waived.is_some());
    tell(waived, loud(format!("{waived} of them waived")));
    let tolerated = count(&|trial| trial.tolerated);
    let text = format!("{tolerated} of them below --fail-on {least}");
    tell(tolerated, loud(text));
    let again = count(&|trial| trial.attempts > 1);
    tell(again, format!("{again} needed a second try"));
    told
}
