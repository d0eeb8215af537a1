//! What a TOML file may hold: one table of keys with their shapes and meaning, and the walk that finds every mistake.
//!
//! Parser, linter and documentation read the same keys, so that none of them can know a key that the others do not.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use crate::diag::{Code, Diagnostic, Diagnostics, Source, list, suggest};

/// One key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The table it stands in: `""` for the top, `attempt.connect`.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it may hold.
    pub shape: Shape,
    /// Whether it has to be there.
    pub required: bool,
    /// What it means, for a person.
    pub doc: &'static str,
}

/// The longest [`Shape::Line`], in characters.
pub const LONGEST_LINE: usize = 100;

/// What a key may hold.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A text that is not empty.
    Text,
    /// A text of one line, not empty, short enough for a table.
    Line,
    /// A list of texts, none of them empty.
    Texts,
    /// A program and its arguments: texts of any kind, at least one.
    Argv,
    /// One name of a closed list.
    OneOf(fn() -> Vec<&'static str>),
    /// Names of a closed list, none of them twice.
    ManyOf(fn() -> Vec<&'static str>),
    /// `true` or `false`.
    Flag,
    /// `true`; leaving it out is the other choice.
    True,
    /// A whole number, from and to.
    Integer(u64, u64),
    /// A number above zero.
    Number,
    /// Bytes: a whole number, or a text such as `256m`.
    Bytes,
    /// A text such as `10s`.
    Duration,
    /// A list of `NAME=VALUE` texts, or a table of texts.
    Pairs,
    /// A list of whole numbers and texts: the arguments of a system call.
    Arguments,
    /// A table with keys of its own.
    Table,
}

impl Shape {
    /// In words, for messages and documentation.
    pub fn describe(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Line => format!("a text of one line, at most {LONGEST_LINE} characters"),
            Self::Texts => "a list of texts".into(),
            Self::Argv => "a list of a program and its arguments".into(),
            Self::OneOf(names) => list(&names()),
            Self::ManyOf(names) => format!("a list of {}", list(&names())),
            Self::Flag => "`true` or `false`".into(),
            Self::True => "`true`".into(),
            Self::Integer(from, to) if to == u64::MAX => format!("a whole number from {from}"),
            Self::Integer(from, to) => format!("a whole number from {from} to {to}"),
            Self::Number => "a number above zero".into(),
            Self::Bytes => "a size such as \"256m\", or a number of bytes".into(),
            Self::Duration => "a duration such as \"10s\"".into(),
            Self::Pairs => "a table of texts, or a list of \"NAME=VALUE\"".into(),
            Self::Arguments => "a list of numbers and texts".into(),
            Self::Table => "a table".into(),
        }
    }
}

/// A value that is written as one word of a closed list.
pub trait Named: Copy + PartialEq + 'static {
    /// Every value with its word, in the order in which documentation lists them.
    fn all() -> Vec<(Self, &'static str)>;

    /// The value of this word.
    fn from_name(name: &str) -> Option<Self> {
        Self::all()
            .into_iter()
            .find(|(_, word)| *word == name)
            .map(|(value, _)| value)
    }

    /// The word for this value.
    fn word(self) -> &'static str {
        Self::all()
            .into_iter()
            .find(|(value, _)| *value == self)
            .map_or("", |(_, word)| word)
    }
}

/// The words of a closed list: what a key's shape asks for.
pub fn words<T: Named>() -> Vec<&'static str> {
    T::all().into_iter().map(|(_, word)| word).collect()
}

/// Implements [`Named`] for an enumeration.
macro_rules! named {
    ($type:ty: $($variant:ident = $word:literal),+ $(,)?) => {
        impl $crate::diag::schema::Named for $type {
            fn all() -> Vec<(Self, &'static str)> {
                vec![$((Self::$variant, $word)),+]
            }
        }
    };
}
pub(crate) use named;

/// A file while it is read: its text, and the mistakes found so far.
pub struct Reader<'a> {
    /// The file.
    pub source: &'a Source,
    /// Every mistake so far.
    pub mistakes: Diagnostics,
}

impl<'a> Reader<'a> {
    /// Begins to read.
    pub fn new(source: &'a Source) -> Self {
        Self {
            source,
            mistakes: Diagnostics::default(),
        }
    }

    /// The file's top table; what is not TOML becomes mistakes, the rest is read all the same.
    pub fn parse(&mut self) -> Spanned<DeTable<'a>> {
        let (table, errors) = DeTable::parse_recoverable(&self.source.text);
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            let message = format!("not valid TOML: {}", error.message().replace('\n', ", "));
            self.report(
                Code::Syntax,
                span,
                message,
                "see https://toml.io for the syntax",
            );
        }
        table
    }

    /// Notes a mistake at these bytes.
    pub fn report(
        &mut self,
        code: Code,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.mistakes
            .push(Diagnostic::new(code, message, help).at(self.source, span, ""));
    }

    /// Holds one table against its keys: unknown ones, missing ones, wrong types, wrong values. `name` is the table's
    /// place in `keys`, `span` the table's own. Returns a view that has the good values only.
    pub fn table<'t, 'b>(
        &mut self,
        keys: &'static [Key],
        name: &str,
        table: &'t DeTable<'b>,
        span: Range<usize>,
    ) -> View<'t, 'b> {
        self.table_as(keys, name, name, table, span)
    }

    /// The same for a table that the user named: `shown` is what messages call it.
    pub fn table_as<'t, 'b>(
        &mut self,
        keys: &'static [Key],
        name: &str,
        shown: &str,
        table: &'t DeTable<'b>,
        span: Range<usize>,
    ) -> View<'t, 'b> {
        let known: Vec<&Key> = keys.iter().filter(|key| key.table == name).collect();
        let names: Vec<&str> = known.iter().map(|key| key.name).collect();
        let place = match shown {
            "" => String::new(),
            shown => format!(" in `[{shown}]`"),
        };
        let mut good = Vec::new();
        let mut bad = Vec::new();
        for (key, value) in table {
            let text = key.get_ref().as_ref();
            match known.iter().find(|known| known.name == text) {
                Some(known) => {
                    if self.check(known, value) {
                        good.push((known.name, value));
                    } else {
                        bad.push(known.name);
                    }
                }
                None => {
                    let help = self.other_place(keys, text, &names);
                    self.report(
                        Code::UnknownKey,
                        key.span(),
                        format!("unknown key `{text}`{place}"),
                        help,
                    );
                }
            }
        }
        for key in known.iter().filter(|key| key.required) {
            if !table
                .keys()
                .any(|there| there.get_ref().as_ref() == key.name)
            {
                self.report(
                    Code::MissingKey,
                    // A whole table marked red says nothing: its first bytes are enough.
                    span.start..span.start,
                    format!("`{}` is missing{place}", key.name),
                    format!(
                        "add `{} = …`: {} ({})",
                        key.name,
                        key.doc,
                        key.shape.describe()
                    ),
                );
            }
        }
        View { good, bad, span }
    }

    fn other_place(&self, keys: &[Key], wrong: &str, names: &[&str]) -> String {
        let elsewhere = keys.iter().find(|key| key.name == wrong);
        match elsewhere {
            Some(key) if key.table.is_empty() => {
                format!("`{wrong}` belongs at the top of the file, before the first `[table]`")
            }
            Some(key) if crate::diag::closest(wrong, names.iter().copied()).is_none() => {
                format!("`{wrong}` belongs in `[{}]`", key.table)
            }
            _ => suggest(wrong, names),
        }
    }

    fn check(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) -> bool {
        let found = value.get_ref();
        let fits = match (key.shape, found) {
            (Shape::Text | Shape::Line | Shape::Duration | Shape::OneOf(_), DeValue::String(_))
            | (
                Shape::Texts | Shape::ManyOf(_) | Shape::Pairs | Shape::Arguments | Shape::Argv,
                DeValue::Array(_),
            )
            | (Shape::Flag | Shape::True, DeValue::Boolean(_))
            | (Shape::Integer(..), DeValue::Integer(_))
            | (Shape::Number, DeValue::Integer(_) | DeValue::Float(_))
            | (Shape::Bytes, DeValue::Integer(_) | DeValue::String(_))
            | (Shape::Table | Shape::Pairs, DeValue::Table(_)) => true,
            _ => false,
        };
        if !fits {
            self.report(
                Code::WrongType,
                value.span(),
                format!(
                    "`{}` is {}, but should be {}",
                    key.name,
                    article(found),
                    key.shape.describe()
                ),
                format!("{}: {}", key.name, key.doc),
            );
            return false;
        }
        let before = self.mistakes.len();
        match (key.shape, found) {
            (Shape::Text | Shape::Line, DeValue::String(text)) => {
                self.plain_text(key, text, value.span());
            }
            (Shape::OneOf(names), DeValue::String(text)) => {
                self.one_of(key, text, value.span(), &names());
            }
            (
                Shape::Texts | Shape::ManyOf(_) | Shape::Pairs | Shape::Argv,
                DeValue::Array(items),
            ) => {
                self.items(key, items, value.span());
            }
            (Shape::Pairs, DeValue::Table(table)) => {
                for item in table.values().filter(|item| !item.get_ref().is_str()) {
                    let message = format!(
                        "a value in `{}` is {}, but should be a text",
                        key.name,
                        article(item.get_ref())
                    );
                    self.report(Code::WrongType, item.span(), message, "put it in quotes");
                }
            }
            (Shape::True, DeValue::Boolean(false)) => self.report(
                Code::WrongValue,
                value.span(),
                format!("`{}` can only be `true`", key.name),
                "leave the key out instead",
            ),
            (Shape::Integer(from, to), DeValue::Integer(number)) => {
                if !integer(number).is_some_and(|n| (from..=to).contains(&n)) {
                    self.out_of_range(key, value.span());
                }
            }
            (Shape::Number, number) => {
                if !number_of(number).is_some_and(|n| n.is_finite() && n > 0.0) {
                    self.out_of_range(key, value.span());
                }
            }
            (Shape::Bytes, value_found) => {
                if bytes_of(value_found).is_none() {
                    self.out_of_range(key, value.span());
                }
            }
            (Shape::Duration, DeValue::String(text)) => {
                if seconds(text).is_none() {
                    self.out_of_range(key, value.span());
                }
            }
            _ => {}
        }
        self.mistakes.len() == before
    }

    fn items(&mut self, key: &Key, items: &DeArray<'_>, span: Range<usize>) {
        let mut seen: Vec<&str> = Vec::new();
        for item in items.iter() {
            let Some(text) = item.get_ref().as_str() else {
                let message = format!(
                    "an item of `{}` is {}, but should be a text",
                    key.name,
                    article(item.get_ref())
                );
                self.report(Code::WrongType, item.span(), message, "put it in quotes");
                continue;
            };
            // A launcher's arguments may well repeat, be empty, or be a whole script.
            if matches!(key.shape, Shape::Argv) {
                continue;
            }
            if seen.contains(&text) {
                let message = format!("`{text}` stands in `{}` twice", key.name);
                self.report(Code::Repeated, item.span(), message, "remove one of them");
            }
            seen.push(text);
            match key.shape {
                Shape::ManyOf(names) => self.one_of(key, text, item.span(), &names()),
                _ => self.plain_text(key, text, item.span()),
            }
        }
        let needs_items = key.required || matches!(key.shape, Shape::ManyOf(_) | Shape::Argv);
        if items.is_empty() && needs_items {
            self.report(
                Code::EmptyText,
                span,
                format!("`{}` is an empty list", key.name),
                if key.required {
                    format!("name at least one; {}: {}", key.name, key.doc)
                } else {
                    "leave the key out instead".into()
                },
            );
        }
    }

    fn plain_text(&mut self, key: &Key, text: &str, span: Range<usize>) {
        let one_line = !matches!(key.shape, Shape::Text);
        if text.trim().is_empty() {
            let help = format!(
                "say something, or leave the key out; {}: {}",
                key.name, key.doc
            );
            self.report(
                Code::EmptyText,
                span,
                format!("`{}` is empty", key.name),
                help,
            );
        } else if text
            .chars()
            .any(|c| c.is_control() && (one_line || !matches!(c, '\n' | '\t')))
        {
            let message = format!("`{}` holds a control character or a line break", key.name);
            self.report(Code::WrongValue, span, message, "remove it");
        } else if matches!(key.shape, Shape::Line) && text.chars().count() > LONGEST_LINE {
            self.out_of_range(key, span);
        }
    }

    fn one_of(&mut self, key: &Key, text: &str, span: Range<usize>, names: &[&'static str]) {
        if !names.contains(&text) {
            let message = format!("`{text}` is no value of `{}`", key.name);
            self.report(Code::WrongValue, span, message, suggest(text, names));
        }
    }

    fn out_of_range(&mut self, key: &Key, span: Range<usize>) {
        let message = format!("`{}` has to be {}", key.name, key.shape.describe());
        self.report(
            Code::WrongValue,
            span,
            message,
            format!("{}: {}", key.name, key.doc),
        );
    }
}

/// The good values of one table. What was wrong has been reported, and reads as if it were not there.
pub struct View<'t, 'a> {
    good: Vec<(&'static str, &'t Spanned<DeValue<'a>>)>,
    bad: Vec<&'static str>,
    /// The table's own place.
    pub span: Range<usize>,
}

impl<'t, 'a> View<'t, 'a> {
    /// Whether the key is there with a good value.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Where the key's value stands; the table itself, if it is not there.
    pub fn span_of(&self, key: &str) -> Range<usize> {
        self.value(key).map_or(self.span.clone(), Spanned::span)
    }

    /// A value of a closed list.
    pub fn named<T: Named>(&self, key: &str) -> Option<T> {
        T::from_name(self.text(key)?)
    }

    /// Whether the key is there with a wrong value, which has been reported: its absence is then no second mistake.
    pub fn is_bad(&self, key: &str) -> bool {
        self.bad.contains(&key)
    }

    /// The names of the keys that are there, in the order of the table.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.good.iter().map(|(name, _)| *name)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&'t str> {
        self.value(key)?.get_ref().as_str()
    }

    /// A list of texts with their places; empty if it is not there.
    pub fn texts(&self, key: &str) -> Vec<(&'t str, Range<usize>)> {
        let items = self.value(key).and_then(|value| value.get_ref().as_array());
        items
            .into_iter()
            .flat_map(|items| items.iter())
            .filter_map(|item| Some((item.get_ref().as_str()?, item.span())))
            .collect()
    }

    /// A list of numbers and texts, as text, with their places.
    pub fn arguments(&self, key: &str) -> Vec<(String, Range<usize>)> {
        let items = self.value(key).and_then(|value| value.get_ref().as_array());
        items
            .into_iter()
            .flat_map(|items| items.iter())
            .map(|item| {
                let text = match item.get_ref() {
                    DeValue::Integer(number) => integer(number).map(|n| n.to_string()),
                    other => other.as_str().map(str::to_owned),
                };
                (text.unwrap_or_default(), item.span())
            })
            .collect()
    }

    /// Names and values with their places, of a table of texts or a list of `NAME=VALUE`; no value for a bare `NAME`.
    pub fn pairs(&self, key: &str) -> Vec<(&'t str, Option<&'t str>, Range<usize>)> {
        match self.table(key) {
            Some((table, _)) => {
                let entries = table.iter().map(|(name, value)| {
                    (
                        name.get_ref().as_ref(),
                        value.get_ref().as_str(),
                        name.span(),
                    )
                });
                entries.collect()
            }
            None => {
                let items = self.texts(key).into_iter();
                let entries = items.map(|(text, span)| match text.split_once('=') {
                    Some((name, value)) => (name, Some(value), span),
                    None => (text, None, span),
                });
                entries.collect()
            }
        }
    }

    /// A list of texts without their places.
    pub fn strings(&self, key: &str) -> Vec<String> {
        self.texts(key)
            .into_iter()
            .map(|(text, _)| text.to_owned())
            .collect()
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.value(key)?.get_ref().as_bool()
    }

    /// A whole number.
    pub fn integer(&self, key: &str) -> Option<u64> {
        integer(self.value(key)?.get_ref().as_integer()?)
    }

    /// A number.
    pub fn number(&self, key: &str) -> Option<f64> {
        number_of(self.value(key)?.get_ref())
    }

    /// Bytes.
    pub fn bytes(&self, key: &str) -> Option<u64> {
        bytes_of(self.value(key)?.get_ref())
    }

    /// A duration.
    pub fn duration(&self, key: &str) -> Option<std::time::Duration> {
        seconds(self.text(key)?)
    }

    /// A table below this one, with its place.
    pub fn table(&self, key: &str) -> Option<(&'t DeTable<'a>, Range<usize>)> {
        let value = self.value(key)?;
        Some((value.get_ref().as_table()?, value.span()))
    }

    fn value(&self, key: &str) -> Option<&'t Spanned<DeValue<'a>>> {
        self.good
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| *value)
    }
}

fn article(value: &DeValue<'_>) -> String {
    match value.type_str() {
        "array" => "a list".into(),
        "integer" => "a whole number".into(),
        "string" => "a text".into(),
        "float" => "a fraction".into(),
        "datetime" => "a date".into(),
        other => format!("a {other}"),
    }
}

fn integer(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn number_of(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => number.as_str().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

fn bytes_of(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(number) => integer(number),
        DeValue::String(text) => bytes(text),
        _ => None,
    }
    .filter(|bytes| *bytes > 0)
}

/// Compose's sizes: `1024`, `64k`, `256m`, `1g`, with or without a `b` at the end; powers of 1024.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let text = text.strip_suffix('i').unwrap_or(text);
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1 << 10),
        b'm' => (&text[..text.len() - 1], 1 << 20),
        b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// `500ms`, `10s`, `2m`: at least a millisecond, at most an hour.
pub fn seconds(text: &str) -> Option<std::time::Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..at].parse().ok()?;
    let millis = match &text[at..] {
        "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "m" => number.checked_mul(60_000)?,
        _ => return None,
    };
    (1..=3_600_000)
        .contains(&millis)
        .then(|| std::time::Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sizes_read_as_compose_reads_them() {
        assert_eq!(bytes("256m"), Some(256 << 20));
        assert_eq!(bytes("1g"), Some(1 << 30));
        assert_eq!(bytes("64kb"), Some(64 << 10));
        assert_eq!(bytes("1024"), Some(1024));
        assert_eq!(bytes("10b"), Some(10));
        for wrong in ["", "m", "1.5g", "-1", "1t", "99999999999g", "１m"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_have_a_unit_and_an_end() {
        assert_eq!(seconds("10s"), Some(Duration::from_secs(10)));
        assert_eq!(seconds("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(seconds("2m"), Some(Duration::from_secs(120)));
        for wrong in [
            "",
            "10",
            "0s",
            "s",
            "1h",
            "1000m",
            "-1s",
            "99999999999999999999s",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
