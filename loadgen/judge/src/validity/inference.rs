//! The rule for the inference simulator: whether it had enough CPU, so that its limits aren't attributed to the
//! service. Pure.

use bench_format::result::{ProcessReading, Reason, ReasonKind};

use super::{percent, reason};
use crate::case::Case;

/// Compares the inference simulator with the limits of a worker, because both are part of the harness.
pub(super) fn inference_cpu(case: &Case<'_>) -> Option<Reason> {
    let (start, end) = (case.service.readings.window_start.as_ref()?, case.service.readings.window_end.as_ref()?);
    let (from, to) = (start.inference.as_ref()?, end.inference.as_ref()?);
    let window_ns = end.unix_ns.saturating_sub(start.unix_ns) as f64;
    if window_ns <= 0.0 {
        return None;
    }
    let cpus = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) as f64 / window_ns;
    let (own, service) = (cpus(from.cpu_ns, to.cpu_ns), cpus(start.cpu_ns?, end.cpu_ns?));
    let allowed = case.trial.thresholds.worker_cpu_share;
    let mut description = Vec::new();
    if own > to.cpu_limit * allowed {
        let share = percent(own / to.cpu_limit);
        description.push(format!("inference used {share} of its CPU, allowed {}", percent(allowed)));
    }
    let throttled = throttled(from, to).unwrap_or(0.0);
    if throttled > case.trial.thresholds.throttled_share {
        let allowed = percent(case.trial.thresholds.throttled_share);
        description.push(format!("inference was throttled in {} of periods, allowed {allowed}", percent(throttled)));
    }
    // A service that uses up its own quota is limited by that, even if the CPU is full.
    let at_its_quota = service > end.cpu_limit? * allowed;
    if let Some(together) = case.trial.cpus.shared_with_inference.filter(|_| !at_its_quota || end.periods.is_none())
        && own + service > together * allowed
    {
        let share = percent((own + service) / together);
        description.push(format!(
            "inference and service used {share} of the CPU that they share, allowed {}; give inference a CPU of its own, \
             or the service a fraction of one",
            percent(allowed)
        ));
    }
    (!description.is_empty()).then(|| reason(ReasonKind::InferenceCpu, description.join("; ")))
}

/// Share of the periods of its CPU quota in which it was throttled.
fn throttled(from: &ProcessReading, to: &ProcessReading) -> Option<f64> {
    let grown = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?) as f64);
    let periods = grown(from.periods, to.periods).filter(|periods| *periods > 0.0)?;
    Some(grown(from.throttled_periods, to.throttled_periods)? / periods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixture::{Files, open},
        validity::fixture::reasons,
    };

    const SECOND: f64 = 1e9;

    /// Sets inference that used `seconds` of CPU in a window of two seconds, in which the service used one.
    fn used(files: &mut Files, seconds: f64, periods: Option<(u64, u64)>) {
        let reading = |cpu_ns, periods: Option<(u64, u64)>| ProcessReading {
            cpu_ns,
            cpu_limit: 1.0,
            throttled_periods: periods.map(|(throttled, _)| throttled),
            periods: periods.map(|(_, all)| all),
            ..ProcessReading::default()
        };
        let readings = &mut files.service.readings;
        readings.window_start.as_mut().unwrap().inference = Some(reading(0, periods.map(|_| (0, 0))));
        readings.window_end.as_mut().unwrap().inference = Some(reading((seconds * SECOND) as u64, periods));
    }

    #[test]
    fn inference_may_use_90_percent_of_its_cpu() {
        assert_eq!(reasons(open(), |files| used(files, 1.8, None)), Vec::<String>::new());
        assert_eq!(
            reasons(open(), |files| used(files, 1.9, None)),
            ["InferenceCpu: inference used 95.0 % of its CPU, allowed 90.0 %"]
        );
    }

    #[test]
    fn inference_may_be_throttled_in_one_percent_of_its_periods() {
        assert_eq!(reasons(open(), |files| used(files, 0.1, Some((2, 200)))), Vec::<String>::new());
        assert_eq!(
            reasons(open(), |files| used(files, 0.1, Some((3, 200)))),
            ["InferenceCpu: inference was throttled in 1.5 % of periods, allowed 1.0 %"]
        );
    }

    #[test]
    fn a_cpu_that_both_share_and_use_up_says_nothing_about_the_service() {
        let shared = |seconds, cpu_limit: Option<f64>| {
            reasons(open(), |files| {
                used(files, seconds, None);
                files.trial.cpus.shared_with_inference = Some(1.0);
                if let Some(limit) = cpu_limit {
                    let end = files.service.readings.window_end.as_mut().unwrap();
                    (end.cpu_limit, end.periods) = (Some(limit), Some(200));
                }
            })
        };
        assert_eq!(shared(0.7, None), Vec::<String>::new());
        assert!(shared(0.9, None)[0].contains("used 95.0 % of the CPU that they share"), "{:?}", shared(0.9, None));
        // The service uses up its quota of half the CPU, which is then its limit.
        assert_eq!(shared(0.9, Some(0.5)), Vec::<String>::new());
    }
}
