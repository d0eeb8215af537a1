//! YAML → a tree of texts with their places, anchors and merge keys resolved. Nothing is guessed of types: whoever reads a
//! value knows what it should be.

use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use crate::diag::{Code, Diagnostic, Source};

/// Anchors can make a small file a large tree: a tree of more values than this is refused.
const MOST_VALUES: usize = 100_000;

/// Deeper than any Compose file is, and less than a stack holds.
const DEEPEST: usize = 64;

/// One value with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its bytes in the file; of a list or a mapping the first one.
    pub span: Range<usize>,
    /// What it is.
    pub value: Value,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing: an empty place, `~`, `null`.
    Null,
    /// A number, a flag or a text; `plain`: without quotes.
    Scalar {
        /// As it is written.
        text: String,
        /// Without quotes.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<(Word, Node)>),
}

/// A key with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The key.
    pub text: String,
    /// Its bytes in the file.
    pub span: Range<usize>,
}

impl Node {
    /// A text of its own at the place of this one.
    pub fn says(&self, text: impl Into<String>) -> Self {
        let (text, plain) = (text.into(), false);
        Self {
            span: self.span.clone(),
            value: Value::Scalar { text, plain },
        }
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The items of a list; a text that stands alone is a list of one.
    pub fn items(&self) -> Option<Vec<&Self>> {
        match &self.value {
            Value::List(items) => Some(items.iter().collect()),
            Value::Scalar { .. } => Some(vec![self]),
            Value::Null => Some(Vec::new()),
            Value::Map(_) => None,
        }
    }

    /// The entries of a mapping.
    pub fn entries(&self) -> Option<&[(Word, Self)]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::Null => Some(&[]),
            _ => None,
        }
    }

    /// The value of a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let mut entries = self.entries()?.iter();
        entries
            .find(|(word, _)| word.text == key)
            .map(|(_, value)| value)
    }

    /// Says nothing: null, or an empty list or mapping.
    pub fn is_empty(&self) -> bool {
        match &self.value {
            Value::Null => true,
            Value::Scalar { .. } => false,
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.is_empty(),
        }
    }
}

/// Reads the one document of a file. The first mistake ends it: what follows one in YAML is rarely what was meant.
pub fn parse(source: &Source) -> Result<Node, Box<Diagnostic>> {
    let mut tree = Tree {
        source,
        events: Parser::new_from_str(&source.text),
        bytes: bytes_of(&source.text),
        anchors: HashMap::new(),
        values: 0,
    };
    loop {
        match tree.next()? {
            (Event::DocumentStart(_), _) => break,
            (Event::StreamEnd, span) => {
                return Err(tree.wrong(span.end, "this file is empty", "is it a Compose file?"));
            }
            _ => {}
        }
    }
    let (event, span) = tree.next()?;
    let document = tree.node(event, span, 0)?;
    tree.next()?;
    match tree.next()? {
        (Event::DocumentStart(_), span) => Err(tree.wrong(
            span.start,
            "a second document begins here",
            "write one Compose file a document",
        )),
        _ => Ok(document),
    }
}

/// The parser counts characters: where each begins, unless it is the same.
fn bytes_of(text: &str) -> Option<Vec<usize>> {
    (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect())
}

type Step<T> = Result<T, Box<Diagnostic>>;

struct Tree<'a> {
    source: &'a Source,
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    bytes: Option<Vec<usize>>,
    anchors: HashMap<usize, Node>,
    values: usize,
}

impl<'a> Tree<'a> {
    fn next(&mut self) -> Step<(Event<'a>, Range<usize>)> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, self.range(&span))),
            Some(Err(error)) => {
                let at = self.byte(error.marker().index());
                let message = format!("not valid YAML: {}", error.info());
                Err(self.wrong(
                    at,
                    message,
                    "`docker compose config` shows how Compose reads it",
                ))
            }
            None => {
                let end = self.source.text.len();
                Err(self.wrong(end, "not valid YAML: it ends too early", "complete it"))
            }
        }
    }

    fn byte(&self, character: usize) -> usize {
        match &self.bytes {
            None => character.min(self.source.text.len()),
            Some(bytes) => *bytes.get(character).unwrap_or(&self.source.text.len()),
        }
    }

    /// Block scalars end with the line after them.
    fn range(&self, span: &Span) -> Range<usize> {
        let (start, end) = (self.byte(span.start.index()), self.byte(span.end.index()));
        let text = self.source.text.get(start..end).unwrap_or_default();
        start..start + text.trim_end().len()
    }

    /// What the parser says of a text in quotes ends with the comment after it.
    fn without_what_follows(&self, span: Range<usize>, style: ScalarStyle) -> Range<usize> {
        let quote = match style {
            ScalarStyle::SingleQuoted => '\'',
            ScalarStyle::DoubleQuoted => '"',
            _ => return span,
        };
        let text = self.source.text.get(span.clone()).unwrap_or_default();
        let mut chars = text.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            let doubled =
                quote == '\'' && c == quote && chars.peek().is_some_and(|(_, c)| *c == quote);
            if doubled || (quote == '"' && c == '\\') {
                chars.next();
            } else if c == quote {
                return span.start..span.start + at + 1;
            }
        }
        span
    }

    fn wrong(&self, at: usize, message: impl Into<String>, help: &str) -> Box<Diagnostic> {
        Box::new(Diagnostic::new(Code::Syntax, message, help).at(self.source, at..at, ""))
    }

    fn node(&mut self, event: Event<'a>, mut span: Range<usize>, depth: usize) -> Step<Node> {
        self.count(1, &span)?;
        if depth > DEEPEST {
            return Err(self.wrong(span.start, "nested too deeply", "is it a Compose file?"));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &span)?;
                span = self.without_what_follows(span, style);
                let plain = style == ScalarStyle::Plain;
                let null = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let text = text.into_owned();
                let value = match null {
                    true => Value::Null,
                    false => Value::Scalar { text, plain },
                };
                (value, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &span)?;
                (self.list(depth)?, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &span)?;
                (self.map(depth)?, anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, &span),
            _ => {
                return Err(self.wrong(span.start, "not valid YAML: a value is missing", "add it"));
            }
        };
        let span = match &value {
            Value::List(_) | Value::Map(_) => span.start..span.start,
            _ => span,
        };
        let node = Node { span, value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// What an anchor names, with the places of the anchor's own values.
    fn alias(&mut self, anchor: usize, span: &Range<usize>) -> Step<Node> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            let help = "an anchor has to be complete before it is named";
            return Err(self.wrong(span.start, "this anchor contains itself", help));
        };
        self.count(size(&node), span)?;
        Ok(node)
    }

    fn count(&mut self, more: usize, span: &Range<usize>) -> Step<()> {
        self.values += more;
        match self.values > MOST_VALUES {
            true => Err(self.wrong(
                span.start,
                "this file holds more values than any Compose file",
                "anchors multiply what they name: write less of them",
            )),
            false => Ok(()),
        }
    }

    fn refuse_tag(&self, tag: Option<&saphyr_parser::Tag>, span: &Range<usize>) -> Step<()> {
        match tag {
            // `!!str` and its like say what everybody reads anyway.
            Some(tag) if !tag.is_yaml_core_schema() => Err(self.wrong(
                span.start,
                format!("the tag `{}{}` is not read", tag.handle, tag.suffix),
                "write the value that it stands for: `docker compose config` shows it",
            )),
            _ => Ok(()),
        }
    }

    fn list(&mut self, depth: usize) -> Step<Value> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Step<Value> {
        let mut entries: Vec<(Word, Node)> = Vec::new();
        let mut merged: Vec<Node> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let plain_merge =
                matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let key = self.node(event, span.clone(), depth + 1)?;
            let (event, of_value) = self.next()?;
            let value = self.node(event, of_value, depth + 1)?;
            let text = match &key.value {
                Value::Scalar { text, .. } => text.clone(),
                Value::Null => String::new(),
                _ => return Err(self.wrong(span.start, "a key that is no text", "write a text")),
            };
            if plain_merge {
                merged.push(value);
            } else if entries.iter().any(|(word, _)| word.text == text) {
                let message = format!("`{text}` stands here twice");
                return Err(self.wrong(span.start, message, "remove one of them"));
            } else {
                entries.push((Word { text, span }, value));
            }
        }
        for value in merged {
            self.merge(&mut entries, value)?;
        }
        Ok(Value::Map(entries))
    }

    /// `<<`: what is not said here is taken from there; of several, the first one counts.
    fn merge(&self, entries: &mut Vec<(Word, Node)>, from: Node) -> Step<()> {
        let (at, sources) = match from.value {
            Value::Map(more) => (from.span, vec![more]),
            Value::List(items) => {
                let maps = items.into_iter().map(|item| match item.value {
                    Value::Map(more) => Some(more),
                    _ => None,
                });
                (
                    from.span,
                    maps.collect::<Option<Vec<_>>>().unwrap_or_default(),
                )
            }
            _ => (from.span, Vec::new()),
        };
        if sources.is_empty() {
            let help = "write `<<: *NAME` with the anchor of a mapping";
            return Err(self.wrong(at.start, "`<<` merges mappings alone", help));
        }
        for (word, value) in sources.into_iter().flatten() {
            if !entries.iter().any(|(there, _)| there.text == word.text) {
                entries.push((word, value));
            }
        }
        Ok(())
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::List(items) => items.iter().map(size).sum(),
        Value::Map(entries) => entries.iter().map(|(_, value)| size(value)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Node {
        parse(&Source::new("c.yaml", text)).expect("valid")
    }

    fn refused(text: &str) -> String {
        let error = parse(&Source::new("c.yaml", text)).expect_err("refused");
        crate::diag::Diagnostics::from(*error).to_string()
    }

    #[test]
    fn values_know_their_place_in_bytes() {
        let text = "# é\nservices:\n  a:\n    image: \"x:1\"  # y\n    cpus: 0.5\n";
        let tree = read(text);
        let service = tree
            .get("services")
            .and_then(|all| all.get("a"))
            .expect("there");
        let image = service.get("image").expect("there");
        assert_eq!(&text[image.span.clone()], "\"x:1\"");
        assert_eq!(image.text(), Some("x:1"));
        let (word, cpus) = &service.entries().expect("a mapping")[1];
        assert_eq!(&text[word.span.clone()], "cpus");
        assert_eq!(&text[cpus.span.clone()], "0.5");
    }

    #[test]
    fn anchors_and_merge_keys_are_resolved_and_what_is_said_here_counts() {
        let text = "x-a: &a {cpus: 1, user: root}\nx-b: &b {user: me, init: true}\n\
                    s:\n  <<: [*a, *b]\n  cpus: 2\nt:\n  <<: *a\n";
        let tree = read(text);
        let s = tree.get("s").expect("there");
        let said = |key| s.get(key).and_then(Node::text);
        assert_eq!(said("cpus"), Some("2"));
        assert_eq!((said("user"), said("init")), (Some("root"), Some("true")));
        assert_eq!(
            tree.get("t")
                .and_then(|t| t.get("cpus"))
                .and_then(Node::text),
            Some("1")
        );
    }

    #[test]
    fn nothing_is_null_however_it_is_written() {
        let tree = read("a:\nb: ~\nc: null\nd: \"null\"\n");
        let values: Vec<bool> = tree
            .entries()
            .expect("a mapping")
            .iter()
            .map(|(_, v)| v.is_empty())
            .collect();
        assert_eq!(values, [true, true, true, false]);
    }

    #[test]
    fn mistakes_are_told_with_line_and_column() {
        for (text, says, place) in [
            ("a: [1, 2\nb: 3\n", "not valid YAML", "c.yaml:"),
            ("a: 1\na: 2\n", "`a` stands here twice", "c.yaml:2:1"),
            ("a: !reset null\n", "the tag `!reset`", "c.yaml:1:"),
            ("a: 1\n---\nb: 2\n", "a second document", "c.yaml:2:1"),
            ("s:\n  <<: 5\n", "merges mappings alone", "c.yaml:2:"),
            ("", "empty", "c.yaml"),
        ] {
            let said = refused(text);
            assert!(
                said.contains(says) && said.contains(place),
                "{text}\n{said}"
            );
        }
    }

    #[test]
    fn a_bomb_of_anchors_is_refused() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..9 {
            let last = n - 1;
            text.push_str(&format!(
                "a{n}: &a{n} [{}]\n",
                vec![format!("*a{last}"); 10].join(", ")
            ));
        }
        assert!(refused(&text).contains("more values"), "{}", refused(&text));
        let deep = format!("a: {}", "[".repeat(5_000));
        assert!(refused(&deep).contains("error[syntax]"));
    }
}
