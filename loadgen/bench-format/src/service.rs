//! What a service says of itself on its metrics port (`services/README.md` is the contract).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /stats`: one consistent reading of the service's counters. All are monotonic since the process started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceStats {
    /// The service's name in the registry.
    pub service: String,
    /// Its version.
    pub version: String,
    /// Seconds since the process started.
    pub uptime_seconds: f64,
    /// How connections ended up.
    pub connections: ConnectionStats,
    /// What became of messages.
    pub messages: MessageStats,
    /// Bytes of WebSocket frames, headers included.
    pub bytes: ByteStats,
    /// What the application itself counted; absent where messages reach no application.
    #[serde(default)]
    pub application: Option<ApplicationStats>,
    /// What a gateway counted of its inference requests; absent where there are none.
    #[serde(default)]
    pub inference: Option<InferenceStats>,
}

/// `GET /stats/publisher`: what a service that publishes by itself has published. Exact while it publishes nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublisherStats {
    /// How a message reaches its subscribers: `broadcast`, to every connection of the publisher's own server; `pubsub` and
    /// `cluster`, to a topic's subscribers on other instances too.
    pub mode: String,
    /// Messages per second, each due at a time that is fixed before; absent for a flood.
    pub rate_per_second: Option<f64>,
    /// What holds it back: `schedule`; of a flood `engine`, `receivers`, `offer` or `none`.
    pub backpressure: String,
    /// Whether it publishes now.
    pub publishing: bool,
    /// Messages handed to the server, once each however many subscribers there are.
    pub published: u64,
    /// Their payload in bytes, once each.
    pub bytes: u64,
    /// Number of the first; absent before it.
    pub first_sequence: Option<u64>,
    /// Number of the last; each has one more than the one before.
    pub last_sequence: Option<u64>,
    /// Time in which it published, in seconds.
    pub publishing_seconds: f64,
    /// Messages handed over more than 1 ms after they were due.
    pub late: u64,
    /// The latest of them, in microseconds.
    pub lateness_max_us: u64,
}

/// `GET /stats/links`: what carries publications between the instances that a service consists of, all instances together.
/// Exact while nothing is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinksStats {
    /// Connections of the instances to each other; absent where there are none.
    #[serde(default)]
    pub cluster: Option<LinkStats>,
    /// Redis; absent where it carries nothing.
    #[serde(default)]
    pub redis: Option<LinkStats>,
}

/// What one kind of link carried. `published = sent + sum(dropped) + queued` where it is published, `sent = received + lost`
/// over all instances, and `received = delivered` where it is received. What else a kind of link tells of itself is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStats {
    /// Publications handed to the link, once for each instance that they are for; once where they are for none.
    pub published: u64,
    /// Of those, written to it.
    pub sent: u64,
    /// Of those, not written, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Of those, waiting to be written.
    #[serde(default)]
    pub queued: u64,
    /// Publications taken from the link.
    pub received: u64,
    /// Of those, handed on to the receiving instance's own subscribers.
    pub delivered: u64,
    /// Publications that never came from the link, by the gap that they left in the sender's numbers.
    pub lost: u64,
    /// How often a connection of it was made anew.
    #[serde(default)]
    pub reconnects: u64,
    /// Connections of it that are up now.
    #[serde(default, alias = "peers")]
    pub connected: u64,
}

impl LinksStats {
    /// The links that there are, by name.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, &LinkStats)> {
        let links = [("cluster", &self.cluster), ("redis", &self.redis)];
        links.into_iter().filter_map(|(name, link)| Some((name, link.as_ref()?)))
    }

    /// What was counted since `earlier`; what there is now stays as it is.
    pub fn since(&self, earlier: &Self) -> Self {
        let of = |now: &Option<LinkStats>, earlier: &Option<LinkStats>| {
            now.as_ref().map(|now| now.since(earlier.as_ref().unwrap_or(&LinkStats::default())))
        };
        Self { cluster: of(&self.cluster, &earlier.cluster), redis: of(&self.redis, &earlier.redis) }
    }

    /// Those of another instance with these.
    pub fn and(&self, other: &Self) -> Self {
        let of = |own: &Option<LinkStats>, other: &Option<LinkStats>| match (own, other) {
            (Some(own), Some(other)) => Some(own.and(other)),
            (one, None) | (None, one) => one.clone(),
        };
        Self { cluster: of(&self.cluster, &other.cluster), redis: of(&self.redis, &other.redis) }
    }

    /// Whether nothing is on its way: all that was sent has come or never will.
    pub fn at_rest(&self) -> bool {
        self.by_name().all(|(_, link)| link.queued == 0 && link.sent <= link.received + link.lost)
    }
}

impl LinkStats {
    /// Counters only grow; one that shrank gives 0 here and shows as a restart elsewhere.
    fn since(&self, earlier: &Self) -> Self {
        let dropped = |(reason, count): (&String, &u64)| {
            (reason.clone(), count.saturating_sub(earlier.dropped.get(reason).copied().unwrap_or(0)))
        };
        Self {
            published: self.published.saturating_sub(earlier.published),
            sent: self.sent.saturating_sub(earlier.sent),
            dropped: self.dropped.iter().map(dropped).filter(|(_, count)| *count > 0).collect(),
            queued: self.queued,
            received: self.received.saturating_sub(earlier.received),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            lost: self.lost.saturating_sub(earlier.lost),
            reconnects: self.reconnects.saturating_sub(earlier.reconnects),
            connected: self.connected,
        }
    }

    fn and(&self, other: &Self) -> Self {
        let mut dropped = self.dropped.clone();
        for (reason, count) in &other.dropped {
            *dropped.entry(reason.clone()).or_default() += count;
        }
        Self {
            published: self.published + other.published,
            sent: self.sent + other.sent,
            dropped,
            queued: self.queued + other.queued,
            received: self.received + other.received,
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            reconnects: self.reconnects + other.reconnects,
            connected: self.connected + other.connected,
        }
    }
}

/// `GET /stats/processes`: the processes of a service that consists of several, by what they do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessesStats {
    /// By name: `publisher`, `subscriber`, `redis`.
    pub processes: BTreeMap<String, ProcessStats>,
}

/// What the kernel says of one process of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessStats {
    /// Its process id.
    pub pid: u32,
    /// CPU used since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
}

/// A gateway's requests to the inference behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InferenceStats {
    /// Requests begun.
    pub requests: u64,
    /// Requests whose answer was passed on as a partial.
    pub answered: u64,
    /// Requests that failed, by the `kind` of the error frame.
    pub failed: BTreeMap<String, u64>,
    /// Requests whose connection was gone before they were answered.
    pub abandoned: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Flush ticks that found a request in flight and left the audio where it was.
    pub ticks_skipped: u64,
    /// Audio held in memory now, waiting or in flight, in bytes.
    pub buffered_bytes: u64,
}

/// How connections ended up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionStats {
    /// Upgraded and registered.
    pub accepted: u64,
    /// Open now.
    pub open: u64,
    /// Closed, by reason.
    pub closed: BTreeMap<String, u64>,
    /// Refused, by reason.
    pub rejected: BTreeMap<String, u64>,
}

/// What became of messages. `received = consumed + delivered + sum(dropped) + queued`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageStats {
    /// Complete data messages taken from sockets.
    pub received: u64,
    /// Answered by the service itself (pings, hellos): they never concern the application.
    pub consumed: u64,
    /// Handed to the application.
    pub delivered: u64,
    /// Not handed over, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Waiting for the application.
    pub queued: u64,
    /// Of those received: text that was malformed and reached the application as it was.
    pub malformed: u64,
    /// Data messages handed to sockets.
    pub sent: u64,
    /// Meant to be sent but dropped, by reason.
    pub send_dropped: BTreeMap<String, u64>,
}

/// Bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByteStats {
    /// Read from sockets after the upgrade.
    pub received: u64,
    /// Written to sockets after the upgrade.
    pub sent: u64,
}

/// What the application counted, inside the loop that received the messages. This is the witness of `application`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplicationStats {
    /// Messages whose connection, type and data were read.
    pub delivered: u64,
    /// Sum of the sequence numbers found in them, modulo 2^64.
    pub sequence_sum: u64,
    /// Messages that carried no sequence number.
    pub unnumbered: u64,
}

/// `GET /stats/connections`: one entry per connection since the last reading of a closed one. A closed connection's
/// entry is kept until it was fetched once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionBooks {
    /// The entries, in no order.
    pub connections: Vec<ConnectionBook>,
}

/// A service's books on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionBook {
    /// The id that the service told the client.
    pub id: String,
    /// Whether it is open.
    pub open: bool,
    /// Data messages taken from its socket.
    pub received: u64,
    /// Of those, answered by the service itself.
    pub consumed: u64,
    /// Of those, not handed to the application, all reasons together.
    pub dropped: u64,
    /// Data messages that its socket took whole, the service's own included. Absent: the service doesn't count them.
    #[serde(default)]
    pub sent: Option<u64>,
    /// Data messages for it that no socket took, all reasons together.
    #[serde(default)]
    pub send_dropped: Option<u64>,
    /// What the application counted for this connection.
    #[serde(default)]
    pub application: Option<ApplicationStats>,
}

/// The JSON line that a service prints on standard output when it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// Always `ready`.
    pub event: String,
    /// Where clients connect, `host:port`.
    pub address: String,
    /// Where `/stats` and the others are served, `host:port`.
    pub metrics_address: String,
    /// Its process id.
    pub pid: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(published: u64, overflow: u64, received: u64) -> LinkStats {
        let dropped = [("overflow".to_owned(), overflow)].into_iter().filter(|(_, count)| *count > 0).collect();
        LinkStats { published, sent: published - overflow, dropped, received, ..LinkStats::default() }
    }

    fn redis(link: LinkStats) -> LinksStats {
        LinksStats { redis: Some(link), cluster: None }
    }

    #[test]
    fn instances_are_added_up_link_by_link() {
        let both = redis(link(10, 3, 0)).and(&redis(link(0, 0, 7)));
        assert_eq!(both, redis(link(10, 3, 7)));
        assert_eq!(both.and(&LinksStats::default()), both);
        assert_eq!(both.by_name().map(|(name, _)| name).collect::<Vec<_>>(), ["redis"]);
    }

    #[test]
    fn what_was_counted_before_is_left_out() {
        let (before, after) = (redis(link(10, 3, 7)), redis(link(25, 4, 20)));
        assert_eq!(after.since(&before), redis(link(15, 1, 13)));
        assert_eq!(after.since(&LinksStats::default()), after);
        assert_eq!(after.since(&after).redis.unwrap().dropped, BTreeMap::new());
    }

    #[test]
    fn links_rest_when_all_that_was_sent_has_come_or_never_will() {
        assert!(!redis(link(10, 3, 6)).at_rest());
        assert!(redis(link(10, 3, 7)).at_rest());
        assert!(redis(LinkStats { lost: 1, ..link(10, 3, 6) }).at_rest());
        assert!(!redis(LinkStats { queued: 1, ..link(10, 3, 7) }).at_rest());
        assert!(LinksStats::default().at_rest());
    }
}
