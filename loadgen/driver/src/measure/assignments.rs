//! Computes each worker's part of a trial: connections, load, seed, and the time after which a reply is late. Pure.

use bench_format::{
    plan::{Figure, Load, Objective},
    terms::Terms,
    trial::Assignment,
};

use crate::trial_plan::TrialPlan;

/// One assignment per worker. Connections, rate and attempts in flight are divided; the first workers get the
/// remainder.
pub(super) fn assignments(plan: &TrialPlan, terms: &Terms) -> Vec<Assignment> {
    let workers = plan.workers;
    let mut first_connection = 0;
    let assignment = |worker: u32| {
        let connections = share(plan.connections, worker, workers);
        let first = first_connection;
        first_connection += connections;
        Assignment {
            run: plan.run.clone(),
            trial: plan.trial.clone(),
            attempt: plan.attempt,
            worker,
            workers,
            address: address_of(&plan.address, worker).into(),
            connections,
            first_connection: first,
            seed: plan.seed,
            load: load_of(&plan.load, worker, workers, connections, plan.connections),
            message: plan.message.clone(),
            warmup_ns: plan.warmup.as_nanos() as u64,
            window_ns: plan.window.as_nanos() as u64,
            drain_ns: plan.drain.as_nanos() as u64,
            late_after_ns: late_after_ns(&plan.objectives, terms.late_by.as_deref()),
            keep_connections: plan.keep_connections,
            settings: plan.settings.clone(),
            samples: plan.samples,
            protocol_check: plan.protocol_check,
        }
    };
    (0..workers).map(assignment).collect()
}

/// The address that this worker loads. A service of several processes has one address each, separated by commas.
fn address_of(addresses: &str, worker: u32) -> &str {
    let all: Vec<&str> = addresses.split(',').collect();
    all[worker as usize % all.len()]
}

/// This worker's part of a whole. The first workers get one more if it can't be divided evenly.
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

/// The longest time that an objective on the histogram `late_by` allows, in nanoseconds; a slower reply is late.
fn late_after_ns(objectives: &[Objective], late_by: Option<&str>) -> Option<u64> {
    let allowed = objectives.iter().filter_map(|objective| match &objective.figure {
        Figure::PercentileMs { histogram, .. } if Some(histogram.as_str()) == late_by => objective.at_most,
        _ => None,
    });
    allowed.reduce(f64::max).map(|allowed_ms| (allowed_ms * 1e6) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        let shares: Vec<u32> = (0..3).map(|worker| share(100, worker, 3)).collect();
        assert_eq!(shares, [34, 33, 33]);
    }

    #[test]
    fn workers_take_the_processes_of_a_service_in_turn() {
        let of = |addresses| (0..4).map(|worker| address_of(addresses, worker)).collect::<Vec<_>>();
        assert_eq!(of("127.0.0.1:1"), ["127.0.0.1:1"; 4]);
        assert_eq!(of("127.0.0.1:1,127.0.0.1:2"), ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1", "127.0.0.1:2"]);
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
        assert_eq!(late_after_ns(&objectives, None), None, "a workload without such a histogram has no late replies");
    }
}
