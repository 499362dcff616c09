//! How much the application may hold, and the shards that wait until it releases some.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::event::{EventfdFlags, eventfd};

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

    /// Whether enough room is free to wake the paused shards: more than a quarter, so that a full queue isn't refilled
    /// message by message.
    pub(crate) fn may_resume(&self) -> bool {
        let (messages, bytes) = self.room();
        messages > self.messages_limit / 4 && bytes > self.bytes_limit / 4
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
