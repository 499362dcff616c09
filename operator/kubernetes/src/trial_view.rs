//! What a page or a terminal shows of the trial that runs: rates, latencies, books so far, and how close each objective
//! is. Computed from the workers' reports once a second; near the truth, and no result.

use std::time::Instant;

use bench_format::{
    buckets::least_ns,
    plan::{Figure, Objective},
    trial::Progress,
};
use driver::live::{Live, LivePhase, LiveTrial};
use operator::{
    live::figures::{LiveFigures, latency_name},
    plan::Plan,
    print,
};
use serde::{Deserialize, Serialize};

/// The trial that runs, with the plan whose objectives it has.
#[derive(Clone, Debug)]
pub struct Trials {
    live: Live,
    plan: Plan,
}

impl Trials {
    /// The trials of a plan, of which `live` has the one that runs.
    pub fn new(live: Live, plan: Plan) -> Self {
        Self { live, plan }
    }

    /// The trial that runs; `None` between trials.
    pub fn view(&self, now: Instant) -> Option<TrialView> {
        let trial = self.live.trial()?;
        let objectives = self.plan.ladder_of(&trial.trial).map_or(&[][..], |ladder| &ladder.objectives);
        Some(TrialView::of(&trial, objectives, now))
    }

    /// The workers of the trial that runs, as they reported last; empty between trials.
    pub fn workers(&self) -> Vec<WorkerView> {
        let trial = self.live.trial();
        let last = trial.iter().flat_map(|trial| &trial.workers).filter_map(|(worker, reports)| {
            let (_, progress) = reports.back()?;
            let Progress { open, due, sent, answered, errors, cpu_ns, .. } = *progress;
            let messages = Messages { due, sent, answered, errors };
            Some(WorkerView { worker: *worker, open, messages, cpu_seconds: cpu_ns as f64 / 1e9 })
        });
        last.collect()
    }
}

/// A worker of the trial that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    /// Number of the worker.
    pub worker: u32,
    /// Connections that it has open at the moment.
    pub open: u64,
    /// Its messages since the trial began.
    pub messages: Messages,
    /// CPU time that it has used since it started, in seconds.
    pub cpu_seconds: f64,
}

/// A trial that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialView {
    /// Id of the trial.
    pub trial: String,
    /// `opening`, `warm-up`, `window` or `drain`.
    pub phase: String,
    /// Seconds since the phase began.
    pub seconds: f64,
    /// Seconds that the phase takes by plan; absent where that isn't known.
    pub of_seconds: Option<f64>,
    /// Connections of the tier.
    pub connections: u32,
    /// Connections that are open; absent before the first report of a worker.
    pub open: Option<u64>,
    /// Messages since the trial began.
    pub messages: Messages,
    /// Messages, and connections, per second.
    pub rates: Rates,
    /// Name of the histogram that the latencies belong to.
    pub latency: String,
    /// Percentiles of the window so far, in milliseconds; absent without values.
    pub p50_ms: Option<f64>,
    /// The same for the 95th percentile.
    pub p95_ms: Option<f64>,
    /// The same for the 99th percentile.
    pub p99_ms: Option<f64>,
    /// The latencies of the window so far: the buckets from the first to the last that isn't empty.
    pub histogram: Vec<Bucket>,
    /// Share of the service's CPUs that it uses; absent if it can't be read.
    pub service_cpu: Option<f64>,
    /// Share of the workers' CPUs that they use.
    pub workers_cpu: Option<f64>,
    /// The objectives of the trial's ladder.
    pub objectives: Vec<ObjectiveView>,
}

/// The books of a trial so far, as its workers keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// Those that a schedule wanted sent, or that were composed.
    pub due: u64,
    /// Taken by the sockets.
    pub sent: u64,
    /// Answered, or received by subscribers.
    pub answered: u64,
    /// Attempts that failed, connections that ended early, wrong answers and messages that could not be sent.
    pub errors: u64,
}

/// Rates over the last seconds; absent before the second report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Messages due per second; absent where no schedule says what is due.
    pub due: Option<f64>,
    /// Messages sent per second.
    pub sent: Option<f64>,
    /// Replies or deliveries per second.
    pub answered: Option<f64>,
    /// Connections opened per second; absent where connections aren't the load.
    pub opened: Option<f64>,
}

/// A bucket of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its least latency, in milliseconds.
    pub from_ms: f64,
    /// The least latency of the next one, in milliseconds.
    pub to_ms: f64,
    /// Number of latencies of the window that fell into it.
    pub count: u64,
}

/// An objective while its trial runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveView {
    /// The objective as text.
    pub objective: String,
    /// The figure so far, in the objective's unit; absent where it is known only after the trial.
    pub value: Option<f64>,
    /// How much of the bound is used up: 1 is the bound itself, above it the objective is missed so far.
    pub used: Option<f64>,
}

impl TrialView {
    fn of(trial: &LiveTrial, objectives: &[Objective], now: Instant) -> Self {
        let figures = LiveFigures::of(trial);
        let latency = latency_name(trial);
        let whole = trial.until.map(|until| until.saturating_duration_since(trial.since).as_secs_f64());
        let seconds = now.saturating_duration_since(trial.since).as_secs_f64();
        Self {
            trial: trial.trial.to_string(),
            phase: phase_name(trial.phase).into(),
            seconds: whole.map_or(seconds, |whole| seconds.min(whole)),
            of_seconds: whole.filter(|whole| *whole > 0.0),
            connections: trial.connections,
            open: figures.open,
            messages: Messages {
                due: figures.due,
                sent: figures.sent,
                answered: figures.answered,
                errors: figures.errors,
            },
            rates: Rates {
                due: figures.due_per_second,
                sent: figures.sent_per_second,
                answered: figures.answered_per_second,
                opened: figures.opened_per_second,
            },
            latency: latency.into(),
            p50_ms: percentile_ms(&figures, 50.0),
            p95_ms: percentile_ms(&figures, 95.0),
            p99_ms: percentile_ms(&figures, 99.0),
            histogram: histogram(&figures.latencies),
            service_cpu: figures.service_cpu,
            workers_cpu: figures.workers_cpu,
            objectives: objectives.iter().map(|objective| so_far(objective, &figures, latency)).collect(),
        }
    }
}

fn phase_name(phase: LivePhase) -> &'static str {
    match phase {
        LivePhase::Opening => "opening",
        LivePhase::WarmUp => "warm-up",
        LivePhase::Window => "window",
        LivePhase::Drain => "drain",
    }
}

fn percentile_ms(figures: &LiveFigures, percentile: f64) -> Option<f64> {
    figures.percentile_ns(percentile).map(|ns| ns as f64 / 1e6)
}

/// An objective with what is known of its figure. Workers report one histogram, and errors without their kind.
fn so_far(objective: &Objective, figures: &LiveFigures, latency: &str) -> ObjectiveView {
    let value = match &objective.figure {
        Figure::PercentileMs { histogram, percentile } if histogram == latency => percentile_ms(figures, *percentile),
        Figure::DeliveredPerSecond => figures.answered_per_second,
        Figure::FailedShare => share(figures.errors, figures.due),
        Figure::ErrorShare => share(figures.errors, figures.answered),
        _ => None,
    };
    let used = value.and_then(|value| match (objective.at_most, objective.at_least) {
        (Some(bound), _) if bound > 0.0 => Some(value / bound),
        (Some(_), _) => Some(if value > 0.0 { f64::MAX } else { 0.0 }),
        (None, Some(bound)) if value > 0.0 => Some(bound / value),
        _ => None,
    });
    ObjectiveView { objective: print::search::objective(objective), value, used }
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

fn histogram(counts: &[u64]) -> Vec<Bucket> {
    let ms = |ns: u64| ns as f64 / 1e6;
    let bucket = |(index, count): (usize, &u64)| Bucket {
        from_ms: ms(least_ns(index)),
        to_ms: ms(least_ns(index + 1)),
        count: *count,
    };
    let (Some(first), Some(last)) =
        (counts.iter().position(|count| *count > 0), counts.iter().rposition(|count| *count > 0))
    else {
        return vec![];
    };
    counts.iter().enumerate().take(last + 1).skip(first).map(bucket).collect()
}

#[cfg(test)]
pub(crate) mod fixture {
    use std::time::Duration;

    use bench_format::plan::Load;
    use driver::live::CpuReading;

    use super::*;

    pub(crate) fn progress(sent: u64) -> Progress {
        Progress {
            run: "r".into(),
            trial: "honest/request-reply/standard/50-p1-r1".parse().unwrap(),
            attempt: 1,
            open: 50,
            due: sent,
            sent,
            answered: sent,
            errors: 3,
            latencies: vec![(40, 90), (42, 10)],
            cpu_ns: sent * 1_000_000,
            cpu_limit: 1.0,
        }
    }

    /// A trial with 50 open connections in its window, of which nothing else is known.
    pub(crate) fn view(trial: &str) -> TrialView {
        TrialView {
            trial: trial.into(),
            phase: "window".into(),
            seconds: 1.0,
            of_seconds: None,
            connections: 50,
            open: Some(50),
            messages: Messages::default(),
            rates: Rates::default(),
            latency: "response".into(),
            p50_ms: None,
            p95_ms: None,
            p99_ms: None,
            histogram: vec![],
            service_cpu: None,
            workers_cpu: None,
            objectives: vec![],
        }
    }

    /// A trial in the middle of its window of ten seconds, which sends 500 messages per second.
    pub(crate) fn trial(now: Instant) -> LiveTrial {
        let from = now - Duration::from_secs(2);
        let reading = |at, cpu_ns| CpuReading { at, cpu_ns, cpu_limit: 2.0 };
        LiveTrial {
            trial: progress(0).trial,
            connections: 50,
            load: Load::Open { rate_per_second: 500.0, arrivals: Default::default() },
            phase: LivePhase::Window,
            since: now - Duration::from_secs(4),
            until: Some(now + Duration::from_secs(6)),
            workers: [(0, [(from, progress(500)), (now, progress(1500))].into())].into(),
            service: [reading(from, 0), reading(now, 3_000_000_000)].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_most(figure: Figure, bound: f64) -> Objective {
        Objective { figure, at_most: Some(bound), at_least: None }
    }

    fn used(objective: Objective) -> Option<f64> {
        let now = Instant::now();
        TrialView::of(&fixture::trial(now), &[objective], now).objectives[0].used
    }

    #[test]
    fn a_view_has_the_books_the_rates_and_the_time_of_the_phase() {
        let now = Instant::now();
        let view = TrialView::of(&fixture::trial(now), &[], now);
        assert_eq!((view.phase.as_str(), view.seconds, view.of_seconds), ("window", 4.0, Some(10.0)));
        assert_eq!(view.messages, Messages { due: 1500, sent: 1500, answered: 1500, errors: 3 });
        assert_eq!((view.rates.due, view.rates.sent, view.rates.opened), (Some(500.0), Some(500.0), None));
        assert_eq!((view.service_cpu, view.workers_cpu), (Some(0.75), Some(0.5)));
    }

    #[test]
    fn the_histogram_begins_and_ends_with_a_bucket_that_has_latencies() {
        let now = Instant::now();
        let view = TrialView::of(&fixture::trial(now), &[], now);
        let counts: Vec<u64> = view.histogram.iter().map(|bucket| bucket.count).collect();
        assert_eq!(counts, [90, 0, 10]);
        assert!(view.histogram.windows(2).all(|pair| pair[0].to_ms == pair[1].from_ms));
        assert!(view.p50_ms.unwrap() < view.p99_ms.unwrap());
    }

    #[test]
    fn an_objective_says_how_much_of_its_bound_is_used_up() {
        let response = |percentile| Figure::PercentileMs { histogram: "response".into(), percentile };
        let p50 = used(at_most(response(50.0), 1.0)).unwrap();
        assert!(used(at_most(response(50.0), 2.0)).unwrap() * 2.0 - p50 < 1e-9);
        assert!(used(at_most(response(99.0), 1.0)).unwrap() > p50);
        assert_eq!(used(at_most(Figure::FailedShare, 0.004)), Some(0.5));
        assert_eq!(used(at_most(Figure::FailedShare, 0.0)), Some(f64::MAX), "one error is one too many");
        let rate = Objective { figure: Figure::DeliveredPerSecond, at_most: None, at_least: Some(250.0) };
        assert_eq!(used(rate), Some(0.5));
    }

    #[test]
    fn what_is_known_only_after_the_trial_has_no_value() {
        let other = Figure::PercentileMs { histogram: "handshake".into(), percentile: 50.0 };
        assert_eq!(used(at_most(other, 1.0)), None);
        assert_eq!(used(at_most(Figure::ServiceBytesPerConnection, 1.0)), None);
    }
}
