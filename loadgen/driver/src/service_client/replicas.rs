//! Adds up what the replicas of a service report, as if they were one process. Pure.

use std::collections::{BTreeMap, HashSet};

use bench_format::service::{
    ApplicationStats, ByteStats, ConnectionBook, ConnectionStats, InferenceStats, MessageStats, ServiceStats,
};

/// Why the reports of replicas can't be added up.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The replicas are different programs, or of different versions.
    #[error("the replicas are not the same program: one is {first}, another {other}")]
    Differ {
        /// Name and version of the first replica.
        first: String,
        /// Name and version of the replica that differs.
        other: String,
    },
    /// Two replicas gave the same id to a connection, so that its books would be mixed up.
    #[error("two replicas have a connection with the id {0}; ids must differ between processes of a service")]
    SameId(String),
}

/// The counters of all replicas, summed. The uptime is that of the youngest, so that a restart of any shows.
///
/// # Errors
/// [`Error::Differ`] if their names or versions differ.
pub(super) fn sum(reports: Vec<ServiceStats>) -> Result<ServiceStats, Error> {
    let mut reports = reports.into_iter();
    let mut all = reports.next().unwrap_or_default();
    for report in reports {
        if (&report.service, &report.version) != (&all.service, &all.version) {
            return Err(Error::Differ { first: program(&all), other: program(&report) });
        }
        add(&mut all, report);
    }
    Ok(all)
}

/// The books of all replicas' connections.
///
/// # Errors
/// [`Error::SameId`] if two replicas have a book of the same id.
pub(super) fn united(reports: Vec<Vec<ConnectionBook>>) -> Result<Vec<ConnectionBook>, Error> {
    let mut seen: HashSet<String> = HashSet::new();
    for report in reports.iter().filter(|_| reports.len() > 1) {
        // One replica may report a connection twice, when it closes between two readings.
        let own: HashSet<&str> = report.iter().map(|book| book.id.as_str()).collect();
        if let Some(same) = own.iter().find(|id| seen.contains(**id)) {
            return Err(Error::SameId((*same).to_owned()));
        }
        seen.extend(own.into_iter().map(str::to_owned));
    }
    Ok(reports.into_iter().flatten().collect())
}

fn program(stats: &ServiceStats) -> String {
    format!("{} {}", stats.service, stats.version)
}

fn add(all: &mut ServiceStats, report: ServiceStats) {
    all.uptime_seconds = all.uptime_seconds.min(report.uptime_seconds);
    add_connections(&mut all.connections, report.connections);
    add_messages(&mut all.messages, report.messages);
    let ByteStats { received, sent } = report.bytes;
    all.bytes.received += received;
    all.bytes.sent += sent;
    if let Some(ApplicationStats { delivered, sequence_sum, unnumbered }) = report.application {
        let sums = all.application.get_or_insert_default();
        sums.delivered += delivered;
        sums.sequence_sum = sums.sequence_sum.wrapping_add(sequence_sum);
        sums.unnumbered += unnumbered;
    }
    if let Some(inference) = report.inference {
        add_inference(all.inference.get_or_insert_default(), inference);
    }
}

fn add_connections(all: &mut ConnectionStats, report: ConnectionStats) {
    let ConnectionStats { accepted, open, closed, rejected } = report;
    all.accepted += accepted;
    all.open += open;
    add_by_reason(&mut all.closed, closed);
    add_by_reason(&mut all.rejected, rejected);
}

fn add_messages(all: &mut MessageStats, report: MessageStats) {
    let MessageStats { received, consumed, delivered, dropped, queued, malformed, sent, send_dropped } = report;
    all.received += received;
    all.consumed += consumed;
    all.delivered += delivered;
    add_by_reason(&mut all.dropped, dropped);
    all.queued += queued;
    all.malformed += malformed;
    all.sent += sent;
    add_by_reason(&mut all.send_dropped, send_dropped);
}

fn add_inference(all: &mut InferenceStats, report: InferenceStats) {
    let InferenceStats { requests, answered, failed, abandoned, in_flight, ticks_skipped, buffered_bytes } = report;
    all.requests += requests;
    all.answered += answered;
    add_by_reason(&mut all.failed, failed);
    all.abandoned += abandoned;
    all.in_flight += in_flight;
    all.ticks_skipped += ticks_skipped;
    all.buffered_bytes += buffered_bytes;
}

fn add_by_reason(all: &mut BTreeMap<String, u64>, report: BTreeMap<String, u64>) {
    for (reason, count) in report {
        *all.entry(reason).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(count: u64, reason: &str, uptime_seconds: f64) -> ServiceStats {
        let reasons: BTreeMap<String, u64> = [(reason.to_owned(), count), ("same".to_owned(), count)].into();
        ServiceStats {
            service: "ours".into(),
            version: "1".into(),
            uptime_seconds,
            connections: ConnectionStats {
                accepted: count,
                open: count,
                closed: reasons.clone(),
                rejected: reasons.clone(),
            },
            messages: MessageStats {
                received: count,
                consumed: count,
                delivered: count,
                dropped: reasons.clone(),
                queued: count,
                malformed: count,
                sent: count,
                send_dropped: reasons.clone(),
            },
            bytes: ByteStats { received: count, sent: count },
            application: Some(ApplicationStats { delivered: count, sequence_sum: u64::MAX, unnumbered: count }),
            inference: Some(InferenceStats {
                requests: count,
                answered: count,
                failed: reasons,
                abandoned: count,
                in_flight: count,
                ticks_skipped: count,
                buffered_bytes: count,
            }),
        }
    }

    /// Every number in a value.
    fn numbers(value: &serde_json::Value) -> Vec<f64> {
        match value {
            serde_json::Value::Object(fields) => fields.values().flat_map(numbers).collect(),
            value => value.as_f64().into_iter().collect(),
        }
    }

    #[test]
    fn every_counter_is_added_up() {
        let sums = sum(vec![stats(1, "a", 0.0), stats(2, "b", 0.0)]).unwrap();
        assert_eq!(sums.application.unwrap().sequence_sum, u64::MAX - 1, "the sum wraps as each of them does");
        assert_eq!(sums.messages.dropped, [("a".into(), 1), ("b".into(), 2), ("same".into(), 3)].into());
        let mut rest = sums;
        rest.application.as_mut().unwrap().sequence_sum = 3;
        for reasons in [
            &mut rest.connections.closed,
            &mut rest.connections.rejected,
            &mut rest.messages.dropped,
            &mut rest.messages.send_dropped,
            &mut rest.inference.as_mut().unwrap().failed,
        ] {
            reasons.retain(|reason, _| reason == "same");
        }
        let json = serde_json::to_value(&rest).unwrap();
        let others: Vec<f64> = numbers(&json).into_iter().filter(|number| *number != 3.0).collect();
        assert_eq!(others, [0.0], "only the uptime is no sum: {json}");
    }

    #[test]
    fn the_uptime_is_that_of_the_youngest() {
        let sums = sum(vec![stats(1, "a", 9.0), stats(1, "a", 2.0), stats(1, "a", 5.0)]).unwrap();
        assert_eq!(sums.uptime_seconds, 2.0);
    }

    #[test]
    fn replicas_of_different_versions_are_no_service() {
        let other = ServiceStats { version: "2".into(), ..stats(1, "a", 1.0) };
        let error = sum(vec![stats(1, "a", 1.0), other]).unwrap_err();
        assert_eq!(error.to_string(), "the replicas are not the same program: one is ours 1, another ours 2");
    }

    #[test]
    fn books_are_united_unless_two_replicas_use_one_id() {
        let books = |ids: &[&str]| -> Vec<ConnectionBook> {
            ids.iter().map(|id| ConnectionBook { id: (*id).into(), ..ConnectionBook::default() }).collect()
        };
        assert_eq!(united(vec![books(&["a", "b"]), books(&["c"])]).unwrap().len(), 3);
        assert_eq!(united(vec![books(&["a", "a"]), books(&["c"])]).unwrap().len(), 3);
        assert_eq!(united(vec![books(&["a"]), books(&["a"])]).unwrap_err(), Error::SameId("a".into()));
    }
}
