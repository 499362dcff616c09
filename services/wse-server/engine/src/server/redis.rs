//! Other instances through Redis, as the owner of a server sees them.

use std::sync::Arc;

use super::{Instance, Server};
use crate::{
    lock::lock,
    redis::{Redis, RedisDeadLetter, RedisError, RedisStats, RedisTimes},
    stats::RedisHealth,
};

impl Instance {
    pub(super) fn redis(&self) -> Option<Arc<Redis>> {
        lock(&self.redis).clone()
    }

    /// What became of publications through Redis, if there is one.
    pub(crate) fn redis_stats(&self) -> Option<RedisStats> {
        self.redis().map(|redis| redis.stats())
    }

    pub(super) fn redis_health(&self) -> RedisHealth {
        self.redis_stats().as_ref().map(RedisHealth::from).unwrap_or_default()
    }
}

impl Server {
    /// From now on, what is published to topics goes to other instances through Redis Pub/Sub too, and what they publish comes
    /// to subscribers here. `url` is `redis://[[user]:password@]host[:port][/database]`. Returns at once: a connection is made,
    /// and made again, in the background.
    ///
    /// # Errors
    /// A URL that is none, a server that has a Redis already or has stopped, or no more threads.
    pub fn connect_redis(&self, url: &str) -> Result<(), RedisError> {
        self.connect_redis_within(url, RedisTimes::default())
    }

    /// The same with other times than usual.
    ///
    /// # Errors
    /// As [`Server::connect_redis`].
    pub fn connect_redis_within(&self, url: &str, times: RedisTimes) -> Result<(), RedisError> {
        let mut redis = lock(&self.instance.redis);
        if redis.is_some() {
            return Err(RedisError::Twice);
        }
        if !self.shared.is_running() {
            return Err(RedisError::Stopped);
        }
        *redis = Some(Arc::new(Redis::start(&self.shared, url, times)?));
        Ok(())
    }

    /// Whether there is a Redis, and both connections to it, now.
    pub fn redis_connected(&self) -> bool {
        self.instance.redis().is_some_and(|redis| redis.is_connected())
    }

    /// What became of publications through Redis, if there is one.
    pub fn redis_stats(&self) -> Option<RedisStats> {
        self.instance.redis_stats()
    }

    /// The last thousand publications that Redis did not get, each once.
    pub fn dead_letters(&self) -> Vec<RedisDeadLetter> {
        self.instance.redis().map(|redis| redis.dead_letters()).unwrap_or_default()
    }

    /// Publishes dead letters of a topic again that Redis keeps, of whatever instance, the oldest `limit` of them. Those who
    /// had them get them again, but for subscribers of the instance that they come from. Returns how many. Waits for Redis.
    ///
    /// # Errors
    /// No Redis, or none that answers.
    pub fn replay_dead_letters(&self, topic: &str, limit: usize) -> Result<usize, RedisError> {
        self.instance.redis().ok_or(RedisError::Never)?.replay(topic, limit)
    }
}
