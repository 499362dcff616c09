//! How much the application may hold, how much of it a single connection may have, and the shards that wait until the
//! application releases some.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::event::{EventfdFlags, eventfd};

use crate::config::Config;

/// A connection's share is one part in so many of what the application may hold, unless it is configured.
const SHARES: usize = 16;
/// The smallest share that isn't configured, in messages: with less, one fast connection would wait too often.
const LEAST_SHARE: usize = 1024;
/// The smallest share in bytes.
const LEAST_SHARE_BYTES: usize = 64 << 10;

/// How much of what the application may hold is for one connection. Beyond it the connection waits and the others are
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl Share {
    /// What a connection may always have in the queue, even if other connections have filled it.
    pub(crate) const RESERVE: Self = Self { messages: 16, bytes: 16 << 10 };

    pub(crate) fn of(config: &Config) -> Self {
        let (limit, bytes_limit) = (config.max_inbound_queue_size, config.max_inbound_queue_bytes);
        let messages = match config.max_inbound_per_connection {
            0 => (limit / SHARES).max(LEAST_SHARE),
            configured => configured,
        };
        let bytes = match config.max_inbound_per_connection {
            0 => bytes_limit / SHARES,
            // The same part of the bytes as of the messages.
            configured => (bytes_limit as u128 * configured as u128 / limit as u128).min(bytes_limit as u128) as usize,
        };
        Self { messages: messages.min(limit), bytes: bytes.max(LEAST_SHARE_BYTES).min(bytes_limit) }
    }

    /// What is left of the share for a connection that has so many messages and bytes in the queue.
    pub(crate) fn left(self, messages: usize, bytes: usize) -> (usize, usize) {
        (self.messages.saturating_sub(messages), self.bytes.saturating_sub(bytes))
    }

    /// Whether so many messages and bytes are few enough to read a parked connection again: at most three quarters.
    pub(crate) fn may_resume(self, messages: usize, bytes: usize) -> bool {
        messages <= self.messages - self.messages.div_ceil(4) && bytes <= self.bytes - self.bytes / 4
    }
}

/// Wakes a shard from its epoll wait. Cheap if a wake-up is already pending.
pub(crate) struct Waker {
    descriptor: OwnedFd,
    raised: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> std::io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { descriptor, raised: AtomicBool::new(false) })
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    pub(crate) fn wake(&self) {
        if !self.raised.swap(true, Ordering::SeqCst) {
            // The write fails only if the counter is about to overflow, and then the descriptor is already readable.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Acknowledges a wake-up: the shard is awake, and the next [`Waker::wake`] counts again.
    pub(crate) fn clear(&self) {
        let mut count = [0_u8; 8];
        let _ = rustix::io::read(&self.descriptor, &mut count);
        self.raised.store(false, Ordering::SeqCst);
    }
}

/// What the application holds, queued entries included, and the limits on it.
pub(crate) struct InboundUsage {
    messages: AtomicUsize,
    bytes: AtomicUsize,
    messages_limit: usize,
    bytes_limit: usize,
    paused: Box<[AtomicBool]>,
    wakers: Vec<Arc<Waker>>,
}

impl InboundUsage {
    pub(crate) fn new(messages_limit: usize, bytes_limit: usize, wakers: Vec<Arc<Waker>>) -> Self {
        Self {
            messages: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            messages_limit,
            bytes_limit,
            paused: wakers.iter().map(|_| AtomicBool::new(false)).collect(),
            wakers,
        }
    }

    pub(crate) fn charge(&self, messages: usize, bytes: usize) {
        if messages > 0 {
            self.messages.fetch_add(messages, Ordering::SeqCst);
            self.bytes.fetch_add(bytes, Ordering::SeqCst);
        }
    }

    /// Releases messages and bytes, and wakes the shards that wait for room.
    pub(crate) fn release(&self, messages: usize, bytes: usize) {
        self.messages.fetch_sub(messages, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if !self.may_resume() {
            return;
        }
        for (paused, waker) in self.paused.iter().zip(&self.wakers) {
            if paused.swap(false, Ordering::SeqCst) {
                waker.wake();
            }
        }
    }

    /// How many more messages and bytes fit now.
    pub(crate) fn room(&self) -> (usize, usize) {
        (
            self.messages_limit.saturating_sub(self.messages.load(Ordering::SeqCst)),
            self.bytes_limit.saturating_sub(self.bytes.load(Ordering::SeqCst)),
        )
    }

    /// How many more messages and bytes fit if connections use their reserves: those are beyond the limit, up to twice
    /// the messages and a quarter more bytes.
    pub(crate) fn reserve(&self) -> (usize, usize) {
        let messages = self.messages_limit.saturating_mul(2);
        let bytes = self.bytes_limit.saturating_add(self.bytes_limit / 4);
        (
            messages.saturating_sub(self.messages.load(Ordering::SeqCst)),
            bytes.saturating_sub(self.bytes.load(Ordering::SeqCst)),
        )
    }

    /// Whether enough room is free to wake the paused shards: more than a quarter, so that a full queue isn't refilled
    /// message by message.
    pub(crate) fn may_resume(&self) -> bool {
        let (messages, bytes) = self.room();
        messages > self.messages_limit / 4 && bytes > self.bytes_limit / 4
    }

    /// How many messages and events the application holds, queued ones included.
    pub(crate) fn messages(&self) -> usize {
        self.messages.load(Ordering::SeqCst)
    }

    /// Whether more than twice the limit is held. Only connection events get that far, with an application that drains
    /// nothing; no client is admitted then.
    pub(crate) fn is_over_event_limit(&self) -> bool {
        self.messages.load(Ordering::SeqCst) > self.messages_limit.saturating_mul(2).saturating_add(1024)
    }

    /// Whether a shard has requested a wake-up that is still pending.
    pub(crate) fn is_paused(&self, shard: usize) -> bool {
        self.paused[shard].load(Ordering::SeqCst)
    }

    /// Requests a wake-up for when there is room. Returns whether the shard must wait, which it need not if there is
    /// room again already.
    pub(crate) fn pause(&self, shard: usize) -> bool {
        self.paused[shard].store(true, Ordering::SeqCst);
        // Checked after the request: a release in between either sees the flag or is seen here.
        if self.may_resume() {
            self.paused[shard].store(false, Ordering::SeqCst);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(messages: usize) -> InboundUsage {
        InboundUsage::new(messages, 1 << 20, vec![Arc::new(Waker::new().unwrap())])
    }

    fn count(usage: &InboundUsage) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(usage.wakers[0].descriptor(), &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
    }

    #[test]
    fn a_share_is_a_sixteenth_unless_it_is_configured_and_never_more_than_the_whole() {
        let share = |messages, per_connection| {
            let limits = (messages, 64 << 20, per_connection);
            let (max_inbound_queue_size, max_inbound_queue_bytes, max_inbound_per_connection) = limits;
            let config = Config {
                max_inbound_queue_size,
                max_inbound_queue_bytes,
                max_inbound_per_connection,
                ..Config::default()
            };
            let Share { messages, bytes } = Share::of(&config);
            (messages, bytes)
        };
        assert_eq!(share(131_072, 0), (8192, 4 << 20));
        assert_eq!(share(100, 0), (100, 4 << 20));
        assert_eq!(share(1000, 250), (250, 16 << 20));
        assert_eq!(share(1000, 1), (1, 67_108));
        assert_eq!(share(1000, 5000), (1000, 64 << 20));
    }

    #[test]
    fn what_a_parked_connection_waits_for_is_more_than_what_wakes_its_shard() {
        for messages in 1..200 {
            let share = Share { messages, bytes: 1 << 20 };
            let maximum = (0..=messages).rev().find(|queued| share.may_resume(*queued, 0)).unwrap();
            assert!(maximum + 1 >= messages.div_ceil(4), "{messages}");
            assert!(maximum < messages);
        }
    }

    #[test]
    fn a_paused_shard_is_woken_once_when_there_is_room_for_a_quarter() {
        let usage = usage(8);
        usage.charge(8, 8);
        assert_eq!(usage.room().0, 0);
        assert!(usage.pause(0));
        usage.release(2, 2);
        assert_eq!(count(&usage), 0, "two of eight are no reason to wake");
        usage.release(1, 1);
        usage.release(1, 1);
        assert_eq!(count(&usage), 1);
    }

    #[test]
    fn a_pause_after_the_release_does_not_wait() {
        let usage = usage(8);
        usage.charge(8, 8);
        usage.release(8, 8);
        assert!(!usage.pause(0));
    }
}
