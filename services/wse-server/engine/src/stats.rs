//! The engine's books: the counters of each shard, and their form in JSON and in Prometheus text.
//!
//! A shard counts in plain integers of its own and publishes them once per epoll round, together with the messages that
//! it hands over, so that `received = consumed + delivered + dropped + queued` holds in every reading.

mod closed;
mod health;
mod links;

use std::collections::BTreeMap;

use service_contract::{ByteStats, ConnectionBook, ConnectionStats, Exposition, Labels, MessageStats, ServiceStats};
use uuid::Uuid;

pub(crate) use self::closed::{ClosedBooks, Cursor};
pub use self::{
    closed::CursorError,
    health::{ClusterHealth, HealthSnapshot, RedisHealth},
};

use crate::{
    links::LinkStats,
    priority::{Level, PerLevel},
};

/// Declares an enum of reasons, with the labels under which they are counted.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            pub(crate) const LABELS: [&'static str; [$($label,)*].len()] = [$($label,)*];

            /// The label under which the reason is counted. Not every enum of reasons needs it.
            #[allow(dead_code)]
            pub(crate) fn label(self) -> &'static str {
                Self::LABELS[self as usize]
            }
        }
    };
}

pub(crate) use reasons;

reasons! {
    /// Why a connection ended.
    CloseReason {
        Client = "client",
        Eof = "eof",
        Protocol = "protocol",
        Utf8 = "utf8",
        TooBig = "too_big",
        Idle = "idle",
        /// The connection's token has expired.
        Expired = "expired",
        SlowConsumer = "slow_consumer",
        Shutdown = "shutdown",
        Drain = "drain",
        Application = "application",
        Crowded = "crowded",
        /// Its messages found no room, and the policy is to disconnect.
        Overflow = "overflow",
        Error = "error",
    }
}

reasons! {
    /// Why a client was not admitted.
    RejectReason {
        Full = "full",
        Draining = "draining",
        Auth = "auth",
        Handshake = "handshake",
        /// The token was a cookie, and the web page that sent the request is of another site.
        Origin = "origin",
        Timeout = "timeout",
        Crowded = "crowded",
    }
}

reasons! {
    /// Why a message was not handed to the application.
    DropReason {
        InboundOverflow = "inbound_overflow",
        Discarded = "discarded",
        /// Encrypted with another key, or changed in transit.
        Undecryptable = "undecryptable",
    }
}

reasons! {
    /// Why a message was not handed to a socket.
    SendDropReason {
        SlowConsumer = "slow_consumer",
        Disconnected = "disconnected",
        /// An event whose id was sent to the connection before.
        Duplicate = "duplicate",
        /// An event beyond the connection's rate limit.
        RateLimited = "rate_limited",
        /// The kernel had no random bytes to encrypt it with.
        Unencrypted = "unencrypted",
    }
}

/// What one shard has counted since it started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Connections that were admitted.
    pub(crate) accepted: u64,
    /// Admitted connections that ended, by reason.
    pub(crate) closed: [u64; CloseReason::LABELS.len()],
    /// Connections that were not admitted, by reason.
    pub(crate) rejected: [u64; RejectReason::LABELS.len()],
    /// Messages that clients sent.
    pub(crate) received: u64,
    /// Messages that the engine handled itself, such as pings.
    pub(crate) consumed: u64,
    /// Messages that were not handed to the application, by reason.
    pub(crate) dropped: [u64; DropReason::LABELS.len()],
    /// Texts that were handed on although they are not a JSON object.
    pub(crate) malformed: u64,
    /// Messages that sockets took.
    pub(crate) sent: u64,
    /// Messages that no socket took, by reason.
    pub(crate) send_dropped: [u64; SendDropReason::LABELS.len()],
    /// The part of `send_dropped` that slow consumers lost, by priority level.
    pub(crate) slow_by_level: PerLevel,
    /// Bytes read from admitted connections.
    pub(crate) bytes_received: u64,
    /// Bytes that sockets took, upgrade responses excluded.
    pub(crate) bytes_sent: u64,
    /// Closed connections whose books are no longer kept, because newer ones took their place.
    pub(crate) books_evicted: u64,
    /// How often reading stopped because the application held as much as it may.
    pub(crate) pauses: u64,
    /// How often a connection wasn't read further because of its share or its rate limit.
    pub(crate) parked: u64,
    /// How often the application took nothing for long although messages waited.
    pub(crate) standstills: u64,
}

impl Counters {
    fn add(&mut self, other: &Self) {
        let arrays: [(&mut [u64], &[u64]); 5] = [
            (&mut self.closed, &other.closed),
            (&mut self.rejected, &other.rejected),
            (&mut self.dropped, &other.dropped),
            (&mut self.send_dropped, &other.send_dropped),
            (&mut self.slow_by_level, &other.slow_by_level),
        ];
        for (mine, theirs) in arrays {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        self.accepted += other.accepted;
        self.received += other.received;
        self.consumed += other.consumed;
        self.malformed += other.malformed;
        self.sent += other.sent;
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.books_evicted += other.books_evicted;
        self.pauses += other.pauses;
        self.parked += other.parked;
        self.standstills += other.standstills;
    }

    fn open(&self) -> u64 {
        self.accepted - self.closed.iter().sum::<u64>()
    }
}

/// A consistent reading of one shard's books.
#[derive(Clone, Copy, Default)]
pub(crate) struct ShardReading {
    pub(crate) counters: Counters,
    /// Messages that the application has drained.
    pub(crate) delivered: u64,
    /// Messages that wait to be drained.
    pub(crate) queued: u64,
    /// Entries that wait to be drained: messages and events.
    pub(crate) depth: usize,
}

/// The sum of all shards' readings.
pub(crate) struct Totals {
    pub(crate) counters: Counters,
    delivered: u64,
    queued: u64,
    pub(crate) depth: usize,
}

impl Totals {
    pub(crate) fn of(readings: &[ShardReading]) -> Self {
        let mut totals = Self { counters: Counters::default(), delivered: 0, queued: 0, depth: 0 };
        for reading in readings {
            totals.counters.add(&reading.counters);
            totals.delivered += reading.delivered;
            totals.queued += reading.queued;
            totals.depth += reading.depth;
        }
        totals
    }

    /// The JSON of `/stats`, without the application's part, which the caller adds.
    pub(crate) fn service_stats(&self, service: &str, uptime_seconds: f64) -> ServiceStats {
        let counters = &self.counters;
        ServiceStats {
            service: service.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds,
            connections: ConnectionStats {
                accepted: counters.accepted,
                open: counters.open(),
                closed: labelled(&CloseReason::LABELS, &counters.closed),
                rejected: labelled(&RejectReason::LABELS, &counters.rejected),
            },
            messages: MessageStats {
                received: counters.received,
                consumed: counters.consumed,
                delivered: self.delivered,
                dropped: labelled(&DropReason::LABELS, &counters.dropped),
                queued: self.queued,
                malformed: counters.malformed,
                sent: counters.sent,
                send_dropped: labelled(&SendDropReason::LABELS, &counters.send_dropped),
            },
            bytes: ByteStats { received: counters.bytes_received, sent: counters.bytes_sent },
            application: None,
            inference: None,
        }
    }
}

/// Counts by label, without those that are 0.
pub(crate) fn labelled<Label: From<&'static str> + Ord>(
    labels: &[&'static str],
    counts: &[u64],
) -> BTreeMap<Label, u64> {
    let some = labels.iter().zip(counts).filter(|(_, count)| **count > 0);
    some.map(|(label, count)| ((*label).into(), *count)).collect()
}

/// The reasons whose metrics exist from the start, by the contract's metric names.
const LABELS: Labels<'static> = Labels {
    dropped: &DropReason::LABELS,
    send_dropped: &SendDropReason::LABELS,
    closed: &CloseReason::LABELS,
    rejected: &RejectReason::LABELS,
    failed: &[],
};

/// The Prometheus text: the metrics of the service contract, then those of the reference.
pub(crate) fn prometheus(stats: &ServiceStats, totals: &Totals, fanout: &Fanout) -> String {
    let mut text = Exposition::default();
    text.service(stats, &LABELS);
    text.counter(
        "service_books_evicted_total",
        "Closed connections whose books are no longer kept",
        totals.counters.books_evicted,
    );
    text.counter("service_read_pauses_total", "Times that reading waited for the application", totals.counters.pauses);
    let parked = totals.counters.parked;
    text.counter("service_connections_parked_total", "Times that a connection waited at its share or its rate", parked);
    let standstills = totals.counters.standstills;
    text.counter(
        "service_application_standstills_total",
        "Times that the application took nothing for long",
        standstills,
    );
    text.gauge(
        "service_publish_backlog_bytes",
        "Bytes of publications that are not yet sent to all subscribers",
        fanout.backlog,
    );
    reference_names(&mut text, stats, totals);
    text.gauge("wse_topics", "Topics with subscribers", fanout.topics);
    text.gauge("wse_recovery_topics", "Topics with messages stored for recovery", fanout.recovery.0);
    text.gauge("wse_recovery_bytes", "Bytes stored for recovery", fanout.recovery.1);
    text.gauge("wse_presence_topics", "Topics with users", fanout.presence.0);
    text.gauge("wse_presence_users", "Users, each once per topic", fanout.presence.1);
    links::cluster(&mut text, &fanout.links.cluster.clone().unwrap_or_default());
    let busiest = fanout.busiest.iter().map(|(topic, count)| (topic, *count));
    text.counters("wse_topic_messages_total", "Messages published to a topic that has subscribers", "topic", busiest);
    if let Some(stats) = &fanout.links.redis {
        links::redis(&mut text, stats);
    }
    text.into_text()
}

fn reference_names(text: &mut Exposition, stats: &ServiceStats, totals: &Totals) {
    let counters = &totals.counters;
    let rejected: u64 = counters.rejected.iter().sum();
    let slow = counters.send_dropped[SendDropReason::SlowConsumer as usize];
    text.gauge("wse_connections", "Current active WebSocket connections", stats.connections.open);
    text.gauge("wse_inbound_queue_depth", "Drain queue backlog", totals.depth);
    text.gauge("wse_uptime_seconds", "Server uptime in seconds", stats.uptime_seconds);
    text.counter("wse_messages_received_total", "Messages received from clients", counters.received);
    text.counter("wse_messages_sent_total", "Messages sent to clients", counters.sent);
    text.counter("wse_connections_accepted_total", "Connections accepted", counters.accepted);
    text.counter("wse_connections_rejected_total", "Connections rejected", rejected);
    text.counter("wse_bytes_received_total", "Bytes received from clients", counters.bytes_received);
    text.counter("wse_bytes_sent_total", "Bytes sent to clients", counters.bytes_sent);
    let failures = counters.rejected[RejectReason::Auth as usize];
    text.counter("wse_auth_failures_total", "Authentication failures", failures);
    let dropped = counters.dropped[DropReason::InboundOverflow as usize];
    text.counter("wse_inbound_dropped_total", "Drain queue events dropped", dropped);
    text.counter("wse_slow_consumer_drops_total", "Messages dropped due to slow consumers", slow);
    let by_level = Level::LABELS.into_iter().zip(counters.slow_by_level);
    text.counters("wse_slow_consumer_drops_by_level_total", "The same, by priority", "level", by_level);
    let limited = counters.send_dropped[SendDropReason::RateLimited as usize];
    text.counter("wse_rate_limited_total", "Messages dropped by rate limiter", limited);
}

/// The state of topics, publications and links, for the metrics.
#[derive(Debug, Default)]
pub(crate) struct Fanout {
    pub(crate) backlog: usize,
    pub(crate) topics: usize,
    /// The topics with the most publications, each with its number of publications.
    pub(crate) busiest: Vec<(String, u64)>,
    /// Topics with logs for recovery, and the bytes of these logs.
    pub(crate) recovery: (usize, usize),
    /// Topics with users, and the users of all topics.
    pub(crate) presence: (usize, usize),
    /// The counters of publications to and from other instances.
    pub(crate) links: LinkStats,
}

/// The books of one connection, small enough to keep many of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Book {
    pub(crate) id: Uuid,
    pub(crate) open: bool,
    pub(crate) received: u64,
    pub(crate) consumed: u64,
    pub(crate) dropped: u64,
    pub(crate) sent: u64,
    pub(crate) send_dropped: u64,
}

impl Book {
    pub(crate) fn snapshot(&self) -> ConnectionBook {
        let Self { id, open, received, consumed, dropped, sent, send_dropped } = *self;
        let (sent, send_dropped) = (Some(sent), Some(send_dropped));
        ConnectionBook { id: id.to_string(), open, received, consumed, dropped, sent, send_dropped, application: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_added_up_and_reasons_without_count_left_out() {
        let mut counters = Counters { accepted: 3, received: 5, consumed: 1, ..Counters::default() };
        counters.closed[CloseReason::Idle as usize] = 2;
        counters.dropped[DropReason::InboundOverflow as usize] = 1;
        let reading = ShardReading { counters, delivered: 2, queued: 1, depth: 1 };
        let stats = Totals::of(&[reading, reading]).service_stats("wse-server", 1.5);
        assert_eq!((stats.connections.accepted, stats.connections.open), (6, 2));
        assert_eq!(stats.connections.closed, BTreeMap::from([("idle".to_owned(), 4)]));
        let messages = stats.messages;
        let out = messages.consumed + messages.delivered + messages.dropped.values().sum::<u64>() + messages.queued;
        assert_eq!(messages.received, out);
    }

    #[test]
    fn prometheus_lines_have_one_space_and_every_reason() {
        let totals = Totals::of(&[ShardReading::default()]);
        let busiest = vec![(r#"a"b\c"#.to_owned(), 7)];
        let fanout = Fanout { busiest, ..Fanout::default() };
        let text = prometheus(&totals.service_stats("x", 0.0), &totals, &fanout);
        assert!(text.contains("\nwse_topic_messages_total{topic=\"a\\\"b\\\\c\"} 7\n"));
        assert!(text.contains("\nwse_slow_consumer_drops_total 0\n"));
        assert!(text.contains("\nservice_messages_dropped_total{reason=\"discarded\"} 0\n"));
        assert!(text.contains("\nwse_slow_consumer_drops_by_level_total{level=\"critical\"} 0\n"));
        assert!(text.contains("\nwse_rate_limited_total 0\n"));
        assert!(text.lines().filter(|line| !line.starts_with('#')).all(|line| line.matches(' ').count() == 1));
    }
}
