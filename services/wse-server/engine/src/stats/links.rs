//! The counters of links to other instances as Prometheus metrics.

use service_contract::Exposition;

use crate::links::{ClusterStats, RedisStats};

pub(super) fn cluster(text: &mut Exposition, stats: &ClusterStats) {
    text.gauge("wse_cluster_peers", "Instances that this one has a link with", stats.peers);
    text.counter("wse_cluster_messages_sent_total", "Publications sent to peers", stats.sent);
    text.counter("wse_cluster_messages_delivered_total", "Publications of peers handed over", stats.delivered);
    text.counter("wse_cluster_messages_dropped_total", "Publications not sent or not handed over", stats.all_dropped());
    text.counter("wse_cluster_messages_received_total", "Publications received from peers", stats.received);
    text.counter("wse_cluster_messages_lost_total", "Publications of peers that were lost", stats.lost);
    text.counter("wse_cluster_bytes_sent_total", "Bytes written to links", stats.bytes_sent);
    text.counter("wse_cluster_bytes_received_total", "Bytes read from links", stats.bytes_received);
    text.counter("wse_cluster_reconnects_total", "Links with a peer that had one before", stats.reconnects);
    let refused: u64 = stats.refused.values().sum();
    text.counter("wse_cluster_refused_total", "Connections refused as links", refused);
}

pub(super) fn redis(text: &mut Exposition, stats: &RedisStats) {
    let dropped: u64 = stats.dropped.values().sum();
    text.gauge("wse_redis_connected", "Whether both connections to Redis are open", stats.connected);
    text.counter("wse_redis_published_total", "Publications for other instances", stats.published);
    text.counter("wse_redis_received_total", "Publications of other instances", stats.received);
    text.counter(
        "wse_redis_delivered_total",
        "Publications of other instances handed to local subscribers",
        stats.delivered,
    );
    text.counter("wse_redis_dropped_total", "Publications that reached no other instance", dropped);
    text.counter("wse_redis_lost_total", "Publications of other instances that are missing", stats.lost);
    text.counter("wse_redis_reconnects_total", "Connections to Redis that were made again", stats.reconnects);
}
