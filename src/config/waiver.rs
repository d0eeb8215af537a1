//! `[[gate.waiver]]`: an escape that a team knows of and lives with, in one sandbox, until a day.
//!
//! A waiver names one case by its id. A glob would also excuse cases that nobody has written yet.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::date::Date;
use super::keys::{GATE, KEYS, WAIVER};
use crate::case::Library;
use crate::case::select::OWN_CASES;
use crate::diag::schema::{Reader, View};
use crate::diag::{Code, Diagnostic, Diagnostics, Place, Source, closest, did_you_mean, suggest};

/// An escape that is known of and lived with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiver {
    /// The case's id.
    pub case: String,
    /// The sandbox in which it is waived.
    pub sandbox: String,
    /// The last day on which it counts.
    pub until: Date,
    /// Why the team lives with it.
    pub reason: String,
    /// Where it is followed up.
    pub ticket: Option<String>,
    /// Where the case's id stands.
    pub place: Option<(Source, Range<usize>)>,
}

/// Reads `[gate]`: its waivers, whose sandboxes have to be among `sandboxes`.
pub(super) fn waivers(
    reader: &mut Reader<'_>,
    top: &View<'_, '_>,
    sandboxes: &[&str],
) -> Vec<Waiver> {
    let Some((table, span)) = top.table("gate") else {
        return Vec::new();
    };
    let gate = reader.table(KEYS, GATE, table, span);
    let mut waivers: Vec<Waiver> = Vec::new();
    for item in gate.items("waiver") {
        let Some(waiver) = waiver(reader, item, sandboxes) else {
            continue;
        };
        let same =
            |other: &&Waiver| (&other.case, &other.sandbox) == (&waiver.case, &waiver.sandbox);
        match (waivers.iter().find(same), &waiver.place) {
            (Some(other), Some((source, span))) => {
                let message = format!("`{}` is waived in `{}` twice", waiver.case, waiver.sandbox);
                let help = "remove one of them: a waiver has one end and one reason";
                let mut mistake =
                    Diagnostic::new(Code::Repeated, message, help).at(source, span.clone(), "");
                mistake.other = other
                    .place
                    .as_ref()
                    .map(|(source, span)| Place::bytes(source, span.clone(), "the other one"));
                reader.mistakes.push(mistake);
            }
            _ => waivers.push(waiver),
        }
    }
    waivers
}

fn waiver(
    reader: &mut Reader<'_>,
    item: &Spanned<DeValue<'_>>,
    sandboxes: &[&str],
) -> Option<Waiver> {
    let Some(table) = item.get_ref().as_table() else {
        let help = "write one `[[gate.waiver]]` a waiver";
        reader.report(Code::WrongType, item.span(), "a waiver is a table", help);
        return None;
    };
    let view = reader.table_as(KEYS, WAIVER, "[gate.waiver]", table, item.span());
    let sandbox = view.text("sandbox");
    if let Some(name) = sandbox.filter(|name| !sandboxes.contains(name)) {
        let message = format!("there is no sandbox `{name}`");
        let span = view.span_of("sandbox");
        reader.report(
            Code::UnknownSandbox,
            span,
            message,
            suggest(name, sandboxes),
        );
    }
    let case = view.text("case");
    if let Some(glob) = case.filter(|case| case.contains(['*', '?', '[', '{'])) {
        let message = format!("`{glob}` is a pattern, and a waiver names one case");
        let help =
            "write the id of one case: a pattern would also excuse cases that do not exist yet";
        reader.report(Code::WrongValue, view.span_of("case"), message, help);
        return None;
    }
    Some(Waiver {
        case: case?.to_owned(),
        sandbox: sandbox?.to_owned(),
        until: view
            .date("until")
            .and_then(|date| Date::new(date.year, date.month, date.day))?,
        reason: view.text("reason")?.to_owned(),
        ticket: view.text("ticket").map(str::to_owned),
        place: Some((reader.source.clone(), view.span_of("case"))),
    })
}

/// Holds the waivers against the library: one for a case that does not exist excuses nothing, and is a mistake.
pub fn check_cases(waivers: &[Waiver], library: &Library) -> Result<(), Diagnostics> {
    let mut mistakes = Diagnostics::default();
    for waiver in waivers {
        if library.get(&waiver.case).is_none() {
            let mistake = unknown_case(&waiver.case, library);
            mistakes.push(match &waiver.place {
                Some((source, span)) => mistake.at(source, span.clone(), ""),
                None => mistake,
            });
        }
    }
    mistakes.or(())
}

/// There is no such case; which one was probably meant.
pub fn unknown_case(id: &str, library: &Library) -> Diagnostic {
    let help = match closest(id, library.ids()) {
        Some(meant) => format!("{} {OWN_CASES}", did_you_mean(meant)),
        None => format!("`escape-audit list` shows every case. {OWN_CASES}"),
    };
    Diagnostic::new(Code::NoMatch, format!("there is no case `{id}`"), help)
}
