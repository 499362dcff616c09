//! Divisions that are undefined for a divisor of 0. Pure.

/// Converts nanoseconds to seconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// `count / seconds`, or `None` if `seconds` is not positive.
pub(crate) fn per_second(count: u64, seconds: f64) -> Option<f64> {
    ratio(count, seconds)
}

/// `count / by`, or `None` if `by` is not positive.
pub(crate) fn ratio(count: u64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| count as f64 / by)
}
