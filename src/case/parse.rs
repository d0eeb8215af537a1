//! One case file → one valid case, or every mistake in it.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::attempt;
use super::keys::{KEYS, WEAKENED_BACKENDS};
use super::model::{Attempt, Case, Danger, Expect, Need, Proof, Severity, Status, Weakened};
use super::proof;
use crate::case::Level;
use crate::diag::schema::{Named, Reader, View};
use crate::diag::{Code, Diagnostics, Source};
use crate::protection::Protection;

/// The category whose cases must work.
pub const WORKS: &str = "works";

/// Reads one case. `id` is `<category>/<name>`, from the file's place in its library.
pub fn parse(id: &str, source: &Source) -> Result<Case, Diagnostics> {
    let mut reader = Reader::new(source);
    let document = reader.parse();
    let top = reader.table(KEYS, "", document.get_ref(), 0..0);

    let attempt = attempt::read(&mut reader, &top);
    let expect = top.named("expect").unwrap_or(Expect::Blocked);
    let status = top.named("status").unwrap_or(Status::Stable);
    let escaped = proof::read(&mut reader, &top);
    let weakened = weakened(&mut reader, &top);

    check_expect(&mut reader, &top, id, expect);
    if expect == Expect::Blocked {
        check_teeth(&mut reader, &top, attempt.as_ref(), status);
    }
    if let Some(attempt) = &attempt {
        check_fit(&mut reader, &top, attempt, expect, &escaped);
    }
    check_lists(&mut reader, &top);
    let danger = danger(&mut reader, &top, attempt.as_ref());

    let (Some(attempt), true) = (attempt, reader.mistakes.is_empty()) else {
        return Err(reader.mistakes);
    };
    let text = |key| top.text(key).unwrap_or_default().trim().to_owned();
    Ok(Case {
        id: id.to_owned(),
        title: text("title"),
        severity: top.named("severity").unwrap_or(Severity::Info),
        level: top.named("level").unwrap_or(Level::Standard),
        status,
        expect,
        techniques: top.strings("techniques"),
        references: top.strings("references"),
        tags: top.strings("tags"),
        why: text("why"),
        fix: text("fix"),
        needs: needs(&top, &attempt),
        escaped: escaped.into_iter().map(|(proof, _)| proof).collect(),
        weakened,
        danger,
        attempt,
        source: source.path.clone(),
        digest: format!("{:x}", Sha256::digest(source.text.as_bytes())),
    })
}

fn weakened(reader: &mut Reader<'_>, top: &View<'_, '_>) -> Weakened {
    let Some((table, span)) = top.table("weakened") else {
        return Weakened::default();
    };
    let view = reader.table(KEYS, "weakened", table, span);
    let (mut by_backend, mut fixtures) = (Vec::new(), Vec::new());
    for backend in WEAKENED_BACKENDS {
        if let Some((table, span)) = view.table(backend) {
            let view = reader.table(KEYS, &format!("weakened.{backend}"), table, span.clone());
            let fixture = view.text("fixture");
            if view.has("remove") == fixture.is_some() && !view.is_bad("remove") {
                reader.report(
                    Code::Contradiction,
                    span,
                    format!("`[weakened.{backend}]` says not just one thing"),
                    "give it either `remove = [\"…\"]`, or `fixture = \"runners/…\"` where no setting lets the attempt through",
                );
            }
            by_backend.push((backend.to_owned(), protections(&view)));
            fixtures.extend(fixture.map(|fixture| (backend.to_owned(), fixture.to_owned())));
        }
    }
    Weakened {
        remove: protections(&view),
        by_backend,
        fixtures,
    }
}

fn protections(view: &View<'_, '_>) -> Vec<Protection> {
    let names = view.texts("remove").into_iter();
    names
        .filter_map(|(name, _)| Protection::from_name(name))
        .collect()
}

/// Cases of what must work, and only they, live in `works/`: a folder's name must not lie about what its cases ask for.
fn check_expect(reader: &mut Reader<'_>, top: &View<'_, '_>, id: &str, expect: Expect) {
    let in_works = id.split('/').next() == Some(WORKS);
    let span = top.span_of("expect");
    match expect {
        Expect::Blocked if in_works => reader.report(
            Code::ExpectMisfit,
            span,
            "a case below `works/` without `expect = \"allowed\"`",
            "add `expect = \"allowed\"`, or move the file to another category",
        ),
        Expect::Allowed if !in_works => reader.report(
            Code::ExpectMisfit,
            span,
            "`expect = \"allowed\"` outside `works/`",
            "move the file below `works/`, or remove the line",
        ),
        Expect::Allowed => {
            for key in ["escaped", "weakened"] {
                if let Some((_, span)) = top.table(key) {
                    reader.report(
                        Code::ExpectMisfit,
                        span,
                        format!("a case of what must work has no `[{key}]`"),
                        "remove the table: nothing can escape by doing what it is meant to do",
                    );
                }
            }
        }
        Expect::Blocked => {}
    }
}

/// A case that must be blocked says what would prove the opposite, and without which protections that would happen.
fn check_teeth(
    reader: &mut Reader<'_>,
    top: &View<'_, '_>,
    attempt: Option<&Attempt>,
    status: Status,
) {
    let says_nothing =
        |key: &str| !top.is_bad(key) && top.table(key).is_none_or(|(table, _)| table.is_empty());
    if says_nothing("escaped") {
        reader.report(
            Code::ProofMissing,
            top.span_of("escaped"),
            "nothing can prove that this case escaped",
            match attempt.map(proof::of) {
                Some(proofs) if !proofs.is_empty() => {
                    let proofs: Vec<String> = proofs.into_iter().map(proof::toml).collect();
                    format!("add `[escaped]` with `{}`", proofs.join("` or `"))
                }
                _ => {
                    "add `[escaped]` with a proof that fits the attempt, such as `canary = \"tcp\"`"
                        .into()
                }
            },
        );
    }
    if says_nothing("weakened") && status == Status::Stable {
        reader.report(
            Code::WeakenedMissing,
            top.span_of("weakened"),
            "this case names no protection whose removal lets it through",
            "add `[weakened]` with `remove = [\"…\"]`, or `status = \"experimental\"` until that is known",
        );
    }
}

/// A proof that its attempt can never give would make the case green for ever.
fn check_fit(
    reader: &mut Reader<'_>,
    top: &View<'_, '_>,
    attempt: &Attempt,
    expect: Expect,
    escaped: &[(Proof, Range<usize>)],
) {
    let fitting = proof::of(attempt);
    let words: Vec<String> = fitting
        .iter()
        .map(|proof| format!("`{}`", proof::toml(*proof)))
        .collect();
    let misfits = escaped.iter().filter(|(proof, _)| !fitting.contains(proof));
    for (proof, span) in misfits.filter(|_| !fitting.is_empty()) {
        let kind = attempt.kind();
        reader.report(
            Code::ProofMisfit,
            span.clone(),
            format!(
                "`[attempt.{kind}]` can never prove `{}`",
                proof::toml(*proof)
            ),
            format!(
                "what `[attempt.{kind}]` can prove is {}",
                words.join(" or ")
            ),
        );
    }
    let works = proof::is_for_works(attempt);
    if works != (expect == Expect::Allowed) {
        let (message, help) = if works {
            (
                "this attempt is what a sandbox is for: it must work",
                "move the case below `works/` with `expect = \"allowed\"`, or try something else",
            )
        } else {
            (
                "nothing can tell whether this attempt was allowed",
                "what can be expected to work: `run`, `write-file` into `scratch`, `allocate` of `half`",
            )
        };
        reader.report(Code::ExpectMisfit, top.span_of("attempt"), message, help);
    }
}

fn check_lists(reader: &mut Reader<'_>, top: &View<'_, '_>) {
    for (technique, span) in top.texts("techniques") {
        if !is_technique(technique) {
            reader.report(
                Code::BadTechnique,
                span,
                format!("`{technique}` is not a MITRE ATT&CK technique"),
                "write `T` and four digits, with `.` and three digits for a sub-technique: \"T1552.005\"",
            );
        }
    }
    for (reference, span) in top.texts("references") {
        if !is_https(reference) {
            reader.report(
                Code::BadReference,
                span,
                format!("`{reference}` is not an https URL"),
                "give a page that a reader can open: \"https://…\"",
            );
        }
    }
}

fn is_technique(text: &str) -> bool {
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let Some(rest) = text.strip_prefix('T') else {
        return false;
    };
    match rest.split_once('.') {
        Some((technique, sub)) => digits(technique, 4) && digits(sub, 3),
        None => digits(rest, 4),
    }
}

fn is_https(text: &str) -> bool {
    let host = text
        .strip_prefix("https://")
        .and_then(|rest| rest.split('/').next());
    host.is_some_and(|host| host.contains('.') && !host.starts_with('.'))
        && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The attempt's own danger, raised if the file says so. It can never be lowered: the limiter trusts it.
fn danger(reader: &mut Reader<'_>, top: &View<'_, '_>, attempt: Option<&Attempt>) -> Danger {
    let own = attempt.map_or(Danger::Looks, Attempt::danger);
    let asked = match top.integer("danger") {
        None => return own,
        Some(0) => Danger::Looks,
        Some(1) => Danger::Changes,
        Some(2) => Danger::Loads,
        Some(_) => Danger::Hurts,
    };
    if asked < own {
        reader.report(
            Code::DangerLowered,
            top.span_of("danger"),
            format!(
                "the attempt's own danger is {}, and a case can only raise it",
                u8::from(own)
            ),
            "remove the line",
        );
    }
    asked.max(own)
}

fn needs(top: &View<'_, '_>, attempt: &Attempt) -> Vec<Need> {
    let mut needs = attempt.needs();
    let own = top.texts("needs").into_iter();
    needs.extend(own.filter_map(|(name, _)| Need::from_name(name)));
    needs.sort_unstable();
    needs.dedup();
    needs
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
