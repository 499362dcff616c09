//! Computes each worker's part of a trial: connections, load, seed, and the time after which a reply is late. Pure.

use bench_format::{plan::Load, terms::Terms, trial::Assignment};

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
            load: match terms.one_publisher {
                true => plan.load.clone(),
                false => load_of(&plan.load, worker, workers, connections, plan.connections),
            },
            message: plan.message.clone(),
            warmup_ns: plan.warmup.as_nanos() as u64,
            window_ns: plan.window.as_nanos() as u64,
            drain_ns: plan.drain.as_nanos() as u64,
            late_after_ns: terms.late_after_ns(&plan.objectives),
            keep_connections: plan.keep_connections,
            settings: plan.settings.clone(),
            websocket: plan.websocket.clone(),
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
        Load::Churn { rate_per_second, arrivals, connections_per_second, life_seconds } => {
            let part = f64::from(connections) / f64::from(all);
            Load::Churn {
                rate_per_second: rate_per_second * part,
                arrivals,
                connections_per_second: connections_per_second.map(|rate| rate * part),
                life_seconds,
            }
        }
        Load::Reconnect { cut, spread_seconds, in_flight } => {
            Load::Reconnect { cut, spread_seconds, in_flight: share(in_flight, worker, workers).max(1) }
        }
        Load::Sessions { ramp_seconds, spread_ms, in_flight } => {
            Load::Sessions { ramp_seconds, spread_ms, in_flight: share(in_flight, worker, workers).max(1) }
        }
    }
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
}
