//! The books as Prometheus text. `services/README.md` lists the names.

use std::{collections::BTreeMap, fmt::Write, fs};

use crate::{
    metrics::{Counts, LATENESS_BOUNDS, Lateness},
    protocol::Kind,
};

/// Prometheus text of `counts`, and of the process.
pub(crate) fn text(counts: &Counts) -> String {
    let mut text = Text(String::new());
    text.value("service_messages_received_total", "counter", counts.received);
    text.value("service_messages_consumed_total", "counter", counts.consumed);
    text.value("service_messages_delivered_total", "counter", counts.delivered);
    text.labelled("service_messages_dropped_total", "reason", &counts.dropped);
    text.value("service_messages_queued", "gauge", counts.waiting + counts.in_flight);
    text.value("service_messages_malformed_total", "counter", 0);
    text.value("service_messages_sent_total", "counter", counts.sent);
    text.labelled("service_messages_send_dropped_total", "reason", &BTreeMap::new());
    text.value("service_connections_accepted_total", "counter", counts.accepted);
    text.value("service_connections_open", "gauge", counts.open);
    text.labelled("service_connections_closed_total", "reason", &counts.closed);
    text.labelled("service_connections_rejected_total", "reason", &counts.rejected);
    text.value("service_bytes_received_total", "counter", counts.bytes_received);
    text.value("service_bytes_sent_total", "counter", counts.bytes_sent);
    text.value("service_inference_requests_total", "counter", counts.requests);
    text.value("service_inference_answered_total", "counter", counts.answered);
    text.labelled("service_inference_failed_total", "kind", &failures(counts));
    text.value("service_inference_abandoned_total", "counter", counts.abandoned);
    text.value("service_inference_in_flight", "gauge", counts.requests_in_flight);
    text.value("service_inference_in_flight_per_connection_max", "gauge", counts.in_flight_per_connection_max);
    let ticks = &counts.ticks;
    let ticks = [("flushed", ticks.flushed), ("skipped", ticks.skipped), ("empty", ticks.empty)];
    text.labelled("service_flush_ticks_total", "outcome", &BTreeMap::from(ticks));
    text.lateness("service_flush_lateness_seconds", &counts.lateness);
    text.value("service_buffered_bytes", "gauge", counts.buffered_bytes());
    if let Some(bytes) = resident_bytes() {
        text.value("service_process_resident_bytes", "gauge", bytes);
    }
    text.0
}

/// All kinds from the start, so that a rate over them has a first value.
fn failures(counts: &Counts) -> BTreeMap<&'static str, u64> {
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Overflow).map(Kind::name);
    kinds.map(|kind| (kind, counts.failed.get(kind).copied().unwrap_or_default())).collect()
}

/// Memory of this process; unknown where there is no `/proc`.
fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

struct Text(String);

impl Text {
    fn line(&mut self, line: std::fmt::Arguments) {
        writeln!(self.0, "{line}").expect("a string takes every line");
    }

    fn value(&mut self, name: &str, kind: &str, value: u64) {
        self.line(format_args!("# TYPE {name} {kind}\n{name} {value}"));
    }

    fn labelled(&mut self, name: &str, label: &str, values: &BTreeMap<&str, u64>) {
        self.line(format_args!("# TYPE {name} counter"));
        for (value, count) in values {
            self.line(format_args!("{name}{{{label}=\"{value}\"}} {count}"));
        }
    }

    fn lateness(&mut self, name: &str, lateness: &Lateness) {
        self.line(format_args!("# TYPE {name} histogram"));
        let mut count = 0;
        let bounds = LATENESS_BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, ticks) in bounds.zip(lateness.buckets) {
            count += ticks;
            self.line(format_args!("{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
        self.line(format_args!("{name}_sum {}\n{name}_count {count}", lateness.sum.as_secs_f64()));
    }
}
