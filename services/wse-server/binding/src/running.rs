//! A started server, as batches, views and threads share it, with what is cached for them.
//!
//! Locks here are held for a lookup only, never while Python could run: whoever waits for them may hold the interpreter.

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
    names::Names,
    shapes::Shapes,
    values::{Decoder, Integers, Malformed},
};

/// How long the engine may wait before we look for signals.
const SIGNAL_SLICE: Duration = Duration::from_millis(50);

/// A started server. It may have stopped since: what it received can still be drained.
pub(crate) struct Running {
    pub(crate) server: Server,
    /// Set when the last event was queued: the engine says that it stops before it has closed its connections.
    finished: AtomicBool,
    /// The table of names, unless someone is using it.
    names: Mutex<Option<Names>>,
    /// The shapes of messages, unless someone is using them.
    shapes: Mutex<Option<Shapes>>,
    ids: Mutex<HashMap<u64, Py<PyString>, BuildHasherDefault<KeyHasher>>>,
}

impl Running {
    pub(crate) fn new(server: Server) -> Arc<Self> {
        Arc::new(Self {
            server,
            finished: AtomicBool::new(false),
            names: Mutex::default(),
            shapes: Mutex::default(),
            ids: Mutex::default(),
        })
    }

    /// Stops the engine. Not to be called with the interpreter held: the engine's threads may want it.
    pub(crate) fn stop(&self) {
        self.server.stop();
        self.finished.store(true, Ordering::SeqCst);
        self.server.wake_drain();
    }

    /// Whether nothing more will be queued.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::SeqCst)
    }

    /// Runs `work` with the table of names; two threads at once have one each, and the later table is kept.
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

    /// The connection's id: one Python string for all that ask. `None` once its last batch was dropped.
    pub(crate) fn id<'py>(&self, py: Python<'py>, key: ConnectionKey) -> Option<Bound<'py, PyString>> {
        if let Some(id) = lock(&self.ids).get(&key.as_u64()) {
            return Some(id.bind(py).clone());
        }
        let id = PyString::new(py, &self.server.connection_id(key)?);
        let mut ids = lock(&self.ids);
        Some(ids.entry(key.as_u64()).or_insert_with(|| id.unbind()).bind(py).clone())
    }

    /// JSON of our own, as Python objects.
    pub(crate) fn decoded<'py>(&self, py: Python<'py>, json: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let decoded = self.with_names(|names| Decoder::new(py, names, Integers::Exact).json(json));
        decoded.map_err(|Malformed(why)| PyRuntimeError::new_err(why))
    }

    /// Connections of which nothing will come any more.
    pub(crate) fn forget(&self, gone: impl Iterator<Item = ConnectionKey>) {
        let mut ids = lock(&self.ids);
        if !ids.is_empty() {
            gone.for_each(|key| drop(ids.remove(&key.as_u64())));
        }
    }

    /// Waits for messages without the interpreter, and looks for signals now and then.
    pub(crate) fn drain(&self, py: Python<'_>, most: usize, timeout: Duration) -> PyResult<Batch> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let batch = py.detach(|| self.server.drain_batch(most, left.min(SIGNAL_SLICE)));
            if !batch.is_empty() || left <= SIGNAL_SLICE || self.is_finished() {
                return Ok(batch);
            }
            py.check_signals()?;
        }
    }
}

/// Locks what is whole between any two calls on it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keys are unique already and not chosen by clients: one multiplication spreads them.
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

/// An error of the kernel's keeps its number, by which Python finds the class.
pub(crate) fn start_error(error: StartError) -> PyErr {
    match &error {
        StartError::Listen { source, .. } | StartError::Resource { source, .. } => {
            let text = format!("{error}: {source}");
            source
                .raw_os_error()
                .map_or_else(|| PyOSError::new_err(text.clone()), |code| PyOSError::new_err((code, text.clone())))
        }
        StartError::Config(refused) => PyValueError::new_err(refused.to_string()),
    }
}

/// A server left running must not call into an interpreter that is going away. It isn't kept alive for this.
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
