//! A gateway whose partials wait for a known delay must be measured with that delay, for the newest and the oldest
//! frame.

use bench_format::{
    histogram::{Recorder, percentile_ns},
    result::TrialResult,
};

use crate::{
    known_delay::{MORE_THAN_TWICE_NS, changed, tolerance},
    run::{Attempts, Checked, Run, ensure, histogram, sound},
};

/// Number of sessions in the plan.
const SESSIONS: u64 = 60;
/// Percentiles that are compared for delayed partials.
const BOTH: [f64; 2] = [50.0, 99.0];
/// Percentile that is compared for immediate partials: the tail is the kernel's scheduling, which both sides see
/// differently.
const MEDIAN: [f64; 1] = [50.0];

/// The ages that a gateway recorded for its partials: of their newest and of their oldest frame.
struct Recorded {
    newest: Recorder,
    oldest: Recorder,
}

impl Recorded {
    fn of(run: &Run, flaw: &str) -> Self {
        Self {
            newest: run.recorded(&format!("gateway-{flaw}")),
            oldest: run.read_recorded(&format!("gateway-{flaw}-recorded-oldest.json")),
        }
    }

    fn changed(&self, change: impl Fn(u64) -> u64) -> Self {
        Self { newest: changed(&self.newest, &change), oldest: changed(&self.oldest, &change) }
    }
}

/// Whether the measured ages agree with those that the gateway recorded, at these percentiles.
fn check(result: &TrialResult, recorded: &Recorded, percentiles: &[f64]) -> Checked {
    sound(result)?;
    for (name, recorded) in [("newest_ns", &recorded.newest), ("oldest_ns", &recorded.oldest)] {
        let measured = histogram(result, name)?;
        // The gateway doesn't record the last partial of a session, and some partials reach the worker only in the
        // drain.
        ensure(recorded.count().abs_diff(measured.count()) <= SESSIONS, || {
            format!("{name}: the gateway sent {} partials, the histogram holds {}", recorded.count(), measured.count())
        })?;
        for &percentile in percentiles {
            let of = |recorder| percentile_ns(recorder, percentile).ok_or("too few samples".to_owned());
            let (measured, expected) = (of(&measured)?, of(recorded)?);
            ensure(measured.abs_diff(expected) <= tolerance(expected), || {
                format!("p{percentile} of {name} is {measured}, the gateway recorded {expected}")
            })?;
        }
    }
    Ok(())
}

#[test]
fn a_known_delay_of_partials_is_measured_as_that_delay() {
    let mut attempts = Attempts::of("stt-known-delay");
    let (delayed, run) = attempts.trial("self-test-gateway-delay", "delayed");
    let recorded = Recorded::of(run, "delay");
    assert_eq!(check(&delayed, &recorded, &BOTH), Ok(()), "\n{}", run.output);
    let (honest, run) = attempts.trial("self-test-gateway-none", "honest");
    let at_once = Recorded::of(run, "none");
    assert_eq!(check(&honest, &at_once, &MEDIAN), Ok(()), "\n{}", run.output);

    // Must be refused: a gateway five per cent slower or faster than measured, one four milliseconds slower, and each of
    // the two gateways in place of the other.
    for share in [-0.05, 0.05] {
        let other = recorded.changed(|ns| (ns as f64 * (1.0 + share)) as u64);
        assert!(check(&delayed, &other, &BOTH).is_err(), "a record off by {share} passes");
    }
    assert!(
        check(&honest, &at_once.changed(|ns| ns + MORE_THAN_TWICE_NS), &MEDIAN).is_err(),
        "a record off by 4 ms passes"
    );
    assert!(check(&honest, &recorded, &MEDIAN).is_err(), "an honest gateway passes for a delayed one");
    assert!(check(&delayed, &at_once, &BOTH).is_err(), "a delayed gateway passes for an honest one");
}
