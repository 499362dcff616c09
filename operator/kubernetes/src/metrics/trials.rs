//! The metrics of trials: figures of those that have ended, and the one that runs with its workers.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use super::Readings;
use crate::trial_view::{Messages, TrialView};

type Gauges<Labels> = Family<Labels, Gauge<f64, AtomicU64>>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TrialLabel {
    trial: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PercentileLabels {
    trial: String,
    histogram: String,
    percentile: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StandingLabels {
    trial: String,
    standing: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RateLabels {
    trial: String,
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ObjectiveLabels {
    trial: String,
    objective: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WorkerLabel {
    worker: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WorkerMessages {
    worker: u32,
    kind: String,
}

/// Adds the metrics of all trials.
pub(super) fn register(registry: &mut Registry, readings: &Readings) {
    ended(registry, readings);
    running(registry, readings.trial.as_ref());
    workers(registry, readings);
}

fn ended(registry: &mut Registry, readings: &Readings) {
    let (delivered, percentiles) = (Gauges::<TrialLabel>::default(), Gauges::<PercentileLabels>::default());
    for (trial, figures) in &readings.figures {
        if let Some(rate) = figures.delivered_per_second {
            delivered.get_or_create_owned(&TrialLabel { trial: trial.clone() }).set(rate);
        }
        for (histogram, percentile, ns) in &figures.percentiles {
            let (histogram, percentile) = (histogram.clone(), percentile.clone());
            let labels = PercentileLabels { trial: trial.clone(), histogram, percentile };
            percentiles.get_or_create_owned(&labels).set(*ns as f64 / 1e9);
        }
    }
    let standings = Family::<StandingLabels, Gauge>::default();
    for trial in &readings.status.trials {
        if let Some(standing) = trial.standing.clone() {
            let labels = StandingLabels { trial: trial.trial.clone(), standing };
            standings.get_or_create_owned(&labels).set(1);
        }
    }
    registry.register("trial_delivered_per_second", "Messages per second that an ended trial delivered", delivered);
    registry.register_with_unit("trial_latency", "Percentiles of an ended trial", Unit::Seconds, percentiles);
    registry.register("trial_standing", "Standing of an ended trial; the value is 1", standings);
}

fn running(registry: &mut Registry, trial: Option<&TrialView>) {
    let (rates, percentiles) = (Gauges::<RateLabels>::default(), Gauges::<PercentileLabels>::default());
    let used = Gauges::<ObjectiveLabels>::default();
    if let Some(trial) = trial {
        let id = || trial.trial.clone();
        for (kind, rate) in [("due", trial.rates.due), ("sent", trial.rates.sent), ("answered", trial.rates.answered)] {
            if let Some(rate) = rate {
                rates.get_or_create_owned(&RateLabels { trial: id(), kind: kind.into() }).set(rate);
            }
        }
        for (percentile, ms) in [("p50", trial.p50_ms), ("p95", trial.p95_ms), ("p99", trial.p99_ms)] {
            if let Some(ms) = ms {
                let (histogram, percentile) = (trial.latency.clone(), percentile.into());
                let labels = PercentileLabels { trial: id(), histogram, percentile };
                percentiles.get_or_create_owned(&labels).set(ms / 1e3);
            }
        }
        for objective in &trial.objectives {
            if let Some(share) = objective.used {
                let labels = ObjectiveLabels { trial: id(), objective: objective.objective.clone() };
                used.get_or_create_owned(&labels).set(share);
            }
        }
    }
    registry.register("running_per_second", "Messages per second of the trial that runs, by kind", rates);
    let help = "Percentiles of the running trial's window so far";
    registry.register_with_unit("running_latency", help, Unit::Seconds, percentiles);
    let help = "Share of an objective's bound that the running trial has used up; above 1 it is missed so far";
    registry.register("running_objective_used", help, used);
}

fn workers(registry: &mut Registry, readings: &Readings) {
    let (open, cpu) = (Gauges::<WorkerLabel>::default(), Gauges::<WorkerLabel>::default());
    let messages = Gauges::<WorkerMessages>::default();
    for one in &readings.workers {
        let label = WorkerLabel { worker: one.worker };
        open.get_or_create_owned(&label).set(one.open as f64);
        cpu.get_or_create_owned(&label).set(one.cpu_seconds);
        let Messages { due, sent, answered, errors } = one.messages;
        for (kind, count) in [("due", due), ("sent", sent), ("answered", answered), ("errors", errors)] {
            let labels = WorkerMessages { worker: one.worker, kind: kind.into() };
            messages.get_or_create_owned(&labels).set(count as f64);
        }
    }
    registry.register("worker_open_connections", "Open connections of a worker in the running trial", open);
    registry.register("worker_cpu_seconds", "CPU time of a worker since it started", cpu);
    registry.register("worker_messages", "Messages of a worker since the running trial began, by kind", messages);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        live::{EndedFigures, Status, TrialStatus},
        metrics::text,
        trial_view::{ObjectiveView, Rates, WorkerView, fixture},
    };

    fn trial() -> TrialView {
        TrialView {
            rates: Rates { sent: Some(500.0), ..Rates::default() },
            p99_ms: Some(12.5),
            objectives: vec![ObjectiveView {
                objective: "response p99 <= 50 ms".into(),
                value: None,
                used: Some(0.25),
            }],
            ..fixture::view("a/b/c/50-p1-r2")
        }
    }

    fn assert_lines(readings: &Readings, lines: &[&str]) {
        let text = text(readings);
        for line in lines {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn an_ended_trial_has_its_figures_and_its_standing() {
        let id = "a/b/c/50-p1-r1";
        let ended = TrialStatus {
            trial: id.into(),
            state: "finished".into(),
            validity: None,
            standing: Some("fail".into()),
            description: String::new(),
        };
        let percentiles = vec![("response".into(), "p99".into(), 2_500_000)];
        let figures = EndedFigures { delivered_per_second: Some(1000.0), percentiles };
        let status = Status { trials: vec![ended], ..Status::default() };
        assert_lines(
            &Readings { status, figures: [(id.to_owned(), figures)].into(), ..Readings::default() },
            &[
                "ladder_trial_delivered_per_second{trial=\"a/b/c/50-p1-r1\"} 1000.0",
                "ladder_trial_latency_seconds{trial=\"a/b/c/50-p1-r1\",histogram=\"response\",percentile=\"p99\"} 0.0025",
                "ladder_trial_standing{trial=\"a/b/c/50-p1-r1\",standing=\"fail\"} 1",
            ],
        );
    }

    #[test]
    fn the_trial_that_runs_has_rates_and_objectives_and_each_worker_its_counts() {
        let messages = Messages { due: 9, sent: 8, answered: 7, errors: 1 };
        let workers = vec![WorkerView { worker: 3, open: 50, messages, cpu_seconds: 1.5 }];
        assert_lines(
            &Readings { trial: Some(trial()), workers, ..Readings::default() },
            &[
                "ladder_running_per_second{trial=\"a/b/c/50-p1-r2\",kind=\"sent\"} 500.0",
                "ladder_running_latency_seconds{trial=\"a/b/c/50-p1-r2\",histogram=\"response\",percentile=\"p99\"} 0.0125",
                "ladder_running_objective_used{trial=\"a/b/c/50-p1-r2\",objective=\"response p99 <= 50 ms\"} 0.25",
                "ladder_worker_open_connections{worker=\"3\"} 50.0",
                "ladder_worker_messages{worker=\"3\",kind=\"answered\"} 7.0",
                "ladder_worker_cpu_seconds{worker=\"3\"} 1.5",
            ],
        );
    }
}
