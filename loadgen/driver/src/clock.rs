//! Wall-clock times in UTC, as numbers for the protocol and as text for people, and how clocks of machines differ.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench_format::{
    result::PublisherClock,
    trial::{Clock, ClockOffset},
};

use crate::http::HttpClient;

const SECONDS_PER_DAY: u64 = 86_400;
/// Number of round trips that are tried until one is shorter than two milliseconds.
const MOST_ROUND_TRIPS: usize = 60;
const SURE_ENOUGH_NS: u64 = 1_000_000;

/// Reads how the clock of a server that responds to this URL with its [`Clock`] differs from ours; `None` if it doesn't.
pub async fn clock_offset(http: &HttpClient, url: &str) -> Option<ClockOffset> {
    let mut best: Option<ClockOffset> = None;
    for trip in 0..MOST_ROUND_TRIPS {
        if trip >= ClockOffset::ROUND_TRIPS && best.is_some_and(|best| best.uncertainty_ns < SURE_ENOUGH_NS) {
            break;
        }
        let (sent, sent_unix_ns) = (Instant::now(), unix_ns());
        let (status, body) = http.get(url).await.ok()?;
        let duration_ns = sent.elapsed().as_nanos() as u64;
        let clock: Clock = status.is_success().then(|| serde_json::from_slice(&body).ok())??;
        best = Some(ClockOffset::of_round_trip(sent_unix_ns, duration_ns, clock).or_surer(best));
    }
    best
}

/// The evidence of a publisher's clock before a load and, where it could be read, after it.
pub fn publisher_clock(before: ClockOffset, after: Option<ClockOffset>) -> PublisherClock {
    PublisherClock {
        ahead_ns: before.ahead_ns,
        uncertainty_ns: after.map_or(0, |after| after.uncertainty_ns).max(before.uncertainty_ns),
        drift_ns: after.map(|after| after.ahead_ns - before.ahead_ns),
    }
}

/// The current time in nanoseconds since the Unix epoch.
pub fn unix_ns() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Formats nanoseconds since the Unix epoch as `2026-11-21T22:35:31Z`.
pub fn rfc3339(unix_ns: u64) -> String {
    let [year, month, day, hour, minute, second] = calendar(unix_ns);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats nanoseconds since the Unix epoch as `20261121-223531`, which sorts as text and is valid in a folder name.
pub fn stamp(unix_ns: u64) -> String {
    let [year, month, day, hour, minute, second] = calendar(unix_ns);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month, day, hour, minute, second of the proleptic Gregorian calendar.
fn calendar(unix_ns: u64) -> [u64; 6] {
    let seconds = unix_ns / 1_000_000_000;
    let (days, rest) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    // Years counted from 1 March make the leap day the last one, and 400 years always have 146 097 days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    [year, month, day, rest / 3600, rest / 60 % 60, rest % 60]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn known_moments_have_their_known_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400 * SECOND), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_300_531 * SECOND), "2026-11-21T22:35:31Z");
        assert_eq!(stamp(1_767_225_599 * SECOND), "20251231-235959");
    }

    #[test]
    fn the_clock_is_later_than_the_day_of_this_test() {
        assert!(unix_ns() > 1_790_000_000 * SECOND);
    }
}
