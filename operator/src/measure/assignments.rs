//! What each worker of a trial is told: its share of the connections and the load, its seed, and when a reply is late. Pure.

use bench_format::{
    plan::{Figure, Load, Objective},
    terms::Terms,
    trial::{Assignment, TrialId},
};

use super::Spec;
use crate::registry::ProtocolCheck;

/// One assignment per worker: connections, rate and attempts in flight shared out, the rest to the first.
pub(super) fn assignments(spec: &Spec<'_>, terms: &Terms) -> Vec<Assignment> {
    let Spec { run, plan, ladder, trial, attempt, service, .. } = *spec;
    let workers = plan.workers;
    let all = ladder.connections.unwrap_or(trial.tier);
    let mut first_connection = 0;
    let assignment = |worker: u32| {
        let connections = share(all, worker, workers);
        let first = first_connection;
        first_connection += connections;
        Assignment {
            run: run.into(),
            trial: trial.clone(),
            attempt,
            worker,
            workers,
            address: service.address.clone(),
            connections,
            first_connection: first,
            seed: seed(plan.wire.seed, trial),
            load: load_of(&ladder.load, worker, workers, connections, all),
            message: ladder.message.clone(),
            warmup_ns: ladder.warmup.as_nanos() as u64,
            window_ns: ladder.window.as_nanos() as u64,
            drain_ns: plan.drain.as_nanos() as u64,
            late_after_ns: late_after_ns(&ladder.objectives, terms.late_by.as_deref()),
            keep_connections: spec.keep_connections,
            settings: spec.settings.clone(),
            samples: ladder.samples,
            protocol_check: spec.protocol_check == ProtocolCheck::AroundTheLoad,
        }
    };
    (0..workers).map(assignment).collect()
}

/// This worker's part of a whole; what can't be divided goes to the first ones.
fn share(whole: u32, worker: u32, workers: u32) -> u32 {
    whole / workers + u32::from(worker < whole % workers)
}

fn load_of(load: &Load, worker: u32, workers: u32, connections: u32, all: u32) -> Load {
    match *load {
        Load::Open { rate_per_second, arrivals } => {
            Load::Open { rate_per_second: rate_per_second * f64::from(connections) / f64::from(all), arrivals }
        }
        Load::Closed { messages_per_connection, in_flight } => {
            Load::Closed { messages_per_connection, in_flight: share(in_flight, worker, workers).max(1) }
        }
        Load::Sessions { ramp_seconds, spread_ms, in_flight } => {
            Load::Sessions { ramp_seconds, spread_ms, in_flight: share(in_flight, worker, workers).max(1) }
        }
    }
}

/// The longest time that an objective on the terms' histogram allows some message: whatever takes longer is late.
fn late_after_ns(objectives: &[Objective], late_by: Option<&str>) -> Option<u64> {
    let allowed = objectives.iter().filter_map(|objective| match &objective.figure {
        Figure::PercentileMs { histogram, .. } if Some(histogram.as_str()) == late_by => objective.at_most,
        _ => None,
    });
    allowed.reduce(f64::max).map(|allowed_ms| (allowed_ms * 1e6) as u64)
}

/// Seed of all that a trial leaves to chance: the same for every service, so that all of them get the same schedule;
/// another for each tier and repeat.
pub(crate) fn seed(plan: u64, trial: &TrialId) -> u64 {
    let TrialId { workload, variant, tier, process, repeat, .. } = trial;
    let words = format!("{workload}/{variant}/{tier}-p{process}-r{repeat}");
    // FNV-1a: stable over versions of Rust, which a bundle outlives.
    words
        .bytes()
        .fold(plan ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::upload::fixture::trial;

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        let shares: Vec<u32> = (0..3).map(|worker| share(100, worker, 3)).collect();
        assert_eq!(shares, [34, 33, 33]);
    }

    #[test]
    fn an_open_rate_follows_the_connections() {
        let load = Load::Open { rate_per_second: 100.0, arrivals: Default::default() };
        let Load::Open { rate_per_second, .. } = load_of(&load, 0, 3, 34, 100) else { panic!("closed") };
        assert!((rate_per_second - 34.0).abs() < 1e-9);
    }

    #[test]
    fn a_message_is_late_after_the_longest_response_that_an_objective_allows() {
        let objective = |histogram: &str, percentile, at_most| Objective {
            figure: Figure::PercentileMs { histogram: histogram.into(), percentile },
            at_most: Some(at_most),
            at_least: None,
        };
        let objectives =
            [objective("response", 50.0, 2.0), objective("response", 99.0, 10.5), objective("delay", 99.0, 50.0)];
        assert_eq!(late_after_ns(&objectives, Some("response")), Some(10_500_000));
        assert_eq!(late_after_ns(&objectives[2..], Some("response")), None);
        assert_eq!(late_after_ns(&objectives, None), None, "a workload without such a histogram has no late answers");
    }

    #[test]
    fn services_get_the_same_schedule_and_repeats_another() {
        let other = TrialId { service: "theirs".into(), ..trial() };
        let again = TrialId { repeat: 2, ..trial() };
        assert_eq!(seed(1, &trial()), seed(1, &other));
        assert_ne!(seed(1, &trial()), seed(1, &again));
        assert_ne!(seed(1, &trial()), seed(2, &trial()));
    }
}
