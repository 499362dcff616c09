//! Python functions and classes that applications of the protocol use beside the server. They convert types and errors;
//! the crate `wse-utilities` does the work. Their typed interface is the second half of
//! `python/wse_server/_wse_accel.pyi`.

pub(crate) mod breaker;
pub(crate) mod bucket;
pub(crate) mod compression;
pub(crate) mod crypto;
mod encode;
pub(crate) mod filter;
mod objects;
pub(crate) mod order;
pub(crate) mod priority;
pub(crate) mod sequencer;
pub(crate) mod signing;
pub(crate) mod tokens;
pub(crate) mod transform;

use std::{
    sync::{LazyLock, Mutex},
    time::Instant,
};

use pyo3::{exceptions::PyValueError, marker::Ungil, prelude::*};

use crate::{names::Names, running::lock};

/// From this size on, the work takes longer than releasing the interpreter to other threads.
const LONG_BYTES: usize = 16 << 10;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// The table of names; `None` while a thread uses it.
static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// Seconds since the module was first used, from a monotonic clock.
fn now_seconds() -> f64 {
    START.elapsed().as_secs_f64()
}

/// A `ValueError` with the error's message, which says which value is refused and what is allowed.
fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Runs `work`, which handles this many bytes. Above [`LONG_BYTES`] it releases the interpreter meanwhile.
fn detached_if_long<T: Ungil>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Ungil) -> T {
    if bytes > LONG_BYTES { py.detach(work) } else { work() }
}

/// Runs `work` with the table of names. If two threads do this at the same time, each has a table, and the one returned
/// last is kept.
fn with_names<T>(work: impl FnOnce(&mut Names) -> T) -> T {
    let mut names = lock(&NAMES).take().unwrap_or_default();
    let result = work(&mut names);
    let previous = lock(&NAMES).replace(names);
    // Dropped after the lock is released, because dropping Python objects can run Python code.
    drop(previous);
    result
}
