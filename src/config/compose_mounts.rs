//! What is mounted into a Compose service: volumes, scratch space, secrets and configs.

use std::ops::Range;

use super::compose_forms::{Mount, mount};
use super::compose_service::fill;
use super::compose_table::{Converter, place};
use super::compose_yaml::{Node, Value, Word};

impl Converter<'_, '_, '_> {
    pub(super) fn volumes(&mut self, key: &Word, value: &Node) {
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

    /// Scratch mounts; that they can be written need not be said.
    pub(super) fn scratch(&mut self, key: &Word, value: &Node) {
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

    /// Secrets and configs are files that Compose mounts, read-only.
    pub(super) fn files(&mut self, key: &Word, value: &Node) {
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
}
