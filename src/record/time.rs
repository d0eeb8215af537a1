//! Moments in a record: RFC 3339 in UTC, whole seconds.

use crate::config::Date;

const DAY: u64 = 86_400;

/// Seconds since 1970 of `2026-11-29T13:19:49Z`; nothing else is read, and no day that the calendar does not have.
pub fn seconds(text: &str) -> Option<u64> {
    let (day, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let day = u64::try_from(day.parse::<Date>().ok()?.days()).ok()?;
    let parts: Vec<&str> = clock.split(':').collect();
    let two_digits = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !parts.iter().all(two_digits) {
        return None;
    }
    let parts: Vec<u64> = parts.iter().filter_map(|part| part.parse().ok()).collect();
    match parts[..] {
        [hour @ 0..24, minute @ 0..60, second @ 0..60] => {
            Some(day * DAY + hour * 3_600 + minute * 60 + second)
        }
        _ => None,
    }
}

/// The day of a moment.
pub fn day(seconds: u64) -> Date {
    Date::from_days(i64::try_from(seconds / DAY).unwrap_or(0))
}

/// How long ago, for a person: `3 days`, `2 hours`, `41 minutes`, `7 seconds`.
pub fn age(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_is_read_as_it_is_written() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(day(951_782_400 + 5).to_string(), "2000-02-29");
        assert_eq!(seconds("2000-02-29T00:00:00Z"), Some(951_782_400));
        assert_eq!(seconds("2026-11-29T13:19:49Z"), Some(1_795_958_389));
        for wrong in [
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "1969-12-31T23:59:59Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+01:00",
            "",
            "é026-01-01T00:00:00Z",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ages_have_one_unit() {
        assert_eq!(age(1), "1 second");
        assert_eq!(age(3_600), "60 minutes");
        assert_eq!(age(86_400), "24 hours");
        assert_eq!(age(8 * 86_400 + 5), "8 days");
    }
}
