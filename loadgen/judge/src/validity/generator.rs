//! The rules for the generator: whether it kept the schedule of an open loop. Pure.

use bench_format::{
    histogram::Recorder,
    plan::{Figure, Load},
    result::{Reason, ReasonKind, Witness},
};

use super::{percent, reason, results};
use crate::{case::Case, published::Scheduled, shares::worker_shares};

/// Share of the strictest objective's time by which the generator may be late.
const LATE_SHARE: f64 = 0.05;
/// The quantile of the generator's delay that is compared.
const LATE_PERCENTILE: f64 = 0.99;

pub(super) fn generator_late(case: &Case<'_>) -> Option<Reason> {
    let Some((name, delay)) = case.merged.own_lateness().filter(|(_, delay)| delay.count() > 0) else {
        let sent = case.merged.window.sent > 0;
        return sent.then(|| reason(ReasonKind::GeneratorLate, "no worker recorded its delay"));
    };
    too_late(case, name, delay).map(|description| reason(ReasonKind::GeneratorLate, description))
}

/// How late the generator was by a histogram of its delay, if that is more than is allowed.
pub(super) fn too_late(case: &Case<'_>, name: &str, delay: &Recorder) -> Option<String> {
    let allowed_ms = case.trial.thresholds.delay_p99_ms.max(strictest_ms(case).map_or(0.0, |ms| ms * LATE_SHARE));
    // Compared with few samples, too: accepting a late generator is worse than a rank that is off by one.
    let observed_ms = delay.values().value_at_quantile(LATE_PERCENTILE) as f64 / 1e6;
    let over = delay.overflow() as f64 > (1.0 - LATE_PERCENTILE) * delay.count() as f64;
    (over || observed_ms > allowed_ms)
        .then(|| format!("the generator was late: p99 of {name} {observed_ms:.1} ms, allowed {allowed_ms} ms"))
}

/// The smallest time that an objective allows, in milliseconds.
fn strictest_ms(case: &Case<'_>) -> Option<f64> {
    let latency_objectives = case.trial.objectives.iter().filter(|o| matches!(o.figure, Figure::PercentileMs { .. }));
    latency_objectives.filter_map(|objective| objective.at_most).reduce(f64::min)
}

pub(super) fn generator_cpu(case: &Case<'_>) -> Option<Reason> {
    let thresholds = &case.trial.thresholds;
    let over_cpu_limit = worker_shares(case).into_iter().filter(|worker| worker.share > thresholds.worker_cpu_share);
    let over_cpu_limit = over_cpu_limit.map(|worker| {
        let allowed = percent(thresholds.worker_cpu_share);
        format!("{} used {} of {} CPU, allowed {allowed}", worker.subject, percent(worker.share), worker.possessive)
    });
    let throttled = results(case).filter_map(|result| {
        let throttled = match (result.evidence.throttled_periods, result.evidence.periods) {
            (Some(throttled), Some(periods)) if periods > 0 => throttled as f64 / periods as f64,
            _ => 0.0,
        };
        (throttled > thresholds.throttled_share).then(|| {
            let (throttled, allowed) = (percent(throttled), percent(thresholds.throttled_share));
            format!("worker {} was throttled in {throttled} of periods, allowed {allowed}", result.worker)
        })
    });
    let description: Vec<String> = over_cpu_limit.chain(throttled).collect();
    (!description.is_empty()).then(|| reason(ReasonKind::GeneratorCpu, description.join("; ")))
}

pub(super) fn send_rate(case: &Case<'_>) -> Option<Reason> {
    let (sent, due) = (case.merged.attempted_sends(), case.merged.window.due);
    let allowed = case.trial.thresholds.send_share;
    let description =
        || format!("{sent} of {due} messages that were due were sent, allowed at least {}", percent(allowed));
    ((sent as f64) < due as f64 * allowed - allowed_unwritten(case))
        .then(|| reason(ReasonKind::SendRate, description()))
}

/// Messages that the load threads, one for each CPU, may hold at the end of the window: one write of each thread, due
/// before the end and sent after it.
fn allowed_unwritten(case: &Case<'_>) -> f64 {
    let threads: f64 = results(case).map(|result| result.evidence.cpu_limit.ceil()).sum();
    threads * f64::from(case.trial.message.coalesce)
}

/// If the service publishes, it keeps the schedule. Its lateness is part of the latency, which counts from the due
/// time, but as many messages must be due as the plan requires.
pub(super) fn published_share(case: &Case<'_>) -> Option<Reason> {
    let Load::Open { rate_per_second, .. } = case.trial.load else { return None };
    if case.trial.terms.witness != Witness::Receiver {
        return None;
    }
    let receivers: Vec<_> = case.merged.receivers().collect();
    let received = case.merged.histograms.get("response_ns").map_or(0, Recorder::total);
    let share = case.trial.thresholds.send_share;
    let window_ns = case.merged.window.duration_ns;
    let deviation = Scheduled { rate_per_second, window_ns, receivers: &receivers, received, share }.deviation()?;
    Some(reason(ReasonKind::SendRate, deviation.to_string()))
}

/// If the service publishes, the rate that it reports must be the plan's.
pub(super) fn published_rate(case: &Case<'_>) -> Option<Reason> {
    let publisher = case.service.readings.window_end.as_ref()?.publisher.as_ref()?;
    let planned = match case.trial.load {
        Load::Open { rate_per_second, .. } => Some(rate_per_second),
        _ => None,
    };
    let pace =
        |rate: Option<f64>| rate.map_or("as fast as it can".into(), |rate| format!("{rate} messages per second"));
    let reported = publisher.rate_per_second;
    (reported != planned).then(|| {
        let description = format!("the service publishes {}, and the plan's load is {}", pace(reported), pace(planned));
        reason(ReasonKind::SendRate, description)
    })
}

/// If the service publishes, its publisher must use the mode that the workload measures.
pub(super) fn published_mode(case: &Case<'_>) -> Option<Reason> {
    let reported = &case.service.readings.window_end.as_ref()?.publisher.as_ref()?.mode;
    let workload = &case.trial.trial.workload;
    let expected = case.trial.terms.publishes_by.as_ref()?;
    (reported != expected).then(|| {
        let description = format!("the service publishes by {reported:?}, but {workload} measures {expected:?}");
        reason(ReasonKind::Conformance, description)
    })
}

#[cfg(test)]
mod tests {
    use bench_format::{histogram::Recorder, plan::Objective};

    use super::*;
    use crate::{
        fixture::{Files, flood, open},
        validity::fixture::{reasons, result},
    };

    fn delayed(files: &mut Files, delay_ms: f64) {
        let mut recorder = Recorder::new();
        (0..1000).for_each(|_| recorder.record((delay_ms * 1e6) as u64));
        result(files).histograms.insert(bench_format::Name::from_static("delay_ns"), recorder.encode());
    }

    #[test]
    fn the_generator_may_be_late_by_5_ms_and_no_more() {
        assert_eq!(reasons(open(), |files| delayed(files, 4.9)), Vec::<String>::new());
        let late = reasons(open(), |files| delayed(files, 61.0));
        assert!(
            late[0].starts_with("GeneratorLate: the generator was late: p99 of delay 61.0 ms, allowed 5 ms"),
            "{late:?}"
        );
    }

    #[test]
    fn a_slow_objective_gives_the_generator_a_twentieth_of_its_time() {
        let figure = Figure::PercentileMs { histogram: "response".into(), percentile: 50.0 };
        let objective = Objective { figure, at_most: Some(200.0), at_least: None };
        let with = |delay_ms| {
            reasons(open(), |files| {
                delayed(files, delay_ms);
                let delay = result(files).histograms["delay_ns"].clone();
                result(files).histograms.insert(bench_format::Name::from_static("response_ns"), delay);
                files.trial.objectives = vec![objective.clone()];
            })
        };
        assert_eq!(with(9.9), Vec::<String>::new());
        assert!(with(10.1)[0].contains("allowed 10 ms"), "{:?}", with(10.1));
    }

    #[test]
    fn a_blocked_socket_does_not_make_the_generator_late() {
        let blocked = reasons(open(), |files| {
            delayed(files, 2000.0);
            let mut attempted_sends = Recorder::new();
            (0..files.uploads[0].window.due).for_each(|_| attempted_sends.record(1_000_000));
            let result = result(files);
            result.histograms.insert(bench_format::Name::from_static("lateness_ns"), attempted_sends.encode());
            result.window.sent = 0;
        });
        assert_eq!(blocked, Vec::<String>::new());
        let late = reasons(open(), |files| {
            let mut attempted_sends = Recorder::new();
            (0..1000).for_each(|_| attempted_sends.record(61_000_000));
            result(files).histograms.insert(bench_format::Name::from_static("lateness_ns"), attempted_sends.encode());
        });
        assert!(late[0].contains("p99 of lateness 61.0 ms, allowed 5 ms"), "{late:?}");
    }

    #[test]
    fn an_open_loop_without_a_recorded_delay_is_invalid() {
        let late = reasons(open(), |files| result(files).histograms.clear());
        assert_eq!(late, ["GeneratorLate: no worker recorded its delay"]);
    }

    #[test]
    fn a_worker_may_use_90_percent_of_its_cpu() {
        let used = |share: f64| reasons(open(), |files| result(files).window.cpu_ns = (2e9 * share) as u64);
        assert_eq!(used(0.899), Vec::<String>::new());
        assert_eq!(used(0.95), ["GeneratorCpu: worker 0 used 95.0 % of its CPU, allowed 90.0 %"]);
    }

    #[test]
    fn a_worker_may_be_throttled_in_one_percent_of_its_periods() {
        let throttled = |periods| {
            reasons(open(), |files| {
                let evidence = &mut result(files).evidence;
                (evidence.throttled_periods, evidence.periods) = (Some(periods), Some(1000));
            })
        };
        assert_eq!(throttled(10), Vec::<String>::new());
        assert_eq!(throttled(11), ["GeneratorCpu: worker 0 was throttled in 1.1 % of periods, allowed 1.0 %"]);
    }

    #[test]
    fn half_a_percent_of_the_schedule_and_one_write_per_thread_may_stay_unsent() {
        let sent = |due, sent, coalesce| {
            reasons(open(), |files| {
                files.trial.message.coalesce = coalesce;
                (result(files).window.due, result(files).window.sent) = (due, sent);
            })
        };
        assert_eq!(sent(10_000, 9949, 1), Vec::<String>::new());
        let description = "of 10000 messages that were due were sent, allowed at least 99.5 %";
        assert_eq!(sent(10_000, 9948, 1), [format!("SendRate: 9948 {description}")]);
        assert_eq!((sent(51, 50, 1).len(), sent(51, 49, 1).len()), (0, 1), "one of few is more than half a percent");
        assert_eq!((sent(10_000, 9886, 64).len(), sent(10_000, 9885, 64).len()), (0, 1), "a write of 64");
    }

    #[test]
    fn a_flood_has_no_schedule_to_miss() {
        let flood = reasons(flood(), |files| {
            delayed(files, 1000.0);
            result(files).window.cpu_ns = 2_000_000_000;
        });
        assert_eq!(flood, Vec::<String>::new());
    }
}
