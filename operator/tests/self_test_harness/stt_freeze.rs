//! A gateway that is stopped for two seconds delays all audio that was due meanwhile.

use std::{cell::Cell, time::Duration};

use bench_format::{histogram::percentile_ns, result::TrialResult};

use crate::{
    freeze::freeze,
    run::{Attempts, Checked, ensure, histogram, sound, start},
};

/// Length of the plan's window.
const WINDOW: Duration = Duration::from_secs(12);
/// Number of sessions in the plan.
const SESSIONS: u64 = 50;
/// How long the gateway is stopped.
const FREEZE: Duration = Duration::from_secs(2);
/// Number of frames before the freeze: four seconds of all sessions, so that the freeze is inside the window.
const BEFORE: u64 = SESSIONS * 50 * 4;
/// Interval between the partials of a session, in seconds.
const INTERVAL: f64 = 1.0;

/// The age of the oldest frame of a partial at a percentile, by theory, in seconds, after a freeze of whole intervals.
///
/// A session whose tick was due `x` into the freeze (uniform over an interval) is late twice. At the thaw, its timer
/// fires with the frames held since `1 - x` before the freeze, so with an age of `f + 1 - x`. At its next tick, `x`
/// later, it sends all that was sent during the freeze: `f + x`. Of its `n` partials in the window, two are that late,
/// uniformly from `f` to `f + 1`; so the quantile `q` is `f + 1 - n (1 - q) / 2`. The other ticks of the freeze are not
/// made up for.
fn expected(freeze: Duration, percentile: f64) -> f64 {
    let freeze = freeze.as_secs_f64();
    let partials = WINDOW.as_secs_f64() - (freeze - INTERVAL).max(0.0);
    freeze + INTERVAL - partials * (1.0 - percentile / 100.0) / 2.0
}

fn check(result: &TrialResult, freeze: Duration) -> Checked {
    sound(result)?;
    let (newest, oldest) = (histogram(result, "newest_ns")?, histogram(result, "oldest_ns")?);
    // Above these percentiles the work of the thaw itself shows: all sessions are late at once.
    for percentile in [90.0, 95.0] {
        let measured = percentile_ns(&oldest, percentile).ok_or("too few samples")? as f64 / 1e9;
        let expected = expected(freeze, percentile);
        ensure((measured / expected - 1.0).abs() < 0.05, || {
            format!(
                "p{percentile} of oldest is {measured:.3} s after a freeze of {freeze:?}; in theory it is {expected:.3} s"
            )
        })?;
    }
    // At the thaw the newest frame is as old as the freeze is long: one partial in eleven.
    let late = percentile_ns(&newest, 95.0).ok_or("too few samples")? as f64 / 1e9;
    ensure((late / freeze.as_secs_f64() - 1.0).abs() < 0.05, || format!("p95 of newest is {late:.3} s"))?;
    let median = percentile_ns(&newest, 50.0).ok_or("too few samples")?;
    ensure(median < 50_000_000, || format!("the median of {median} ns shows more than the freeze"))
}

#[test]
fn a_freeze_shows_in_all_the_audio_that_was_due_during_it() {
    let frozen_for = Cell::new(Duration::ZERO);
    let mut attempts = Attempts::with(|| {
        let mut climbing = start("stt-freeze");
        let service = climbing.service("gateway-none");
        climbing.wait_for_stats(&service, "load", |stats| stats.messages.received > BEFORE);
        frozen_for.set(freeze(service.pid, FREEZE));
        climbing.finish()
    });
    let (result, run) = attempts.trial("self-test-gateway-none", "standard");
    assert_eq!(check(&result, frozen_for.get()), Ok(()), "\n{}", run.output);

    // Must be refused: a freeze of another length, and none at all.
    for other in [Duration::ZERO, FREEZE / 2, FREEZE * 2] {
        assert!(check(&result, other).is_err(), "a freeze of {other:?} passes");
    }
}
