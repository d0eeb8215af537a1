//! What the terminal can show, and how errors are told on it.

use std::io::IsTerminal;

use crate::report::style::Style;
use crate::safe_text::SafeText;

/// How to write to a stream: `NO_COLOR` over `CLICOLOR_FORCE` over whether it is a terminal.
pub fn style(stream: &impl IsTerminal) -> Style {
    let set =
        |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    let terminal = stream.is_terminal();
    let utf8 = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty())
        .is_some_and(|value| value.to_ascii_lowercase().replace('-', "").contains("utf8"));
    let color = if set("NO_COLOR") {
        false
    } else {
        set("CLICOLOR_FORCE")
            || (terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb"))
    };
    Style {
        color,
        unicode: utf8,
        width: Style::default().width,
    }
}

/// An error with its causes, and its `help:` lines last.
pub fn complaint(error: &anyhow::Error) -> String {
    if let Some(found) = error.downcast_ref::<crate::diag::Diagnostics>() {
        return found.render(style(&std::io::stderr()).color);
    }
    let text = error
        .chain()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ");
    format!("error: {}\n", SafeText::block(text.as_bytes()))
}
