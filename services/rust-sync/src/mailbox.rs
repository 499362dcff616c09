//! How threads hand things to each other: a list behind a lock, and an event that wakes the other side once for many.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes a thread out of its epoll. Waking one that is awake, or was woken before it looked, costs no system call.
#[derive(Debug)]
pub struct Waker {
    descriptor: OwnedFd,
    is_signalled: AtomicBool,
}

impl Waker {
    /// A waker that hasn't been used.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> std::io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { descriptor, is_signalled: AtomicBool::new(false) })
    }

    /// Wakes the thread, now or when it next waits.
    pub fn wake(&self) {
        if !self.is_signalled.swap(true, Ordering::SeqCst) {
            // It fails only if the counter is at its limit, and then it wakes anyway.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Clears the event. Whoever looks for work does so behind this, so that nothing is left behind.
    pub fn clear(&self) {
        if self.is_signalled.load(Ordering::SeqCst) {
            let _ = rustix::io::read(&self.descriptor, &mut [0_u8; 8]);
            self.is_signalled.store(false, Ordering::SeqCst);
        }
    }

    /// Rests until then, or until it is woken: whether it was.
    pub fn rest_until(&self, time: Instant) -> bool {
        let rest = time.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return false;
        }
        // A signal ends the rest early, which costs a round and nothing else.
        let woken = poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&timespec(rest)));
        woken.is_ok_and(|ready| ready > 0)
    }

    /// What to wait for with epoll.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// As the kernel has times.
pub fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Things for another thread.
#[derive(Debug)]
pub struct Mailbox<T> {
    items: Mutex<Vec<T>>,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { items: Mutex::new(Vec::new()) }
    }
}

impl<T> Mailbox<T> {
    /// Moves all of `items` in and wakes the receiver, if there are any.
    pub fn post(&self, items: &mut Vec<T>, receiver: &Waker) {
        if !items.is_empty() {
            self.lock().append(items);
            receiver.wake();
        }
    }

    /// Moves everything to `items`, which must be empty: the two lists change places, so none is allocated.
    pub fn take(&self, items: &mut Vec<T>) {
        debug_assert!(items.is_empty());
        std::mem::swap(&mut *self.lock(), items);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<T>> {
        // A list is whole after every statement above, whoever panicked.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
