//! The environment of a Compose service: its files, and what it says itself.

use std::io::ErrorKind;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::compose_forms::flag;
use super::compose_service::mapping;
use super::compose_table::Converter;
use super::compose_yaml::Node;

impl Converter<'_, '_, '_> {
    /// `NAME: VALUE` of the environment, those of files first.
    pub(super) fn environment(&mut self, service: &Node) {
        let mut all: DeTable<'static> = DeTable::new();
        let mut set = |name: &str, value: String, span: &Range<usize>| {
            all.remove(name);
            all.insert(
                Spanned::new(span.clone(), name.to_owned().into()),
                Spanned::new(span.clone(), DeValue::String(value.into())),
            );
        };
        let mut at = service.span.clone();
        if let Some(files) = service.get("env_file") {
            at = files.span.clone();
            for (name, value, span) in self.environment_files(files) {
                set(&name, value, &span);
            }
        }
        let said = service.get("environment").cloned().map(mapping);
        for (name, value) in said
            .iter()
            .flat_map(|said| said.entries().unwrap_or_default())
        {
            at = name.span.clone();
            match value.text() {
                Some(text) => set(&name.text, text.to_owned(), &name.span),
                None => match self.variables.get(&name.text) {
                    Some(value) => set(&name.text, value, &name.span),
                    None => {
                        self.variables.unset.insert(name.text.clone());
                    }
                },
            }
        }
        if !all.is_empty() {
            self.put("environment", DeValue::Table(all), at);
        }
    }

    fn environment_files(&mut self, files: &Node) -> Vec<(String, String, Range<usize>)> {
        let mut found = Vec::new();
        let list = match files.entries() {
            Some(_) if files.get("path").is_some() => vec![files],
            _ => files.items().unwrap_or_default(),
        };
        for item in list {
            let path = item.get("path").unwrap_or(item);
            let name = path.text().unwrap_or_default();
            let required = item.get("required").and_then(Node::text).and_then(flag) != Some(false);
            let raw = item.get("format").is_some_and(|format| !format.is_empty());
            if raw {
                self.wrong(
                    &path.span,
                    "only the usual format of `env_file` is read",
                    "leave `format` out",
                );
                continue;
            }
            let text = (self.file.around.read)(&self.file.folder().join(name));
            let read = match text {
                Ok(text) => self.variables.read_file(&text),
                Err(error) if !required && error.kind() == ErrorKind::NotFound => continue,
                Err(error) => Err(error.to_string()),
            };
            match read {
                Ok(pairs) => {
                    let all = pairs
                        .into_iter()
                        .map(|(name, value)| (name, value, path.span.clone()));
                    found.extend(all);
                }
                Err(why) => {
                    let message = format!("`{name}` cannot be read: {why}");
                    self.wrong(
                        &path.span,
                        message,
                        "Compose would not start without it either: correct it, save it as UTF-8, and let this user read it",
                    );
                }
            }
        }
        found
    }
}
