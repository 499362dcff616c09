//! What to measure, and against what: all that a trial's driver is told of a plan, or of a command line.

use std::{collections::BTreeMap, time::Duration};

use bench_format::{
    plan::{Load, Message, Objective, Thresholds},
    trial::TrialId,
    trial_file::BookKeeping,
};

/// What becomes of a trial for which a worker opened no connection at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NothingOpen {
    /// There is nothing to measure: it is called off.
    CallOff,
    /// That is a result: a probe for the most connections counts it.
    GoOn,
}

/// One trial.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// The run's id.
    pub run: String,
    /// The trial.
    pub trial: TrialId,
    /// The attempt.
    pub attempt: u32,
    /// Where the service listens.
    pub address: String,
    /// What the service's books can answer.
    pub keeping: BookKeeping,
    /// Connections, over all workers.
    pub connections: u32,
    /// Workers.
    pub workers: u32,
    /// CPUs that each worker gets at most.
    pub worker_cpus: f64,
    /// How load is offered, over all workers.
    pub load: Load,
    /// What the messages are.
    pub message: Message,
    /// Seed of all that the trial leaves to chance.
    pub seed: u64,
    /// Load before the window; not measured.
    pub warmup: Duration,
    /// The window, or for a load that ends by itself its limit.
    pub window: Duration,
    /// Longest wait for what is in flight after the window.
    pub drain: Duration,
    /// Longest wait for workers to open their connections and to work out what will be expected of their answers.
    pub opening: Duration,
    /// What becomes of it when a worker opened nothing.
    pub nothing_open: NothingOpen,
    /// Whether the service is read once all connections are open, too.
    pub read_when_open: bool,
    /// Longest time that connections may take to part from the service, after the drain.
    pub goodbye: Duration,
    /// What the trial must reach.
    pub objectives: Vec<Objective>,
    /// Limits beyond which it is invalid.
    pub thresholds: Thresholds,
    /// Settings of the service that workers are told.
    pub settings: BTreeMap<String, String>,
    /// Whether workers keep their connections for the next trial.
    pub keep_connections: bool,
    /// Whether workers keep raw rows, where the workload has them.
    pub samples: bool,
    /// Whether a worker checks the service's protocol around the load, where the workload has a check.
    pub protocol_check: bool,
    /// The command that repeats the trial.
    pub reproduce: String,
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A trial of two workers at an address where nobody listens.
    pub(crate) fn plan(trial: TrialId, load: Load) -> TrialPlan {
        TrialPlan {
            run: "run".into(),
            address: "127.0.0.1:1".into(),
            attempt: 1,
            keeping: BookKeeping::None,
            connections: trial.tier,
            workers: 2,
            worker_cpus: 1.0,
            load,
            message: Message::default(),
            seed: 1,
            warmup: Duration::ZERO,
            window: Duration::from_secs(1),
            drain: Duration::from_secs(1),
            opening: Duration::from_secs(1),
            nothing_open: NothingOpen::CallOff,
            read_when_open: false,
            goodbye: Duration::from_secs(1),
            objectives: Vec::new(),
            thresholds: Thresholds::default(),
            settings: BTreeMap::new(),
            keep_connections: false,
            samples: false,
            protocol_check: true,
            reproduce: String::new(),
            trial,
        }
    }
}
