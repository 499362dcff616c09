//! The difference between two readings of a service's counters. Pure.

use std::collections::BTreeMap;

use bench_format::{
    service::{ApplicationStats, ServiceStats},
    websocket::{Counter, ReportedCounters},
};

/// What a service counted between two readings.
#[derive(Clone, Debug, Default)]
pub struct ServiceDelta {
    /// Connections that the service accepted.
    pub accepted: u64,
    /// Messages read from sockets.
    pub received: u64,
    /// Messages that the service itself answered or handled.
    pub consumed: u64,
    /// Messages handed to the application.
    pub delivered: u64,
    /// Messages dropped before the application got them, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Messages that waited for the application at the later reading.
    pub queued: u64,
    /// Data messages handed to sockets.
    pub sent: u64,
    /// Data messages dropped instead of being handed to sockets, by reason.
    pub send_dropped: BTreeMap<String, u64>,
    /// The application's own counts; absent if messages reach no application.
    pub application: Option<ApplicationStats>,
}

impl ServiceDelta {
    /// Subtracts the earlier reading from the later one. A counter that shrank gives 0; [`crate::validity`]
    /// reports the restart that this means.
    pub fn between(earlier: &ServiceStats, later: &ServiceStats) -> Self {
        let (before, after) = (&earlier.messages, &later.messages);
        let increase = |before: u64, after: u64| after.saturating_sub(before);
        let dropped = |before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>| {
            let increase = |(reason, count): (&String, &u64)| {
                (reason.clone(), count.saturating_sub(before.get(reason).copied().unwrap_or(0)))
            };
            after.iter().map(increase).filter(|(_, count)| *count > 0).collect()
        };
        Self {
            accepted: increase(earlier.connections.accepted, later.connections.accepted),
            received: increase(before.received, after.received),
            consumed: increase(before.consumed, after.consumed),
            delivered: increase(before.delivered, after.delivered),
            dropped: dropped(&before.dropped, &after.dropped),
            queued: after.queued,
            sent: increase(before.sent, after.sent),
            send_dropped: dropped(&before.send_dropped, &after.send_dropped),
            application: later.application.map(|after| {
                let before = earlier.application.unwrap_or_default();
                ApplicationStats {
                    delivered: increase(before.delivered, after.delivered),
                    sequence_sum: after.sequence_sum.wrapping_sub(before.sequence_sum),
                    unnumbered: increase(before.unnumbered, after.unnumbered),
                }
            }),
        }
    }

    /// Number of dropped messages, over all reasons.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether every message that the workers sent has been received, has an outcome, and, if it was delivered, has
    /// been counted by the application. `sent` is the number of messages sent.
    pub fn settled(&self, sent: u64) -> bool {
        let accounted = self.consumed + self.delivered + self.dropped_total();
        let reached_the_application =
            self.application.is_none_or(|application| application.delivered >= self.delivered);
        self.received >= sent && self.queued == 0 && accounted >= self.received && reached_the_application
    }

    /// Whether the counters that a service has by its plan show every message that the workers sent: `numbered` messages of
    /// the load, and `unnumbered` others.
    pub fn shows(&self, reported: &ReportedCounters, numbered: u64, unnumbered: u64) -> bool {
        let counts = |counter| reported.counted.contains(&counter);
        let delivered = self.application.map_or(0, |application| application.delivered);
        let handled = delivered.saturating_add(self.dropped_total());
        (!counts(Counter::Received) || self.received >= numbered + unnumbered)
            && (!counts(Counter::Delivered) || handled >= numbered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_settled_when_every_message_has_an_outcome() {
        let application = Some(ApplicationStats { delivered: 9, ..ApplicationStats::default() });
        let delta = ServiceDelta { received: 11, consumed: 1, delivered: 10, application, ..Default::default() };
        assert!(!delta.settled(11), "the application has not counted one message yet");
        let application = Some(ApplicationStats { delivered: 10, ..ApplicationStats::default() });
        let delta = ServiceDelta { application, ..delta };
        assert!(delta.settled(11));
        assert!(!delta.settled(12), "one message has not been received yet");
        assert!(!ServiceDelta { queued: 1, ..delta }.settled(11));
    }

    #[test]
    fn a_described_service_has_settled_when_the_counters_it_has_show_every_message() {
        let application = Some(ApplicationStats { delivered: 9, ..ApplicationStats::default() });
        let dropped = [("reported".to_owned(), 1)].into();
        let delta = ServiceDelta { received: 12, dropped, application, ..Default::default() };
        let with = |counted: &[Counter]| ReportedCounters { counted: counted.iter().copied().collect(), exact: false };
        assert!(delta.shows(&with(&[Counter::Received, Counter::Delivered]), 10, 2));
        assert!(!delta.shows(&with(&[Counter::Received]), 10, 3) && !delta.shows(&with(&[Counter::Delivered]), 11, 0));
        assert!(delta.shows(&with(&[Counter::ConnectionsOpen]), 99, 99), "nothing shows messages");
    }
}
