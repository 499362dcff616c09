//! Queues between threads: a list behind a lock, and an eventfd that wakes the receiver once for many items.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes a thread that waits in epoll. A second wake before the thread has cleared the first costs no system call.
#[derive(Debug)]
pub struct Waker {
    descriptor: OwnedFd,
    is_signalled: AtomicBool,
}

impl Waker {
    /// Creates a waker that is not signalled.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new() -> std::io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { descriptor, is_signalled: AtomicBool::new(false) })
    }

    /// Wakes the thread, now or at its next wait.
    pub fn wake(&self) {
        if !self.is_signalled.swap(true, Ordering::SeqCst) {
            // The write fails only if the counter is at its limit, and then the thread is woken anyway.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Clears the signal. The receiver must look for work after this call, so that no item is missed.
    pub fn clear(&self) {
        if self.is_signalled.load(Ordering::SeqCst) {
            let _ = rustix::io::read(&self.descriptor, &mut [0_u8; 8]);
            self.is_signalled.store(false, Ordering::SeqCst);
        }
    }

    /// Sleeps until `time` or until it is woken. Returns whether it was woken.
    pub fn sleep_until(&self, time: Instant) -> bool {
        let remaining = time.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return false;
        }
        // A signal ends the sleep early, which only costs an extra round.
        let woken = poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&timespec(remaining)));
        woken.is_ok_and(|ready| ready > 0)
    }

    /// The eventfd, to be registered with epoll.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Converts a duration to the kernel's format.
pub fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// A queue of items for another thread.
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
    /// Moves all of `items` into the queue and wakes the receiver; does nothing if `items` is empty.
    pub fn post(&self, items: &mut Vec<T>, receiver: &Waker) {
        if !items.is_empty() {
            self.lock().append(items);
            receiver.wake();
        }
    }

    /// Moves all queued items to `items`, which must be empty. The two lists are swapped, so nothing is allocated.
    pub fn take(&self, items: &mut Vec<T>) {
        debug_assert!(items.is_empty());
        std::mem::swap(&mut *self.lock(), items);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<T>> {
        // The list is consistent after every statement above, even if a thread panicked.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
