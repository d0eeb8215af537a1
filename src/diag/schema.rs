//! What a TOML file may hold: one table of keys with their shapes and meaning, and the walk that finds every mistake.
//!
//! Parser, linter and documentation read the same keys, so that none of them can know a key that the others do not.

use toml::de::DeValue;

use super::units::{bytes_of, bytes_or_unlimited_of, day, integer, number_of, seconds};
use crate::diag::list;

pub use super::reader::Reader;
pub use super::units::bytes;
pub use super::view::View;

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

/// Closed lists of up to so many words are spelled out in messages.
const SHORT_LIST: usize = 6;

/// The least ceiling on memory, in bytes: below it the probe itself could not run, and nothing would be tried.
pub const LEAST_MEMORY: u64 = 4 << 20;

/// What a key may hold.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A text that is not empty.
    Text,
    /// A text of one line, not empty, at most so many characters long.
    Line(usize),
    /// A list of texts, none of them empty.
    Texts,
    /// One text or a list of them, none of them empty.
    TextOrTexts,
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
    /// A number of CPUs, from a hundredth: less cannot be enforced.
    Cpus,
    /// Bytes: a whole number, or a text such as `256m`.
    Bytes,
    /// The same for memory that something has to run in: at least [`LEAST_MEMORY`].
    Memory,
    /// The same, or `-1` for no ceiling.
    Swap,
    /// A text such as `10s`.
    Duration,
    /// A list of `NAME=VALUE` texts, or a table of texts.
    Pairs,
    /// A list of whole numbers and texts: the arguments of a system call.
    Arguments,
    /// A day, such as 2027-02-28, without quotes.
    Date,
    /// A table with keys of its own.
    Table,
    /// Any number of tables with keys of their own: `[[NAME]]` each.
    Tables,
}

impl Shape {
    /// In words, for messages and documentation.
    pub fn describe(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Line(most) => format!("a text of one line, at most {most} characters"),
            Self::Texts => "a list of texts".into(),
            Self::TextOrTexts => "a text, or a list of texts".into(),
            Self::Argv => "a list of a program and its arguments".into(),
            Self::OneOf(names) if names().len() > SHORT_LIST => "a word of a closed list".into(),
            Self::OneOf(names) => list(&names()),
            Self::ManyOf(names) if names().len() > SHORT_LIST => {
                "a list of words of a closed list".into()
            }
            Self::ManyOf(names) => format!("a list of {}", list(&names())),
            Self::Flag => "`true` or `false`".into(),
            Self::True => "`true`".into(),
            Self::Integer(from, to) if to == u64::MAX => format!("a whole number from {from}"),
            Self::Integer(from, to) => format!("a whole number from {from} to {to}"),
            Self::Cpus => "a number from 0.01".into(),
            Self::Bytes => "a size such as \"256m\", or a number of bytes".into(),
            Self::Memory => "a size from \"4m\", such as \"256m\", or a number of bytes".into(),
            Self::Swap => {
                "a size from \"4m\", such as \"256m\", a number of bytes, or -1 for no ceiling"
                    .into()
            }
            Self::Duration => "a duration such as \"10s\", from \"100ms\" to \"60m\"".into(),
            Self::Pairs => "a table of texts, or a list of \"NAME=VALUE\"".into(),
            Self::Arguments => "a list of numbers and texts".into(),
            Self::Date => "a date such as 2027-02-28, without quotes".into(),
            Self::Table => "a table".into(),
            Self::Tables => "a list of tables".into(),
        }
    }

    /// The words of a closed list; none for other shapes.
    pub fn words(self) -> Vec<&'static str> {
        match self {
            Self::OneOf(names) | Self::ManyOf(names) => names(),
            _ => Vec::new(),
        }
    }

    /// Whether a value has the right type.
    pub fn fits(self, value: &DeValue<'_>) -> bool {
        matches!(
            (self, value),
            (
                Self::Text | Self::Line(_) | Self::TextOrTexts | Self::Duration | Self::OneOf(_),
                DeValue::String(_)
            ) | (
                Self::Texts
                    | Self::TextOrTexts
                    | Self::ManyOf(_)
                    | Self::Pairs
                    | Self::Arguments
                    | Self::Argv
                    | Self::Tables,
                DeValue::Array(_)
            ) | (Self::Flag | Self::True, DeValue::Boolean(_))
                | (Self::Integer(..), DeValue::Integer(_))
                | (Self::Cpus, DeValue::Integer(_) | DeValue::Float(_))
                | (
                    Self::Bytes | Self::Memory | Self::Swap,
                    DeValue::Integer(_) | DeValue::String(_)
                )
                | (Self::Date, DeValue::Datetime(_))
                | (Self::Table | Self::Pairs, DeValue::Table(_))
        )
    }

    /// Whether a value of the right type is a number, size or duration that may stand here; `true` for other shapes.
    pub fn in_range(self, value: &DeValue<'_>) -> bool {
        match (self, value) {
            (Self::Integer(from, to), DeValue::Integer(number)) => {
                integer(number).is_some_and(|n| (from..=to).contains(&n))
            }
            (Self::Cpus, value) => number_of(value).is_some_and(|n| n.is_finite() && n >= 0.01),
            (Self::Bytes, value) => bytes_of(value).is_some(),
            (Self::Memory, value) => bytes_of(value).is_some_and(|n| n >= LEAST_MEMORY),
            (Self::Swap, value) => bytes_or_unlimited_of(value).is_some_and(|n| n >= LEAST_MEMORY),
            (Self::Duration, DeValue::String(text)) => seconds(text).is_some(),
            (Self::Date, DeValue::Datetime(date)) => day(date).is_some(),
            _ => true,
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
