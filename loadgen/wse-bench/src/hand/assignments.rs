//! What each worker of a trial is told. Pure.

use std::time::Duration;

use bench_format::{
    plan::Load,
    trial::{Assignment, TrialId},
};

use crate::{cli::Cli, suite::Step};

/// One assignment for each worker: they share connections and rate without overlap.
pub(super) fn assignments(cli: &Cli, step: &Step, workers: u32) -> Vec<Assignment> {
    let border = |worker: u32| (u64::from(step.tier) * u64::from(worker) / u64::from(workers)) as u32;
    let share = match step.load.clone() {
        Load::Open { rate_per_second, arrivals } => {
            Load::Open { rate_per_second: rate_per_second / f64::from(workers), arrivals }
        }
        closed => closed,
    };
    (0..workers)
        .map(|worker| Assignment {
            run: "by-hand".into(),
            trial: TrialId {
                service: cli.address(),
                workload: step.workload.name().into(),
                variant: "by-hand".into(),
                tier: step.tier,
                process: 1,
                repeat: 1,
            },
            attempt: 1,
            worker,
            workers,
            address: cli.address(),
            connections: border(worker + 1) - border(worker),
            first_connection: border(worker),
            seed: cli.seed,
            load: share.clone(),
            message: step.message.clone(),
            warmup_ns: nanoseconds(step.warmup),
            window_ns: nanoseconds(step.window.longest()),
            drain_ns: nanoseconds(Duration::from_secs_f64(cli.drain)),
            late_after_ns: None,
            keep_connections: false,
            settings: Default::default(),
            samples: false,
            // The parent makes the check itself, before it looks at the clock.
            protocol_check: false,
        })
        .collect()
}

/// A duration as assignments have it.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::suite::Test;

    #[test]
    fn workers_share_connections_and_rate_without_overlap() {
        let cli = Cli::try_parse_from("wse-bench --rate 300 --tiers 10".split_whitespace()).unwrap();
        let step = Test::Throughput.steps(&cli, 100).remove(0);
        let assignments = assignments(&cli, &step, 3);
        let ranges: Vec<_> = assignments.iter().map(|a| (a.first_connection, a.connections)).collect();
        assert_eq!(ranges, [(0, 3), (3, 3), (6, 4)]);
        assert!(assignments.iter().all(|a| matches!(a.load, Load::Open { rate_per_second: 100.0, .. })));
    }
}
