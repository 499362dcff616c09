//! A service that answers after a known delay must come back as that delay.

use bench_format::{
    histogram::{Recorder, percentile_ns},
    result::TrialResult,
};

use crate::run::{Checked, Run, ensure, histogram, run, sound};

/// How far the harness may be off: two per cent and a millisecond, in nanoseconds.
fn tolerance(recorded_ns: u64) -> u64 {
    recorded_ns / 50 + 1_000_000
}

/// Whether the measured response is what the service recorded of itself.
fn check(result: &TrialResult, recorded: &Recorder) -> Checked {
    sound(result)?;
    let response = histogram(result, "response_ns")?;
    ensure(response.count() == recorded.count(), || {
        format!("the service answered {} pings, the histogram holds {}", recorded.count(), response.count())
    })?;
    for percentile in [50.0, 99.0] {
        let of = |recorder| percentile_ns(recorder, percentile).ok_or("too few samples".to_owned());
        let (seen, expected) = (of(&response)?, of(recorded)?);
        ensure(seen.abs_diff(expected) <= tolerance(expected), || {
            format!("p{percentile} is {seen} ns, the service recorded {expected} ns")
        })?;
    }
    Ok(())
}

/// The record of a service that was slower by a share.
fn slower(recorded: &Recorder, share: f64) -> Recorder {
    let mut changed = Recorder::new();
    for value in recorded.values().iter_recorded() {
        for _ in 0..value.count_at_value() {
            changed.record((value.value_iterated_to() as f64 * (1.0 + share)) as u64);
        }
    }
    changed
}

/// An invalid trial says that the machine was busy, not that the harness is wrong: it is repeated, once.
fn measured() -> Run {
    let first = run("known-delay");
    if first.exit == Some(0) { first } else { run("known-delay") }
}

#[test]
fn a_known_delay_is_measured_as_that_delay() {
    let run = measured();
    let delayed = run.trial("self-test-delay", "delayed");
    let recorded = run.recorded("delay");
    let percentiles = [50.0, 99.0].map(|percentile| percentile_ns(&recorded, percentile));
    println!("the service recorded p50 and p99 of {percentiles:?} ns");
    assert_eq!(check(&delayed, &recorded), Ok(()), "\n{}", run.output);

    // What must be refused: a service five per cent slower or faster than measured, and an honest one.
    for share in [-0.05, 0.05] {
        assert!(check(&delayed, &slower(&recorded, share)).is_err(), "a record off by {share} passes");
    }
    let honest = run.trial("self-test-none", "honest");
    assert!(check(&honest, &recorded).is_err(), "an honest service passes for a delayed one");
}
