//! The Redis part of the server's API.

use std::sync::Arc;

use super::{Instance, Server};
use crate::{
    lock::lock,
    redis::{Redis, RedisDeadLetter, RedisError, RedisStats, RedisTiming},
    stats::RedisHealth,
};

impl Instance {
    pub(super) fn redis(&self) -> Option<Arc<Redis>> {
        lock(&self.redis).clone()
    }

    /// The counters of publications through Redis; `None` if it was never connected.
    pub(crate) fn redis_stats(&self) -> Option<RedisStats> {
        self.redis().map(|redis| redis.stats())
    }

    pub(super) fn redis_health(&self) -> RedisHealth {
        self.redis_stats().as_ref().map(RedisHealth::from).unwrap_or_default()
    }
}

impl Server {
    /// Links this instance with others through Redis Pub/Sub: what is published here also goes to them, and what they
    /// publish goes to the subscribers here. `url` is `redis://[[user]:password@]host[:port][/database]`. Returns at
    /// once; connections are made, and made again, in the background.
    ///
    /// # Errors
    /// Returns a [`RedisError`] if the URL is invalid, if the server has a Redis already or has stopped, or if a thread
    /// can't be started.
    pub fn connect_redis(&self, url: &str) -> Result<(), RedisError> {
        self.connect_redis_within(url, RedisTiming::default())
    }

    /// The same as [`Server::connect_redis`] with other timeouts.
    ///
    /// # Errors
    /// The same as [`Server::connect_redis`].
    pub fn connect_redis_within(&self, url: &str, times: RedisTiming) -> Result<(), RedisError> {
        let mut redis = lock(&self.instance.redis);
        if redis.is_some() {
            return Err(RedisError::AlreadyConnected);
        }
        if !self.shared.is_running() {
            return Err(RedisError::Stopped);
        }
        *redis = Some(Arc::new(Redis::start(&self.shared, url, times)?));
        Ok(())
    }

    /// Whether a Redis was connected and both connections to it are open now.
    pub fn redis_connected(&self) -> bool {
        self.instance.redis().is_some_and(|redis| redis.is_connected())
    }

    /// The counters of publications through Redis; `None` if it was never connected.
    pub fn redis_stats(&self) -> Option<RedisStats> {
        self.instance.redis_stats()
    }

    /// The dead letters: the last thousand publications that Redis did not get. Each is returned once.
    pub fn dead_letters(&self) -> Vec<RedisDeadLetter> {
        self.instance.redis().map(|redis| redis.dead_letters()).unwrap_or_default()
    }

    /// Publishes the oldest `limit` dead letters of a topic again that Redis keeps, whichever instance stored them.
    /// Subscribers who got them before get them again, except those of the instance that published them first. Returns
    /// how many. Waits for Redis.
    ///
    /// # Errors
    /// Returns a [`RedisError`] if no Redis was connected, or if it refuses or doesn't reply in time.
    pub fn replay_dead_letters(&self, topic: &str, limit: usize) -> Result<usize, RedisError> {
        self.instance.redis().ok_or(RedisError::NotConnected)?.replay(topic, limit)
    }
}
