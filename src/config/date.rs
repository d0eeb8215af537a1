//! A day of the calendar, as a waiver's `until` names it. No clock: whoever knows today passes it in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Days from the civil calendar's year 0, counted from its first of March, to 1970-01-01.
const TO_1970: i64 = 719_468;
/// Days of 400 years, after which the calendar repeats itself.
const ERA: i64 = 146_097;

/// A day. Written, ordered and counted as ISO 8601 has it: `2027-02-28`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    year: i64,
    month: u8,
    day: u8,
}

impl Date {
    /// The day so many days after 1970-01-01.
    pub fn from_days(since_1970: i64) -> Self {
        let days = since_1970 + TO_1970;
        let (era, day_of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            // Within 1 to 12 and 1 to 31, by the arithmetic above.
            month: u8::try_from(month).unwrap_or(1),
            day: u8::try_from(day).unwrap_or(1),
        }
    }

    /// How many days after 1970-01-01 it is.
    pub fn days(self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = self.year - i64::from(month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * ERA + day_of_era - TO_1970
    }

    /// This day, if the calendar has it.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let date = Self {
            year: year.into(),
            month,
            day,
        };
        let in_range = (1..=12).contains(&month) && (1..=31).contains(&day);
        (in_range && Self::from_days(date.days()) == date).then_some(date)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Date {
    type Err = &'static str;

    /// Four, two and two digits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        match parts[..] {
            [year, month, day] if plain && lengths == [4, 2, 2] => {
                let number = |text: &str| text.parse().unwrap_or(0);
                year.parse()
                    .ok()
                    .and_then(|year| Self::new(year, number(month), number(day)))
                    .ok_or("the calendar has no such day")
            }
            _ => Err("write it as `2027-02-28`"),
        }
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Date {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        let table = [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2000-03-01", 11_017),
            ("2026-11-29", 20_786),
            ("2100-03-01", 47_541),
        ];
        for (text, days) in table {
            let date: Date = text.parse().expect(text);
            assert_eq!(date.days(), days, "{text}");
            assert_eq!(Date::from_days(days).to_string(), text);
        }
        for days in -800_000..800_000 {
            assert_eq!(Date::from_days(days).days(), days);
        }
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for wrong in [
            "2027-02-29",
            "2100-02-29",
            "2027-13-01",
            "2027-00-10",
            "2027-04-31",
            "2027-2-28",
            "27-02-28",
            "2027-02-28T00:00:00Z",
            "+027-02-28",
            "tomorrow",
            "",
        ] {
            assert!(wrong.parse::<Date>().is_err(), "{wrong}");
        }
        let (early, late) = ("2026-12-31".parse::<Date>(), "2027-01-01".parse());
        assert!(early < late);
    }
}
