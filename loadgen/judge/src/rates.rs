//! Divisions that may have nothing to divide by. Pure.

/// Nanoseconds in seconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A count over so many seconds, unless there are none.
pub(crate) fn per_second(count: u64, seconds: f64) -> Option<f64> {
    ratio(count, seconds)
}

/// `count / by`, unless there is nothing to divide by.
pub(crate) fn ratio(count: u64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| count as f64 / by)
}
