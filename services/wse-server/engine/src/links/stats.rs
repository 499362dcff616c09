//! The counters of the links to other instances, as they are reported.

use std::collections::BTreeMap;

use serde::Serialize;

/// The page `/stats/links`: publications to and from other instances. A transport that isn't used is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkStats {
    /// Publications over the cluster's links.
    pub cluster: Option<ClusterStats>,
    /// Publications to and from other instances through Redis.
    pub redis: Option<RedisStats>,
}

/// The cluster's part of `/stats/links`. Publications to other instances count once per peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterStats {
    /// Publications to peers that were handed to a socket.
    pub sent: u64,
    /// Part of `sent`: publications to a peer that was given up before it confirmed their arrival.
    pub unconfirmed: u64,
    /// Publications that arrived from peers.
    pub received: u64,
    /// Part of `received`: publications that were handed to the subscribers here.
    pub delivered: u64,
    /// Part of `received`: publications that were not handed on, because they aren't text or their topic is invalid.
    pub unfit: u64,
    /// Publications that peers sent and that didn't arrive.
    pub lost: u64,
    /// Bytes written to links, before TLS.
    pub bytes_sent: u64,
    /// Bytes read from links, after TLS.
    pub bytes_received: u64,
    /// Links with a peer that had a link before.
    pub reconnects: u64,
    /// Frames of unknown types.
    pub unknown_types: u64,
    /// Links that ended because of a malformed frame.
    pub malformed: u64,
    /// Publications for other instances, each counted once per peer that it is for, or once if it is for none: `sent`,
    /// `dropped` and `queued` together.
    pub published: u64,
    /// Publications that a peer didn't get, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Links that were not established, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Publications that wait in the peers' queues.
    pub queued: u64,
    /// Peers that have a link.
    pub peers: u64,
    /// Publications in the list of dead letters.
    pub dead_letters: u64,
}

/// The Redis part of `/stats/links`: publications in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisStats {
    /// 1 if both connections to Redis are established, else 0.
    pub connected: u64,
    /// Publications for other instances: `sent`, `dropped` and `queued` together, in every reading.
    pub published: u64,
    /// Part of `published`: publications that Redis passed on to at least one other instance.
    pub sent: u64,
    /// Part of `published`: publications that Redis did not pass on, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Part of `published`: publications whose outcome is not known yet.
    pub queued: u64,
    /// Publications of other instances that arrived, each counted once.
    pub received: u64,
    /// Part of `received`: publications that were handed to the subscribers here.
    pub delivered: u64,
    /// Publications that are missing, by the gaps in their numbers.
    pub lost: u64,
    /// Publications that arrived again.
    pub duplicates: u64,
    /// Messages that aren't text or whose header can't be read.
    pub malformed: u64,
    /// How often either connection was established again.
    pub reconnects: u64,
    /// Publications that Redis refused.
    pub publish_errors: u64,
    /// Dead letters that can be fetched.
    pub dead_letters: u64,
}
