//! What a sandbox printed → the probe's records. Pure, and made for hostile input: it never fails and never grows
//! without bound.
//!
//! Anybody inside can print lines. A record counts only with this trial's nonce and the next number; one that does
//! not fit is kept as a contradiction, and a contradiction never ends in BLOCKED.

use escape_audit_probe::wire::{Malformed, Message, Outcome};

use super::output::Stream;
use crate::evidence::{Fact, Inside, Printed, Start, Step};

/// The longest line that is looked at; longer ones are noise.
const MAX_LINE: usize = escape_audit_probe::wire::MAX_LINE;
/// How many steps, facts and contradictions are kept.
const MAX_KEPT: usize = 16_384;

/// What a record told. Attempts are known by their place in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The probe runs.
    Start,
    /// The attempt begins.
    Begin(usize),
    /// A step of this kind, with its outcome.
    Step(String, Outcome),
    /// A fact under this key.
    Fact(String),
    /// The probe waits for the harness's word on this attempt.
    Hold(usize),
    /// The attempt ended.
    Done(usize),
    /// The probe has nothing more to do.
    End,
    /// It found its standard input empty.
    NoInput,
}

/// The reader of one session.
#[derive(Debug)]
pub struct Records {
    nonce: String,
    next: u64,
    line: Vec<u8>,
    /// The line is too long to be a record, and what came of it is with the noise already.
    overlong: bool,
    /// What is no record.
    noise: Stream,
    /// Standard error.
    error: Stream,
    /// Whether the probe started.
    pub start: Start,
    /// What does not fit together.
    pub contradictions: Vec<String>,
    /// What concerns the session, whatever the attempt.
    common: Inside,
    /// What each attempt told.
    attempts: Vec<Inside>,
    /// The attempt that began last.
    current: Option<usize>,
}

impl Records {
    /// A reader for the session with this nonce and so many attempts.
    pub fn new(nonce: &str, attempts: usize) -> Self {
        Self {
            nonce: nonce.to_owned(),
            next: 0,
            line: Vec::new(),
            overlong: false,
            noise: Stream::default(),
            error: Stream::default(),
            start: Start::Missing,
            contradictions: Vec::new(),
            common: Inside::default(),
            attempts: vec![Inside::default(); attempts],
            current: None,
        }
    }

    /// What was told of this attempt, and of the session; not what was printed beside it.
    pub fn inside(&self, attempt: usize) -> Inside {
        let own = self.attempts.get(attempt).cloned().unwrap_or_default();
        Inside {
            begun: own.begun,
            steps: own.steps,
            facts: own.facts,
            done: own.done,
            ..self.common.clone()
        }
    }

    /// What was printed that was no record, and on standard error, once `redact` has seen it.
    pub fn printed(&self, redact: impl Fn(&[u8]) -> Vec<u8>) -> [Printed; 2] {
        [&self.noise, &self.error].map(|stream| stream.printed(&redact))
    }

    /// Whether the probe's last record came.
    pub fn ended(&self) -> bool {
        self.common.ended
    }

    /// Bytes on standard output and error together.
    pub fn output_bytes(&self) -> u64 {
        self.common.output_bytes
    }

    /// Takes what was read from standard output and gives back what it told, in order.
    pub fn output(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.common.output_bytes += bytes.len() as u64;
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            if !self.overlong && self.line.len() + text.len() > MAX_LINE {
                self.overlong = true;
                self.noise.keep(&std::mem::take(&mut self.line));
            }
            match self.overlong {
                true => self.noise.keep(text),
                false => self.line.extend_from_slice(text),
            }
            if text.len() < piece.len() {
                let line = std::mem::take(&mut self.line);
                match std::mem::take(&mut self.overlong) {
                    true => self.noise(&line),
                    false => events.extend(self.take(&line)),
                }
            }
        }
        events
    }

    /// Takes what was read from standard error.
    pub fn error(&mut self, bytes: &[u8]) {
        self.common.output_bytes += bytes.len() as u64;
        self.error.keep(bytes);
    }

    /// The stream ended; what is left in the line is noise.
    pub fn close(&mut self) {
        let rest = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.overlong) || !rest.is_empty() {
            self.noise(&rest);
        }
    }

    fn noise(&mut self, line: &[u8]) {
        self.common.noise_lines += 1;
        self.noise.keep(line);
        self.noise.keep(b"\n");
    }

    fn take(&mut self, line: &[u8]) -> Option<Event> {
        match Message::decode(line) {
            Ok(message) => match self.record(&message) {
                Ok(event) => event,
                Err(why) => {
                    self.contradict(why);
                    None
                }
            },
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

    fn record(&mut self, message: &Message) -> Result<Option<Event>, String> {
        let [nonce, number, kind] = message.words.as_slice() else {
            return Err("a record without nonce, number and kind".into());
        };
        if nonce == "-" && kind == "no-input" {
            if self.start == Start::Missing {
                self.start = Start::NoInput;
            }
            return Ok(Some(Event::NoInput));
        }
        if *nonce != self.nonce {
            if self.start == Start::Missing {
                self.start = Start::Foreign("a record with another nonce".into());
            }
            return Err("a record with another nonce".into());
        }
        if number.parse() != Ok(self.next) {
            return Err(format!(
                "record {} expected, another number came",
                self.next
            ));
        }
        self.next += 1;
        self.known(kind, message).map(Some)
    }

    fn known(&mut self, kind: &str, message: &Message) -> Result<Event, String> {
        let started = matches!(self.start, Start::Seen { .. });
        match kind {
            "start" if self.start == Start::Missing => {
                self.start = Start::Seen {
                    uid: message.number("uid").unwrap_or(u32::MAX),
                    boot: message.text("boot").unwrap_or_default().to_owned(),
                };
                Ok(Event::Start)
            }
            _ if !started => Err("a record before the start record".into()),
            "end" if !self.common.ended => {
                self.common.ended = true;
                Ok(Event::End)
            }
            "begin" => self.begin(message),
            "step" | "fact" | "hold" | "done" => self.of_attempt(kind, message),
            "start" | "end" => Err(format!("a second record `{kind}`")),
            _ => Err("a record of an unknown kind".into()),
        }
    }

    /// Attempts begin in the order of the list, each once, and after the one before has ended.
    fn begin(&mut self, message: &Message) -> Result<Event, String> {
        let due = self.current.map_or(0, |current| current + 1);
        let before_is_done = self
            .current
            .is_none_or(|current| self.attempts[current].done.is_some());
        if message.number("id") != Some(due) || due >= self.attempts.len() || !before_is_done {
            return Err("an attempt began out of turn".into());
        }
        self.current = Some(due);
        self.attempts[due].begun = true;
        Ok(Event::Begin(due))
    }

    /// What an attempt tells, between its begin and its end.
    fn of_attempt(&mut self, kind: &str, message: &Message) -> Result<Event, String> {
        let id: Option<usize> = message.number("id");
        let current = self.current.filter(|current| id == Some(*current));
        let Some(current) = current else {
            return Err(format!(
                "a record `{kind}` of an attempt whose turn it is not"
            ));
        };
        let inside = &mut self.attempts[current];
        if inside.done.is_some() {
            return Err(format!("a record `{kind}` after the end of its attempt"));
        }
        let text = |key: &str| message.text(key).unwrap_or_default().to_owned();
        let outcome = || message.text("result").and_then(Outcome::decode);
        match kind {
            "step" => {
                let outcome = outcome().ok_or("a step without a result")?;
                let what = text("what");
                if inside.steps.len() >= MAX_KEPT {
                    return Err("more steps than any attempt makes".into());
                }
                inside.steps.push(Step {
                    what: what.clone(),
                    target: text("target"),
                    outcome,
                });
                Ok(Event::Step(what, outcome))
            }
            "fact" => {
                let key = text("key");
                if inside.facts.len() >= MAX_KEPT {
                    return Err("more facts than any attempt reports".into());
                }
                inside.facts.push(Fact {
                    key: key.clone(),
                    name: text("name"),
                    value: message.bytes("value").unwrap_or_default().to_vec(),
                });
                Ok(Event::Fact(key))
            }
            "hold" => Ok(Event::Hold(current)),
            _ => {
                let outcome = outcome().ok_or("an end of the attempt without a result")?;
                inside.done = Some(outcome);
                Ok(Event::Done(current))
            }
        }
    }

    fn contradict(&mut self, what: String) {
        if self.contradictions.len() < MAX_KEPT && !self.contradictions.contains(&what) {
            self.contradictions.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn honest() -> &'static [u8] {
        b"EA1 n 0 start uid=7 boot=b\nEA1 n 1 begin id=0 kind=run\nEA1 n 2 step id=0 what=run target= result=ok\n\
          EA1 n 3 done id=0 result=ok\nEA1 n 4 end\n"
    }

    #[test]
    fn an_honest_session_is_read_whole() {
        let mut records = Records::new("n", 1);
        let events = records.output(honest());
        assert_eq!(events.len(), 5);
        assert_eq!(
            records.start,
            Start::Seen {
                uid: 7,
                boot: "b".into()
            }
        );
        assert!(records.ended() && records.contradictions.is_empty());
    }

    #[test]
    fn forged_records_contradict() {
        for forged in [
            "EA1 other 0 start uid=0\n",
            "EA1 n 1 end\n",
            "EA1 n 0 begin id=0\n",
            "EA1 n 0 start uid=0\nEA1 n 1 start uid=0\n",
            "EA1 n 0 start uid=0\nEA1 n 0 start uid=0\n",
            "EA1 n 0 start uid=%\n",
            "EA1\n",
            "EA1 n 0 start uid=0\nEA1 n 1 step id=0 what=run target= result=ok\n",
            "EA1 n 0 start uid=0\nEA1 n 1 begin id=1\n",
            "EA1 n 0 start uid=0\nEA1 n 1 begin id=0\nEA1 n 2 begin id=0\n",
        ] {
            let mut records = Records::new("n", 1);
            records.output(forged.as_bytes());
            assert!(!records.contradictions.is_empty(), "{forged}");
        }
    }

    #[test]
    fn each_attempt_has_its_own_records_and_its_turn() {
        let both = "EA1 n 0 start uid=0\nEA1 n 1 begin id=0\nEA1 n 2 step id=0 what=run target=a result=ok\n\
                    EA1 n 3 done id=0 result=ok\nEA1 n 4 begin id=1\nEA1 n 5 fact id=1 key=env name=b value=\n";
        let mut records = Records::new("n", 2);
        records.output(both.as_bytes());
        assert!(records.contradictions.is_empty());
        let (first, second) = (records.inside(0), records.inside(1));
        assert!(first.done.is_some() && first.facts.is_empty() && first.steps.len() == 1);
        assert!(second.done.is_none() && second.steps.is_empty() && second.facts.len() == 1);
        records.output(b"EA1 n 6 step id=0 what=run target= result=ok\n");
        assert!(!records.contradictions.is_empty(), "its turn is over");
    }

    #[test]
    fn a_second_session_after_the_first_contradicts() {
        let mut records = Records::new("n", 1);
        records.output(honest());
        records.output(honest());
        assert!(!records.contradictions.is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived_and_kept_small(chunks in proptest::collection::vec(any::<Vec<u8>>(), 0..20)) {
            let mut records = Records::new("n", 1);
            for chunk in &chunks {
                records.output(chunk);
                records.error(chunk);
            }
            records.close();
            for shown in records.printed(<[u8]>::to_vec) {
                prop_assert!(shown.head.len() + shown.tail.len() <= 8192);
            }
            prop_assert!(!records.ended());
        }

        #[test]
        fn where_the_bytes_are_cut_does_not_matter(cut in 0..120usize) {
            let (mut whole, mut parts) = (Records::new("n", 1), Records::new("n", 1));
            whole.output(honest());
            parts.output(&honest()[..cut]);
            parts.output(&honest()[cut..]);
            prop_assert_eq!(whole.inside(0), parts.inside(0));
            prop_assert_eq!(whole.printed(<[u8]>::to_vec), parts.printed(<[u8]>::to_vec));
        }
    }
}
