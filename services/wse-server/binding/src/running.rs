//! A started server that batches, views and threads share, with the caches that belong to it.
//!
//! A lock of this module is held for a lookup only and never while Python code could run, because a thread that waits
//! for the lock may hold the interpreter.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use pyo3::{
    exceptions::{PyOSError, PyRuntimeError, PyValueError},
    prelude::*,
    types::{PyCFunction, PyDict, PyString, PyTuple},
};
use wse_engine::{Batch, ConnectionKey, Server, StartError};

use crate::{
    fork::Process,
    names::Names,
    shapes::Shapes,
    values::{Decoder, Integers, Malformed},
};

/// The longest wait in the engine before Python's signals are checked.
const SIGNAL_SLICE: Duration = Duration::from_millis(50);

/// A started server. It may have stopped since; messages that it received can still be drained.
pub(crate) struct Running {
    pub(crate) server: Server,
    process: Process,
    /// Set when the last event is queued. The engine's own flag is not a substitute: it changes before the connections
    /// are closed.
    finished: AtomicBool,
    /// The table of names; `None` while a thread uses it.
    names: Mutex<Option<Names>>,
    /// The shapes of messages; `None` while a thread uses them.
    shapes: Mutex<Option<Shapes>>,
    ids: Mutex<HashMap<u64, Py<PyString>, BuildHasherDefault<KeyHasher>>>,
}

impl Running {
    pub(crate) fn new(server: Server) -> Arc<Self> {
        Arc::new(Self {
            server,
            process: Process::this(),
            finished: AtomicBool::new(false),
            names: Mutex::default(),
            shapes: Mutex::default(),
            ids: Mutex::default(),
        })
    }

    /// Stops the engine. The caller must not hold the interpreter, because the engine's threads may need it to finish.
    ///
    /// In a fork of the process that started the server this does nothing.
    pub(crate) fn stop(&self) {
        if self.process.is_gone() {
            return;
        }
        self.server.stop();
        self.finished.store(true, Ordering::SeqCst);
        self.server.wake_drain();
    }

    /// Whether the last event is queued.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::SeqCst)
    }

    /// Runs `work` with the table of names. If two threads do this at the same time, each has a table, and the one
    /// returned last is kept.
    pub(crate) fn with_names<T>(&self, work: impl FnOnce(&mut Names) -> T) -> T {
        let mut names = lock(&self.names).take().unwrap_or_default();
        let result = work(&mut names);
        *lock(&self.names) = Some(names);
        result
    }

    /// Runs `work` with the shapes of messages, as [`Running::with_names`] does.
    pub(crate) fn with_shapes<T>(&self, work: impl FnOnce(&mut Shapes) -> T) -> T {
        let mut shapes = lock(&self.shapes).take().unwrap_or_default();
        let result = work(&mut shapes);
        *lock(&self.shapes) = Some(shapes);
        result
    }

    /// The id of a connection, as one Python string that all callers share. `None` after its last batch is dropped.
    pub(crate) fn id<'py>(&self, py: Python<'py>, key: ConnectionKey) -> Option<Bound<'py, PyString>> {
        if let Some(id) = lock(&self.ids).get(&key.as_u64()) {
            return Some(id.bind(py).clone());
        }
        let id = PyString::new(py, &self.server.connection_id(key)?);
        let mut ids = lock(&self.ids);
        Some(ids.entry(key.as_u64()).or_insert_with(|| id.unbind()).bind(py).clone())
    }

    /// Decodes JSON that the engine wrote, for example a snapshot, into Python objects.
    pub(crate) fn decoded<'py>(&self, py: Python<'py>, json: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let decoded = self.with_names(|names| Decoder::new(py, names, Integers::Exact).json(json));
        decoded.map_err(|Malformed(why)| PyRuntimeError::new_err(why))
    }

    /// Forgets the ids of connections that have no further events.
    pub(crate) fn forget(&self, closed: impl Iterator<Item = ConnectionKey>) {
        let mut ids = lock(&self.ids);
        if !ids.is_empty() {
            closed.for_each(|key| drop(ids.remove(&key.as_u64())));
        }
    }

    /// Why the server can't serve all its clients, until it is stopped: what it received can be drained then.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.server.failure().filter(|_| self.server.is_running())
    }

    /// Waits for messages without the interpreter. Checks Python's signals at least every [`SIGNAL_SLICE`], so Ctrl-C
    /// interrupts the wait. Raises RuntimeError if the server has failed.
    pub(crate) fn drain(&self, py: Python<'_>, max_count: usize, timeout: Duration) -> PyResult<Batch> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(failure) = self.failure() {
                return Err(PyRuntimeError::new_err(failed(failure)));
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            let batch = py.detach(|| self.server.drain_batch(max_count, remaining.min(SIGNAL_SLICE)));
            if !batch.is_empty() || remaining <= SIGNAL_SLICE || self.is_finished() {
                return Ok(batch);
            }
            py.check_signals()?;
        }
    }
}

/// The message of the exception for a server that can't serve all its clients.
pub(crate) fn failed(failure: &str) -> String {
    format!("the server has failed: {failure}; call stop(), and start the process again")
}

/// Locks a mutex and ignores poisoning. Its content must be consistent between any two calls on it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hashes connection keys. They are unique and not chosen by clients, so one multiplication spreads them well enough.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

/// The Python exception for a failed start. An error of the kernel keeps its number, from which Python derives the
/// class.
pub(crate) fn start_error(error: StartError) -> PyErr {
    match &error {
        StartError::Listen { source, .. } | StartError::Resource { source, .. } => {
            let text = format!("{error}: {source}");
            source
                .raw_os_error()
                .map_or_else(|| PyOSError::new_err(text.clone()), |code| PyOSError::new_err((code, text.clone())))
        }
        StartError::Config(config_error) => PyValueError::new_err(config_error.to_string()),
    }
}

/// Stops the server when the interpreter exits, because its threads must not call into an interpreter that shuts down.
/// The registration holds a weak reference and doesn't keep the server alive.
pub(crate) fn stop_at_exit(py: Python<'_>, running: &Arc<Running>) -> PyResult<()> {
    let running = Arc::downgrade(running);
    let stop = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        if let Some(running) = running.upgrade() {
            arguments.py().detach(|| running.stop());
        }
    };
    let stop = PyCFunction::new_closure(py, None, None, stop)?;
    py.import("atexit")?.call_method1("register", (stop,))?;
    Ok(())
}
