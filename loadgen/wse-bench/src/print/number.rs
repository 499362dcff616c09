//! Numbers as people read them; an unknown one is `n/a`. Pure.

use bench_format::histogram;

/// Stands for an unknown number.
pub(super) const UNKNOWN: &str = "n/a";

pub(super) fn milliseconds(ns: Option<u64>) -> String {
    ns.map_or(UNKNOWN.into(), histogram::milliseconds)
}

pub(super) fn rate(per_second: Option<f64>) -> String {
    match per_second {
        None => UNKNOWN.into(),
        Some(rate) if rate >= 1e6 => format!("{:.2}M", rate / 1e6),
        Some(rate) => count(rate.round() as u64),
    }
}

pub(super) fn decimal(value: Option<f64>, digits: usize) -> String {
    value.map_or(UNKNOWN.into(), |value| format!("{value:.digits$}"))
}

/// A share as a percentage; rounded down, so that it is 100 % only when it is all.
pub(super) fn percent(share: Option<f64>) -> String {
    match share {
        None => UNKNOWN.into(),
        Some(1.0) => "100 %".into(),
        Some(share) => format!("{:.2} %", (share * 1e4).floor() / 1e2),
    }
}

/// A number with commas between groups of three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(rate(Some(14_700_000.0)), "14.70M");
        assert_eq!(rate(Some(15_020.4)), "15,020");
        assert_eq!(milliseconds(Some(380_000)), "0.380");
        assert_eq!(milliseconds(Some(498_700_000)), "499");
    }

    #[test]
    fn unknown_figures_are_printed_as_unknown() {
        assert_eq!(
            (milliseconds(None), rate(None), decimal(None, 1), percent(None)),
            ("n/a".into(), "n/a".into(), "n/a".into(), "n/a".into())
        );
    }

    #[test]
    fn one_lost_connection_in_a_million_is_not_all_of_them() {
        assert_eq!([1.0, 0.999_999, 0.5].map(|share| percent(Some(share))), ["100 %", "99.99 %", "50.00 %"]);
    }
}
