//! Rates, costs and percentiles of a tier. Pure.

use std::collections::BTreeMap;

use bench_format::{
    histogram::{PERCENTILES, Recorder, percentile_ns},
    result::{ConnectionCounts, Figures, MessageCounts, WindowCounts, Witness},
    service::MessageStats,
};

use super::{Asked, Seen, bound::Shares};
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
    window: &WindowCounts,
    connections: &ConnectionCounts,
    messages: &MessageCounts,
    shares: Shares,
    seen: &Seen,
) -> Figures {
    let seconds = window.duration_ns as f64 / 1e9;
    let rate = |count: u64| (seconds > 0.0).then(|| count as f64 / seconds);
    let storm = asked.workload == Workload::ConnectionStorm;
    let receives = asked.workload.witness() == Witness::Receiver;
    let published = seen.service.as_ref().and_then(|view| view.publisher.as_ref()?.window);
    let moved = if receives { window.replies } else { window.sent };
    let in_window = seen.service.as_ref().and_then(|view| view.window.as_ref());
    let service_rate =
        |count: fn(&MessageStats) -> u64| in_window.map(|(stats, seconds)| count(stats) as f64 / seconds);
    let cpu_seconds = window.cpu_ns as f64 / 1e9;
    let accepted = match seen.opening_seconds {
        Some(opening) => (opening > 0.0).then(|| connections.open as f64 / opening),
        None => rate(connections.open).filter(|_| storm),
    };
    Figures {
        window_seconds: seconds,
        due_per_second: rate(window.due).filter(|_| asked.load.is_open() && !receives),
        written_per_second: rate(window.sent).filter(|_| !storm && !receives),
        received_per_second: service_rate(|stats| stats.received),
        delivered_per_second: match asked.workload.witness() {
            Witness::Application => service_rate(|stats| stats.delivered),
            _ => rate(window.replies).filter(|_| !storm),
        },
        dropped_per_second: service_rate(|stats| stats.dropped.values().sum()),
        accepted_per_second: accepted,
        messages_per_write: (window.writes > 0).then(|| window.sent as f64 / window.writes as f64),
        worker_cpu_seconds: Some(cpu_seconds),
        worker_cpu_share: shares.worker,
        worker_cpu_seconds_per_million: (moved > 0).then(|| cpu_seconds * 1e6 / moved as f64),
        published_per_second: published.map(|(count, seconds)| count as f64 / seconds),
        messages_per_read: (window.reads > 0).then(|| window.replies as f64 / window.reads as f64),
        bytes_read_per_second: rate(window.bytes_read).filter(|_| receives),
        failed_share: failed_share(storm, connections, messages),
        service_cpu_share: shares.service,
        ..of_process(seen, connections, in_window.map(|(stats, _)| stats).filter(|_| !receives), window)
    }
}

/// Share of attempts or messages that failed.
fn failed_share(storm: bool, connections: &ConnectionCounts, messages: &MessageCounts) -> Option<f64> {
    let attempts = if storm { connections.attempted } else { messages.due };
    let failures = if storm {
        connections.attempted - connections.open
    } else {
        messages.wrong + messages.lost + messages.unsent + messages.dropped.values().sum::<u64>()
    };
    (attempts > 0).then(|| failures as f64 / attempts as f64)
}

/// CPU and memory of the service's process.
fn of_process(
    seen: &Seen,
    connections: &ConnectionCounts,
    in_window: Option<&MessageStats>,
    window: &WindowCounts,
) -> Figures {
    let process = seen.process.unwrap_or_default();
    let cpu_seconds = process.cpu_ns.map(|ns| ns as f64 / 1e9);
    // What the application was given; without a witness, or in pings, what was received or answered.
    let arrived = in_window.map_or(window.replies, |stats| stats.delivered.max(stats.received));
    let grown = process.rss_bytes.zip(process.rss_at_rest_bytes).map(|(open, rest)| open as f64 - rest as f64);
    Figures {
        service_cpu_seconds: cpu_seconds,
        service_cpu_seconds_per_million: cpu_seconds
            .filter(|_| arrived > 0)
            .map(|seconds| seconds * 1e6 / arrived as f64),
        service_rss_bytes: process.rss_bytes,
        service_bytes_per_connection: grown
            .filter(|_| connections.open > 0)
            .map(|bytes| bytes / connections.open as f64),
        ..Figures::default()
    }
}
