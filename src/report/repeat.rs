//! The command that makes one trial once more, as a reader pastes it into a shell.

use std::path::Path;

use super::{SandboxReport, Trial};
use crate::config::{BackendKind, QUICK_COMMAND};

/// `escape-audit run --config FILE --sandbox NAME … --case ID`, or with the launcher after `--`. Every word is quoted
/// where a shell would read it otherwise; it is text of strangers all the same, and goes through `SafeText` to be shown.
pub fn command(trial: &Trial, sandbox: &SandboxReport) -> String {
    let case = &trial.source;
    let mut words = vec!["escape-audit".to_owned(), "run".to_owned()];
    words.extend(sandbox.repeat.iter().map(|word| quoted(word)));
    let mut option = |name: &str, value: &str| words.extend([name.to_owned(), quoted(value)]);
    let embedded = Path::new("escapes").join(format!("{}.toml", case.id));
    if case.source != embedded
        && let Some(folder) = case.source.parent().and_then(Path::parent)
    {
        // Cases that lie in the working directory itself.
        let folder = folder.to_string_lossy();
        option("--cases", if folder.is_empty() { "." } else { &folder });
    }
    option("--case", &case.id);
    // A launcher that the command line gave has no name to call it by.
    let sandbox = &sandbox.sandbox;
    if sandbox.backend == BackendKind::Command && sandbox.name == QUICK_COMMAND {
        words.push("--".into());
        words.extend(sandbox.command.iter().map(|word| quoted(word)));
    }
    words.join(" ")
}

/// As a shell reads it as one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:=@%{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::verdict::Verdict;

    #[test]
    fn it_names_all_that_the_first_run_was_given() {
        let mut sandbox = sample::sandbox("the agent's");
        let words = ["--config", "ci/my audit.toml", "--sandbox", "the agent's"];
        sandbox.repeat = words.map(String::from).to_vec();
        let mut trial = sample::trial("the agent's", "acme/vault", Verdict::Escaped);
        trial.source.source = "acme/vault.toml".into();
        assert_eq!(
            command(&trial, &sandbox),
            r"escape-audit run --config 'ci/my audit.toml' --sandbox 'the agent'\''s' --cases . --case acme/vault"
        );
    }

    #[test]
    fn a_launcher_comes_last() {
        let mut sandbox = sample::sandbox(QUICK_COMMAND);
        sandbox.sandbox.backend = BackendKind::Command;
        sandbox.sandbox.command = ["bwrap", "$HOME", ""].map(String::from).to_vec();
        sandbox.repeat = ["--timeout", "10s"].map(String::from).to_vec();
        let trial = sample::trial(QUICK_COMMAND, "network/tcp", Verdict::Escaped);
        assert_eq!(
            command(&trial, &sandbox),
            "escape-audit run --timeout 10s --case network/tcp -- bwrap '$HOME' ''"
        );
    }
}
