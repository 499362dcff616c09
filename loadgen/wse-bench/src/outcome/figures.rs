//! Rates, costs and percentiles of a tier. Pure.

use std::collections::BTreeMap;

use bench_format::{
    histogram::{PERCENTILES, Recorder, percentile_ns},
    plan::Load,
    result::{ConnectionCounts, Figures, MessageCounts, WindowCounts, Witness, WorkerResult},
    service::MessageStats,
};

use super::{Asked, ServiceView};
use crate::workloads::Workload;

/// What can be said of a histogram; absent where the samples can't carry it.
pub(super) fn percentiles(recorder: &Recorder) -> BTreeMap<String, Option<u64>> {
    let mut all: BTreeMap<_, _> = PERCENTILES
        .iter()
        .map(|(name, percentile)| ((*name).to_owned(), percentile_ns(recorder, *percentile)))
        .collect();
    all.insert("max".into(), percentile_ns(recorder, 100.0));
    all
}

/// Rates and costs of the window.
pub(super) fn figures(
    asked: &Asked,
    workload: Workload,
    window: &WindowCounts,
    connections: &ConnectionCounts,
    messages: &MessageCounts,
    results: &[WorkerResult],
    service: Option<&ServiceView>,
) -> Figures {
    let seconds = window.duration_ns as f64 / 1e9;
    let rate = |count: u64| (seconds > 0.0).then(|| count as f64 / seconds);
    let storm = workload == Workload::ConnectionStorm;
    let in_window = service.and_then(|view| view.window.as_ref());
    let service_rate =
        |count: fn(&MessageStats) -> u64| in_window.map(|(stats, seconds)| count(stats) as f64 / seconds);
    let cpu_seconds = window.cpu_ns as f64 / 1e9;
    let attempts = if storm { connections.attempted } else { messages.due };
    let failures = if storm {
        connections.attempted - connections.open
    } else {
        messages.wrong + messages.lost + messages.unsent + messages.dropped.values().sum::<u64>()
    };
    Figures {
        window_seconds: seconds,
        due_per_second: rate(window.due).filter(|_| matches!(asked.load, Load::Open { .. })),
        written_per_second: rate(window.sent).filter(|_| !storm),
        received_per_second: service_rate(|stats| stats.received),
        delivered_per_second: match workload.witness() {
            Witness::Application => service_rate(|stats| stats.delivered),
            _ => rate(window.replies).filter(|_| !storm),
        },
        dropped_per_second: service_rate(|stats| stats.dropped.values().sum()),
        accepted_per_second: rate(connections.open).filter(|_| storm),
        messages_per_write: (window.writes > 0).then(|| window.sent as f64 / window.writes as f64),
        worker_cpu_seconds: Some(cpu_seconds),
        worker_cpu_share: results
            .iter()
            .map(|result| {
                result.window.cpu_ns as f64 / (result.window.duration_ns.max(1) as f64 * result.evidence.cpu_limit)
            })
            .reduce(f64::max),
        worker_cpu_seconds_per_million: (window.sent > 0).then(|| cpu_seconds * 1e6 / window.sent as f64),
        failed_share: (attempts > 0).then(|| failures as f64 / attempts as f64),
        ..Figures::default()
    }
}
