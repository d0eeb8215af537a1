//! What a sandbox printed → the probe's records. Pure, and made for hostile input: it never fails and never grows
//! without bound.
//!
//! Anybody inside can print lines. A record counts only with this trial's nonce and the next number; one that does
//! not fit is kept as a contradiction, and a contradiction never ends in BLOCKED.

use escape_audit_probe::wire::{Malformed, Message, Outcome};

use crate::evidence::{Fact, Inside, Start, Step};

/// The longest line that is looked at; longer ones are noise.
const MAX_LINE: usize = escape_audit_probe::wire::MAX_LINE;
/// How much of what is no record is kept.
const MAX_HEAD: usize = 8192;
/// How many steps, facts and contradictions are kept.
const MAX_KEPT: usize = 16_384;

/// What a record told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The probe runs.
    Start,
    /// The attempt begins.
    Begin,
    /// A step of this kind, with its outcome.
    Step(String, Outcome),
    /// A fact under this key.
    Fact(String),
    /// The probe waits for the harness's word.
    Hold,
    /// The attempt ended.
    Done,
    /// The probe has nothing more to do.
    End,
    /// It found its standard input empty.
    NoInput,
}

/// The reader of one trial.
#[derive(Debug)]
pub struct Records {
    nonce: String,
    next: u64,
    line: Vec<u8>,
    overlong: bool,
    /// Whether the probe started.
    pub start: Start,
    /// What it told.
    pub inside: Inside,
    /// What does not fit together.
    pub contradictions: Vec<String>,
}

impl Records {
    /// A reader for the trial with this nonce.
    pub fn new(nonce: &str) -> Self {
        Self {
            nonce: nonce.to_owned(),
            next: 0,
            line: Vec::new(),
            overlong: false,
            start: Start::Missing,
            inside: Inside::default(),
            contradictions: Vec::new(),
        }
    }

    /// Takes what was read from standard output and gives back what it told, in order.
    pub fn output(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.inside.output_bytes += bytes.len() as u64;
        let mut events = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                if std::mem::take(&mut self.overlong) {
                    self.noise(&line);
                } else {
                    events.extend(self.take(&line));
                }
            } else if self.line.len() < MAX_LINE {
                self.line.push(*byte);
            } else {
                self.overlong = true;
            }
        }
        events
    }

    /// Takes what was read from standard error.
    pub fn error(&mut self, bytes: &[u8]) {
        self.inside.output_bytes += bytes.len() as u64;
        keep(&mut self.inside.error_head, bytes);
    }

    /// The stream ended; what is left in the line is noise.
    pub fn close(&mut self) {
        let rest = std::mem::take(&mut self.line);
        if !rest.is_empty() {
            self.noise(&rest);
        }
    }

    fn noise(&mut self, line: &[u8]) {
        self.inside.noise_lines += 1;
        keep(&mut self.inside.output_head, line);
        keep(&mut self.inside.output_head, b"\n");
    }

    fn take(&mut self, line: &[u8]) -> Option<Event> {
        match Message::decode(line) {
            Ok(message) => self.record(&message),
            Err(Malformed::NotOurs) => {
                self.noise(line);
                None
            }
            Err(why) => {
                self.noise(line);
                self.contradict(format!("a record is malformed ({why:?})"));
                None
            }
        }
    }

    fn record(&mut self, message: &Message) -> Option<Event> {
        let [nonce, number, kind] = message.words.as_slice() else {
            self.contradict("a record without nonce, number and kind".into());
            return None;
        };
        if nonce == "-" && kind == "no-input" {
            if self.start == Start::Missing {
                self.start = Start::NoInput;
            }
            return Some(Event::NoInput);
        }
        if *nonce != self.nonce {
            if self.start == Start::Missing {
                self.start = Start::Foreign("a record with another nonce".into());
            }
            self.contradict("a record with another nonce".into());
            return None;
        }
        if number.parse() != Ok(self.next) {
            self.contradict(format!(
                "record {} expected, another number came",
                self.next
            ));
            return None;
        }
        self.next += 1;
        self.known(kind, message)
    }

    fn known(&mut self, kind: &str, message: &Message) -> Option<Event> {
        if kind != "start" && !matches!(self.start, Start::Seen { .. }) {
            self.contradict("a record before the start record".into());
            return None;
        }
        let text = |key: &str| message.text(key).unwrap_or_default().to_owned();
        let outcome = || message.text("result").and_then(Outcome::decode);
        let event = match kind {
            "start" if self.start == Start::Missing => {
                self.start = Start::Seen {
                    uid: message.number("uid").unwrap_or(u32::MAX),
                    boot: text("boot"),
                };
                Event::Start
            }
            "begin" if !self.inside.begun => {
                self.inside.begun = true;
                Event::Begin
            }
            "step" => {
                let Some(outcome) = outcome() else {
                    self.contradict("a step without a result".into());
                    return None;
                };
                let what = text("what");
                if self.inside.steps.len() < MAX_KEPT {
                    self.inside.steps.push(Step {
                        what: what.clone(),
                        target: text("target"),
                        outcome,
                    });
                } else {
                    self.contradict("more steps than any attempt makes".into());
                }
                Event::Step(what, outcome)
            }
            "fact" => {
                let key = text("key");
                if self.inside.facts.len() < MAX_KEPT {
                    self.inside.facts.push(Fact {
                        key: key.clone(),
                        name: text("name"),
                        value: message.bytes("value").unwrap_or_default().to_vec(),
                    });
                } else {
                    self.contradict("more facts than any attempt reports".into());
                }
                Event::Fact(key)
            }
            "hold" => Event::Hold,
            "done" if self.inside.done.is_none() => {
                let Some(outcome) = outcome() else {
                    self.contradict("an end of the attempt without a result".into());
                    return None;
                };
                self.inside.done = Some(outcome);
                Event::Done
            }
            "end" if !self.inside.ended => {
                self.inside.ended = true;
                Event::End
            }
            "start" | "begin" | "done" | "end" => {
                self.contradict(format!("a second record `{kind}`"));
                return None;
            }
            _ => {
                self.contradict("a record of an unknown kind".into());
                return None;
            }
        };
        Some(event)
    }

    fn contradict(&mut self, what: String) {
        if self.contradictions.len() < MAX_KEPT && !self.contradictions.contains(&what) {
            self.contradictions.push(what);
        }
    }
}

fn keep(head: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_HEAD.saturating_sub(head.len());
    head.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn honest() -> &'static [u8] {
        b"EA1 n 0 start uid=7 boot=b\nEA1 n 1 begin id=a kind=run\nEA1 n 2 step id=a what=run target= result=ok\n\
          EA1 n 3 done id=a result=ok\nEA1 n 4 end\n"
    }

    #[test]
    fn an_honest_session_is_read_whole() {
        let mut records = Records::new("n");
        let events = records.output(honest());
        assert_eq!(events.len(), 5);
        assert_eq!(
            records.start,
            Start::Seen {
                uid: 7,
                boot: "b".into()
            }
        );
        assert!(records.inside.ended && records.contradictions.is_empty());
    }

    #[test]
    fn forged_records_contradict() {
        for forged in [
            "EA1 other 0 start uid=0\n",
            "EA1 n 1 end\n",
            "EA1 n 0 begin id=a\n",
            "EA1 n 0 start uid=0\nEA1 n 1 start uid=0\n",
            "EA1 n 0 start uid=0\nEA1 n 0 start uid=0\n",
            "EA1 n 0 start uid=%\n",
            "EA1\n",
        ] {
            let mut records = Records::new("n");
            records.output(forged.as_bytes());
            assert!(!records.contradictions.is_empty(), "{forged}");
        }
    }

    #[test]
    fn a_second_session_after_the_first_contradicts() {
        let mut records = Records::new("n");
        records.output(honest());
        records.output(honest());
        assert!(!records.contradictions.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived_and_kept_small(chunks in proptest::collection::vec(any::<Vec<u8>>(), 0..20)) {
            let mut records = Records::new("n");
            for chunk in &chunks {
                records.output(chunk);
                records.error(chunk);
            }
            records.close();
            prop_assert!(records.inside.output_head.len() <= MAX_HEAD);
            prop_assert!(!records.inside.ended);
        }

        #[test]
        fn where_the_bytes_are_cut_does_not_matter(cut in 0..120usize) {
            let (mut whole, mut parts) = (Records::new("n"), Records::new("n"));
            whole.output(honest());
            parts.output(&honest()[..cut]);
            parts.output(&honest()[cut..]);
            prop_assert_eq!(whole.inside, parts.inside);
        }
    }
}
