//! Diagnostics with a place: every mistake of every file at once, with a `help:` line.
//!
//! Text that came out of a file is shown with its control characters escaped, so that a case file cannot drive a
//! terminal.

mod hide;
mod reader;
pub mod schema;
mod units;
mod view;

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::safe_text::{SafeText, must_escape};

use hide::without_secrets;

/// What kind of mistake it is: stable, for scripts and for searching the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Code {
    Unreadable,
    NotUtf8,
    TooLarge,
    Syntax,
    UnknownKey,
    WrongType,
    MissingKey,
    WrongValue,
    EmptyText,
    NoAttempt,
    TwoAttempts,
    ProofMissing,
    ProofMisfit,
    WeakenedMissing,
    ExpectMisfit,
    DangerLowered,
    BadUrl,
    BadHeader,
    BadPath,
    BadPattern,
    BadTechnique,
    BadReference,
    Repeated,
    DuplicateId,
    BadId,
    NotACase,
    NoCases,
    NoMatch,
    NotExpressible,
    Contradiction,
    NotPinned,
    UnknownSandbox,
    NotABaseline,
}

/// Every code, with its name and what it means.
#[rustfmt::skip] // one code a line
pub const CODES: &[(Code, &str, &str)] = &[
    (Code::Unreadable, "unreadable", "a file or folder cannot be read"),
    (Code::NotUtf8, "not-utf8", "a file is not UTF-8 text"),
    (Code::TooLarge, "too-large", "a file is too large to be what it should be"),
    (Code::Syntax, "syntax", "a file is not valid TOML, or a Compose file not valid YAML"),
    (Code::UnknownKey, "unknown-key", "a key that does not exist here"),
    (Code::WrongType, "wrong-type", "a value of the wrong type"),
    (Code::MissingKey, "missing-key", "a key that has to be there is not"),
    (Code::WrongValue, "wrong-value", "a value outside the closed list, or out of range"),
    (Code::EmptyText, "empty-text", "a text that says nothing"),
    (Code::NoAttempt, "no-attempt", "a case that tries nothing"),
    (Code::TwoAttempts, "two-attempts", "a case with more than one attempt"),
    (Code::ProofMissing, "proof-missing", "a case that nothing can prove escaped"),
    (Code::ProofMisfit, "proof-misfit", "a proof that this attempt can never give"),
    (Code::WeakenedMissing, "weakened-missing", "a gating case that never shows that it can fail"),
    (Code::ExpectMisfit, "expect-misfit", "an expectation that does not fit the folder, the attempt or the proofs"),
    (Code::DangerLowered, "danger-lowered", "a danger below the attempt's own"),
    (Code::BadUrl, "bad-url", "a URL that is not http with the literal address of a metadata service or of loopback"),
    (Code::BadHeader, "bad-header", "an HTTP header or method that is malformed"),
    (Code::BadPath, "bad-path", "a path that is not absolute or climbs out"),
    (Code::BadPattern, "bad-pattern", "a glob that cannot be read"),
    (Code::BadTechnique, "bad-technique", "a malformed MITRE ATT&CK id"),
    (Code::BadReference, "bad-reference", "a reference that is not an https URL"),
    (Code::Repeated, "repeated", "one thing named twice in a list"),
    (Code::DuplicateId, "duplicate-id", "two case files with one id"),
    (Code::BadId, "bad-id", "a case file in the wrong place or with the wrong name"),
    (Code::NotACase, "not-a-case", "a file in a library that is not a case"),
    (Code::NoCases, "no-cases", "a library without cases"),
    (Code::NoMatch, "no-match", "a filter that matches nothing"),
    (Code::NotExpressible, "not-expressible", "a setting that the chosen backend cannot express"),
    (Code::Contradiction, "contradiction", "two settings that contradict each other"),
    (Code::NotPinned, "not-pinned", "an image that may be another one tomorrow"),
    (Code::UnknownSandbox, "unknown-sandbox", "a sandbox that is not configured"),
    (Code::NotABaseline, "not-a-baseline", "a file that is no baseline"),
];

impl Code {
    /// The stable kebab-case name.
    pub fn name(self) -> &'static str {
        CODES
            .iter()
            .find(|(code, _, _)| *code == self)
            .map_or("", |(_, name, _)| name)
    }

    /// Whether the mistake is that something is not there.
    pub fn is_absence(self) -> bool {
        matches!(
            self,
            Self::MissingKey | Self::NoAttempt | Self::ProofMissing | Self::WeakenedMissing
        )
    }
}

/// A file that was read, kept for showing the lines around a mistake. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's name as the user knows it.
    pub path: PathBuf,
    /// Its text.
    pub text: Arc<str>,
}

impl Source {
    /// A file with its text.
    pub fn new(path: impl Into<PathBuf>, text: &str) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What kind.
    pub code: Code,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub help: String,
    /// Where; none for a mistake on the command line.
    pub place: Option<Place>,
    /// A second place that it has to do with: the other file of a duplicate.
    pub other: Option<Place>,
}

/// Where a mistake is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The file's text, where it could be read, with the bytes that are wrong.
    pub span: Option<(Source, Range<usize>)>,
    /// A few words beside the marked bytes; may be empty.
    pub label: String,
}

impl Diagnostic {
    /// A mistake, and what to do about it.
    pub fn new(code: Code, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            help: help.into(),
            place: None,
            other: None,
        }
    }

    /// The same, at these bytes of a file.
    pub fn at(mut self, source: &Source, span: Range<usize>, label: impl Into<String>) -> Self {
        self.place = Some(Place::bytes(source, span, label));
        self
    }

    /// The same, about a file or folder as a whole.
    pub fn in_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.place = Some(Place::whole(path));
        self
    }

    /// The same, with a second place.
    pub fn and(mut self, other: Place) -> Self {
        self.other = Some(other);
        self
    }

    fn render(&self, renderer: &Renderer, colour: bool) -> String {
        let title = Level::ERROR
            .primary_title(shown(&self.message))
            .id(self.code.name());
        let places: Vec<&Place> = self.place.iter().chain(&self.other).collect();
        if places.iter().all(|place| place.span.is_none()) {
            return self.render_without_text(&renderer.render(&[Group::with_title(title)]), colour);
        }
        let mut group = Group::with_title(title);
        for place in places {
            group = match &place.span {
                Some((source, span)) => {
                    let span = within(&source.text, span);
                    let lines = lines_of(&source.text, &span);
                    let before = &source.text.as_bytes()[..lines.start];
                    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                    let mark = span.start - lines.start..span.end - lines.start;
                    group.element(
                        Snippet::source(visible(&without_secrets(&source.text[lines])))
                            .line_start(line)
                            .path(shown(&place.path.to_string_lossy()))
                            .annotation(
                                AnnotationKind::Primary
                                    .span(mark)
                                    .label(shown(&place.label)),
                            ),
                    )
                }
                None => group.element(Origin::path(shown(&place.path.to_string_lossy()))),
            };
        }
        renderer.render(&[group.element(Level::HELP.message(shown(&self.help)))])
    }

    /// As the renderer does it where it has lines of a file to show; without them it leaves an empty margin.
    fn render_without_text(&self, title: &str, colour: bool) -> String {
        let paint = |ink: &str, text: &str| match colour {
            true => format!("\x1b[1m{ink}{text}\x1b[0m"),
            false => text.to_owned(),
        };
        let mut text = title.trim_end().to_owned();
        for place in self.place.iter().chain(&self.other) {
            let path = shown(&place.path.to_string_lossy());
            text.push_str(&format!("\n {} {path}", paint("\x1b[94m", "-->")));
        }
        let (sign, help) = (paint("\x1b[94m", "="), paint("", "help"));
        text.push_str(&format!("\n  {sign} {help}: {}", shown(&self.help)));
        text
    }
}

impl Place {
    /// These bytes of a file.
    pub fn bytes(source: &Source, span: Range<usize>, label: impl Into<String>) -> Self {
        Self {
            path: source.path.clone(),
            span: Some((source.clone(), span)),
            label: label.into(),
        }
    }

    /// A file or folder as a whole.
    pub fn whole(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            span: None,
            label: String::new(),
        }
    }

    fn order(&self) -> (&Path, usize) {
        (
            &self.path,
            self.span.as_ref().map_or(0, |(_, span)| span.start),
        )
    }
}

/// Nobody reads more at a time, and a file that is no case at all may have tens of thousands.
const MOST_SHOWN: usize = 200;

/// All mistakes that were found, in the order of files and lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
    /// So many more were found and not kept: nobody reads them, and each costs time.
    more: usize,
}

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.all.push(diagnostic);
    }

    /// Adds those of another collection.
    pub fn append(&mut self, other: Self) {
        self.all.extend(other.all);
        self.more += other.more;
    }

    /// Keeps those alone that are wanted, and the count of those that nobody looked at.
    pub fn retain(&mut self, wanted: impl FnMut(&Diagnostic) -> bool) {
        self.all.retain(wanted);
    }

    /// Whether no more need be told of one file.
    pub fn is_full(&self) -> bool {
        self.all.len() >= MOST_SHOWN
    }

    /// Counts one that is not told.
    pub fn count_more(&mut self) {
        self.more += 1;
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are, those that were not kept among them.
    pub fn len(&self) -> usize {
        self.all.len() + self.more
    }

    /// All that were kept, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.all.iter()
    }

    /// All that were kept, to say more about them.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Diagnostic> {
        self.all.iter_mut()
    }

    /// The value, if nothing is wrong.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// All of them for a person, a blank line between two, and the count at the end.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let mut sorted: Vec<&Diagnostic> = self.all.iter().collect();
        sorted.sort_by_key(|d| d.place.as_ref().map(Place::order));
        let mut text = String::new();
        for diagnostic in sorted.iter().take(MOST_SHOWN) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}\n", diagnostic.render(&renderer, colour));
        }
        let _ = match self.len() {
            1 => writeln!(text, "1 mistake"),
            n if n > MOST_SHOWN && self.more > 0 => writeln!(
                text,
                "{n} mistakes, the first {MOST_SHOWN} of them shown; {} were counted and not looked at",
                self.more
            ),
            n if n > MOST_SHOWN => {
                writeln!(text, "{n} mistakes, the first {MOST_SHOWN} of them shown")
            }
            n => writeln!(text, "{n} mistakes"),
        };
        text
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self {
            all: vec![diagnostic],
            more: 0,
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// The name that was probably meant, for a "did you mean".
pub fn closest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

/// The help line of one who knows the right name.
pub fn did_you_mean(name: &str) -> String {
    format!("did you mean `{name}`?")
}

/// A help line for a wrong name: the one that was probably meant, else all that exist.
pub fn suggest(wrong: &str, names: &[&str]) -> String {
    match closest(wrong, names.iter().copied()) {
        Some(name) => did_you_mean(name),
        None if names.is_empty() => "nothing can stand here; remove it".into(),
        None => format!("expected {}", list(names)),
    }
}

/// `a`, `b` or `c`: for help lines.
pub fn list(names: &[&str]) -> String {
    match names {
        [] => "nothing".into(),
        [one] => format!("`{one}`"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|name| format!("`{name}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
}

/// Text of a file in a message.
fn shown(text: &str) -> String {
    SafeText::line(text).to_string()
}

/// The text of a file for the lines around a mistake: what would hide or move something, or speak to a CI system, is
/// replaced byte for byte, so that every span stays where it was.
fn visible(text: &str) -> String {
    let plain = text.chars().fold(String::new(), |mut out, c| {
        match c {
            '\n' | '\t' => out.push(c),
            _ if must_escape(c) => out.extend(std::iter::repeat_n('?', c.len_utf8())),
            _ => out.push(c),
        }
        out
    });
    // A line of the file never begins a line here, but some commands are obeyed anywhere in one.
    plain
        .replace("##", "#?")
        .replace("[[ATTACHMENT", "[?ATTACHMENT")
}

/// The whole lines that a span stands in: of a large file the rest need not be looked at for each mistake.
fn lines_of(text: &str, span: &Range<usize>) -> Range<usize> {
    let bytes = text.as_bytes();
    let is_end = |byte: &u8| *byte == b'\n';
    let start = bytes[..span.start].iter().rposition(is_end);
    let end = bytes[span.end..].iter().position(is_end);
    start.map_or(0, |at| at + 1)..end.map_or(bytes.len(), |at| span.end + at + 1)
}

/// A span that lies inside the text, whatever a parser said about its end.
fn within(text: &str, span: &Range<usize>) -> Range<usize> {
    let end = span.end.min(text.len());
    span.start.min(end)..end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_has_one_name_of_its_own() {
        let names: BTreeSet<&str> = CODES.iter().map(|(_, name, _)| *name).collect();
        let codes: BTreeSet<Code> = CODES.iter().map(|(code, _, _)| *code).collect();
        assert_eq!((names.len(), codes.len()), (CODES.len(), CODES.len()));
        // `NotABaseline` is the last variant: none is missing from the table.
        assert_eq!(CODES.len(), Code::NotABaseline as usize + 1);
    }

    #[test]
    fn a_place_is_shown_as_file_line_and_column_with_help() {
        let source = Source::new("escapes/a/b.toml", "one = 1\n  two = 2\n");
        let diagnostic = Diagnostic::new(
            Code::UnknownKey,
            "unknown key `two`",
            "did you mean `to`?",
        )
        .at(&source, 10..13, "here");
        let text = Diagnostics::from(diagnostic).render(false);
        assert!(
            text.contains("error[unknown-key]: unknown key `two`"),
            "{text}"
        );
        assert!(text.contains("escapes/a/b.toml:2:3"), "{text}");
        assert!(text.contains("help: did you mean `to`?"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn nothing_in_a_file_reaches_the_terminal_raw() {
        let evil = "##[error]x = \"\x1b]0;owned\x07\u{9b}31m\u{202e}\"\n";
        let source = Source::new("a\x1b[31m.toml", evil);
        let text = Diagnostics::from(Diagnostic::new(Code::Syntax, evil, evil).at(
            &source,
            4..evil.len(),
            evil,
        ))
        .render(false);
        assert!(
            text.chars().all(|c| c == '\n' || !must_escape(c)),
            "{text:?}"
        );
        assert!(!text.contains("##["), "{text}");
    }

    #[test]
    fn what_has_no_lines_has_no_margin() {
        let bare = Diagnostic::new(Code::NoMatch, "there is none", "look");
        assert_eq!(
            Diagnostics::from(bare.clone()).render(false),
            "error[no-match]: there is none\n  = help: look\n\n1 mistake\n"
        );
        let file = Diagnostics::from(bare.in_file("a.toml"));
        assert_eq!(
            file.render(false),
            "error[no-match]: there is none\n --> a.toml\n  = help: look\n\n1 mistake\n"
        );
        assert!(file.render(true).contains("a.toml\n"));
    }

    #[test]
    fn a_span_past_the_end_is_no_panic() {
        let source = Source::new("a.toml", "é");
        let all = Diagnostics::from(Diagnostic::new(Code::Syntax, "m", "h").at(&source, 7..9, ""));
        assert!(all.render(true).contains("a.toml"));
    }

    #[test]
    fn of_very_many_mistakes_the_first_are_looked_at() {
        const KEYS: &[schema::Key] = &[schema::Key {
            table: "",
            name: "image",
            shape: schema::Shape::Line(10),
            required: false,
            doc: "",
        }];
        let mut text = String::new();
        for number in 0..60_000 {
            let _ = writeln!(text, "key{number} = 1");
        }
        text.push_str("image = \"far too long a text\"\n");
        let source = Source::new("a.toml", &text);
        let mut reader = schema::Reader::new(&source);
        let table = reader.parse();
        let good = reader.table(KEYS, "", table.get_ref(), table.span());
        // What is not told is wrong all the same.
        assert!(!good.has("image") && good.is_bad("image"));
        assert_eq!(reader.mistakes.iter().count(), MOST_SHOWN);
        assert_eq!(reader.mistakes.len(), 60_001);
        let text = reader.mistakes.render(false);
        assert!(
            text.ends_with(
                "60001 mistakes, the first 200 of them shown; 59801 were counted and not looked at\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn mistakes_are_shown_in_the_order_of_lines() {
        let source = Source::new("a.toml", "one\ntwo\n");
        let mut all = Diagnostics::default();
        all.push(Diagnostic::new(Code::Syntax, "second", "h").at(&source, 4..7, ""));
        all.push(Diagnostic::new(Code::Syntax, "first", "h").at(&source, 0..3, ""));
        let text = all.render(false);
        assert!(text.find("first") < text.find("second"), "{text}");
        assert!(text.ends_with("2 mistakes\n"));
    }

    #[test]
    fn the_closest_name_is_found_and_a_far_one_is_not() {
        assert_eq!(closest("tittle", ["title", "why"]), Some("title"));
        assert_eq!(closest("zzz", ["title", "why"]), None);
        assert_eq!(suggest("x", &["a", "b", "c"]), "expected `a`, `b` or `c`");
    }
}
