//! A service that responds after a known delay must be measured with that delay.

use bench_format::{
    histogram::{Recorder, percentile_ns},
    result::TrialResult,
};

use crate::run::{Attempts, Checked, ensure, histogram, sound};

/// Percentiles that are compared for a delayed response.
const BOTH: [f64; 2] = [50.0, 99.0];
/// Percentile that is compared for an immediate response.
const MEDIAN: [f64; 1] = [50.0];

/// Tolerance of the harness: two per cent and a millisecond, in nanoseconds.
pub(crate) fn tolerance(recorded_ns: u64) -> u64 {
    recorded_ns / 50 + 1_000_000
}

/// More than twice the tolerance of a short time, so that it is refused however far inside the tolerance the measured
/// time is.
pub(crate) const MORE_THAN_TWICE_NS: u64 = 4_000_000;

/// Number of pings that the service records but no histogram contains: two in each protocol check, before and after the
/// trial.
const PINGS_OF_CHECKS: u64 = 4;

/// Whether the measured response times agree with those that the service recorded, at these percentiles.
fn check(result: &TrialResult, recorded: &Recorder, percentiles: &[f64]) -> Checked {
    sound(result)?;
    let response = histogram(result, "response_ns")?;
    ensure(response.count() + PINGS_OF_CHECKS == recorded.count(), || {
        let (responses, samples) = (recorded.count(), response.count());
        format!(
            "the service responded to {responses} pings, {PINGS_OF_CHECKS} of them of checks; the histogram has {samples}"
        )
    })?;
    for &percentile in percentiles {
        let of = |recorder| percentile_ns(recorder, percentile).ok_or("too few samples".to_owned());
        let (measured, expected) = (of(&response)?, of(recorded)?);
        ensure(measured.abs_diff(expected) <= tolerance(expected), || {
            format!("p{percentile} is {measured} ns, the service recorded {expected} ns")
        })?;
    }
    Ok(())
}

/// A copy of a recorder with every value changed.
pub(crate) fn changed(recorded: &Recorder, change: impl Fn(u64) -> u64) -> Recorder {
    let mut changed = Recorder::new();
    for value in recorded.values().iter_recorded() {
        (0..value.count_at_value()).for_each(|_| changed.record(change(value.value_iterated_to())));
    }
    changed
}

/// A recorder with `count` values that all equal the median of another one, which distinguishes it only by its values.
fn repeated(recorded: &Recorder, count: u64) -> Recorder {
    let median = percentile_ns(recorded, 50.0).expect("a median takes a single sample");
    let mut same = Recorder::new();
    (0..count).for_each(|_| same.record(median));
    same
}

#[test]
fn a_known_delay_is_measured_as_that_delay() {
    let mut attempts = Attempts::of("known-delay");
    let (delayed, run) = attempts.trial("self-test-delay", "delayed");
    let recorded = run.recorded("delay");
    let percentiles = BOTH.map(|percentile| percentile_ns(&recorded, percentile));
    println!("the service recorded p50 and p99 of {percentiles:?} ns");
    assert_eq!(check(&delayed, &recorded, &BOTH), Ok(()), "\n{}", run.output);

    // An immediate response must be measured as one. Its tail is the kernel's scheduling, which both sides see
    // differently; its median is not.
    let (honest, run) = attempts.trial("self-test-none", "honest");
    let at_once = run.recorded("none");
    assert_eq!(check(&honest, &at_once, &MEDIAN), Ok(()), "\n{}", run.output);

    // Must be refused: a service five per cent slower or faster than measured, one four milliseconds slower, and each of
    // the two services in place of the other.
    for share in [-0.05, 0.05] {
        let other = changed(&recorded, |ns| (ns as f64 * (1.0 + share)) as u64);
        assert!(check(&delayed, &other, &BOTH).is_err(), "a record off by {share} passes");
    }
    let later = changed(&at_once, |ns| ns + MORE_THAN_TWICE_NS);
    assert!(check(&honest, &later, &MEDIAN).is_err(), "a record off by 4 ms passes");
    let as_many = |of: &Recorder, like: &Recorder| repeated(of, like.count());
    assert!(
        check(&honest, &as_many(&recorded, &at_once), &MEDIAN).is_err(),
        "an honest service passes for a delayed one"
    );
    assert!(
        check(&delayed, &as_many(&at_once, &recorded), &MEDIAN).is_err(),
        "a delayed service passes for an honest one"
    );
}
