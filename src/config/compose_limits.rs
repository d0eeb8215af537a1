//! The ceilings of a Compose service, which have an old place and a new one.

use super::compose_forms::size;
use super::compose_table::Converter;
use super::compose_yaml::Node;
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

impl Converter<'_, '_, '_> {
    /// Ceilings, which have an old and a new place; one that is zero is none.
    pub(super) fn limits(&mut self, service: &Node) {
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
}
