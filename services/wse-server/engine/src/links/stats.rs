//! What went to other instances and came from them, as it is told.

use std::collections::BTreeMap;

use serde::Serialize;

/// What went to other instances and came from them: `/stats/links`. Ways that aren't used are null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkStats {
    /// Over the cluster's links.
    pub cluster: Option<ClusterStats>,
    /// Through Redis.
    pub redis: Option<RedisStats>,
}

/// The cluster's page of `/stats/links`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterStats {
    /// Of the publications that the engine handed over, those handed to a socket.
    pub sent: u64,
    /// Of these, those for a peer that then was given up without having told that they arrived.
    pub unconfirmed: u64,
    /// Publications that came.
    pub received: u64,
    /// Of these, those that were handed to the fan-out here.
    pub delivered: u64,
    /// Of these, those that weren't: they were no text for a topic.
    pub unfit: u64,
    /// Publications that peers sent and that didn't come.
    pub lost: u64,
    /// Bytes written to links, as sockets get them (before TLS).
    pub bytes_sent: u64,
    /// Bytes read from links.
    pub bytes_received: u64,
    /// Links with a peer that had one before.
    pub reconnects: u64,
    /// Frames of types that nobody knows.
    pub unknown_types: u64,
    /// Links that ended because of what came over them.
    pub malformed: u64,
    /// Publications that the engine handed over, each once per peer that it is for, or once if it is for none: it
    /// was sent, was dropped, or waits.
    pub published: u64,
    /// Publications that a peer didn't get, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Links that didn't come about, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Publications that wait in queues.
    pub queued: u64,
    /// Peers that there is a link with.
    pub peers: u64,
    /// Publications in the dead-letter list.
    pub dead_letters: u64,
}

/// What became of publications through Redis, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisStats {
    /// Whether both connections are there: 1 or 0.
    pub connected: u64,
    /// Publications that were to go out: `sent`, `dropped` and `queued` together, at every moment.
    pub published: u64,
    /// Those that Redis gave to at least one other.
    pub sent: u64,
    /// Those that it did not, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Those of which nobody knows yet.
    pub queued: u64,
    /// What came of others, each once.
    pub received: u64,
    /// Of these, what was handed to whoever listens here.
    pub delivered: u64,
    /// What is missing between them, by their numbers.
    pub lost: u64,
    /// What came more often than once.
    pub duplicates: u64,
    /// What was no text, or had a header that can't be read.
    pub malformed: u64,
    /// How often a connection was made again, of either kind.
    pub reconnects: u64,
    /// Publications that Redis refused.
    pub publish_errors: u64,
    /// Dead letters that can be fetched.
    pub dead_letters: u64,
}
