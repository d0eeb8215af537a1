//! A whole Compose service → the table that the project file would hold for it, each value at its place in the Compose file.
//!
//! So there is one reader of settings, with one set of mistakes, whichever file they stand in. What no project file can say
//! goes straight into [`EngineOptions`].

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::compose::is_name;
use super::compose_forms::{Mount, Wrong, device, flag, mount, size, ulimit};
use super::compose_keys::{Fate, SERVICE, fate};
use super::compose_service::{File, fill, mapping};
use super::compose_variables::Variables;
use super::compose_yaml::{Node, Value, Word};
use super::model::EngineOptions;
use crate::diag::schema::Reader;
use crate::diag::{Code, suggest};

/// What may stand below `deploy`.
const DEPLOY: [&str; 9] = [
    "endpoint_mode",
    "labels",
    "mode",
    "placement",
    "replicas",
    "resources",
    "restart_policy",
    "rollback_config",
    "update_config",
];

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
                    self.keep(&place(key, item), device(item), |options, one| {
                        options.devices.push(one)
                    });
                }
            }
            "device_cgroup_rules" => {
                let items = value.items().unwrap_or_default();
                let rules = items.iter().filter_map(|item| item.text());
                self.out.options.device_rules = rules.map(str::to_owned).collect();
            }
            "sysctls" => self.out.options.sysctls = pairs(value),
            "storage_opt" => self.out.options.storage = pairs(value),
            // Read together, after the loop; `extends` has been followed.
            _ => {}
        }
    }

    /// `NAME: VALUE` of the environment, those of files first.
    fn environment(&mut self, service: &Node) {
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
                Err(_) if !required => continue,
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
                        "Compose would not start without it either",
                    );
                }
            }
        }
        found
    }

    fn volumes(&mut self, key: &Word, value: &Node) {
        let (mut volumes, mut scratch) = (Vec::new(), Vec::new());
        for item in value.items().unwrap_or_default() {
            let at = place(key, item);
            match mount(item) {
                Ok(Mount::Tmpfs(text)) => scratch.push((text, at)),
                Ok(Mount::Volume {
                    source,
                    target,
                    read_only,
                }) => {
                    let source = source.map(|source| self.source(&source, &at));
                    let source = match source {
                        Some(None) => continue,
                        Some(Some(source)) => format!("{source}:"),
                        None => String::new(),
                    };
                    let ending = match (read_only, source.is_empty()) {
                        (false, _) => "",
                        (true, false) => ":ro",
                        (true, true) => {
                            self.wrong(
                                &at,
                                "an anonymous volume that is read-only",
                                "leave it out",
                            );
                            continue;
                        }
                    };
                    volumes.push((format!("{source}{target}{ending}"), at));
                }
                Err((message, help)) => self.wrong(&at, message, help),
            }
        }
        self.more_texts("volumes", volumes);
        self.more_texts("tmpfs", scratch);
    }

    /// A path of the host's, or a volume by the name that the engine has for it.
    fn source(&mut self, source: &str, at: &Range<usize>) -> Option<String> {
        let home = || (self.file.around.variable)("HOME");
        let path = match source.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                home().map(|home| home + rest)
            }
            _ => None,
        };
        let path = path.unwrap_or_else(|| source.to_owned());
        if path.starts_with(['/', '.']) {
            let whole = self.file.folder().join(&path);
            let whole = whole.to_string_lossy().into_owned();
            if whole.contains(':') {
                self.wrong(
                    at,
                    "a path with a colon in it cannot be mounted here",
                    "rename the folder",
                );
                return None;
            }
            return Some(whole);
        }
        self.named("volumes", source, at)
    }

    /// The engine's own name of a volume or network of the file.
    fn named(&mut self, kind: &'static str, name: &str, at: &Range<usize>) -> Option<String> {
        let defined = self
            .file
            .tree
            .get(kind)
            .and_then(|all| all.get(name))
            .cloned();
        let Some(mut node) = defined else {
            let help = "define it at the top level, as Compose wants it";
            self.wrong(at, format!("`{name}` is not defined below `{kind}`"), help);
            return None;
        };
        fill(self.reader, &mut node, self.variables);
        let drives = |key: &str| {
            let driver = node.get(key).filter(|said| !said.is_empty())?;
            (driver.text() != Some("local")).then_some(())
        };
        if kind == "volumes" && (drives("driver").is_some() || drives("driver_opts").is_some()) {
            let message = format!("the volume `{name}` has a driver or options of its own");
            let help = "mount the folder that it stands for, or make the volume first and call it `external: true` without them";
            self.wrong(at, message, help);
            return None;
        }
        let said = node.get("name").and_then(Node::text);
        // The old form had the name below `external`.
        let external = node.get("external").filter(|said| !said.is_empty());
        let old = external
            .and_then(|said| said.get("name"))
            .and_then(Node::text);
        let outside = external.is_some_and(|said| said.text().and_then(flag) != Some(false));
        let real = match said.or(old) {
            Some(said) => said.to_owned(),
            None if outside => name.to_owned(),
            None => format!("{}_{name}", self.project),
        };
        if !is_name(&real) {
            self.wrong(
                at,
                format!("`{real}` cannot be a name of the engine's"),
                "correct `name`",
            );
            return None;
        }
        Some(real)
    }

    fn networks(&mut self, service: &Node) {
        let mode = service.get("network_mode").filter(|said| !said.is_empty());
        let own = service.get("networks").filter(|said| !said.is_empty());
        if let (Some(mode), Some(_)) = (mode, own) {
            let message = "`network_mode` and `networks` contradict each other";
            return self.contradiction(&mode.span, message, "keep one of them");
        }
        if mode.is_some() {
            return;
        }
        let all = own.cloned().map(mapping);
        let entries = all.as_ref().and_then(Node::entries).unwrap_or_default();
        let (name, at) = match entries {
            [] => ("default", service.span.clone()),
            [(word, options)] => {
                if options
                    .get("driver_opts")
                    .is_some_and(|said| !said.is_empty())
                {
                    let help = "write them where the network is defined";
                    return self.wrong(
                        &word.span,
                        "this network has options of the service's",
                        help,
                    );
                }
                (word.text.as_str(), word.span.clone())
            }
            [.., (word, _)] => {
                let message = format!(
                    "the service is in {} networks, and this version puts a container in one",
                    entries.len()
                );
                let help = "audit it once a network: a service a network that `extends` this one";
                return self.wrong(&word.span, message, help);
            }
        };
        let defined = self.file.tree.get("networks").and_then(|all| all.get(name));
        if name == "default" && defined.is_none_or(Node::is_empty) {
            self.out.default_network = true;
            return self.text("network_mode", "bridge", at);
        }
        if let Some(real) = self.named("networks", name, &at) {
            self.text("network_mode", &real, at);
        }
    }

    /// Ceilings, which have an old and a new place; one that is zero is none.
    fn limits(&mut self, service: &Node) {
        let deploy = service.get("deploy").filter(|said| !said.is_empty());
        let resources = deploy.and_then(|deploy| deploy.get("resources"));
        let limits = resources.and_then(|all| all.get("limits"));
        // A ceiling below a mistyped key would be none.
        self.known(deploy, &DEPLOY);
        self.known(resources, &["limits", "reservations"]);
        for (word, value) in limits.and_then(Node::entries).unwrap_or_default() {
            let known = matches!(word.text.as_str(), "cpus" | "memory" | "pids");
            if !known && !value.is_empty() {
                self.refuse(
                    word,
                    "`cpus`, `memory` and `pids` are the limits that are given here",
                );
            }
        }
        let reserved = resources.and_then(|all| all.get("reservations"));
        for (word, value) in reserved.and_then(Node::entries).unwrap_or_default() {
            let wish = matches!(word.text.as_str(), "cpus" | "memory");
            if !wish && !value.is_empty() {
                self.refuse(
                    word,
                    "this version gives no devices of that kind: leave it out of what is audited",
                );
            }
        }
        for (key, new) in [
            ("mem_limit", "memory"),
            ("cpus", "cpus"),
            ("pids_limit", "pids"),
        ] {
            let old = service.get(key).filter(|said| !said.is_empty());
            let new = limits
                .and_then(|all| all.get(new))
                .filter(|said| !said.is_empty());
            if let (Some(old), Some(new)) = (old, new)
                && old.text() != new.text()
            {
                let message = format!("`{key}` and `deploy.resources.limits` say different things");
                self.contradiction(&old.span, message, "keep one of them, as Compose wants it");
                continue;
            }
            if let Some(value) = old.or(new) {
                self.limit(key, value);
            }
        }
        if let Some(value) = service.get("memswap_limit").filter(|said| !said.is_empty()) {
            self.limit("memswap_limit", value);
        }
        self.quota(service);
    }

    fn known(&mut self, node: Option<&Node>, names: &[&str]) {
        for (word, _) in node.and_then(Node::entries).unwrap_or_default() {
            if !names.contains(&word.text.as_str()) && !word.text.starts_with("x-") {
                let message = format!("Compose has no key `{}` here", word.text);
                let help = suggest(&word.text, names);
                self.reader
                    .report(Code::UnknownKey, word.span.clone(), message, help);
            }
        }
    }

    /// Scratch mounts; that they can be written need not be said.
    fn scratch(&mut self, key: &Word, value: &Node) {
        let mut value = value.clone();
        let without = |item: &mut Node| {
            if let Value::Scalar { text, .. } = &mut item.value
                && let Some((path, options)) = text.split_once(':')
            {
                let kept: Vec<&str> = options.split(',').filter(|o| *o != "rw").collect();
                *text = format!("{path}:{}", kept.join(","));
            }
        };
        match &mut value.value {
            Value::List(items) => items.iter_mut().for_each(without),
            _ => without(&mut value),
        }
        self.texts(key, &value);
    }

    fn limit(&mut self, key: &'static str, value: &Node) {
        let text = value.text().unwrap_or_default().trim();
        let read = match key {
            "cpus" => text
                .parse::<f64>()
                .ok()
                .filter(|n| n.is_finite() && *n >= 0.0)
                .map(|n| n.to_string()),
            "pids_limit" => text.parse::<i64>().ok().map(|n| n.max(0).to_string()),
            "memswap_limit" if text == "-1" => Some("-1".to_owned()),
            _ => size(text).map(|bytes| bytes.to_string()),
        };
        match read.as_deref() {
            Some("0") => {}
            Some(number) => self.number(key, number, value.span.clone()),
            None => {
                let message = format!("`{text}` is not a valid value for `{key}`");
                self.wrong(
                    &value.span,
                    message,
                    "write a number, or a size such as `256m`",
                );
            }
        }
    }

    /// `cpu_quota` of a `cpu_period`, which is 100 ms where nothing is said.
    fn quota(&mut self, service: &Node) {
        let Some(quota) = service.get("cpu_quota").filter(|said| !said.is_empty()) else {
            return;
        };
        // Microseconds; a text with a unit is of newer versions.
        let number = |node: &Node| node.text().and_then(|text| text.parse::<f64>().ok());
        let period = service.get("cpu_period").filter(|said| !said.is_empty());
        let period = period
            .map_or(Some(100_000.0), number)
            .filter(|period| *period > 0.0);
        match (number(quota), period) {
            (Some(quota), _) if quota <= 0.0 => {}
            (Some(_), Some(_)) if self.out.numbers.iter().any(|(key, ..)| *key == "cpus") => {
                let message = "`cpus` and `cpu_quota` contradict each other";
                self.contradiction(&quota.span, message, "keep `cpus`");
            }
            (Some(share), Some(period)) => {
                let cpus = (share / period).to_string();
                self.number("cpus", &cpus, quota.span.clone());
            }
            _ => self.wrong(
                &quota.span,
                "this is no number of microseconds",
                "write `cpus` instead",
            ),
        }
    }

    /// Secrets and configs are files that Compose mounts, read-only.
    fn files(&mut self, key: &Word, value: &Node) {
        let folder = if key.text == "secrets" {
            "/run/secrets/"
        } else {
            "/"
        };
        let mut mounts = Vec::new();
        for item in value.items().unwrap_or_default() {
            let at = place(key, item);
            let name = item
                .get("source")
                .unwrap_or(item)
                .text()
                .unwrap_or_default();
            let kind = if key.text == "secrets" {
                "secrets"
            } else {
                "configs"
            };
            let defined = self
                .file
                .tree
                .get(kind)
                .and_then(|all| all.get(name))
                .cloned();
            let Some(mut defined) = defined else {
                let help = "define it at the top level, as Compose wants it";
                self.wrong(&at, format!("`{name}` is not defined below `{kind}`"), help);
                continue;
            };
            fill(self.reader, &mut defined, self.variables);
            let Some(file) = defined.get("file").and_then(Node::text) else {
                let help = "this version mounts those that are a `file`: write one, or leave it out of what is audited";
                self.wrong(&at, format!("`{name}` is no file"), help);
                continue;
            };
            let target = item.get("target").and_then(Node::text).unwrap_or(name);
            let target = match target.starts_with('/') {
                true => target.to_owned(),
                false => format!("{folder}{target}"),
            };
            let path = self.file.folder().join(file);
            let path = path.to_string_lossy().into_owned();
            if path.contains(':') || target.contains(':') {
                self.wrong(
                    &at,
                    "a path with a colon in it cannot be mounted here",
                    "rename it",
                );
                continue;
            }
            mounts.push((format!("{path}:{target}:ro"), at));
        }
        self.more_texts("volumes", mounts);
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

    fn bytes(&mut self, name: &'static str, key: &Word, value: &Node) {
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

    fn texts(&mut self, key: &Word, value: &Node) {
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
    fn more_texts(&mut self, name: &str, texts: Vec<(String, Range<usize>)>) {
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

    fn text(&mut self, name: &str, text: &str, span: Range<usize>) {
        self.put(name, DeValue::String(text.to_owned().into()), span);
    }

    fn number(&mut self, name: &'static str, number: &str, span: Range<usize>) {
        self.out.numbers.push((name, number.to_owned(), span));
    }

    fn put(&mut self, name: &str, value: DeValue<'static>, span: Range<usize>) {
        let key = Spanned::new(span.clone(), name.to_owned().into());
        self.out.table.insert(key, Spanned::new(span, value));
    }

    fn keep<T>(
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

    fn refuse(&mut self, key: &Word, help: &str) {
        let message = format!("this version cannot audit a service with `{}`", key.text);
        self.reader
            .report(Code::NotExpressible, key.span.clone(), message, help);
    }

    fn contradiction(&mut self, at: &Range<usize>, message: impl Into<String>, help: &str) {
        self.reader
            .report(Code::Contradiction, at.clone(), message, help);
    }

    fn wrong(&mut self, at: &Range<usize>, message: impl Into<String>, help: &str) {
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
fn says_something(value: &Node) -> bool {
    !value.is_empty() && value.text().and_then(flag) != Some(false)
}

/// Where a mistake about a value is shown: of a list or a mapping its key.
fn place(key: &Word, value: &Node) -> Range<usize> {
    match value.text() {
        Some(_) => value.span.clone(),
        None => key.span.clone(),
    }
}

fn pairs(node: &Node) -> BTreeMap<String, String> {
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
