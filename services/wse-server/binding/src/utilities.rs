//! What applications of the protocol need beside the server, for Python: types in, types out. What it does is in the
//! crate `wse-utilities`; its contract is the second half of `python/wse_server/_wse_accel.pyi`.

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

/// Work on more bytes than these takes longer than letting other threads run meanwhile.
const LONG_BYTES: usize = 16 << 10;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// The table of names, unless someone is using it.
static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// Seconds of a clock that never goes back.
fn now_seconds() -> f64 {
    START.elapsed().as_secs_f64()
}

/// A value that is refused: what it is and what would do is in the error's own words.
fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Does `work` on so many bytes; where they are many, other threads run meanwhile.
fn on_bytes<T: Ungil>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Ungil) -> T {
    if bytes > LONG_BYTES { py.detach(work) } else { work() }
}

/// Runs `work` with the table of names; two threads at once have one each, and the later table is kept.
fn with_names<T>(work: impl FnOnce(&mut Names) -> T) -> T {
    let mut names = lock(&NAMES).take().unwrap_or_default();
    let result = work(&mut names);
    let previous = lock(&NAMES).replace(names);
    // Outside the lock: to drop Python's objects is to run Python.
    drop(previous);
    result
}
