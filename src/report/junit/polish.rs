//! A pass over `junit-report`'s document, for what the crate cannot say: times with three decimals, the number of
//! skipped testcases, the time at which the audit began, properties, lines, and `<skipped>` with its reason as text, the
//! one form that both published schemas accept.

use std::io::{self, Write};

use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use quick_xml::{Reader, Writer};

use crate::safe_text::SafeText;

/// Names and values, in order.
pub(super) type Properties = Vec<(&'static str, SafeText)>;

/// What is added to a document, in the document's own order.
#[derive(Default)]
pub(super) struct Extras {
    /// When the audit began.
    pub(super) started: String,
    /// One for each suite.
    pub(super) suites: Vec<OfSuite>,
    /// One for each testcase; no testcase has any where there are none.
    pub(super) cases: Vec<Properties>,
}

pub(super) struct OfSuite {
    pub(super) skipped: usize,
    pub(super) properties: Properties,
}

pub(super) fn write(raw: &[u8], extras: Extras, out: &mut dyn Write) -> io::Result<()> {
    let mut suites = extras.suites.into_iter();
    let mut cases = extras.cases.into_iter();
    let mut reader = Reader::from_reader(raw);
    let mut writer = Writer::new_with_indent(&mut *out, b' ', 2);
    loop {
        let event = reader.read_event().map_err(io::Error::other)?;
        let (tag, empty) = match &event {
            Event::Eof => break,
            Event::Empty(tag) => (tag, true),
            Event::Start(tag) => (tag, false),
            _ => {
                writer.write_event(event)?;
                continue;
            }
        };
        let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
        if name == "skipped" && empty {
            skipped(tag, &mut writer)?;
            continue;
        }
        let mut polished = polish(tag, &name, &extras.started)?;
        let properties = match &*name {
            "testsuite" => suites.next().map_or_else(Properties::new, |suite| {
                polished.push_attribute(("skipped", &*suite.skipped.to_string()));
                suite.properties
            }),
            "testcase" => cases.next().unwrap_or_default(),
            _ => Properties::new(),
        };
        if empty && properties.is_empty() {
            writer.write_event(Event::Empty(polished))?;
            continue;
        }
        writer.write_event(Event::Start(polished))?;
        write_properties(&properties, &mut writer)?;
        if empty {
            writer.write_event(Event::End(BytesEnd::new(name)))?;
        }
    }
    out.write_all(b"\n")
}

fn polish(tag: &BytesStart<'_>, name: &str, started: &str) -> io::Result<BytesStart<'static>> {
    let mut polished = BytesStart::new(name.to_owned());
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(io::Error::other)?;
        match attribute.key.as_ref() {
            b"time" => {
                let seconds: f64 = std::str::from_utf8(&attribute.value)
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .unwrap_or_default();
                polished.push_attribute(("time", format!("{seconds:.3}").as_str()));
            }
            b"timestamp" => polished.push_attribute(("timestamp", started)),
            b"file" => {
                polished.push_attribute(attribute);
                polished.push_attribute(("line", "1")); // a case is its file
            }
            _ => polished.push_attribute(attribute),
        }
    }
    Ok(polished)
}

fn write_properties<W: Write>(properties: &Properties, writer: &mut Writer<W>) -> io::Result<()> {
    if properties.is_empty() {
        return Ok(());
    }
    writer.write_event(Event::Start(BytesStart::new("properties")))?;
    for (name, value) in properties {
        let mut property = BytesStart::new("property");
        property.push_attribute(("name", *name));
        property.push_attribute(("value", value.as_str()));
        writer.write_event(Event::Empty(property))?;
    }
    writer.write_event(Event::End(BytesEnd::new("properties")))
}

fn skipped<W: Write>(tag: &BytesStart<'_>, writer: &mut Writer<W>) -> io::Result<()> {
    let message = tag.try_get_attribute("message").map_err(io::Error::other)?;
    let message = message.map(|m| String::from_utf8_lossy(&m.value).into_owned());
    writer.write_event(Event::Start(BytesStart::new("skipped")))?;
    // What is escaped for an attribute is escaped for text.
    writer.write_event(Event::Text(BytesText::from_escaped(
        message.unwrap_or_default(),
    )))?;
    writer.write_event(Event::End(BytesEnd::new("skipped")))
}
