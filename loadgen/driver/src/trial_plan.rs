//! The parameters of one trial, from a plan or from a command line.

use std::{collections::BTreeMap, time::Duration};

use bench_format::{
    plan::{Load, Message, Objective, Thresholds},
    trial::TrialId,
    trial_file::BookKeeping,
    websocket::{ReportedCounters, WebsocketTask},
};

/// What happens to a trial in which a worker opened no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NothingOpen {
    /// The trial is cancelled, because there is nothing to measure.
    Abort,
    /// The trial continues. A probe for the largest number of connections counts this as a result.
    Continue,
}

/// The parameters of one trial.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Address of the service, `host:port`; one per process, separated by commas.
    pub address: String,
    /// How detailed the service's books are.
    pub keeping: BookKeeping,
    /// Which counters the service has by its plan; absent if it keeps the harness's books or none.
    pub counters: Option<ReportedCounters>,
    /// Number of connections over all workers.
    pub connections: u32,
    /// Number of workers that share the connections.
    pub workers: u32,
    /// Largest number of CPUs that each worker gets.
    pub worker_cpus: f64,
    /// How load is offered, over all workers.
    pub load: Load,
    /// Format, size and coalescing of the messages.
    pub message: Message,
    /// Seed of the trial's random choices.
    pub seed: u64,
    /// Duration of the load before the window.
    pub warmup: Duration,
    /// Length of the window; for a load that ends by itself, its limit.
    pub window: Duration,
    /// Longest time to wait for messages in flight after the window.
    pub drain: Duration,
    /// Longest time in which workers open their connections and compute the expected replies.
    pub opening: Duration,
    /// What happens if a worker opened no connection.
    pub nothing_open: NothingOpen,
    /// Whether the service is also read when all connections are open.
    pub read_when_open: bool,
    /// Longest time for closing all connections after the drain.
    pub close_grace: Duration,
    /// Conditions that the trial must meet to pass.
    pub objectives: Vec<Objective>,
    /// Limits beyond which the trial is invalid.
    pub thresholds: Thresholds,
    /// Settings of the service that its workers need, by environment variable.
    pub settings: BTreeMap<String, String>,
    /// How the service is spoken to; absent where the workers know its protocol.
    pub websocket: Option<Box<WebsocketTask>>,
    /// Whether workers keep their connections for the next trial.
    pub keep_connections: bool,
    /// Whether workers keep raw rows, if the workload supports them.
    pub samples: bool,
    /// Whether a worker checks the service's protocol before and after the load, if the workload has a check.
    pub protocol_check: bool,
    /// Command that repeats the trial.
    pub reproduce: String,
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A trial of two workers at an address without a listener.
    pub(crate) fn plan(trial: TrialId, load: Load) -> TrialPlan {
        TrialPlan {
            run: "run".into(),
            address: "127.0.0.1:1".into(),
            attempt: 1,
            keeping: BookKeeping::None,
            counters: None,
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
            nothing_open: NothingOpen::Abort,
            read_when_open: false,
            close_grace: Duration::from_secs(1),
            objectives: Vec::new(),
            thresholds: Thresholds::default(),
            settings: BTreeMap::new(),
            websocket: None,
            keep_connections: false,
            samples: false,
            protocol_check: true,
            reproduce: String::new(),
            trial,
        }
    }
}
