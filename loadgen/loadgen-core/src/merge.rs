//! Several workers' results of one trial, added up.
//!
//! Pure. Counts are sums and histograms are added exactly; nothing is averaged.

use std::collections::BTreeMap;

use bench_format::{
    histogram::{self, Recorder},
    result::{ConnectionCounts, Interval, MessageCounts, WindowCounts, WorkerResult},
};

/// What workers' results come to together.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// Sums.
    pub connections: ConnectionCounts,
    /// Sums.
    pub messages: MessageCounts,
    /// Sums; the duration is the longest.
    pub window: WindowCounts,
    /// By name.
    pub histograms: BTreeMap<String, Recorder>,
    /// By start; each with its histograms by name.
    pub intervals: Vec<Interval>,
}

/// Adds up the results of all workers of a trial.
///
/// # Errors
/// When a histogram can't be read.
pub fn merge<'a>(results: impl IntoIterator<Item = &'a WorkerResult>) -> Result<Merged, histogram::Error> {
    let mut merged = Merged::default();
    let mut intervals: BTreeMap<u64, (u64, BTreeMap<String, Recorder>)> = BTreeMap::new();
    for result in results {
        add_connections(&mut merged.connections, &result.connections);
        add_messages(&mut merged.messages, &result.messages);
        add_window(&mut merged.window, &result.window);
        add_histograms(&mut merged.histograms, &result.histograms)?;
        for interval in &result.intervals {
            let entry = intervals.entry(interval.start_ns).or_default();
            entry.0 = entry.0.max(interval.duration_ns);
            add_histograms(&mut entry.1, &interval.histograms)?;
        }
    }
    merged.intervals = intervals
        .into_iter()
        .map(|(start_ns, (duration_ns, recorders))| Interval {
            start_ns,
            duration_ns,
            histograms: recorders.into_iter().map(|(name, recorder)| (name, recorder.encode())).collect(),
        })
        .collect();
    Ok(merged)
}

fn add_histograms(
    sum: &mut BTreeMap<String, Recorder>,
    part: &BTreeMap<String, histogram::Histogram>,
) -> Result<(), histogram::Error> {
    for (name, histogram) in part {
        sum.entry(name.clone()).or_default().add(&Recorder::decode(histogram)?);
    }
    Ok(())
}

fn add_reasons(sum: &mut BTreeMap<String, u64>, part: &BTreeMap<String, u64>) {
    part.iter().for_each(|(reason, count)| *sum.entry(reason.clone()).or_default() += count);
}

fn add_connections(sum: &mut ConnectionCounts, part: &ConnectionCounts) {
    sum.attempted += part.attempted;
    sum.open += part.open;
    add_reasons(&mut sum.failed, &part.failed);
    add_reasons(&mut sum.closed_early, &part.closed_early);
}

fn add_messages(sum: &mut MessageCounts, part: &MessageCounts) {
    sum.due += part.due;
    sum.sent += part.sent;
    sum.delivered += part.delivered;
    sum.late += part.late;
    sum.wrong += part.wrong;
    add_reasons(&mut sum.dropped, &part.dropped);
    sum.lost += part.lost;
    sum.unsent += part.unsent;
    sum.duplicates += part.duplicates;
    sum.reorders += part.reorders;
    sum.bytes_sent += part.bytes_sent;
    sum.bytes_received += part.bytes_received;
}

fn add_window(sum: &mut WindowCounts, part: &WindowCounts) {
    sum.duration_ns = sum.duration_ns.max(part.duration_ns);
    sum.due += part.due;
    sum.sent += part.sent;
    sum.replies += part.replies;
    sum.writes += part.writes;
    sum.cpu_ns += part.cpu_ns;
}
