//! How the server is, in the names of the reference.

use serde::Serialize;

use crate::{
    links::{ClusterStats, RedisStats},
    quality::Grades,
};

/// How the server is, in the names of the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HealthSnapshot {
    /// Open connections.
    pub connections: u64,
    /// Messages and events that wait for the application.
    pub inbound_queue_depth: u64,
    /// Messages dropped because the application held all that it may.
    pub inbound_dropped: u64,
    /// Seconds since the start.
    pub uptime_secs: f64,
    /// How many connections are how good.
    pub connection_quality: Grades,
    /// The cluster.
    #[serde(flatten)]
    pub cluster: ClusterHealth,
    /// Redis.
    #[serde(flatten)]
    pub redis: RedisHealth,
    /// Whether publications are kept for clients that come back.
    pub recovery_enabled: bool,
    /// Topics that some are kept of.
    pub recovery_topic_count: usize,
    /// Bytes that these take.
    pub recovery_total_bytes: usize,
    /// Whether it is known who is there.
    pub presence_enabled: bool,
    /// Topics with users.
    pub presence_topics: usize,
    /// Users, each once per topic.
    pub presence_total_users: usize,
}

/// How the cluster is, in the names of the reference; all 0 where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterHealth {
    /// Whether there is a link with any other instance.
    pub cluster_connected: bool,
    /// Instances that there is a link with.
    pub cluster_peer_count: u64,
    /// Publications sent, one per peer that got it.
    pub cluster_messages_sent: u64,
    /// Publications that came and were handed to subscribers here.
    pub cluster_messages_delivered: u64,
    /// Publications that a peer, or the subscribers here, didn't get.
    pub cluster_messages_dropped: u64,
    /// Publications that came.
    pub cluster_messages_received: u64,
    /// Publications that peers sent and that didn't come.
    pub cluster_messages_lost: u64,
    /// Bytes written to links.
    pub cluster_bytes_sent: u64,
    /// Bytes read from links.
    pub cluster_bytes_received: u64,
    /// Links with a peer that had one before.
    pub cluster_reconnect_count: u64,
    /// Frames of types that nobody knows.
    pub cluster_unknown_message_types: u64,
    /// Publications in the dead-letter list.
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

/// How Redis is, in the names of the reference; all 0 where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisHealth {
    /// Whether there is a Redis, and both connections to it.
    pub redis_connected: bool,
    /// Publications that came of other instances through it.
    pub redis_messages_received: u64,
    /// Publications that were to go to others through it.
    pub redis_messages_published: u64,
    /// Of those received, what was handed to subscribers of this instance.
    pub redis_messages_delivered: u64,
    /// Of those published, what did not get to anybody else.
    pub redis_messages_dropped: u64,
    /// Publications of others that are missing.
    pub redis_messages_lost: u64,
    /// Publications that it refused.
    pub redis_publish_errors: u64,
    /// How often a connection to it was made again.
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
