//! The server's health under the field names of the reference.

use serde::Serialize;

use crate::{
    links::{ClusterStats, RedisStats},
    quality::Grades,
};

/// The server's health under the field names of the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HealthSnapshot {
    /// Number of open connections.
    pub connections: u64,
    /// Messages and events that wait for the application.
    pub inbound_queue_depth: u64,
    /// Messages that were dropped because the inbound queue was full.
    pub inbound_dropped: u64,
    /// Seconds since the server started.
    pub uptime_secs: f64,
    /// How many connections have each quality grade.
    pub connection_quality: Grades,
    /// The cluster's fields, which are part of this object.
    #[serde(flatten)]
    pub cluster: ClusterHealth,
    /// The fields of the link through Redis, which are part of this object.
    #[serde(flatten)]
    pub redis: RedisHealth,
    /// Whether publications are kept for clients that reconnect.
    pub recovery_enabled: bool,
    /// Topics of which publications are kept.
    pub recovery_topic_count: usize,
    /// Bytes that these publications take.
    pub recovery_total_bytes: usize,
    /// Whether presence is on.
    pub presence_enabled: bool,
    /// Number of topics that have users.
    pub presence_topics: usize,
    /// Users of all topics; a user in two topics counts twice.
    pub presence_total_users: usize,
}

/// The cluster's health under the field names of the reference; all 0 without a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterHealth {
    /// Whether this instance is linked with at least one other.
    pub cluster_connected: bool,
    /// Instances that this one is linked with.
    pub cluster_peer_count: u64,
    /// Publications sent, counted once per peer.
    pub cluster_messages_sent: u64,
    /// Publications of peers that were handed to subscribers here.
    pub cluster_messages_delivered: u64,
    /// Publications that a peer, or the subscribers here, did not get.
    pub cluster_messages_dropped: u64,
    /// Publications received from peers.
    pub cluster_messages_received: u64,
    /// Publications that peers sent and that did not arrive.
    pub cluster_messages_lost: u64,
    /// Bytes written to links.
    pub cluster_bytes_sent: u64,
    /// Bytes read from links.
    pub cluster_bytes_received: u64,
    /// Links with a peer that had been linked before.
    pub cluster_reconnect_count: u64,
    /// Frames of unknown types.
    pub cluster_unknown_message_types: u64,
    /// Publications in the list of dead letters.
    pub cluster_dlq_size: u64,
}

impl From<&ClusterStats> for ClusterHealth {
    fn from(stats: &ClusterStats) -> Self {
        Self {
            cluster_connected: stats.peers > 0,
            cluster_peer_count: stats.peers,
            cluster_messages_sent: stats.sent,
            cluster_messages_delivered: stats.delivered,
            cluster_messages_dropped: stats.all_dropped(),
            cluster_messages_received: stats.received,
            cluster_messages_lost: stats.lost,
            cluster_bytes_sent: stats.bytes_sent,
            cluster_bytes_received: stats.bytes_received,
            cluster_reconnect_count: stats.reconnects,
            cluster_unknown_message_types: stats.unknown_types,
            cluster_dlq_size: stats.dead_letters,
        }
    }
}

/// The health of the link through Redis under the field names of the reference; all 0 without Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisHealth {
    /// Whether both connections to Redis are open.
    pub redis_connected: bool,
    /// Publications of other instances that were received through Redis.
    pub redis_messages_received: u64,
    /// Publications that were to go to other instances through Redis.
    pub redis_messages_published: u64,
    /// Received publications that were handed to subscribers here.
    pub redis_messages_delivered: u64,
    /// Publications that did not reach any other instance.
    pub redis_messages_dropped: u64,
    /// Publications of other instances that are missing.
    pub redis_messages_lost: u64,
    /// Publications that Redis refused.
    pub redis_publish_errors: u64,
    /// How often a connection to Redis was made again.
    pub redis_reconnect_count: u64,
    /// Dead letters that can be fetched.
    pub redis_dlq_size: u64,
}

impl From<&RedisStats> for RedisHealth {
    fn from(stats: &RedisStats) -> Self {
        Self {
            redis_connected: stats.connected > 0,
            redis_messages_received: stats.received,
            redis_messages_published: stats.published,
            redis_messages_delivered: stats.delivered,
            redis_messages_dropped: stats.dropped.values().sum(),
            redis_messages_lost: stats.lost,
            redis_publish_errors: stats.publish_errors,
            redis_reconnect_count: stats.reconnects,
            redis_dlq_size: stats.dead_letters,
        }
    }
}
