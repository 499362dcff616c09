//! What a display shows of a trial, from the last reports of its workers and readings of its service. Pure.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bench_format::{
    buckets::{BUCKETS, least_ns},
    plan::Load,
    trial::Progress,
};
use driver::live::{CpuReading, LiveTrial};

/// Rates, latencies and CPU of a trial that runs. They are near the truth, not results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveFigures {
    /// Open connections; absent before the first report.
    pub open: Option<u64>,
    /// Messages due per second; absent before the second report, and where no schedule says what is due.
    pub due_per_second: Option<f64>,
    /// Messages sent per second.
    pub sent_per_second: Option<f64>,
    /// Replies, or publications received, per second.
    pub answered_per_second: Option<f64>,
    /// Connections opened per second; absent where the load isn't connections that open.
    pub opened_per_second: Option<f64>,
    /// Messages due since the trial began.
    pub due: u64,
    /// Of these, those that were sent.
    pub sent: u64,
    /// Replies, or publications received, since the trial began.
    pub answered: u64,
    /// Errors since the trial began.
    pub errors: u64,
    /// The window's latencies so far, by bucket.
    pub latencies: Vec<u64>,
    /// Share of the service's CPUs that it uses; absent if it can't be read.
    pub service_cpu: Option<f64>,
    /// Share of the workers' CPUs that they use.
    pub workers_cpu: Option<f64>,
}

impl LiveFigures {
    /// The figures of a trial.
    pub fn of(trial: &LiveTrial) -> Self {
        let histories: Vec<_> = trial.workers.values().collect();
        let rate = |count: fn(&Progress) -> u64| {
            let rates: Option<Vec<f64>> = histories.iter().map(|history| rate(history, count)).collect();
            rates.filter(|rates| !rates.is_empty()).map(|rates| rates.iter().sum())
        };
        let last: Vec<&Progress> = histories.iter().filter_map(|history| Some(&history.back()?.1)).collect();
        let mut latencies = vec![0; BUCKETS];
        for (bucket, count) in last.iter().flat_map(|progress| &progress.latencies) {
            if let Some(sum) = latencies.get_mut(*bucket as usize) {
                *sum = count.saturating_add(*sum);
            }
        }
        let cpus: f64 = last.iter().map(|progress| progress.cpu_limit).sum();
        let cpu_ns_per_second = rate(|progress| progress.cpu_ns);
        Self {
            open: (!last.is_empty()).then(|| sum(&last, |progress| progress.open)),
            due_per_second: rate(|progress| progress.due).filter(|_| trial.load.is_open() && !is_storm(trial)),
            sent_per_second: rate(|progress| progress.sent),
            answered_per_second: rate(|progress| progress.answered),
            opened_per_second: rate(|progress| progress.open).filter(|_| opens_connections(trial)),
            due: sum(&last, |progress| progress.due),
            sent: sum(&last, |progress| progress.sent),
            answered: sum(&last, |progress| progress.answered),
            errors: sum(&last, |progress| progress.errors),
            latencies,
            service_cpu: service_cpu(&trial.service),
            workers_cpu: cpu_ns_per_second.filter(|_| cpus > 0.0).map(|used_ns| used_ns / 1e9 / cpus),
        }
    }

    /// A percentile of the latencies in nanoseconds, interpolated within its bucket; `None` without values.
    pub fn percentile_ns(&self, percentile: f64) -> Option<u64> {
        let total: f64 = self.latencies.iter().map(|count| *count as f64).sum();
        let rank = (total * percentile / 100.0).ceil().max(1.0);
        let mut below = 0.0;
        for (bucket, count) in self.latencies.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= rank {
                let (from, to) = (least_ns(bucket) as f64, least_ns(bucket + 1) as f64);
                return Some((from + (to - from) * (rank - below) / count) as u64);
            }
            below += count;
        }
        None
    }
}

/// The histogram that the latencies of a trial belong to, without its unit, as objectives name it.
pub fn latency_name(trial: &LiveTrial) -> &'static str {
    match trial.load {
        Load::Sessions { .. } => "newest",
        _ if opens_connections(trial) => "handshake",
        _ => "response",
    }
}

fn opens_connections(trial: &LiveTrial) -> bool {
    is_storm(trial) || matches!(trial.load, Load::Reconnect { .. })
}

/// Whether the trial's load is connections themselves.
fn is_storm(trial: &LiveTrial) -> bool {
    trial.trial.workload.as_str() == "connection-storm"
}

/// The sum over all workers. What they report may be anything.
fn sum(last: &[&Progress], count: fn(&Progress) -> u64) -> u64 {
    last.iter().fold(0, |sum, progress| count(progress).saturating_add(sum))
}

/// How fast a count rises over the kept reports of a worker; `None` with fewer than two.
fn rate(history: &VecDeque<(Instant, Progress)>, count: fn(&Progress) -> u64) -> Option<f64> {
    let ((from, first), (to, last)) = (history.front()?, history.back()?);
    let seconds = seconds_between(*from, *to)?;
    Some(count(last).saturating_sub(count(first)) as f64 / seconds)
}

fn service_cpu(readings: &VecDeque<CpuReading>) -> Option<f64> {
    let (first, last) = (readings.front()?, readings.back()?);
    let seconds = seconds_between(first.at, last.at)?;
    let used = last.cpu_ns.saturating_sub(first.cpu_ns) as f64 / 1e9;
    (last.cpu_limit > 0.0).then(|| used / seconds / last.cpu_limit)
}

fn seconds_between(from: Instant, to: Instant) -> Option<f64> {
    Some(to.duration_since(from)).filter(|between| *between > Duration::ZERO).map(|between| between.as_secs_f64())
}

#[cfg(test)]
pub(super) mod fixture {
    use driver::live::LivePhase;

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
            errors: 1,
            latencies: vec![(20, 90), (40, 10)],
            cpu_ns: sent * 1_000_000,
            cpu_limit: 1.0,
        }
    }

    /// A trial of two workers in the middle of its window of ten seconds, which sends 1000 messages per second.
    pub(crate) fn trial(now: Instant) -> LiveTrial {
        let from = now - Duration::from_secs(2);
        let worker = || [(from, progress(500)), (now, progress(1500))].into();
        let reading = |at, cpu_ns| CpuReading { at, cpu_ns, cpu_limit: 2.0 };
        LiveTrial {
            trial: progress(0).trial,
            connections: 100,
            load: Load::Open { rate_per_second: 1000.0, arrivals: Default::default() },
            phase: LivePhase::Window,
            since: now - Duration::from_secs(4),
            until: Some(now + Duration::from_secs(6)),
            workers: [(0, worker()), (1, worker())].into(),
            service: [reading(from, 0), reading(now, 3_000_000_000)].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_seconds_over_all_workers() {
        let figures = LiveFigures::of(&fixture::trial(Instant::now()));
        assert_eq!(figures.sent_per_second, Some(1000.0));
        assert_eq!((figures.open, figures.errors), (Some(100), 2));
        assert_eq!((figures.service_cpu, figures.workers_cpu), (Some(0.75), Some(0.5)));
    }

    #[test]
    fn a_percentile_lies_in_its_bucket() {
        let figures = LiveFigures::of(&fixture::trial(Instant::now()));
        let within = |percentile, bucket| {
            (least_ns(bucket)..=least_ns(bucket + 1)).contains(&figures.percentile_ns(percentile).unwrap())
        };
        assert!(within(50.0, 20) && within(90.0, 20) && within(99.0, 40), "{figures:?}");
        assert_eq!(LiveFigures::default().percentile_ns(50.0), None);
    }

    #[test]
    fn one_report_shows_counts_and_no_rates_and_none_shows_nothing() {
        let mut trial = fixture::trial(Instant::now());
        trial.workers.values_mut().for_each(|reports| drop(reports.pop_front()));
        trial.service.pop_front();
        let figures = LiveFigures::of(&trial);
        assert_eq!((figures.open, figures.sent_per_second, figures.service_cpu), (Some(100), None, None));
        trial.workers.clear();
        assert_eq!(LiveFigures::of(&trial).open, None);
    }
}
