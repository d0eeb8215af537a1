//! One TOML file held against its keys: every mistake in it, and a view of what is good.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::schema::{Key, Shape};
use super::units::article;
use super::view::View;
use super::{Code, Diagnostic, Diagnostics, Source, closest, did_you_mean, suggest};
use crate::safe_text::must_escape;

/// A file while it is read: its text, and the mistakes found so far.
pub struct Reader<'a> {
    /// The file.
    pub source: &'a Source,
    /// Every mistake so far.
    pub mistakes: Diagnostics,
    /// The file is no TOML as a whole: what seems to be missing may stand in the part that cannot be read.
    broken: bool,
}

impl<'a> Reader<'a> {
    /// Begins to read.
    pub fn new(source: &'a Source) -> Self {
        Self {
            source,
            mistakes: Diagnostics::default(),
            broken: false,
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
            self.broken = true;
        }
        table
    }

    /// Notes a mistake at these bytes. The first one about a text is the one that helps: later ones about the same bytes
    /// are left out, and so is what seems to be missing in a file that is no TOML.
    pub fn report(
        &mut self,
        code: Code,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.mistakes.is_full() {
            return self.mistakes.count_more();
        }
        let known = |mistake: &Diagnostic| {
            let place = mistake.place.as_ref().and_then(|place| place.span.as_ref());
            place.is_some_and(|(_, there)| *there == span)
        };
        let repeats = !span.is_empty() && self.mistakes.iter().any(known);
        if repeats || (self.broken && code.is_absence()) {
            return;
        }
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
                None if self.mistakes.is_full() => self.mistakes.count_more(),
                None => {
                    let help = self.other_place(keys, text, &names);
                    // What was meant is there under a wrong name, and not missing.
                    let meant = known.iter().find(|known| {
                        help == did_you_mean(known.name) && !table.contains_key(known.name)
                    });
                    bad.extend(meant.map(|known| known.name));
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
            let there = table
                .keys()
                .any(|there| there.get_ref().as_ref() == key.name);
            if !there && !bad.contains(&key.name) {
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
        View::new(good, bad, span)
    }

    fn other_place(&self, keys: &[Key], wrong: &str, names: &[&str]) -> String {
        let elsewhere = keys.iter().find(|key| key.name == wrong);
        match elsewhere {
            Some(key) if key.table.is_empty() => {
                format!("`{wrong}` belongs at the top of the file, before the first `[table]`")
            }
            Some(key) if closest(wrong, names.iter().copied()).is_none() => {
                format!("`{wrong}` belongs in `[{}]`", key.table)
            }
            _ => suggest(wrong, names),
        }
    }

    fn check(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) -> bool {
        let found = value.get_ref();
        if !key.shape.fits(found) {
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
        // A wrong item spoils itself, not its list: whoever reads the list finds the mistakes in the others.
        let is_list = matches!(found, DeValue::Array(items) if !items.is_empty());
        match (key.shape, found) {
            (Shape::Text | Shape::Line(_) | Shape::TextOrTexts, DeValue::String(text)) => {
                self.plain_text(key, text, value.span());
            }
            (Shape::OneOf(names), DeValue::String(text)) => {
                self.one_of(key, text, value.span(), &names());
            }
            (
                Shape::Texts | Shape::TextOrTexts | Shape::ManyOf(_) | Shape::Pairs | Shape::Argv,
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
            (shape, found) if !shape.in_range(found) => self.out_of_range(key, value.span()),
            _ => {}
        }
        is_list || self.mistakes.len() == before
    }

    fn items(&mut self, key: &Key, items: &DeArray<'_>, span: Range<usize>) {
        let mut seen = std::collections::HashSet::new();
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
            if !seen.insert(text) {
                let message = format!("`{text}` stands in `{}` twice", key.name);
                self.report(Code::Repeated, item.span(), message, "remove one of them");
            }
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
                // Without these, the next mistake would be that they are missing.
                if key.required || matches!(key.name, "remove" | "command") {
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
            .any(|c| must_escape(c) && (one_line || !matches!(c, '\n' | '\t')))
        {
            let message = format!(
                "`{}` holds an invisible character or a line break",
                key.name
            );
            self.report(Code::WrongValue, span, message, "remove it");
        } else if matches!(key.shape, Shape::Line(most) if text.chars().count() > most) {
            self.out_of_range(key, span);
        }
    }

    fn one_of(&mut self, key: &Key, text: &str, span: Range<usize>, names: &[&'static str]) {
        if !names.contains(&text) {
            let message = format!("`{text}` is not a valid value for `{}`", key.name);
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
