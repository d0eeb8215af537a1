//! A whole Compose service → the table that the project file would hold for it, each value at its place in the Compose file.
//!
//! So there is one reader of settings, with one set of mistakes, whichever file they stand in. What no project file can say
//! goes straight into [`EngineOptions`].

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::compose_forms::{Wrong, device, flag, is_harmless_device, size, ulimit};
use super::compose_keys::{Fate, SERVICE, fate};
use super::compose_service::{File, mapping};
use super::compose_variables::Variables;
use super::compose_yaml::{Node, Word};
use super::model::EngineOptions;
use crate::diag::schema::Reader;
use crate::diag::{Code, suggest};

/// What a service comes to.
#[derive(Default)]
pub struct Converted {
    /// The keys of a project file, but for numbers.
    pub table: DeTable<'static>,
    /// Its numbers: key, number as TOML has it, place.
    pub numbers: Vec<(&'static str, String, Range<usize>)>,
    /// What it has no keys for.
    pub options: EngineOptions,
    /// What the image is called, with its place.
    pub image: Option<(String, Range<usize>)>,
    /// Where it says that the image is built.
    pub built: Option<Range<usize>>,
    /// Keys of no matter for isolation, as written.
    pub ignored: Vec<String>,
    /// It names no network of its own.
    pub default_network: bool,
}

/// One file while its service is turned into a table.
pub struct Converter<'a, 'b, 'v> {
    /// The file.
    pub file: &'a File<'a>,
    /// The mistakes in it.
    pub reader: &'a mut Reader<'b>,
    /// What it may name.
    pub variables: &'a mut Variables<'v>,
    /// The project's name.
    pub project: String,
    /// What came of it so far.
    pub out: Converted,
}

impl Converter<'_, '_, '_> {
    /// Turns the service over, key by key.
    pub fn service(&mut self, word: &Word, service: &Node) {
        let Some(entries) = service.entries() else {
            return self.wrong(
                &service.span,
                "a service is a mapping",
                "write its keys below it",
            );
        };
        self.text("backend", "docker", word.span.clone());
        for (key, value) in entries {
            match fate(SERVICE, &key.text) {
                None => {
                    let names: Vec<&str> = SERVICE.iter().map(|(name, ..)| *name).collect();
                    let message = format!(
                        "Compose has no key `{}`, or this version does not know it",
                        key.text
                    );
                    let help = suggest(&key.text, &names);
                    self.reader
                        .report(Code::UnknownKey, key.span.clone(), message, help);
                }
                Some((Fate::Ignored, _)) => self.out.ignored.push(key.text.clone()),
                Some((Fate::Refused, help)) if says_something(value) => self.refuse(key, help),
                Some((Fate::Refused, _)) => {}
                Some((Fate::Expressed, _)) if value.is_empty() && key.text != "build" => {}
                Some((Fate::Expressed, _)) => self.expressed(key, value),
            }
        }
        self.environment(service);
        self.networks(service);
        self.limits(service);
    }

    fn expressed(&mut self, key: &Word, value: &Node) {
        match key.text.as_str() {
            "image" => {
                let text = value.text().unwrap_or_default().to_owned();
                self.out.image = Some((text, value.span.clone()));
            }
            "build" => self.out.built = Some(key.span.clone()),
            "read_only" | "privileged" | "init" => match value.text().and_then(flag) {
                Some(on) => self.put(&key.text, DeValue::Boolean(on), value.span.clone()),
                None => self.wrong(
                    &place(key, value),
                    "this is no flag",
                    "write `true` or `false`",
                ),
            },
            "network_mode" | "user" | "pid" | "ipc" | "userns_mode" | "cgroup_parent"
            | "runtime" => match value.text() {
                Some(text) => self.text(&key.text, text, value.span.clone()),
                None => self.wrong(
                    &key.span,
                    format!("`{}` has to be a text", key.text),
                    "write one text",
                ),
            },
            "cap_add" | "cap_drop" | "security_opt" | "group_add" | "dns" => self.texts(key, value),
            "tmpfs" => self.scratch(key, value),
            "shm_size" => self.bytes("shm_size", key, value),
            "volumes" => self.volumes(key, value),
            "secrets" | "configs" => self.files(key, value),
            "extra_hosts" => self.extra_hosts(key, value),
            "cpuset" => self.out.options.cpuset = value.text().map(str::to_owned),
            "ulimits" => {
                for (name, bound) in value.entries().unwrap_or_default() {
                    let read = ulimit(&name.text, bound);
                    self.keep(&name.span, read, |options, bound| {
                        options.ulimits.push(bound)
                    });
                }
            }
            "devices" => {
                for item in value.items().unwrap_or_default() {
                    let at = place(key, item);
                    let read = device(item);
                    if let Ok((source, ..)) = &read
                        && !is_harmless_device(source)
                    {
                        self.untried(&at, source);
                    }
                    self.keep(&at, read, |options, one| options.devices.push(one));
                }
            }
            "device_cgroup_rules" => {
                for item in value.items().unwrap_or_default() {
                    let rule = item.text().unwrap_or_default().trim();
                    // Of disks, or of everything.
                    if !rule.starts_with('c') {
                        self.untried(&place(key, item), rule);
                    }
                    self.out.options.device_rules.push(rule.to_owned());
                }
            }
            "sysctls" => self.out.options.sysctls = pairs(value),
            "storage_opt" => self.out.options.storage = pairs(value),
            // Read together, after the loop; `extends` has been followed.
            _ => {}
        }
    }

    fn extra_hosts(&mut self, key: &Word, value: &Node) {
        let mut hosts = Vec::new();
        match value.entries() {
            Some(entries) => {
                for (name, addresses) in entries {
                    let items = addresses.items().unwrap_or_default();
                    let lines = items.iter().filter_map(|item| item.text());
                    hosts
                        .extend(lines.map(|address| {
                            (format!("{}:{address}", name.text), name.span.clone())
                        }));
                }
            }
            None => {
                let items = value.items().unwrap_or_default().into_iter();
                let texts =
                    items.filter_map(|item| Some((item.text()?.to_owned(), place(key, item))));
                hosts.extend(texts);
            }
        }
        self.more_texts("extra_hosts", hosts);
    }

    pub(super) fn bytes(&mut self, name: &'static str, key: &Word, value: &Node) {
        match value.text().and_then(size) {
            Some(0) => {}
            Some(bytes) => self.number(name, &bytes.to_string(), value.span.clone()),
            None => self.wrong(
                &place(key, value),
                "this is no size",
                "write a size such as `64m`",
            ),
        }
    }

    pub(super) fn texts(&mut self, key: &Word, value: &Node) {
        let Some(items) = value.items() else {
            return self.wrong(
                &key.span,
                format!("`{}` has to be a list", key.text),
                "write a list of texts",
            );
        };
        let mut texts = Vec::new();
        for item in items {
            match item.text() {
                Some(text) => texts.push((text.to_owned(), item.span.clone())),
                None => self.wrong(
                    &place(key, item),
                    "this has to be a text",
                    "write a list of texts",
                ),
            }
        }
        self.more_texts(&key.text.clone(), texts);
    }

    /// Adds to a list that may be there.
    pub(super) fn more_texts(&mut self, name: &str, texts: Vec<(String, Range<usize>)>) {
        let Some((_, first)) = texts.first() else {
            return;
        };
        let span = first.clone();
        let mut list = match self.out.table.remove(name).map(Spanned::into_inner) {
            Some(DeValue::Array(list)) => list,
            _ => Default::default(),
        };
        for (text, span) in texts {
            list.push(Spanned::new(span, DeValue::String(text.into())));
        }
        self.put(name, DeValue::Array(list), span);
    }

    pub(super) fn text(&mut self, name: &str, text: &str, span: Range<usize>) {
        self.put(name, DeValue::String(text.to_owned().into()), span);
    }

    pub(super) fn number(&mut self, name: &'static str, number: &str, span: Range<usize>) {
        self.out.numbers.push((name, number.to_owned(), span));
    }

    pub(super) fn put(&mut self, name: &str, value: DeValue<'static>, span: Range<usize>) {
        let key = Spanned::new(span.clone(), name.to_owned().into());
        self.out.table.insert(key, Spanned::new(span, value));
    }

    pub(super) fn keep<T>(
        &mut self,
        at: &Range<usize>,
        read: Result<T, Wrong>,
        keep: impl FnOnce(&mut EngineOptions, T),
    ) {
        match read {
            Ok(value) => keep(&mut self.out.options, value),
            Err((message, help)) => self.wrong(at, message, help),
        }
    }

    pub(super) fn refuse(&mut self, key: &Word, help: &str) {
        let message = format!("this version cannot audit a service with `{}`", key.text);
        self.reader
            .report(Code::NotExpressible, key.span.clone(), message, help);
    }

    /// Devices of the host that no case tries: all would be BLOCKED around an open disk.
    fn untried(&mut self, at: &Range<usize>, which: &str) {
        let message = format!("no case tries what a sandbox can do with `{which}`");
        let help = "a disk or the memory of the host is the host: leave it out of what is deployed, or out of what is audited";
        self.reader
            .report(Code::NotExpressible, at.clone(), message, help);
    }

    pub(super) fn contradiction(
        &mut self,
        at: &Range<usize>,
        message: impl Into<String>,
        help: &str,
    ) {
        self.reader
            .report(Code::Contradiction, at.clone(), message, help);
    }

    pub(super) fn wrong(&mut self, at: &Range<usize>, message: impl Into<String>, help: &str) {
        self.reader
            .report(Code::WrongValue, at.clone(), message, help);
    }
}

impl Converted {
    /// The whole table, numbers among them.
    pub fn whole(&self) -> DeTable<'_> {
        let mut table: DeTable<'_> = self.table.clone();
        for (key, number, span) in &self.numbers {
            // It was read before, so it is a number in TOML, too.
            if let Ok(value) = DeValue::parse(number) {
                let key = Spanned::new(span.clone(), (*key).into());
                table.insert(key, Spanned::new(span.clone(), value.into_inner()));
            }
        }
        table
    }
}

/// A refused key that is switched off asks for nothing.
pub(super) fn says_something(value: &Node) -> bool {
    !value.is_empty() && value.text().and_then(flag) != Some(false)
}

/// Where a mistake about a value is shown: of a list or a mapping its key.
pub(super) fn place(key: &Word, value: &Node) -> Range<usize> {
    match value.text() {
        Some(_) => value.span.clone(),
        None => key.span.clone(),
    }
}

pub(super) fn pairs(node: &Node) -> BTreeMap<String, String> {
    let node = mapping(node.clone());
    let entries = node.entries().unwrap_or_default().iter();
    entries
        .map(|(name, value)| {
            (
                name.text.clone(),
                value.text().unwrap_or_default().to_owned(),
            )
        })
        .collect()
}
