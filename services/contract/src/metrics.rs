//! The names of the metrics that every service serves on `/metrics`, as `services/README.md` lists them.

use std::collections::BTreeMap;

use crate::{
    exposition::{Exposition, Histogram},
    stats::{InferenceStats, MessageStats, ServiceStats},
};

/// Known reasons, written from the start of a service with the value 0 and in this order. A series that appears later
/// shows no increase in Prometheus. Other reasons that were counted follow them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels<'a> {
    /// Reasons why messages are dropped before the application gets them.
    pub dropped: &'a [&'a str],
    /// Reasons why messages are not sent.
    pub send_dropped: &'a [&'a str],
    /// Reasons why connections end.
    pub closed: &'a [&'a str],
    /// Reasons why connections are refused.
    pub rejected: &'a [&'a str],
    /// Kinds of failures of a gateway's inference requests.
    pub failed: &'a [&'a str],
}

/// Metrics of a gateway that aren't in its [`ServiceStats`].
#[derive(Clone, Copy, Debug)]
pub struct GatewayMetrics<'a> {
    /// The largest number of requests that were ever in flight for one connection.
    pub in_flight_per_connection_max: u64,
    /// Counts of flush ticks.
    pub ticks: Ticks,
    /// Delay of the flush ticks, in seconds.
    pub lateness: Histogram<'a>,
    /// Resident memory of the process, in bytes; absent if the system doesn't report it.
    pub resident_bytes: Option<u64>,
}

/// A gateway's flush ticks, by what they found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    /// Ticks that found audio and sent it as a batch.
    pub flushed: u64,
    /// Ticks that found a request in flight and did nothing.
    pub skipped: u64,
    /// Ticks that found no audio.
    pub empty: u64,
}

impl Exposition {
    /// Writes the metrics of all services and, for a gateway, those of its inference requests.
    pub fn service(&mut self, stats: &ServiceStats, labels: &Labels<'_>) {
        self.messages(&stats.messages, labels);
        let connections = &stats.connections;
        self.counter("service_connections_accepted_total", "Connections upgraded and registered", connections.accepted);
        self.gauge("service_connections_open", "Connections open now", connections.open);
        let closed = known_first(labels.closed, &connections.closed);
        self.counters("service_connections_closed_total", "Connections that ended", "reason", closed);
        let rejected = known_first(labels.rejected, &connections.rejected);
        self.counters("service_connections_rejected_total", "Connections refused", "reason", rejected);
        self.counter("service_bytes_received_total", "WebSocket bytes read from sockets", stats.bytes.received);
        self.counter("service_bytes_sent_total", "WebSocket bytes written to sockets", stats.bytes.sent);
        if let Some(application) = &stats.application {
            let (delivered, sum) = (application.delivered, application.sequence_sum);
            self.counter("application_messages_delivered_total", "Messages that the application read", delivered);
            self.counter("application_sequence_sum", "Sum of their sequence numbers, modulo 2^64", sum);
        }
        if let Some(inference) = &stats.inference {
            self.requests(inference, labels);
        }
    }

    /// Writes the other metrics of a gateway.
    pub fn gateway(&mut self, metrics: &GatewayMetrics<'_>) {
        let most = metrics.in_flight_per_connection_max;
        let help = "The most requests that were ever in flight for one connection";
        self.gauge("service_inference_in_flight_per_connection_max", help, most);
        let Ticks { flushed, skipped, empty } = metrics.ticks;
        let ticks = [("flushed", flushed), ("skipped", skipped), ("empty", empty)];
        self.counters("service_flush_ticks_total", "Flush ticks by what they found", "outcome", ticks);
        self.histogram("service_flush_lateness_seconds", "How late flush ticks ran", &metrics.lateness);
        if let Some(bytes) = metrics.resident_bytes {
            self.gauge("service_process_resident_bytes", "Memory of the process", bytes);
        }
    }

    fn messages(&mut self, messages: &MessageStats, labels: &Labels<'_>) {
        self.counter("service_messages_received_total", "Complete data messages taken from sockets", messages.received);
        self.counter("service_messages_consumed_total", "Messages that the service answered itself", messages.consumed);
        self.counter("service_messages_delivered_total", "Messages handed to the application", messages.delivered);
        let dropped = known_first(labels.dropped, &messages.dropped);
        self.counters("service_messages_dropped_total", "Messages not handed over", "reason", dropped);
        self.gauge("service_messages_queued", "Messages that wait for the application", messages.queued);
        self.counter("service_messages_malformed_total", "Text passed on that was no JSON object", messages.malformed);
        self.counter("service_messages_sent_total", "Data messages handed to sockets", messages.sent);
        let send_dropped = known_first(labels.send_dropped, &messages.send_dropped);
        self.counters("service_messages_send_dropped_total", "Messages not sent", "reason", send_dropped);
    }

    fn requests(&mut self, inference: &InferenceStats, labels: &Labels<'_>) {
        self.counter("service_inference_requests_total", "Requests begun", inference.requests);
        self.counter("service_inference_answered_total", "Requests whose answer became a partial", inference.answered);
        let failed = known_first(labels.failed, &inference.failed);
        self.counters("service_inference_failed_total", "Requests whose frames got an error", "kind", failed);
        self.counter("service_inference_abandoned_total", "Requests whose connection ended first", inference.abandoned);
        self.gauge("service_inference_in_flight", "Requests in flight now", inference.in_flight);
        self.gauge("service_buffered_bytes", "Audio held, waiting or in flight", inference.buffered_bytes);
    }
}

/// Counts by label: first those of `known`, with 0 if they haven't occurred, then the others.
fn known_first<'a>(known: &'a [&'a str], counts: &'a BTreeMap<String, u64>) -> impl Iterator<Item = (&'a str, u64)> {
    let first = known.iter().map(|label| (*label, counts.get(*label).copied().unwrap_or(0)));
    let others = counts.iter().filter(|(label, _)| !known.contains(&label.as_str()));
    first.chain(others.map(|(label, count)| (label.as_str(), *count)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{ApplicationStats, ConnectionStats};

    /// Counters with the value 3 for the reason `reasons`.
    fn stats() -> ServiceStats {
        let reasons = || BTreeMap::from([("why".to_owned(), 3)]);
        ServiceStats {
            connections: ConnectionStats { closed: reasons(), rejected: reasons(), ..ConnectionStats::default() },
            messages: MessageStats { dropped: reasons(), send_dropped: reasons(), ..MessageStats::default() },
            application: Some(ApplicationStats::default()),
            inference: Some(InferenceStats { failed: reasons(), ..InferenceStats::default() }),
            ..ServiceStats::default()
        }
    }

    fn text() -> String {
        let mut text = Exposition::default();
        text.service(&stats(), &Labels::default());
        text.gateway(&GatewayMetrics {
            in_flight_per_connection_max: 1,
            ticks: Ticks::default(),
            lateness: Histogram { bounds: &[], counts: &[0], sum: 0.0 },
            resident_bytes: Some(1),
        });
        text.into_text()
    }

    /// The names of metrics in the tables of `services/README.md`, each with its label.
    fn documented() -> Vec<(String, Option<&'static str>)> {
        let readme = include_str!("../../README.md");
        let (of_all, gateways) = readme.split_once("\n## Gateways\n").expect("a section on gateways");
        let (_, of_gateways) = gateways.split_once("\n| metric | type | what |\n").expect("a table of metrics");
        let rows = of_all.lines().chain(of_gateways.lines()).filter(|line| line.starts_with("| `"));
        let words = rows.flat_map(|row| row.split('`')).map(|word| word.trim_end_matches('}'));
        let names = words.map(|word| word.split_once('{').map_or((word, None), |(name, label)| (name, Some(label))));
        // The common prefix of a row's names is written once and then abbreviated.
        let names = names.map(|(name, label)| (name.replace('…', "service_inference"), label));
        names.filter(|(name, _)| name.starts_with("service_") || name.starts_with("application_")).collect()
    }

    #[test]
    fn every_documented_metric_is_exposed_with_its_label() {
        let (text, documented) = (text(), documented());
        assert!(documented.len() >= 26, "the contract lists {documented:?}");
        for (name, label) in documented {
            assert!(text.contains(&format!("# TYPE {name} ")), "{name} is missing in\n{text}");
            if let Some(label) = label {
                assert!(text.contains(&format!("\n{name}{{{label}=\"")), "{name} has no {label} in\n{text}");
            }
        }
    }

    #[test]
    fn counters_end_in_total_and_gauges_do_not() {
        for line in text().lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            // A sum that wraps at 2^64 isn't a total.
            let is_total = name.ends_with("_total") || name == "application_sequence_sum";
            assert_eq!(kind == "counter", is_total, "{line}");
        }
    }

    #[test]
    fn known_labels_are_written_first_even_with_a_count_of_zero() {
        let counts = BTreeMap::from([("b".to_owned(), 2), ("x".to_owned(), 7)]);
        assert!(known_first(&["c", "b"], &counts).eq([("c", 0), ("b", 2), ("x", 7)]));
        assert!(known_first(&[], &counts).eq([("b", 2), ("x", 7)]));
    }

    #[test]
    fn absent_counters_are_not_reported() {
        let mut text = Exposition::default();
        text.service(&ServiceStats::default(), &Labels::default());
        let text = text.into_text();
        assert!(!text.contains("application_") && !text.contains("inference"), "{text}");
    }
}
