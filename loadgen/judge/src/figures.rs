//! Rates and costs in the window. Pure.
//!
//! A rate comes from the counters of the receiving side. A figure that has no meaning for the workload is absent
//! instead of 0.

use std::collections::BTreeMap;

use bench_format::{
    histogram::{PERCENTILES, Recorder, percentile_ns},
    result::{ConnectionCounts, Figures, MessageCounts, Reading, Witness},
    websocket::Counter,
};

use crate::{
    case::Case,
    delta::ServiceDelta,
    edges::{Edges, Processes, in_both},
    rates::{per_second, ratio, seconds},
    shares::{busiest_worker, service_share},
    turnover,
};

/// Computes all figures of a trial.
pub(crate) fn figures(case: &Case<'_>, messages: &MessageCounts) -> Figures {
    let witness = case.witness();
    let window = &case.merged.window;
    let duration = seconds(window.duration_ns);
    let mut figures = Figures {
        window_seconds: duration,
        worker_cpu_seconds: Some(seconds(window.cpu_ns)),
        worker_cpu_share: busiest_worker(case),
        failed_share: failed_share(&case.merged.connections, messages),
        ..Figures::default()
    };
    if window.sent > 0 {
        figures.written_per_second = per_second(window.sent, duration);
        figures.messages_per_write = ratio(window.sent, window.writes as f64);
        figures.worker_cpu_seconds_per_million = ratio(window.cpu_ns, window.sent as f64 * 1000.0);
    }
    if case.trial.load.is_open() && witness != Witness::Receiver {
        figures.due_per_second = per_second(window.due, duration);
    }
    if case.trial.terms.opens_in_window {
        figures.accepted_per_second = per_second(case.merged.connections.open, duration);
    }
    if let Some(turnover) = &case.merged.turnover {
        figures.accepted_per_second = per_second(turnover.ready, duration);
        let shares = [figures.failed_share, turnover::failed_share(turnover)];
        figures.failed_share = shares.into_iter().flatten().reduce(f64::max);
        turnover::reconnected(&mut figures, &case.merged);
    }
    if witness == Witness::Reply {
        figures.delivered_per_second = per_second(window.answered, duration).filter(|_| window.sent > 0);
        figures.replies_per_second = per_second(window.replies, duration).filter(|_| window.sent > 0);
        let failures: u64 = case.merged.failures.window.values().sum();
        figures.error_share = ratio(failures, window.replies as f64).filter(|_| window.sent > 0);
        figures.late_share = late_share(case);
    }
    if case.trial.terms.counts_answers && case.trial.terms.ages.is_some() {
        // By the plan: a session that failed and the rest of a window that ended early have seconds without answers.
        let session_seconds = f64::from(case.trial.trial.tier) * seconds(case.trial.window_ns);
        figures.answers_per_session_second = ratio(window.replies, session_seconds);
    }
    if witness == Witness::Receiver {
        received(&mut figures, case);
    }
    service_side(&mut figures, case);
    memory(&mut figures, case);
    figures
}

/// Adds the figures of connections that receive published messages.
fn received(figures: &mut Figures, case: &Case<'_>) {
    let window = &case.merged.window;
    let duration = seconds(window.duration_ns);
    figures.delivered_per_second = per_second(window.replies, duration);
    figures.bytes_read_per_second = per_second(window.bytes_read, duration);
    figures.messages_per_read = ratio(window.replies, window.reads as f64);
    figures.worker_cpu_seconds_per_million = ratio(window.cpu_ns, window.replies as f64 * 1000.0);
    if let (Some(start), Some(end)) = (&case.service.readings.window_start, &case.service.readings.window_end)
        && let (Some(from), Some(to)) = (&start.publisher, &end.publisher)
    {
        let between = seconds(end.unix_ns.saturating_sub(start.unix_ns));
        figures.published_per_second = per_second(to.published.saturating_sub(from.published), between);
    }
}

/// Adds the figures that come from the readings at the window's start and end.
fn service_side(figures: &mut Figures, case: &Case<'_>) {
    let witness = case.witness();
    let Some(Edges { start, end, seconds: duration }) = Edges::of(case) else { return };
    let per_process = service_cpu(start, end);
    let cpu_ns = per_process.as_ref().map(|per_process| per_process.iter().map(|(cpu_ns, _)| cpu_ns).sum());
    figures.service_cpu_seconds = cpu_ns.map(seconds);
    let shares = per_process
        .into_iter()
        .flatten()
        // The service's own CPU time is the sum over its pods, of which one may be the bound.
        .chain(cpu_of_each(&start.replicas, &end.replicas))
        .filter_map(|(cpu_ns, limit)| service_share(case, ratio(cpu_ns, duration * 1e9)?, limit?));
    figures.service_cpu_share = shares.reduce(f64::max);
    if let (Some(start), Some(end)) = (&start.inference, &end.inference) {
        let cpu_ns = end.cpu_ns.saturating_sub(start.cpu_ns);
        figures.inference_cpu_seconds = Some(seconds(cpu_ns));
        figures.inference_cpu_share = ratio(cpu_ns, duration * end.cpu_limit * 1e9);
    }
    if witness == Witness::Receiver {
        figures.service_cpu_seconds_per_million =
            cpu_ns.and_then(|cpu_ns| ratio(cpu_ns, case.merged.window.replies as f64 * 1000.0));
        return;
    }
    if case.merged.window.sent == 0 {
        return;
    }
    let delta = ServiceDelta::between(&start.stats, &end.stats);
    figures.received_per_second = per_second(delta.received, duration).filter(|_| delta.received > 0);
    let handled = match (witness, delta.application) {
        (Witness::Application, Some(application)) => {
            figures.delivered_per_second = per_second(application.delivered, duration);
            application.delivered
        }
        (Witness::Reply, _) => case.merged.window.answered,
        _ => delta.received,
    };
    if witness != Witness::Reply && case.counts(Counter::Dropped) {
        figures.dropped_per_second = per_second(delta.dropped_total(), duration);
    }
    // A service without deliveries has still received messages.
    let handled = if handled == 0 { delta.received } else { handled };
    figures.service_cpu_seconds_per_million = cpu_ns.and_then(|cpu_ns| ratio(cpu_ns, handled as f64 * 1000.0));
}

/// CPU time in nanoseconds that the service and each of its companions used between two readings, with the CPUs that
/// each may use. A companion that is missing from either reading is left out.
fn service_cpu(start: &Reading, end: &Reading) -> Option<Vec<(u64, Option<f64>)>> {
    let own = (end.cpu_ns?.saturating_sub(start.cpu_ns?), end.cpu_limit);
    Some([own].into_iter().chain(cpu_of_each(&start.companions, &end.companions)).collect())
}

/// The same for each process of two readings.
fn cpu_of_each<'a>(start: &'a Processes, end: &'a Processes) -> impl Iterator<Item = (u64, Option<f64>)> + use<'a> {
    in_both(start, end).map(|(_, from, to)| (to.cpu_ns.saturating_sub(from.cpu_ns), Some(to.cpu_limit)))
}

/// Adds the memory figures.
///
/// Memory is taken from a reading with all connections of the tier open, otherwise it is the highest value that was
/// read. The memory of connections counts from the process's memory before its first trial, because it keeps some of
/// what earlier trials used.
fn memory(figures: &mut Figures, case: &Case<'_>) {
    let readings = &case.service.readings;
    // Where connections are opened before the load, one of them may belong to a check that has ended since.
    let expected_open =
        if case.trial.terms.opens_in_window { case.merged.connections.open } else { case.trial.open_at_start };
    let all_open = |reading: &&Reading| reading.stats.connections.open >= expected_open;
    let in_window = [&readings.window_start, &readings.window_end].into_iter().flatten().find(all_open);
    let with_all = readings.open.as_ref().or(in_window);
    let order = [&readings.before, &readings.window_start, &readings.window_end, &readings.after];
    let highest = order.into_iter().flatten().filter_map(|reading| reading.rss_bytes).max().unwrap_or(0);
    let with_all = with_all.and_then(|reading| reading.rss_bytes);
    let rss_bytes = with_all.unwrap_or(highest.max(case.trial.rss_peak_bytes));
    if rss_bytes > 0 && expected_open > 0 {
        figures.service_rss_bytes = Some(rss_bytes);
        let before = readings.before.as_ref().and_then(|reading| reading.rss_bytes);
        let at_rest = case.trial.rss_at_rest_bytes.or(before);
        figures.service_bytes_per_connection =
            at_rest.map(|at_rest| (rss_bytes as f64 - at_rest as f64) / expected_open as f64);
    }
}

/// The larger of two shares: failed messages and failed connection attempts. A tier that wasn't reached must not pass.
fn failed_share(connections: &ConnectionCounts, messages: &MessageCounts) -> Option<f64> {
    let dropped: u64 = messages.dropped.values().sum();
    let message_share = ratio(dropped + messages.wrong + messages.lost + messages.unsent, messages.due as f64);
    let failed: u64 = connections.failed.values().chain(connections.closed_early.values()).sum();
    let connection_share = ratio(failed, connections.attempted as f64);
    [message_share, connection_share].into_iter().flatten().reduce(f64::max)
}

/// Share of the messages due in the window that have no right answer within the time that the objectives allow; `None`
/// in a closed loop, where nothing is due.
fn late_share(case: &Case<'_>) -> Option<f64> {
    if !case.trial.load.is_open() {
        return None;
    }
    let late_after_ns = case.trial.terms.late_after_ns(&case.trial.objectives)?;
    let ages = case.merged.histograms.get(&*format!("{}_ns", case.trial.terms.ages.as_ref()?))?;
    ratio(ages.total() - ages.count_up_to(late_after_ns), ages.total() as f64)
}

/// The published percentiles of a histogram; `None` for those with too few samples.
pub fn percentiles(recorder: &Recorder) -> BTreeMap<String, Option<u64>> {
    let values = recorder.values();
    // Maximum and mean need every value, and overflowed values are unknown.
    let unless_overflowed = |value: u64| (recorder.count() > 0 && recorder.overflow() == 0).then_some(value);
    let mut all: BTreeMap<String, Option<u64>> =
        PERCENTILES.iter().map(|(name, percentile)| ((*name).into(), percentile_ns(recorder, *percentile))).collect();
    all.insert("max".into(), unless_overflowed(values.max()));
    all.insert("mean".into(), unless_overflowed(values.mean().round() as u64));
    all.insert("min".into(), (recorder.count() > 0).then(|| values.min()));
    all
}

#[cfg(test)]
mod tests {
    use bench_format::{
        plan::{Figure, Objective},
        result::ProcessReading,
    };

    use super::*;
    use crate::fixture::{Files, flood, sessions};

    fn of(files: &Files) -> Figures {
        let uploads: Vec<_> = files.uploads.iter().collect();
        let case = Case::new(&files.trial, &uploads, &files.service).unwrap();
        figures(&case, &case.merged.messages)
    }

    #[test]
    fn a_rate_is_that_of_the_application_and_not_of_the_writer() {
        let figures = of(&flood());
        // In two seconds 2 000 messages were written and 1 800 reached the application.
        assert_eq!((figures.written_per_second, figures.delivered_per_second), (Some(1000.0), Some(900.0)));
        assert_eq!(figures.service_cpu_seconds_per_million, Some(1e6 / 1800.0));
        assert_eq!((figures.service_cpu_share, figures.worker_cpu_share), (Some(0.5), Some(0.25)));
    }

    #[test]
    fn the_cpu_of_companions_is_added_and_the_busiest_process_may_be_the_bound() {
        let mut files = flood();
        let readings = &mut files.service.readings;
        let both = [readings.window_start.as_mut().unwrap(), readings.window_end.as_mut().unwrap()];
        for (reading, (publisher, redis)) in both.into_iter().zip([(5.0, 1.0), (5.9, 1.1)]) {
            for (name, seconds) in [("publisher", publisher), ("redis", redis)] {
                let cpu_ns = (seconds * 1e9) as u64;
                let process = ProcessReading { cpu_ns, cpu_limit: 0.5, ..ProcessReading::default() };
                reading.companions.insert(name.into(), process);
            }
        }
        let figures = of(&files);
        // The service itself used one second of CPU in a window of two.
        assert_eq!(figures.service_cpu_seconds, Some(2.0));
        assert_eq!(figures.service_cpu_share, Some(0.9));
    }

    #[test]
    fn the_share_of_a_service_with_several_pods_is_that_of_the_busiest() {
        let mut files = flood();
        let readings = &mut files.service.readings;
        let both = [readings.window_start.as_mut().unwrap(), readings.window_end.as_mut().unwrap()];
        for (reading, (left, right)) in both.into_iter().zip([(1.0, 1.0), (1.1, 1.9)]) {
            for (name, seconds) in [("left", left), ("right", right)] {
                let cpu_ns = (seconds * 1e9) as u64;
                let process = ProcessReading { cpu_ns, cpu_limit: 0.5, ..ProcessReading::default() };
                reading.replicas.insert(name.into(), process);
            }
        }
        let figures = of(&files);
        // In a window of two seconds; the service's own reading has the sum.
        assert_eq!((figures.service_cpu_seconds, figures.service_cpu_share), (Some(1.0), Some(0.9)));
    }

    #[test]
    fn workers_that_share_a_cpu_have_half_of_it_each() {
        let mut files = flood();
        files.uploads.push(files.uploads[0].clone());
        assert_eq!(of(&files).worker_cpu_share, Some(0.5));
    }

    #[test]
    fn a_load_that_ended_by_itself_is_judged_over_its_own_window() {
        let mut files = flood();
        files.uploads[0].window.duration_ns = 1_000_000_000;
        let figures = of(&files);
        assert_eq!((figures.service_cpu_share, figures.delivered_per_second), (Some(1.0), Some(1800.0)));
    }

    #[test]
    fn a_load_that_ended_at_once_has_no_service_readings() {
        let mut files = flood();
        files.uploads[0].window.duration_ns = 19_000_000;
        let figures = of(&files);
        assert_eq!((figures.service_cpu_share, figures.delivered_per_second), (None, None));
        assert!(figures.written_per_second.is_some() && figures.service_rss_bytes.is_some());
    }

    #[test]
    fn memory_is_taken_where_all_connections_are_open() {
        let mut files = flood();
        assert_eq!(of(&files).service_bytes_per_connection, Some(100.0));
        for reading in [&mut files.service.readings.window_start, &mut files.service.readings.window_end] {
            reading.as_mut().unwrap().stats.connections.open = 0;
        }
        assert_eq!(of(&files).service_rss_bytes, Some(files.trial.rss_peak_bytes));
    }

    #[test]
    fn memory_per_connection_excludes_the_memory_before_the_first_trial() {
        let mut files = flood();
        files.trial.rss_at_rest_bytes = Some(500);
        assert_eq!(of(&files).service_bytes_per_connection, Some(150.0));
        let open = Reading { rss_bytes: Some(1500), ..files.service.readings.before.clone().unwrap() };
        files.service.readings.open = Some(open);
        let figures = of(&files);
        assert_eq!((figures.service_rss_bytes, figures.service_bytes_per_connection), (Some(1500), Some(100.0)));
    }

    #[test]
    fn a_late_reading_does_not_inflate_a_rate() {
        let mut files = flood();
        let at_the_edge = of(&files).delivered_per_second.unwrap();
        let end = files.service.readings.window_end.as_mut().unwrap();
        end.unix_ns += 2_000_000_000;
        assert_eq!(of(&files).delivered_per_second, Some(at_the_edge / 2.0));
    }

    #[test]
    fn a_connection_that_failed_counts_like_a_message_that_failed() {
        let mut files = flood();
        assert_eq!(of(&files).failed_share, Some(0.0));
        files.uploads[0].connections.failed.insert("refused".into(), 1);
        assert_eq!(of(&files).failed_share, Some(0.1));
    }

    /// Sessions whose frames may take 1 650 ms; `change` is applied to the ages of their 2 000 frames.
    fn with_ages(change: impl FnOnce(&mut Recorder)) -> Figures {
        let mut files = sessions();
        let figure = Figure::PercentileMs { histogram: "oldest".into(), percentile: 95.0 };
        files.trial.objectives = vec![Objective { figure, at_most: Some(1650.0), at_least: None }];
        let name = bench_format::Name::from_static("frame_ns");
        let mut ages = Recorder::decode(&files.uploads[0].histograms[&name]).unwrap();
        change(&mut ages);
        files.uploads[0].histograms.insert(name, ages.encode());
        of(&files)
    }

    #[test]
    fn a_frame_that_is_answered_late_or_never_is_late() {
        assert_eq!(with_ages(|_| ()).late_share, Some(0.0));
        assert_eq!(with_ages(|ages| ages.record_n(1_700_000_000, 500)).late_share, Some(0.2));
        assert_eq!(with_ages(|ages| ages.censor(2000)).late_share, Some(0.5));
    }

    #[test]
    fn without_an_allowed_age_or_a_value_for_each_message_no_share_is_late() {
        assert_eq!(of(&sessions()).late_share, None);
        assert_eq!(of(&flood()).late_share, None);
    }

    #[test]
    fn answers_are_compared_with_the_sessions_and_seconds_of_the_plan() {
        let with = |change: fn(&mut Files)| {
            let mut files = sessions();
            change(&mut files);
            of(&files).answers_per_session_second
        };
        assert_eq!(with(|_| ()), Some(1.0));
        assert_eq!(with(|files| files.uploads[0].window.replies = 10), Some(0.25));
        assert_eq!(with(|files| files.uploads[0].window.duration_ns /= 4), Some(1.0), "the planned window counts");
        assert_eq!(of(&flood()).answers_per_session_second, None);
    }

    #[test]
    fn a_storm_has_a_rate_of_connections() {
        let mut files = flood();
        assert_eq!(of(&files).accepted_per_second, None);
        files.trial.terms.opens_in_window = true;
        assert_eq!(of(&files).accepted_per_second, Some(5.0));
    }

    #[test]
    fn percentiles_without_samples_are_absent() {
        let mut recorder = Recorder::new();
        assert!(percentiles(&recorder).values().all(Option::is_none));
        (1..=500).for_each(|value| recorder.record(value));
        let percentiles = percentiles(&recorder);
        assert!(percentiles["p99"].is_some() && percentiles["p99.9"].is_none());
        assert_eq!((percentiles["max"], percentiles["min"]), (Some(500), Some(1)));
    }
}
