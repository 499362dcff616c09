//! Wall-clock time in the protocol's text format. Pure, except for [`now_millis`].

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use wse_utilities::instant::date;

const MILLIS_PER_DAY: u64 = 86_400_000;

/// Milliseconds since the Unix epoch; 0 if the system clock is set before it.
pub(crate) fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Milliseconds since the Unix epoch, displayed as RFC 3339 in UTC with milliseconds: `2026-11-20T23:33:15.492Z`.
pub(crate) struct Timestamp(pub(crate) u64);

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date((self.0 / MILLIS_PER_DAY) as i64);
        let millis = self.0 % MILLIS_PER_DAY;
        let (seconds, millis) = (millis / 1000, millis % 1000);
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_are_formatted() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (1_795_217_595_492, "2026-11-20T23:33:15.492Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(millis).to_string(), text);
        }
    }
}
