//! Locks whose values are whole between any two calls on them: a thread that panicked with one leaves nothing half done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to whoever had the lock before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
