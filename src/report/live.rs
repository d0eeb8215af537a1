//! Progress while the audit runs: a bar on a terminal, one line a case elsewhere.

use std::io::Write;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Trial;
use super::line::{self, Columns};
use super::style::{Ink, Style};
use crate::safe_text::SafeText;
use crate::verdict::Verdict;

/// What happens while the audit runs.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A sandbox's trials begin.
    Started {
        /// Its name.
        sandbox: &'a str,
        /// How many trials there will be in it.
        total: usize,
    },
    /// Something takes long before any trial can begin.
    Working(&'a str),
    /// A trial came to a verdict.
    TrialDone(&'a Trial),
    /// Something that a reader must know at once.
    Note(&'a str),
}

/// Shows progress. What cannot be written is dropped: progress is no result.
pub struct Live {
    place: Place,
    style: Style,
}

enum Place {
    /// A bar that is drawn again and again, on standard error.
    Bar(ProgressBar),
    /// Lines, without `\r` and without an escape.
    Lines(Box<dyn Write + Send>),
}

impl Live {
    /// On standard error: a bar if the caller says that it is a terminal and it can show one, plain lines otherwise.
    pub fn new(terminal: bool, style: Style) -> Self {
        let target = ProgressDrawTarget::stderr();
        if terminal && !target.is_hidden() {
            Self::bar(target, style)
        } else {
            Self::lines(Box::new(std::io::stderr()), style)
        }
    }

    /// Nothing is shown.
    pub fn quiet() -> Self {
        Self::lines(Box::new(std::io::sink()), Style::default())
    }

    fn bar(target: ProgressDrawTarget, style: Style) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let chars = if style.unicode { "━━─" } else { "=>-" };
        // The template is a constant, so it is valid; if it were not, the library's own look is good enough.
        if let Ok(look) =
            ProgressStyle::with_template("  {bar:24} {pos}/{len}  {elapsed}  {wide_msg}")
        {
            bar.set_style(look.progress_chars(chars));
        }
        Self {
            place: Place::Bar(bar),
            style,
        }
    }

    /// Plain lines, to wherever.
    pub fn lines(out: Box<dyn Write + Send>, style: Style) -> Self {
        Self {
            place: Place::Lines(out),
            style: Style {
                color: false,
                ..style
            },
        }
    }

    /// Shows one event.
    pub fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Started { sandbox, total } => self.started(sandbox, total),
            Event::Working(text) => self.working(text),
            Event::TrialDone(trial) => self.done(trial),
            Event::Note(text) => {
                let text = SafeText::line(format!("note: {text}"));
                self.print(&self.style.paint(Ink::Yellow, text));
            }
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let Place::Bar(bar) = self.place {
            bar.finish_and_clear();
        }
    }

    fn started(&mut self, sandbox: &str, total: usize) {
        let name = SafeText::line(sandbox);
        if let Place::Bar(bar) = &self.place {
            bar.inc_length(total as u64);
            bar.set_message(name.to_string());
        } else {
            let trials = if total == 1 { "trial" } else { "trials" };
            self.print(&format!("{name}: {total} {trials}"));
        }
    }

    fn working(&mut self, text: &str) {
        let text = SafeText::line(text);
        match &self.place {
            Place::Bar(bar) => bar.set_message(text.to_string()),
            Place::Lines(_) => self.print(text.as_ref()),
        }
    }

    fn done(&mut self, trial: &Trial) {
        let line = line::trial(trial, Columns::LIVE, self.style);
        if let Place::Bar(bar) = &self.place {
            bar.inc(1);
            bar.set_message(
                SafeText::line(format!("{}  {}", trial.sandbox, trial.case)).to_string(),
            );
            // The bar shows what goes well; what does not is worth a line of its own.
            if trial.judgement.verdict > Verdict::Skipped {
                bar.println(format!("  {line}"));
            }
        } else {
            let name = SafeText::line(&trial.sandbox);
            self.print(&format!("{name}: {line}"));
        }
    }

    fn print(&mut self, line: &str) {
        match &mut self.place {
            Place::Bar(bar) => bar.println(line),
            Place::Lines(out) => {
                let line = SafeText::line(line);
                let _ = writeln!(out, "{line}").and_then(|()| out.flush());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::report::sample;

    /// A writer whose content can be looked at.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn tell(live: &mut Live) {
        live.event(Event::Started {
            sandbox: "oci",
            total: 7,
        });
        for trial in &sample::report().trials {
            live.event(Event::TrialDone(trial));
        }
        live.event(Event::Working("pulling\n::error::x"));
        live.event(Event::Note("\x1b[2Jsandbox\rnot engaged"));
    }

    #[test]
    fn elsewhere_it_is_one_plain_line_a_case() {
        let out = Shared::default();
        let style = Style {
            color: true,
            ..Style::default()
        };
        let mut live = Live::lines(Box::new(out.clone()), style);
        tell(&mut live);
        live.finish();
        let text = String::from_utf8(out.0.lock().expect("no panic").clone()).expect("UTF-8");
        assert!(!text.contains(['\r', '\x1b']), "{text}");
        assert_eq!(text.lines().count(), 1 + sample::report().trials.len() + 2);
        assert!(
            text.starts_with("oci: 7 trials\noci: + ALLOWED       network/allowed "),
            "{text}"
        );
        assert!(
            text.ends_with("note: \\x1b[2Jsandbox\\rnot engaged\n"),
            "{text}"
        );
    }

    #[test]
    fn a_bar_counts_every_trial() {
        let mut live = Live::bar(ProgressDrawTarget::hidden(), Style::default());
        tell(&mut live);
        let Place::Bar(bar) = &live.place else {
            panic!("no bar")
        };
        assert_eq!((bar.position(), bar.length()), (10, Some(7)));
        live.finish();
    }
}
