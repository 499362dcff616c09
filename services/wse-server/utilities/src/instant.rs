//! Wall-clock time as RFC 3339 text, with a resolution of one microsecond. The caller passes the current time.

use std::fmt;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// The number of digits of a fraction that are used; further digits are ignored.
const FRACTION_DIGITS: usize = 6;

/// A time in microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub i64);

impl fmt::Display for Instant {
    /// Formats the time like `2026-11-23T03:30:50.672518Z`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(MICROS_PER_SECOND);
        let micros = self.0.rem_euclid(MICROS_PER_SECOND);
        let (year, month, day) = date(seconds.div_euclid(SECONDS_PER_DAY));
        let second = seconds.rem_euclid(SECONDS_PER_DAY);
        let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{micros:06}Z")
    }
}

/// The date (year, month, day) this many days after 1970-01-01, in the Gregorian calendar. Years are counted from
/// March, so that the leap day is the last day of a year (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
#[must_use]
pub fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The number of days from 1970-01-01 to a date; the inverse of [`date`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

impl Instant {
    /// Parses a time as RFC 3339 (5.6) defines it, with an offset from UTC. `None` for any other text and for a time
    /// without an offset, which is ambiguous. A leap second counts as the second after it. Digits beyond microseconds
    /// are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.as_bytes();
        let rest = &mut rest;
        let (year, month, day) = (number(rest, 4)?, after(rest, b"-", 2)?, after(rest, b"-", 2)?);
        let (hour, minute, second) = (after(rest, b"Tt ", 2)?, after(rest, b":", 2)?, after(rest, b":", 2)?);
        let micros = fraction(rest)?;
        let offset = offset_seconds(rest)?;
        let of_day = days(year, month, day);
        let is_date = (1..=12).contains(&month) && (1..=31).contains(&day) && date(of_day) == (year, month, day);
        if !rest.is_empty() || !is_date || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let seconds = of_day * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset;
        Some(Self(seconds * MICROS_PER_SECOND + micros))
    }

    /// Milliseconds from this time to `now`; 0 if this time is in the future.
    #[must_use]
    pub fn age_millis(self, now: Self) -> i64 {
        (now.0.saturating_sub(self.0) / 1000).max(0)
    }
}

fn number(rest: &mut &[u8], digits: usize) -> Option<i64> {
    let (taken, after) = rest.split_at_checked(digits)?;
    *rest = after;
    taken.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
}

/// Parses a number that follows one of the separators.
fn after(rest: &mut &[u8], separators: &[u8], digits: usize) -> Option<i64> {
    let (separator, after) = rest.split_first()?;
    *rest = after;
    separators.contains(separator).then(|| number(rest, digits))?
}

fn fraction(rest: &mut &[u8]) -> Option<i64> {
    let Some(b'.') = rest.first() else { return Some(0) };
    let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let counted = &mut &rest[1..=digits];
    let length = digits.min(FRACTION_DIGITS);
    *rest = &rest[1 + digits..];
    let scale = 10_i64.pow((FRACTION_DIGITS - length) as u32);
    (digits > 0).then(|| number(counted, length).map(|value| value * scale))?
}

fn offset_seconds(rest: &mut &[u8]) -> Option<i64> {
    let (sign, after_sign) = rest.split_first()?;
    *rest = after_sign;
    let sign = match sign {
        b'Z' | b'z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = (number(rest, 2)?, after(rest, b":", 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times_are_written_and_read_as_known() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_795_404_650_672_518, "2026-11-23T03:30:50.672518Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(Instant(micros).to_string(), text);
            assert_eq!(Instant::parse(text), Some(Instant(micros)));
        }
    }

    #[test]
    fn the_examples_of_rfc_3339_are_read() {
        // The examples of section 5.8.
        for (text, micros) in [
            ("1985-04-12T23:20:50.52Z", 482_196_050_520_000),
            ("1996-12-19T16:39:57-08:00", 851_042_397_000_000),
            ("1990-12-31T23:59:60Z", 662_688_000_000_000),
            ("1990-12-31T15:59:60-08:00", 662_688_000_000_000),
            ("1937-01-01T12:00:27.87+00:20", -1_041_337_172_130_000),
        ] {
            assert_eq!(Instant::parse(text), Some(Instant(micros)), "{text}");
        }
    }

    #[test]
    fn invalid_timestamps_and_those_without_offset_are_ignored() {
        for text in [
            "",
            "2026",
            "2026-01-02T03:04:05",
            "2026-01-02",
            "2026-13-02T03:04:05Z",
            "2026-02-29T03:04:05Z",
            "2026-00-02T03:04:05Z",
            "2026-01-02T24:04:05Z",
            "2026-01-02T03:60:05Z",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05Zx",
            "2026-01-02T03:04:05+0100",
            "2026-01-02T03:04:05+24:00",
            "2026-01-02X03:04:05Z",
            "２026-01-02T03:04:05Z",
        ] {
            assert_eq!(Instant::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_age_is_in_milliseconds_and_never_negative() {
        let now = Instant(10_000_000);
        assert_eq!(Instant(9_998_500).age_millis(now), 1);
        assert_eq!(Instant(10_000_001).age_millis(now), 0);
        assert_eq!(Instant(i64::MIN).age_millis(now), i64::MAX / 1000);
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(micros in -62_000_000_000_000_000..250_000_000_000_000_000_i64) {
            prop_assert_eq!(Instant::parse(&Instant(micros).to_string()), Some(Instant(micros)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9TtZz:+. -]{0,40}|\\PC{0,20}") {
            let _ = Instant::parse(&text);
        }
    }
}
