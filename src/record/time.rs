//! Moments in a record: RFC 3339 in UTC, whole seconds.

/// Seconds since 1970 of `2026-11-29T13:19:49Z`; nothing else is read, and no day that the calendar does not have.
pub fn seconds(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let shape = b"0000-00-00T00:00:00Z";
    let fits = bytes.len() == shape.len()
        && bytes.iter().zip(shape).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            _ => byte == form,
        });
    if !fits {
        return None;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let valid = year >= 1970
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let days = (1970..year)
        .map(|year| 365 + u64::from(is_leap(year)))
        .sum::<u64>()
        + (1..month).map(|month| days_of(year, month)).sum::<u64>()
        + day.saturating_sub(1);
    valid.then_some(days * 86_400 + hour * 3_600 + minute * 60 + second)
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

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_is_read_as_it_is_written() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
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
