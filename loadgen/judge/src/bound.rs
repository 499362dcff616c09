//! What limited a load. Pure.

use bench_format::{
    plan::Load,
    result::{BoundBy, Figures, Verdict},
};

/// What limited a closed loop or sessions; `None` for an open loop, which its schedule limits.
///
/// `bound_share` is the share of its CPU above which a side counts as used up. Sessions that met their objectives
/// without a used-up CPU were limited by their own pace, so they give `None`, too.
pub(crate) fn bound_by(load: &Load, figures: &Figures, verdict: Option<&Verdict>, bound_share: f64) -> Option<BoundBy> {
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
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_is_bound_by_the_side_that_used_up_its_cpu() {
        let closed = Load::Closed { messages_per_connection: None, in_flight: 1 };
        let bound = |service, worker| {
            let figures = Figures { service_cpu_share: service, worker_cpu_share: worker, ..Figures::default() };
            bound_by(&closed, &figures, None, 0.9)
        };
        assert_eq!(bound(Some(0.9), Some(0.89)), Some(BoundBy::Service));
        assert_eq!(bound(Some(0.1), Some(0.95)), Some(BoundBy::Generator));
        assert_eq!(bound(Some(1.0), Some(1.0)), Some(BoundBy::Both));
        assert_eq!(bound(Some(0.5), Some(0.5)), Some(BoundBy::Neither));
        assert_eq!(bound(None, Some(0.5)), None);
        assert_eq!(
            bound(None, Some(0.9)),
            Some(BoundBy::Generator),
            "a lower bound, since the service's CPU isn't known"
        );
        assert_eq!(bound(Some(0.95), None), None);
    }

    #[test]
    fn an_open_loop_is_bound_by_its_schedule() {
        let open = Load::Open { rate_per_second: 1.0, arrivals: Default::default() };
        let figures = Figures { service_cpu_share: Some(1.0), worker_cpu_share: Some(1.0), ..Figures::default() };
        assert_eq!(bound_by(&open, &figures, None, 0.9), None);
    }

    #[test]
    fn failed_sessions_report_their_bound_and_passed_ones_only_a_used_up_cpu() {
        let sessions = Load::Sessions { ramp_seconds: 0.0, spread_ms: 0.0, in_flight: 1 };
        let bound = |service, inference, passed| {
            let figures = Figures {
                service_cpu_share: Some(service),
                worker_cpu_share: Some(0.1),
                inference_cpu_share: Some(inference),
                ..Figures::default()
            };
            let verdict = Verdict { passed, objectives: vec![] };
            bound_by(&sessions, &figures, Some(&verdict), 0.9)
        };
        assert_eq!(bound(0.5, 0.1, true), None);
        assert_eq!(bound(0.5, 0.1, false), Some(BoundBy::Neither));
        assert_eq!(bound(0.95, 0.1, true), Some(BoundBy::Service));
        assert_eq!(bound(0.95, 0.95, false), Some(BoundBy::Inference));
    }
}
