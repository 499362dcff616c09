//! The rules for clocks: of the workers, and of a service that publishes.

use bench_format::result::{Reason, ReasonKind};

use super::{reason, results};
use crate::case::Case;

/// Largest drift between wall clock and monotonic clock, or between the clocks of publisher and coordinator, during a trial,
/// in nanoseconds: more than slewing is a step. What is known of them may not be less sure either.
const CLOCK_STEP_NS: u64 = 10_000_000;

/// Compares the spread of the starts, the planned start included, because the coordinator reads the service by that. What a
/// worker doesn't know of the coordinator's clock counts as apart.
pub(super) fn start_skew(case: &Case<'_>) -> Option<Reason> {
    let skews = || results(case).map(|result| result.evidence.start_skew_ns).chain([0]);
    let spread_ms = (skews().max()? - skews().min()?) as f64 / 1e6;
    let unsure_ms = unsure_ns(case) as f64 / 1e6;
    let allowed = case.trial.thresholds.start_skew_ms;
    if spread_ms > allowed {
        let description = format!("workers started {spread_ms:.1} ms apart, allowed {allowed} ms");
        return Some(reason(ReasonKind::StartSkew, description));
    }
    (spread_ms + unsure_ms > allowed).then(|| {
        let description = format!(
            "workers started {spread_ms:.1} ms apart by clocks that are known to ± {unsure_ms:.1} ms, allowed {allowed} ms"
        );
        reason(ReasonKind::StartSkew, description)
    })
}

/// The largest uncertainty of a worker about the coordinator's clock, in nanoseconds.
fn unsure_ns(case: &Case<'_>) -> u64 {
    results(case).map(|result| result.evidence.clock_uncertainty_ns).max().unwrap_or_default()
}

pub(super) fn clock_step(case: &Case<'_>) -> Option<Reason> {
    worker_clock(case).or_else(|| publisher_clock(case))
}

fn worker_clock(case: &Case<'_>) -> Option<Reason> {
    let largest_step = results(case).max_by_key(|result| result.evidence.clock_step_ns.unsigned_abs())?;
    let step = largest_step.evidence.clock_step_ns;
    (step.unsigned_abs() > CLOCK_STEP_NS).then(|| {
        let (step_ms, allowed) = (step as f64 / 1e6, CLOCK_STEP_NS as f64 / 1e6);
        let description =
            format!("the clock of worker {} jumped by {step_ms:.1} ms, allowed {allowed} ms", largest_step.worker);
        reason(ReasonKind::ClockStep, description)
    })
}

/// Judges the clock by which the service publishes, as far as latencies are corrected by it.
fn publisher_clock(case: &Case<'_>) -> Option<Reason> {
    let clock = case.service.publisher_clock?;
    let allowed = CLOCK_STEP_NS as f64 / 1e6;
    let (drift, unsure_ns) = (clock.drift_ns.unwrap_or_default(), clock.uncertainty_ns + unsure_ns(case));
    // Each of its two readings may be wrong by the uncertainty.
    if drift.unsigned_abs() > CLOCK_STEP_NS + 2 * clock.uncertainty_ns {
        let drift_ms = drift as f64 / 1e6;
        let description =
            format!("the clocks of publisher and coordinator came {drift_ms:.1} ms apart, allowed {allowed} ms");
        return Some(reason(ReasonKind::ClockStep, description));
    }
    (unsure_ns > CLOCK_STEP_NS).then(|| {
        let unsure_ms = unsure_ns as f64 / 1e6;
        let description = format!("the publisher's clock is known to ± {unsure_ms:.1} ms, allowed {allowed} ms");
        reason(ReasonKind::ClockStep, description)
    })
}

#[cfg(test)]
mod tests {
    use bench_format::result::PublisherClock;

    use super::super::fixture::{reasons, result};
    use crate::fixture::flood;

    #[test]
    fn a_clock_that_jumps_makes_the_trial_invalid() {
        let stepped = |ns| reasons(flood(), |files| result(files).evidence.clock_step_ns = ns);
        assert_eq!(stepped(10_000_000), [""; 0]);
        assert_eq!(stepped(-12_000_000), ["ClockStep: the clock of worker 0 jumped by -12.0 ms, allowed 10 ms"]);
    }

    #[test]
    fn what_is_not_known_of_a_clock_counts_as_a_difference() {
        let unsure = |ns, skew_ns| {
            reasons(flood(), |files| {
                result(files).evidence.clock_uncertainty_ns = ns;
                result(files).evidence.start_skew_ns = skew_ns;
            })
        };
        assert_eq!(unsure(9_000_000, 40_000_000), [""; 0]);
        let description =
            "StartSkew: workers started 40.0 ms apart by clocks that are known to ± 11.0 ms, allowed 50 ms";
        assert_eq!(unsure(11_000_000, 40_000_000), [description]);
    }

    #[test]
    fn a_publisher_whose_clock_drifts_or_is_not_known_gives_no_latencies() {
        let of = |uncertainty_ns, drift_ns| {
            reasons(flood(), |files| {
                result(files).evidence.clock_uncertainty_ns = 4_000_000;
                // However far it is ahead: latencies are corrected by that.
                let clock = PublisherClock { ahead_ns: 3_600_000_000_000, uncertainty_ns, drift_ns };
                files.service.publisher_clock = Some(clock);
            })
        };
        assert_eq!(of(6_000_000, Some(-22_000_000)), [""; 0]);
        assert_eq!(of(6_000_000, None), [""; 0]);
        let drifted = "ClockStep: the clocks of publisher and coordinator came -10.0 ms apart, allowed 10 ms";
        assert_eq!(of(0, Some(-10_000_001)), [drifted]);
        let unknown = "ClockStep: the publisher's clock is known to ± 10.0 ms, allowed 10 ms";
        assert_eq!(of(6_000_001, Some(0)), [unknown]);
    }
}
