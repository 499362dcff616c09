//! The backlog of publications: how many bytes are in memory because a subscriber or another instance hasn't taken
//! them, and the wait that holds publishers back while there are too many.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

use crate::lock::lock;

/// How often a waiting publisher checks whether the server has stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The backlog of publications, in bytes with frame headers. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Publications(Arc<Backlog>);

#[derive(Debug)]
struct Backlog {
    /// Bytes of all publications that are in memory.
    bytes: AtomicUsize,
    /// The part of `bytes` that waits for other instances.
    remote_bytes: AtomicUsize,
    /// Publishers wait while `bytes` is at least this; with 0 they never wait.
    limit: usize,
    /// Whether a publisher waits, or is about to.
    is_awaited: AtomicBool,
    waiters: Mutex<()>,
    shrank: Condvar,
}

/// Bytes that count in the backlog until the last reference to them is dropped.
struct CountedBytes {
    bytes: Bytes,
    backlog: Arc<Backlog>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.backlog.settle(self.bytes.len());
    }
}

/// Bytes that wait for other instances. They count in the backlog until this is dropped.
#[derive(Debug)]
pub(crate) struct TrackedBytes {
    bytes: usize,
    publications: Publications,
}

impl TrackedBytes {
    /// Adds `bytes` to the count.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.publications.charge(bytes);
    }
}

impl Drop for TrackedBytes {
    fn drop(&mut self) {
        self.publications.settle(self.bytes);
    }
}

impl Backlog {
    fn settle(&self, bytes: usize) {
        let left = self.bytes.fetch_sub(bytes, Ordering::SeqCst) - bytes;
        if left <= self.limit / 2 && self.is_awaited.load(Ordering::SeqCst) {
            // The lock keeps a publisher from being between its check and its wait.
            let _lock = lock(&self.waiters);
            self.is_awaited.store(false, Ordering::SeqCst);
            self.shrank.notify_all();
        }
    }
}

impl Publications {
    pub(crate) fn new(limit: usize) -> Self {
        let (bytes, remote_bytes, is_awaited) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Self(Arc::new(Backlog {
            bytes,
            remote_bytes,
            limit,
            is_awaited,
            waiters: Mutex::default(),
            shrank: Condvar::new(),
        }))
    }

    /// Counts `bytes` until the last reference to them is dropped.
    pub(crate) fn track(&self, bytes: Bytes) -> Bytes {
        self.0.bytes.fetch_add(bytes.len(), Ordering::SeqCst);
        Bytes::from_owner(CountedBytes { bytes, backlog: Arc::clone(&self.0) })
    }

    /// A count of 0 that grows with what is queued for other instances.
    pub(crate) fn count(&self) -> TrackedBytes {
        TrackedBytes { bytes: 0, publications: self.clone() }
    }

    /// Counts bytes that wait for other instances, until [`Publications::settle`].
    pub(crate) fn charge(&self, bytes: usize) {
        self.0.remote_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.0.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Bytes that waited for other instances no longer count.
    pub(crate) fn settle(&self, bytes: usize) {
        self.0.remote_bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.0.settle(bytes);
    }

    /// Whether the subscribers of this instance alone are behind by the limit. What waits for other instances doesn't
    /// count: two instances that waited for each other would do so for ever.
    pub(crate) fn is_full_locally(&self) -> bool {
        let local_bytes = self.bytes().saturating_sub(self.0.remote_bytes.load(Ordering::SeqCst));
        self.0.limit > 0 && local_bytes >= self.0.limit
    }

    /// How many bytes the backlog has.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::SeqCst)
    }

    /// If the limit is reached, waits until at most half of it is used or until `is_stopped` returns true.
    pub(crate) fn wait(&self, is_stopped: impl Fn() -> bool) {
        let Backlog { limit, is_awaited, waiters, shrank, .. } = &*self.0;
        if *limit == 0 || self.bytes() < *limit {
            return;
        }
        let mut guard = lock(waiters);
        loop {
            is_awaited.store(true, Ordering::SeqCst);
            if self.bytes() <= limit / 2 || is_stopped() {
                return;
            }
            guard = shrank.wait_timeout(guard, CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_until_their_last_slice_is_dropped() {
        let publications = Publications::new(0);
        let held = publications.track(Bytes::from_static(b"0123456789"));
        let part = held.slice(8..);
        drop(held);
        assert_eq!((publications.bytes(), part.as_ref()), (10, b"89".as_slice()));
        drop(part);
        assert_eq!(publications.bytes(), 0);
        let mut counted = publications.count();
        counted.grow(3);
        counted.grow(4);
        assert_eq!(publications.bytes(), 7);
        drop(counted);
        assert_eq!((publications.bytes(), publications.is_full_locally()), (0, false));
        // Without a limit, publishers don't wait.
        let _held = publications.track(Bytes::from_static(b"0123456789"));
        publications.wait(|| panic!("wait() must return at once below the limit"));
    }

    #[test]
    fn a_publisher_waits_until_half_of_the_limit_is_free() {
        let publications = Publications::new(10);
        let (first, second) =
            (publications.track(Bytes::from_static(b"01234567")), publications.track(Bytes::from_static(b"ab")));
        let waiting = publications.clone();
        let waiter = std::thread::spawn(move || {
            waiting.wait(|| false);
            waiting.bytes()
        });
        while !publications.0.is_awaited.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(second);
        assert_eq!(publications.bytes(), 8);
        drop(first);
        assert_eq!(waiter.join().unwrap(), 0);
    }

    #[test]
    fn a_backlog_for_peers_slows_local_publishers_but_not_inbound_publications() {
        let publications = Publications::new(10);
        publications.charge(12);
        assert_eq!((publications.bytes(), publications.is_full_locally()), (12, false));
        let held = publications.track(Bytes::from_static(b"0123456789"));
        assert!(publications.is_full_locally());
        drop(held);
        publications.settle(12);
        assert_eq!((publications.bytes(), publications.is_full_locally()), (0, false));
    }

    #[test]
    fn a_publisher_stops_waiting_when_the_server_stops() {
        let publications = Publications::new(1);
        let _held = publications.track(Bytes::from_static(b"0123456789"));
        publications.wait(|| true);
    }
}
