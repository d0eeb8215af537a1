//! The network of a Compose service, and the names that an engine has for what a project defines.

use std::ops::Range;

use super::compose::is_name;
use super::compose_forms::flag;
use super::compose_service::{fill, mapping};
use super::compose_table::Converter;
use super::compose_yaml::Node;
use crate::diag::Code;

impl Converter<'_, '_, '_> {
    pub(super) fn networks(&mut self, service: &Node) {
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
                for (key, value) in options.entries().unwrap_or_default() {
                    let plain = matches!(key.text.as_str(), "aliases" | "priority");
                    if !plain && !key.text.starts_with("x-") && !value.is_empty() {
                        let message = format!(
                            "this version cannot give a container `{}` in its network",
                            key.text
                        );
                        let help =
                            "leave it out of what is audited: the rules of a firewall may go by it";
                        self.reader
                            .report(Code::NotExpressible, key.span.clone(), message, help);
                    }
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

    /// The engine's own name of a volume or network of the file.
    pub(super) fn named(
        &mut self,
        kind: &'static str,
        name: &str,
        at: &Range<usize>,
    ) -> Option<String> {
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
}
