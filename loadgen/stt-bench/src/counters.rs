//! What a gateway counted between two readings of its metrics port. Pure.

use std::collections::BTreeMap;

use bench_format::service::{ConnectionStats, InferenceStats, MessageStats, ServiceStats};

/// Counters since the first reading; gauges as in the second. A counter that shrank, because the gateway was restarted,
/// gives 0.
pub(crate) fn difference(before: &ServiceStats, mut after: ServiceStats) -> ServiceStats {
    let ConnectionStats { accepted, open: _, closed, rejected } = &mut after.connections;
    less(accepted, before.connections.accepted);
    less_by_reason(closed, &before.connections.closed);
    less_by_reason(rejected, &before.connections.rejected);
    let MessageStats { received, consumed, delivered, dropped, queued: _, malformed, sent, send_dropped } =
        &mut after.messages;
    less(received, before.messages.received);
    less(consumed, before.messages.consumed);
    less(delivered, before.messages.delivered);
    less(malformed, before.messages.malformed);
    less(sent, before.messages.sent);
    less_by_reason(dropped, &before.messages.dropped);
    less_by_reason(send_dropped, &before.messages.send_dropped);
    less(&mut after.bytes.received, before.bytes.received);
    less(&mut after.bytes.sent, before.bytes.sent);
    if let (Some(after), Some(before)) = (&mut after.inference, &before.inference) {
        let InferenceStats { requests, answered, failed, abandoned, ticks_skipped, .. } = after;
        less(requests, before.requests);
        less(answered, before.answered);
        less(abandoned, before.abandoned);
        less(ticks_skipped, before.ticks_skipped);
        less_by_reason(failed, &before.failed);
    }
    after
}

fn less(after: &mut u64, before: u64) {
    *after = after.saturating_sub(before);
}

fn less_by_reason(after: &mut BTreeMap<String, u64>, before: &BTreeMap<String, u64>) {
    for (reason, count) in after.iter_mut() {
        less(count, before.get(reason).copied().unwrap_or(0));
    }
    after.retain(|_, count| *count > 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(received: u64, timeouts: u64, open: u64) -> ServiceStats {
        let mut stats = ServiceStats::default();
        stats.messages.received = received;
        stats.messages.dropped.insert("timeout".into(), timeouts);
        stats.connections.open = open;
        let failed = [("timeout".to_owned(), timeouts)].into();
        stats.inference = Some(InferenceStats { requests: received, failed, in_flight: open, ..Default::default() });
        stats
    }

    #[test]
    fn counters_count_from_the_first_reading_and_gauges_are_absolute() {
        let since = difference(&stats(100, 2, 5), stats(150, 2, 3));
        let inference = since.inference.unwrap();
        assert_eq!((since.messages.received, since.connections.open), (50, 3));
        assert_eq!((inference.requests, inference.in_flight), (50, 3));
        assert!(since.messages.dropped.is_empty() && inference.failed.is_empty());
    }
}
