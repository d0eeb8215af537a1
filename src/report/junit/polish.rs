//! A pass over `junit-report`'s document, for what the crate cannot say: times with three decimals, the number of
//! skipped testcases, the time at which the audit began, and `<skipped>` with its reason as text, the one form that
//! both published schemas accept.

use std::io::{self, Write};

use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use quick_xml::{Reader, Writer};

pub(super) fn write(
    raw: &[u8],
    document: &junit_report::Report,
    started: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut suites = document.testsuites().iter();
    let mut reader = Reader::from_reader(raw);
    let mut writer = Writer::new_with_indent(&mut *out, b' ', 2);
    let mut polish = |tag: &BytesStart<'_>| {
        let skipped = match tag.name().as_ref() {
            b"testsuite" => suites.next().map(|suite| suite.skipped()),
            _ => None,
        };
        polish_tag(tag, skipped, started)
    };
    loop {
        match reader.read_event().map_err(io::Error::other)? {
            Event::Eof => break,
            Event::Empty(tag) if tag.name().as_ref() == b"skipped" => {
                skipped(&tag, &mut writer)?;
            }
            Event::Empty(tag) => writer.write_event(Event::Empty(polish(&tag)?))?,
            Event::Start(tag) => writer.write_event(Event::Start(polish(&tag)?))?,
            event => writer.write_event(event)?,
        }
    }
    out.write_all(b"\n")
}

fn polish_tag(
    tag: &BytesStart<'_>,
    skipped: Option<usize>,
    started: &str,
) -> io::Result<BytesStart<'static>> {
    let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
    let mut polished = BytesStart::new(name);
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
            _ => polished.push_attribute(attribute),
        }
    }
    if let Some(skipped) = skipped {
        polished.push_attribute(("skipped", skipped.to_string().as_str()));
    }
    Ok(polished)
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
