//! Parses and checks the numbers in settings. Pure.

use std::time::Duration;

/// Largest value of a setting in milliseconds, or of a factor: one day in milliseconds.
const LARGEST: f64 = 86_400_000.0;

/// Parses a number from 0 to [`LARGEST`].
pub(crate) fn not_negative(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.0..=LARGEST).contains(&number) {
        true => Ok(number),
        false => Err(format!("must be between 0 and {LARGEST}")),
    }
}

/// Parses a number of milliseconds from 0 to [`LARGEST`].
pub(crate) fn milliseconds(text: &str) -> Result<Duration, String> {
    not_negative(text).map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3))
}

/// Parses a share of all requests, from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => Err(format!("the share {text} must be between 0 and 1")),
    }
}
