//! What limited a load. Pure.
//!
//! `checks` says what was looked at on each side. A trial from before these readings is judged by CPU shares alone, so
//! that its result stays as it was.

mod checks;
mod wording;

use bench_format::{
    plan::Load,
    result::{BoundBy, BoundCheck, BoundMeasure, BoundSide, Figures, Verdict},
};

pub use self::wording::why;
use crate::case::Case;

/// What limited the load, with everything that was looked at; the latter is absent for trials by the older rules.
pub(crate) fn bound(
    case: &Case<'_>,
    figures: &Figures,
    verdict: Option<&Verdict>,
) -> (Option<BoundBy>, Option<Vec<BoundCheck>>) {
    let trial = case.trial;
    if trial.bound_rules.is_none() {
        return (by_cpu_shares(&trial.load, figures, verdict, trial.thresholds.bound_share), None);
    }
    let checks = checks::checks(case, figures);
    (by_checks(&trial.load, &checks, verdict), Some(checks))
}

/// What limited the load, by everything that was looked at; `None` if nothing was used up and the load was offered as
/// its schedule says, without a missed objective. `None` as well if too little is known: without the service's CPU, only a
/// generator that used up its own is named.
///
/// A side is used up if its CPU, its quota or one of its threads is. A thread that had work all the time and waited for
/// a CPU for a good part of it was limited by other programs on that CPU, unless its own side used it up.
fn by_checks(load: &Load, checks: &[BoundCheck], verdict: Option<&Verdict>) -> Option<BoundBy> {
    let (service, generator) = (Side::of(BoundSide::Service, checks), Side::of(BoundSide::Generator, checks));
    let inference = Side::of(BoundSide::Inference, checks);
    if inference.used_up {
        return Some(BoundBy::Inference);
    }
    match (service.used_up, generator.used_up) {
        (true, true) => return Some(BoundBy::Both),
        // The rate of a generator that used up its CPU is a lower bound, even if nothing is known about the service.
        (false, true) => return Some(BoundBy::Generator),
        (true, false) if generator.known => return Some(BoundBy::Service),
        _ => {}
    }
    if !service.known || !generator.known {
        return None;
    }
    if service.displaced || generator.displaced || inference.displaced {
        return Some(BoundBy::Machine);
    }
    let failed = verdict.is_some_and(|verdict| !verdict.passed);
    let scheduled = load.is_open();
    (failed || !scheduled).then_some(BoundBy::Neither)
}

/// What the checks say about one side.
struct Side {
    /// Whether its CPU share is known.
    known: bool,
    /// Whether it used up its CPU, its quota or a thread, or was late.
    used_up: bool,
    /// Whether a thread had work all the time, and waited for a CPU that others used.
    displaced: bool,
}

impl Side {
    fn of(side: BoundSide, checks: &[BoundCheck]) -> Self {
        let reached = |measure: BoundMeasure| {
            let check = checks.iter().find(|check| check.side == side && check.measure == measure);
            check.map(BoundCheck::reached)
        };
        let is = |measure| reached(measure) == Some(true);
        let (busy, waited) = (is(BoundMeasure::Thread), is(BoundMeasure::Waiting));
        let used_up = is(BoundMeasure::Cpu) || is(BoundMeasure::Quota) || is(BoundMeasure::Late) || (busy && !waited);
        Self { known: reached(BoundMeasure::Cpu).is_some(), used_up, displaced: busy && waited && !used_up }
    }
}

/// The rule for trials without the later readings: what limited a closed loop or sessions, by CPU shares; `None` for an
/// open loop.
///
/// `bound_share` is the share of its CPU above which a side counts as used up. Sessions that met their objectives
/// without a used-up CPU were limited by their own pace, so they give `None`, too.
fn by_cpu_shares(load: &Load, figures: &Figures, verdict: Option<&Verdict>, bound_share: f64) -> Option<BoundBy> {
    let used_up = |share: Option<f64>| share.map(|share| share >= bound_share);
    if matches!(load, Load::Open { .. }) {
        return None;
    }
    if used_up(figures.inference_cpu_share) == Some(true) {
        return Some(BoundBy::Inference);
    }
    let bound = match (used_up(figures.service_cpu_share), used_up(figures.worker_cpu_share)?) {
        (Some(true), true) => BoundBy::Both,
        (Some(true), false) => BoundBy::Service,
        // The rate of a generator that used up its CPU is a lower bound, even if the service's CPU isn't known.
        (Some(false) | None, true) => BoundBy::Generator,
        (Some(false), false) => BoundBy::Neither,
        (None, false) => return None,
    };
    let failed = verdict.is_some_and(|verdict| !verdict.passed);
    let met_objectives = matches!(load, Load::Sessions { .. }) && bound == BoundBy::Neither && !failed;
    (!met_objectives).then_some(bound)
}

#[cfg(test)]
mod tests;
