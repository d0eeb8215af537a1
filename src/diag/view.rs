//! The good values of one table, read by key.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::schema::Named;
use super::units::{bytes_of, bytes_or_unlimited_of, day, integer, number_of, seconds};

/// The good values of one table. What was wrong has been reported, and reads as if it were not there.
pub struct View<'t, 'a> {
    good: Vec<(&'static str, &'t Spanned<DeValue<'a>>)>,
    bad: Vec<&'static str>,
    /// The table's own place.
    pub span: Range<usize>,
}

impl<'t, 'a> View<'t, 'a> {
    pub(super) fn new(
        good: Vec<(&'static str, &'t Spanned<DeValue<'a>>)>,
        bad: Vec<&'static str>,
        span: Range<usize>,
    ) -> Self {
        Self { good, bad, span }
    }

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

    /// Whether the key is there with a wrong value, or under a mistyped name, which has been reported: its absence is then no second mistake.
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

    /// A list of texts with their places; empty if it is not there. A text that stands alone is a list of one.
    pub fn texts(&self, key: &str) -> Vec<(&'t str, Range<usize>)> {
        if let Some(text) = self.text(key) {
            return vec![(text, self.span_of(key))];
        }
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
                    DeValue::Integer(number) => {
                        Some(integer(number).map_or(number.as_str().to_owned(), |n| n.to_string()))
                    }
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

    /// Bytes; the largest number for `-1`, as many as there are.
    pub fn bytes_or_unlimited(&self, key: &str) -> Option<u64> {
        bytes_or_unlimited_of(self.value(key)?.get_ref())
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

    /// A day.
    pub fn date(&self, key: &str) -> Option<toml::value::Date> {
        day(self.value(key)?.get_ref().as_datetime()?)
    }

    /// The items of a list, whatever they are; none if it is not there.
    pub fn items(&self, key: &str) -> impl Iterator<Item = &'t Spanned<DeValue<'a>>> + use<'t, 'a> {
        let items = self.value(key).and_then(|value| value.get_ref().as_array());
        items.into_iter().flat_map(|items| items.iter())
    }

    fn value(&self, key: &str) -> Option<&'t Spanned<DeValue<'a>>> {
        self.good
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| *value)
    }
}
