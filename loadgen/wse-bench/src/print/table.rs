//! The columns of each test's table. Pure.

use bench_format::result::{BoundBy, Witness};

use super::number::{UNKNOWN, count, decimal, milliseconds, percent, rate};
use crate::{
    outcome::{Measured, Phase, TierResult},
    payload::{Format, trade_bytes},
    suite::Test,
};

const BYTES_PER_KIB: f64 = 1024.0;

/// What the cells of a row are computed from.
pub(super) struct Row<'a> {
    pub(super) outcome: &'a TierResult,
    pub(super) measured: &'a Measured,
    /// Earlier rows of the run.
    pub(super) earlier: &'a [TierResult],
}

/// The title of a column, and the function for its cells.
pub(super) type Column = (&'static str, fn(&Row<'_>) -> String);

/// The columns of a test's table.
pub(super) fn columns(test: Test, open_loop: bool, with_service: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    if test == Test::SizeMatrix {
        columns.push(("size", |row| count(u64::from(row.outcome.request.message.size_bytes))));
        columns.push(("bytes", |row| decimal(bytes_per_message(row.outcome), 0)));
    }
    columns.push(("connections", |row| count(u64::from(row.outcome.request.tier))));
    columns.push(("workers", |row| count(u64::from(row.outcome.request.workers))));
    columns.extend(match test {
        Test::ConnectionStorm => storm(),
        Test::PingLatency => pings(),
        Test::Throughput | Test::SizeMatrix => flood(with_service),
        Test::FormatComparison => formats(with_service),
        Test::SustainedHold => hold(),
        Test::ConnectionLimit => limit(),
        Test::FanoutBroadcast | Test::FanoutRedis | Test::FanoutCluster | Test::FanoutClusterTls => {
            fanout(open_loop, with_service)
        }
    });
    if open_loop && !matches!(test, Test::ConnectionStorm | Test::ConnectionLimit) && !test.workload().receives() {
        columns.push(("delay p50", |row| latency(row, "delay_ns", "p50")));
        columns.push(("delay p99", |row| latency(row, "delay_ns", "p99")));
    }
    if test != Test::ConnectionLimit {
        columns.push(("bound by", |row| bound_by(row.outcome).into()));
    }
    columns
}

fn storm() -> Vec<Column> {
    vec![
        ("accepted/s", |row| bounded(row, row.measured.figures.accepted_per_second)),
        ("p50 ms", |row| latency(row, "handshake_ns", "p50")),
        ("p95 ms", |row| latency(row, "handshake_ns", "p95")),
        ("p99 ms", |row| latency(row, "handshake_ns", "p99")),
        ("p99.9 ms", |row| latency(row, "handshake_ns", "p99.9")),
        ("failed", |row| count(failed(row.measured))),
    ]
}

fn pings() -> Vec<Column> {
    vec![
        ("pings", |row| count(row.measured.window.replies)),
        ("pings/s", |row| bounded(row, row.measured.figures.delivered_per_second)),
        ("p50 ms", |row| latency(row, "response_ns", "p50")),
        ("p95 ms", |row| latency(row, "response_ns", "p95")),
        ("p99 ms", |row| latency(row, "response_ns", "p99")),
        ("p99.9 ms", |row| latency(row, "response_ns", "p99.9")),
        ("p99.99 ms", |row| latency(row, "response_ns", "p99.99")),
        ("max ms", |row| latency(row, "response_ns", "max")),
        ("lost", |row| count(row.measured.messages.lost + row.measured.messages.wrong)),
        ("per write", per_write),
    ]
}

fn flood(with_service: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("written/s", |row| rate(row.measured.figures.written_per_second)),
        ("MB/s", |row| decimal(megabytes_per_second(row), 1)),
        ("per write", per_write),
        ("CPU ns/msg", |row| {
            decimal(row.measured.figures.worker_cpu_seconds_per_million.map(|seconds| seconds * 1e3), 0)
        }),
    ];
    if with_service {
        columns.extend::<[Column; 4]>([
            ("received/s", |row| bounded(row, row.measured.figures.received_per_second)),
            ("delivered/s", |row| bounded(row, row.measured.figures.delivered_per_second)),
            ("delivered", |row| count(row.measured.messages.delivered)),
            ("dropped", |row| count(row.measured.messages.dropped.values().sum())),
        ]);
    }
    columns.push(("unsent", |row| count(row.measured.messages.unsent)));
    columns
}

fn formats(with_service: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("format", |row| row.outcome.request.message.format.clone()),
        ("bytes", |row| decimal(bytes_per_message(row.outcome), 0)),
    ];
    columns.extend(flood(with_service));
    columns.push(("vs json", vs_json));
    columns
}

fn hold() -> Vec<Column> {
    vec![
        ("survival", |row| percent(row.measured.survival)),
        ("ended", |row| count(row.measured.connections.closed_early.values().sum())),
        ("pings", |row| count(row.measured.window.replies)),
        ("p50 ms", |row| latency(row, "response_ns", "p50")),
        ("p95 ms", |row| latency(row, "response_ns", "p95")),
        ("p99 ms", |row| latency(row, "response_ns", "p99")),
        ("lost", |row| count(row.measured.messages.lost + row.measured.messages.wrong)),
        ("KiB/conn", |row| {
            decimal(row.measured.figures.service_bytes_per_connection.map(|bytes| bytes / BYTES_PER_KIB), 1)
        }),
        ("per write", per_write),
    ]
}

fn limit() -> Vec<Column> {
    vec![
        ("addresses", |row| count(u64::from(row.outcome.request.source_addresses))),
        ("phase", |row| match row.outcome.probe.as_ref().map(|probe| probe.phase) {
            Some(Phase::Raise) => "raise".into(),
            Some(Phase::Bisect) => "bisect".into(),
            None => UNKNOWN.into(),
        }),
        ("accepted/s", |row| rate(row.measured.figures.accepted_per_second)),
        ("failed", |row| count(failed(row.measured))),
        ("ended", |row| count(row.measured.connections.closed_early.values().sum())),
        ("held", |row| match row.outcome.probe.as_ref() {
            Some(probe) if probe.held => "yes".into(),
            Some(probe) => format!("no: {}", probe.why.as_deref().unwrap_or(UNKNOWN)),
            None => UNKNOWN.into(),
        }),
    ]
}

/// Columns for published messages. Without a schedule there is no latency, only the age of the backlog.
fn fanout(paced: bool, with_service: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("open", |row| count(row.measured.connections.open)),
        ("deliveries/s", |row| bounded(row, row.measured.figures.delivered_per_second)),
    ];
    if with_service {
        columns.push(("published/s", |row| rate(row.measured.figures.published_per_second)));
    }
    columns.push(("MB/s", |row| decimal(row.measured.figures.bytes_read_per_second.map(|bytes| bytes / 1e6), 1)));
    columns.extend::<[Column; 4]>(if paced {
        [
            ("p50 ms", |row| latency(row, "response_ns", "p50")),
            ("p95 ms", |row| latency(row, "response_ns", "p95")),
            ("p99 ms", |row| latency(row, "response_ns", "p99")),
            ("p99.9 ms", |row| latency(row, "response_ns", "p99.9")),
        ]
    } else {
        [
            ("age p50 ms", |row| latency(row, "age_ns", "p50")),
            ("age p95 ms", |row| latency(row, "age_ns", "p95")),
            ("age p99 ms", |row| latency(row, "age_ns", "p99")),
            ("age max ms", |row| latency(row, "age_ns", "max")),
        ]
    });
    columns.extend::<[Column; 3]>([
        ("lost", |row| count(row.measured.messages.lost)),
        ("duplicates", |row| count(row.measured.messages.duplicates)),
        ("reorders", |row| count(row.measured.messages.reorders)),
    ]);
    if with_service {
        columns.push(("dropped", |row| count(row.measured.messages.dropped.values().sum())));
        columns.push(("slow drops", |row| {
            let dropped = row.measured.service.as_ref().map(|service| service.send_dropped.get("slow_consumer"));
            dropped.map_or(UNKNOWN.into(), |dropped| count(dropped.copied().unwrap_or(0)))
        }));
    }
    columns.extend::<[Column; 3]>([
        ("own ns", |row| decimal(row.measured.figures.worker_cpu_seconds_per_million.map(nanoseconds), 0)),
        ("service ns", |row| decimal(row.measured.figures.service_cpu_seconds_per_million.map(nanoseconds), 0)),
        ("per read", |row| decimal(row.measured.figures.messages_per_read, 1)),
    ]);
    columns
}

/// Converts CPU seconds per million messages to nanoseconds per message.
fn nanoseconds(seconds_per_million: f64) -> f64 {
    seconds_per_million * 1e3
}

fn latency(row: &Row<'_>, histogram: &str, name: &str) -> String {
    milliseconds(row.measured.percentiles.get(histogram).and_then(|all| all.get(name).copied().flatten()))
}

fn per_write(row: &Row<'_>) -> String {
    decimal(row.measured.figures.messages_per_write, 1)
}

fn failed(measured: &Measured) -> u64 {
    measured.connections.attempted - measured.connections.open
}

/// A rate of the service; when the generator was the limit, it is a lower bound.
fn bounded(row: &Row<'_>, per_second: Option<f64>) -> String {
    let sign = if per_second.is_some() && is_lower_bound(row.measured) { ">= " } else { "" };
    format!("{sign}{}", rate(per_second))
}

/// Whether the generator's CPU limited the rate.
pub(super) fn is_lower_bound(measured: &Measured) -> bool {
    matches!(measured.bound_by, Some(BoundBy::Generator | BoundBy::Both))
}

fn bound_by(outcome: &TierResult) -> &'static str {
    match outcome.measured.as_ref().and_then(|measured| measured.bound_by) {
        Some(BoundBy::Service) => "service",
        Some(BoundBy::Generator) => "generator",
        Some(BoundBy::Both) => "both",
        Some(BoundBy::Neither) => "neither",
        Some(BoundBy::Inference) => "inference",
        Some(BoundBy::Machine) => "machine",
        None if outcome.request.load.is_open() => "schedule",
        None => UNKNOWN,
    }
}

/// Messages per second that the application confirmed; for other witnesses, those written.
pub(super) fn messages_per_second(measured: &Measured) -> Option<f64> {
    match measured.witness {
        Witness::Application => measured.figures.delivered_per_second,
        _ => measured.figures.written_per_second,
    }
}

/// Bytes of a message, without the headers of WebSocket and TCP.
pub(super) fn bytes_per_message(outcome: &TierResult) -> Option<f64> {
    let message = &outcome.request.message;
    Format::from_name(&message.format).map(|format| trade_bytes(format, message.size_bytes as usize) as f64)
}

fn megabytes_per_second(row: &Row<'_>) -> Option<f64> {
    row.measured.figures.written_per_second.zip(bytes_per_message(row.outcome)).map(|(rate, bytes)| rate * bytes / 1e6)
}

/// The rate of a format relative to that of JSON on as many connections. Unknown when the generator limited either
/// rate, because that says nothing about the service.
fn vs_json(row: &Row<'_>) -> String {
    let request = &row.outcome.request;
    let is_json = |earlier: &&TierResult| {
        let other = &earlier.request;
        (other.test, other.tier, other.message.format.as_str()) == (request.test, request.tier, "json")
    };
    let json = row.earlier.iter().rev().find(is_json).and_then(|outcome| outcome.measured.as_ref());
    let by_generator = |measured: &Measured| measured.bound_by == Some(BoundBy::Generator);
    match json {
        Some(json) if !by_generator(json) && !by_generator(row.measured) => {
            let ratio = messages_per_second(row.measured).zip(messages_per_second(json).filter(|rate| *rate > 0.0));
            ratio.map_or(UNKNOWN.into(), |(own, json)| format!("{:+.0} %", (own / json - 1.0) * 100.0))
        }
        _ => UNKNOWN.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::fixture::unwitnessed;

    fn cells(outcome: &TierResult, earlier: &[TierResult], title: &str) -> String {
        let columns = columns(outcome.request.test, outcome.request.load.is_open(), true);
        let (_, cell) = columns.iter().find(|(other, _)| *other == title).unwrap();
        cell(&Row { outcome, measured: outcome.measured.as_ref().unwrap(), earlier })
    }

    /// The outcome of a flood in a format at a rate, without the service's counters.
    fn format(format: &str, written_per_second: f64, bound_by: Option<BoundBy>) -> TierResult {
        let mut outcome = unwitnessed();
        outcome.request.test = Test::FormatComparison;
        outcome.request.message.format = format.into();
        let measured = outcome.measured.as_mut().unwrap();
        (measured.figures.written_per_second, measured.bound_by) = (Some(written_per_second), bound_by);
        outcome
    }

    #[test]
    fn a_rate_bound_by_the_generator_is_a_lower_bound() {
        let shown = |bound_by| {
            let mut outcome = unwitnessed();
            let measured = outcome.measured.as_mut().unwrap();
            (measured.bound_by, measured.figures.delivered_per_second) = (bound_by, Some(1000.0));
            (cells(&outcome, &[], "delivered/s"), cells(&outcome, &[], "bound by"))
        };
        assert_eq!(shown(Some(BoundBy::Generator)), (">= 1,000".into(), "generator".into()));
        assert_eq!(shown(Some(BoundBy::Service)), ("1,000".into(), "service".into()));
        assert_eq!(shown(None), ("1,000".into(), "n/a".into()));
    }

    #[test]
    fn formats_are_compared_with_json_on_as_many_connections() {
        let json = format("json", 100.0, None);
        let msgpack = format("msgpack", 150.0, Some(BoundBy::Service));
        assert_eq!(cells(&msgpack, std::slice::from_ref(&json), "vs json"), "+50 %");
        let mut other_tier = json.clone();
        other_tier.request.tier += 1;
        assert_eq!(cells(&msgpack, &[other_tier], "vs json"), "n/a");
    }

    #[test]
    fn a_format_that_only_the_generator_bound_is_compared_with_nothing() {
        let json = format("json", 100.0, Some(BoundBy::Service));
        let compressed = format("compressed", 50.0, Some(BoundBy::Generator));
        assert_eq!(cells(&compressed, &[json], "vs json"), "n/a");
    }
}
