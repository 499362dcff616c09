//! What bound a load, as text. Pure.

use bench_format::result::{BoundBy, BoundCheck, BoundMeasure, BoundSide};

/// Why a load was bound as it was: what was used up, or for `neither` everything that was looked at. Empty for trials
/// from before it was recorded.
///
/// For example `thread rx-0 of the service 96 %` or `CPU of the service 51 %, CPU of the generator 40 %`.
pub fn why(bound_by: BoundBy, checks: &[BoundCheck]) -> String {
    let named = checks.iter().filter(|check| names(bound_by, check, checks));
    named.map(words).collect::<Vec<_>>().join(", ")
}

/// Whether a check is among the reasons for this bound.
fn names(bound_by: BoundBy, check: &BoundCheck, all: &[BoundCheck]) -> bool {
    let on = |sides: &[BoundSide]| sides.contains(&check.side) && check.reached();
    let side = match bound_by {
        BoundBy::Neither => return true,
        BoundBy::Machine => {
            let is_busy = |other: &BoundCheck| {
                other.side == check.side && other.measure == BoundMeasure::Thread && other.reached()
            };
            return check.measure == BoundMeasure::Waiting && check.reached() && all.iter().any(is_busy);
        }
        BoundBy::Service => on(&[BoundSide::Service]),
        BoundBy::Generator => on(&[BoundSide::Generator]),
        BoundBy::Both => on(&[BoundSide::Service, BoundSide::Generator]),
        BoundBy::Inference => on(&[BoundSide::Inference]),
    };
    side && check.measure != BoundMeasure::Waiting
}

/// A check as the part of a sentence.
fn words(check: &BoundCheck) -> String {
    let side = match check.side {
        BoundSide::Service => "the service",
        BoundSide::Generator => "the generator",
        BoundSide::Inference => "inference",
    };
    let thread = || check.thread.as_deref().unwrap_or_default();
    let share = format!("{:.0} %", check.share * 100.0);
    match check.measure {
        BoundMeasure::Cpu => format!("CPU of {side} {share}"),
        BoundMeasure::Quota => format!("{side} throttled in {share} of periods"),
        BoundMeasure::Thread => format!("thread {} of {side} {share}", thread()),
        BoundMeasure::Waiting => format!("thread {} of {side} waited for a CPU {share}", thread()),
        BoundMeasure::Late => format!("results of {side} late {share}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(side: BoundSide, measure: BoundMeasure, share: f64, limit: f64) -> BoundCheck {
        let of_thread = matches!(measure, BoundMeasure::Thread | BoundMeasure::Waiting);
        BoundCheck { side, measure, share, limit, thread: of_thread.then(|| "rx-0".into()) }
    }

    #[test]
    fn what_was_used_up_is_named_and_for_neither_all_that_was_looked_at() {
        use BoundMeasure::{Cpu, Late, Quota, Thread, Waiting};
        use BoundSide::{Generator, Inference, Service};
        let checks = [
            check(Service, Cpu, 0.48, 0.9),
            check(Service, Quota, 0.25, 0.1),
            check(Service, Thread, 0.96, 0.9),
            check(Service, Waiting, 0.3, 0.1),
            check(Generator, Cpu, 0.4, 0.9),
            check(Generator, Waiting, 0.2, 0.1),
            check(Inference, Late, 0.07, 0.05),
        ];
        let quota_and_thread = "the service throttled in 25 % of periods, thread rx-0 of the service 96 %";
        assert_eq!(why(BoundBy::Service, &checks), quota_and_thread);
        assert_eq!(why(BoundBy::Machine, &checks), "thread rx-0 of the service waited for a CPU 30 %");
        assert_eq!(why(BoundBy::Inference, &checks), "results of inference late 7 %");
        assert_eq!(why(BoundBy::Neither, &checks).matches(", ").count(), 6);
        assert_eq!(why(BoundBy::Service, &[]), "", "an older bundle");
    }
}
