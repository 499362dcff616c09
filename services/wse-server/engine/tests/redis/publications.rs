//! Helpers of the Redis tests: servers that are linked by Redis, numbered publications, and checks of the counters.

use std::{collections::HashMap, time::Duration};

use serde_json::Value;
use wse_engine::{Config, RedisStats, RedisTiming, Server};
use wse_utilities::breaker::BreakerConfig;

use crate::client::{Client, start, until};

/// The default times, shortened for tests.
pub(crate) fn times() -> RedisTiming {
    RedisTiming {
        reply: Duration::from_millis(500),
        connect: Duration::from_millis(500),
        heartbeat: Duration::from_millis(500),
        first_retry: Duration::from_millis(20),
        longest_retry: Duration::from_millis(100),
        attempts: [Duration::from_millis(20), Duration::from_millis(40)],
        breaker: BreakerConfig { reset_timeout: Duration::from_millis(100), ..RedisTiming::default().breaker },
    }
}

/// Times for tests that cause their failures themselves. They are long, so that a busy machine causes no timeout.
pub(crate) fn long_timeouts() -> RedisTiming {
    let long = Duration::from_secs(30);
    RedisTiming { reply: long, connect: long, heartbeat: long, attempts: [long; 2], ..times() }
}

pub(crate) fn joined(config: Config, url: &str) -> Server {
    joined_within(config, url, times())
}

pub(crate) fn joined_within(config: Config, url: &str, times: RedisTiming) -> Server {
    let server = start(config);
    server.connect_redis_within(url, times).unwrap();
    until("connecting to Redis", || server.redis_connected());
    server
}

/// A client that is subscribed to these topics. Returns when Redis has confirmed the subscription.
pub(crate) fn subscriber(server: &Server, topics: &[&str]) -> Client {
    let (client, id) = Client::ready(server.address());
    assert_eq!(server.subscribe(&id, topics, None).unwrap(), topics);
    client
}

pub(crate) fn tick(publisher: &str, number: u64) -> String {
    format!(r#"{{"c":"U","t":"tick","p":{{"by":"{publisher}","seq":{number}}}}}"#)
}

/// Reads ticks until the end markers of `publishers` publishers have arrived. Returns the numbers by publisher.
pub(crate) fn until_end_markers(client: &mut Client, publishers: usize) -> HashMap<String, Vec<u64>> {
    let (mut got, mut end_markers): (HashMap<String, Vec<u64>>, usize) = (HashMap::new(), 0);
    while end_markers < publishers {
        let value: Value = serde_json::from_str(&client.text()).unwrap();
        let publisher = value["p"]["by"].as_str().unwrap().to_owned();
        match value["p"]["seq"].as_u64() {
            Some(number) => got.entry(publisher).or_default().push(number),
            None => end_markers += 1,
        }
    }
    got
}

pub(crate) fn end_marker(publisher: &str) -> String {
    format!(r#"{{"c":"U","t":"end","p":{{"by":"{publisher}"}}}}"#)
}

pub(crate) fn dropped(stats: &RedisStats, reason: &str) -> u64 {
    stats.dropped.get(reason).copied().unwrap_or(0)
}

pub(crate) fn assert_balanced(stats: &RedisStats) {
    assert_eq!(stats.published, stats.sent + stats.dropped.values().sum::<u64>() + stats.queued, "{stats:?}");
}

/// Waits until the outgoing queue and the backlog are empty, and returns the counters.
pub(crate) fn settled(server: &Server) -> RedisStats {
    until("settling", || server.redis_stats().unwrap().queued == 0);
    let stats = server.redis_stats().unwrap();
    assert_balanced(&stats);
    until("releasing the backlog", || server.publish_backlog() == 0);
    stats
}

/// Waits until `delivered` messages are counted as delivered, and asserts that no more were received. The counters
/// change after the messages are handed to clients, hence the wait.
pub(crate) fn counted(server: &Server, delivered: u64) -> RedisStats {
    until("counting", || server.redis_stats().unwrap().delivered >= delivered);
    let stats = server.redis_stats().unwrap();
    assert_eq!((stats.received, stats.delivered), (delivered, delivered), "{stats:?}");
    stats
}

pub(crate) fn is_ascending(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[0] < pair[1])
}
