//! A service that is stopped for two seconds delays every message that was due meanwhile.

use std::{
    cell::Cell,
    thread::sleep,
    time::{Duration, Instant},
};

use bench_format::{
    histogram::{Recorder, percentile_ns},
    result::TrialResult,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{Attempts, Checked, ensure, histogram, sound, start};

/// Length of the plan's window.
const WINDOW: Duration = Duration::from_secs(10);
/// Number of messages in the plan's window.
const MESSAGES: u64 = 2000;
/// How long the service is stopped.
const FREEZE: Duration = Duration::from_secs(2);
/// Number of messages before the freeze: those of one second, so that the freeze is inside the window.
const BEFORE: u64 = 200;

/// The response time at a percentile, by theory, in seconds.
///
/// At a constant rate, a message that is due `t` into a freeze of length `f` waits `f - t`. Of all messages in a window
/// `w`, the share `(f - x) / w` waits longer than `x`; so the quantile `q` is `f - w (1 - q)`.
fn expected(freeze: Duration, percentile: f64) -> f64 {
    freeze.as_secs_f64() - WINDOW.as_secs_f64() * (1.0 - percentile / 100.0)
}

fn check_response(response: &Recorder, freeze: Duration) -> Checked {
    ensure(response.count() == MESSAGES, || format!("{} responses instead of {MESSAGES}", response.count()))?;
    for percentile in [90.0, 95.0, 99.0] {
        let measured = percentile_ns(response, percentile).ok_or("too few samples")? as f64 / 1e9;
        let expected = expected(freeze, percentile);
        ensure((measured / expected - 1.0).abs() < 0.05, || {
            format!("p{percentile} is {measured:.3} s after a freeze of {freeze:?}; in theory it is {expected:.3} s")
        })?;
    }
    let median = percentile_ns(response, 50.0).ok_or("too few samples")?;
    ensure(median < 50_000_000, || format!("the median of {median} ns shows more than the freeze"))
}

fn check(result: &TrialResult, freeze: Duration) -> Checked {
    sound(result)?;
    check_response(&histogram(result, "response_ns")?, freeze)
}

/// Stops the process for a while; returns how long it was really stopped.
pub(crate) fn freeze(pid: u32, length: Duration) -> Duration {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let begun = Instant::now();
    // This sleep is the experiment, not a wait for an event.
    sleep(length);
    kill_process(pid, Signal::CONT).unwrap();
    begun.elapsed()
}

#[test]
fn a_freeze_shows_in_every_message_that_was_due_during_it() {
    let frozen_for = Cell::new(Duration::ZERO);
    let mut attempts = Attempts::with(|| {
        let mut climbing = start("freeze");
        let service = climbing.service("none");
        climbing.wait_for_stats(&service, "load", |stats| stats.messages.consumed > BEFORE);
        frozen_for.set(freeze(service.pid, FREEZE));
        climbing.finish()
    });
    let (result, run) = attempts.trial("self-test-none", "standard");
    assert_eq!(check(&result, frozen_for.get()), Ok(()), "\n{}", run.output);

    // Must be refused: a freeze of another length, and none at all.
    for other in [Duration::ZERO, FREEZE / 2, FREEZE * 2] {
        assert!(check(&result, other).is_err(), "a freeze of {other:?} passes");
    }
}

#[test]
fn a_closed_loop_generator_is_refused() {
    let responses_with = |slow: u64| {
        let mut response = Recorder::new();
        (0..MESSAGES - slow).for_each(|_| response.record(100_000));
        (0..slow).for_each(|_| response.record(FREEZE.as_nanos() as u64));
        response
    };
    // Ten connections, each with one message in flight when the service stops.
    assert!(check_response(&responses_with(10), FREEZE).is_err());
    assert!(check_response(&responses_with(0), FREEZE).is_err());
    // A distribution that follows the theory is accepted.
    let mut theory = Recorder::new();
    (0..1600).for_each(|_| theory.record(100_000));
    (0..400).for_each(|n| theory.record((FREEZE.as_nanos() as u64) * n / 400 + 100_000));
    assert_eq!(check_response(&theory, FREEZE), Ok(()));
}
