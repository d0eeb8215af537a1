//! Numbers, sizes and durations as people write them.

use toml::de::{DeInteger, DeValue};
use toml::value::{Date, Datetime};

/// What a value is, for a message.
pub(super) fn article(value: &DeValue<'_>) -> String {
    match value.type_str() {
        "array" => "a list".into(),
        "integer" => "a whole number".into(),
        "string" => "a text".into(),
        "float" => "a fraction".into(),
        "datetime" => "a date".into(),
        other => format!("a {other}"),
    }
}

/// A whole number that is not negative.
pub(super) fn integer(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A number with or without a fraction.
pub(super) fn number_of(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => number.as_str().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

/// Bytes, written either way; zero is none.
pub(super) fn bytes_of(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(number) => integer(number),
        DeValue::String(text) => bytes(text),
        _ => None,
    }
    .filter(|bytes| *bytes > 0)
}

/// Bytes, or `-1` for as many as there are, which reads as the largest number.
pub(super) fn bytes_or_unlimited_of(value: &DeValue<'_>) -> Option<u64> {
    let text = match value {
        DeValue::Integer(number) => number.as_str(),
        value => value.as_str()?,
    };
    match text {
        "-1" => Some(u64::MAX),
        _ => bytes_of(value),
    }
}

/// Compose's sizes: `1024`, `64k`, `256m`, `1g`, with or without a `b` at the end; powers of 1024.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let text = text.strip_suffix('i').unwrap_or(text);
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1 << 10),
        b'm' => (&text[..text.len() - 1], 1 << 20),
        b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// `500ms`, `10s`, `2m`: at least a tenth of a second, at most an hour.
pub(super) fn seconds(text: &str) -> Option<std::time::Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..at].parse().ok()?;
    let millis = match &text[at..] {
        "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "m" => number.checked_mul(60_000)?,
        _ => return None,
    };
    (100..=3_600_000)
        .contains(&millis)
        .then(|| std::time::Duration::from_millis(millis))
}

/// A date without a time of day.
pub(super) fn day(value: &Datetime) -> Option<Date> {
    value.date.filter(|_| value.time.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sizes_read_as_compose_reads_them() {
        assert_eq!(bytes("256m"), Some(256 << 20));
        assert_eq!(bytes("1g"), Some(1 << 30));
        assert_eq!(bytes("64kb"), Some(64 << 10));
        assert_eq!(bytes("1024"), Some(1024));
        assert_eq!(bytes("10b"), Some(10));
        for wrong in ["", "m", "1.5g", "-1", "1t", "99999999999g", "１m"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_have_a_unit_and_an_end() {
        assert_eq!(seconds("10s"), Some(Duration::from_secs(10)));
        assert_eq!(seconds("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(seconds("2m"), Some(Duration::from_secs(120)));
        for wrong in [
            "",
            "10",
            "0s",
            "99ms",
            "s",
            "1h",
            "1000m",
            "-1s",
            "99999999999999999999s",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
