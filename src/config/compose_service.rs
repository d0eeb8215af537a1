//! A service of a Compose file, whole: found, its bases merged in, its variables filled in.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::compose_variables::Variables;
use super::compose_yaml::{self, Node, Value, Word};
use crate::diag::schema::Reader;
use crate::diag::{Code, Diagnostic, Source, suggest};

/// The names that Compose looks for, the first one first.
pub const FILES: [&str; 4] = [
    "compose.yaml",
    "compose.yml",
    "docker-compose.yml",
    "docker-compose.yaml",
];

/// What it merges into any of them without being told.
const OVERRIDES: [&str; 4] = [
    "compose.override.yml",
    "compose.override.yaml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
];

/// The variables by which Compose is told to read other files than those.
const ELSEWHERE: [&str; 2] = ["COMPOSE_FILE", "COMPOSE_ENV_FILES"];

/// The variable by which Compose is told not to read `.env`.
const WITHOUT_FILE: &str = "COMPOSE_DISABLE_ENV_FILE";

/// What is read besides the project file, so that a test can stand in for the machine.
pub struct Surroundings<'a> {
    /// A file's text.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The folder that relative paths are below, where the file's own has none.
    pub here: PathBuf,
}

/// Why a Compose file was not read.
#[derive(Debug)]
pub enum Unread {
    /// There is none, or none for this user.
    Not(io::Error),
    /// It is no YAML.
    Wrong(Box<Diagnostic>),
}

/// A Compose file that was read.
pub struct File<'a> {
    /// Its text.
    pub source: Source,
    /// Its tree, as written.
    pub tree: Node,
    /// Where everything else is read.
    pub around: &'a Surroundings<'a>,
}

impl<'a> File<'a> {
    /// Reads a Compose file.
    pub fn read(path: &Path, around: &'a Surroundings<'a>) -> Result<Self, Unread> {
        let text = (around.read)(path).map_err(Unread::Not)?;
        Self::of(Source::new(path, &text), around).map_err(Unread::Wrong)
    }

    /// The file of this text.
    pub fn of(source: Source, around: &'a Surroundings<'a>) -> Result<Self, Box<Diagnostic>> {
        let tree = compose_yaml::parse(&source)?;
        Ok(Self {
            source,
            tree,
            around,
        })
    }

    /// The file's own folder.
    pub fn folder(&self) -> PathBuf {
        let below = self.source.path.parent().unwrap_or(Path::new(""));
        self.around.here.join(below)
    }

    /// The services, in the order of the file.
    pub fn services(&self) -> &[(Word, Node)] {
        let services = self.tree.get("services").and_then(Node::entries);
        services.unwrap_or_default()
    }

    /// The file beside this one that Compose would merge in without being told. One that cannot be read is there.
    pub fn override_beside(&self) -> Option<&'static str> {
        let name = self.source.path.file_name()?.to_str()?;
        if !FILES.contains(&name) {
            return None;
        }
        let there = |other: &&str| {
            let read = (self.around.read)(&self.folder().join(other));
            !read.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        OVERRIDES.into_iter().find(there)
    }

    /// The variables that the file may name.
    pub fn variables(&self, reader: &mut Reader<'_>) -> Variables<'a> {
        let mut variables = Variables {
            own: self.around.variable,
            file: Vec::new(),
            unset: BTreeSet::new(),
        };
        let read = match says_yes((self.around.variable)(WITHOUT_FILE)) {
            true => Ok(String::new()),
            false => (self.around.read)(&self.folder().join(".env")),
        };
        let read = match read {
            Ok(text) => variables.read_file(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(all) => variables.file = all,
            Err(why) => {
                let message = format!("the file `.env` beside this one cannot be read: {why}");
                let help =
                    "Compose reads it too: correct it, save it as UTF-8, and let this user read it";
                reader.report(Code::WrongValue, 0..0, message, help);
            }
        }
        for name in ELSEWHERE {
            if variables.get(name).is_some_and(|value| !value.is_empty()) {
                let message = format!("`{name}` is set, and Compose would read other files");
                let help = "take it out of the environment and of `.env`, or audit the output of `docker compose config` in a folder of its own";
                reader.report(Code::NotExpressible, 0..0, message, help);
            }
        }
        variables
    }

    /// The service of this name with what it extends, its variables filled in.
    pub fn service(
        &self,
        reader: &mut Reader<'_>,
        name: &str,
        variables: &mut Variables<'_>,
    ) -> Option<(Word, Node)> {
        let (word, node) = self.services().iter().find(|(word, _)| word.text == name)?;
        let mut node = node.clone();
        fill(reader, &mut node, variables);
        let mut seen = vec![name.to_owned()];
        while let Some(base) = self.base(reader, &mut node, variables, &mut seen) {
            node = merged(base, node, merged_values);
        }
        Some((word.clone(), node))
    }

    /// What a service extends, taken out of it.
    fn base(
        &self,
        reader: &mut Reader<'_>,
        node: &mut Node,
        variables: &mut Variables<'_>,
        seen: &mut Vec<String>,
    ) -> Option<Node> {
        let Value::Map(entries) = &mut node.value else {
            return None;
        };
        let at = entries
            .iter()
            .position(|(word, _)| word.text == "extends")?;
        let (word, extends) = entries.remove(at);
        if extends.get("file").is_some_and(|file| !file.is_empty()) {
            let help = "only services of the same file are followed: name what `docker compose config` prints";
            let message = "`extends` leads into another file";
            reader.report(Code::NotExpressible, word.span, message, help);
            return None;
        }
        let service = extends.get("service").unwrap_or(&extends);
        let name = service.text().unwrap_or_default();
        let names: Vec<&str> = self
            .services()
            .iter()
            .map(|(w, _)| w.text.as_str())
            .collect();
        let Some((_, base)) = self.services().iter().find(|(w, _)| w.text == name) else {
            let message = format!("there is no service `{name}` to extend");
            reader.report(
                Code::WrongValue,
                service.span.clone(),
                message,
                suggest(name, &names),
            );
            return None;
        };
        if seen.iter().any(|there| there == name) {
            let message = format!("`{name}` extends itself in the end");
            let help = "take one of the `extends` away";
            reader.report(Code::Contradiction, service.span.clone(), message, help);
            return None;
        }
        seen.push(name.to_owned());
        let mut base = base.clone();
        fill(reader, &mut base, variables);
        Some(base)
    }
}

/// The words that Compose takes in its own variables.
fn says_yes(value: Option<String>) -> bool {
    value.is_some_and(|value| matches!(value.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// That there is no such service, at the place where the services stand.
pub fn no_such_service(file: &File<'_>, name: &str) -> (String, String) {
    let names: Vec<&str> = file
        .services()
        .iter()
        .map(|(w, _)| w.text.as_str())
        .collect();
    let path = file.source.path.display();
    let message = format!("there is no service `{name}` in `{path}`");
    (message, suggest(name, &names))
}

/// Fills the variables in, everywhere below. Keys are taken as they are.
pub fn fill(reader: &mut Reader<'_>, node: &mut Node, variables: &mut Variables<'_>) {
    match &mut node.value {
        Value::Null => {}
        Value::Scalar { text, .. } if !text.contains('$') => {}
        Value::Scalar { text, .. } => match variables.fill(text) {
            Ok(filled) => *text = filled,
            Err(why) => {
                let help = "Compose fills in `$NAME`, `${NAME}`, `${NAME:-default}`; `$$` is the sign itself";
                reader.report(Code::WrongValue, node.span.clone(), why, help);
            }
        },
        Value::List(items) => {
            for item in items {
                fill(reader, item, variables);
            }
        }
        Value::Map(entries) => {
            for (_, value) in entries {
                fill(reader, value, variables);
            }
        }
    }
}

/// These stand as a list of `NAME=VALUE` or as a mapping, and are merged name by name.
const PAIRS: [&str; 5] = [
    "annotations",
    "environment",
    "extra_hosts",
    "labels",
    "sysctls",
];

/// A base with what is said over it, as Compose merges them: mappings key by key, lists one after the other, the rest
/// replaced. `both` makes one of two values of a key.
fn merged(base: Node, over: Node, both: fn(&str, Node, Node) -> Node) -> Node {
    let Value::Map(mut entries) = base.value else {
        return over;
    };
    let Value::Map(more) = over.value else {
        return Node {
            value: Value::Map(entries),
            ..over
        };
    };
    for (word, value) in more {
        match entries
            .iter_mut()
            .find(|(there, _)| there.text == word.text)
        {
            Some((there, old)) => {
                let value = both(&word.text, old.clone(), value);
                (*there, *old) = (word, value);
            }
            None => entries.push((word, value)),
        }
    }
    Node {
        span: over.span,
        value: Value::Map(entries),
    }
}

fn merged_values(key: &str, base: Node, over: Node) -> Node {
    if matches!(key, "command" | "entrypoint" | "test") {
        return over;
    }
    // What is left empty says nothing.
    if over.value == Value::Null {
        return base;
    }
    match key {
        // A name without a value is passed on from where Compose runs, whatever the base says of it; a bound that is
        // left empty is none.
        _ if PAIRS.contains(&key) || key == "ulimits" => {
            return merged(mapping(base), mapping(over), |_, _, over| over);
        }
        "networks" => return merged(mapping(base), mapping(over), merged_values),
        "dns" | "env_file" | "tmpfs" => return lists(key, &base, &over),
        _ => {}
    }
    match (&base.value, &over.value) {
        (Value::Map(_), Value::Map(_)) => merged(base, over, merged_values),
        (Value::List(_), Value::List(_) | Value::Scalar { .. })
        | (Value::Scalar { .. }, Value::List(_)) => lists(key, &base, &over),
        _ => over,
    }
}

/// One list after the other, nothing twice; of mounts at one place, the later counts.
fn lists(key: &str, base: &Node, over: &Node) -> Node {
    let own = |node: &Node| -> Vec<Node> {
        let items = node.items().unwrap_or_else(|| vec![node]);
        items.into_iter().cloned().collect()
    };
    let (mut all, more) = (own(base), own(over));
    all.retain(|old| {
        !more.iter().any(|new| match key {
            "volumes" | "devices" | "tmpfs" => place(new, key) == place(old, key),
            _ => new.value == old.value,
        })
    });
    all.extend(more);
    Node {
        span: over.span.clone(),
        value: Value::List(all),
    }
}

/// Where a mount appears.
fn place(node: &Node, key: &str) -> String {
    if let Some(target) = node.get("target").and_then(Node::text) {
        return target.to_owned();
    }
    let text = node.text().unwrap_or_default();
    let mut parts = text.split(':');
    match (key, parts.next(), parts.next()) {
        ("tmpfs", Some(path), _) | (_, Some(path), None) => path.to_owned(),
        (_, _, Some(target)) => target.to_owned(),
        _ => text.to_owned(),
    }
}

/// A list of `NAME=VALUE` or of names as the mapping that it means.
pub fn mapping(node: Node) -> Node {
    let Value::List(items) = node.value else {
        return node;
    };
    let mut entries: Vec<(Word, Node)> = Vec::new();
    for item in items {
        let text = item.text().unwrap_or_default().to_owned();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), item.says(value)),
            None => (
                text,
                Node {
                    span: item.span.clone(),
                    value: Value::Null,
                },
            ),
        };
        let word = Word {
            text: name,
            span: item.span,
        };
        entries.retain(|(there, _)| there.text != word.text);
        entries.push((word, value));
    }
    Node {
        span: node.span,
        value: Value::Map(entries),
    }
}
