//! Callback mode: one thread drains the inbox and calls the application's functions in the order of the events.

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyString};

use crate::{
    events,
    running::{Running, failed},
};

/// Few enough that other threads get the interpreter between two batches.
const MESSAGES_PER_DRAIN: usize = 256;
/// How long one wait for messages takes at most. A stop also wakes the thread earlier.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// The Python functions that the dispatcher thread calls, as `set_callbacks` received them.
pub(crate) struct Callbacks {
    pub(crate) on_connect: Py<PyAny>,
    pub(crate) on_message: Py<PyAny>,
    pub(crate) on_disconnect: Py<PyAny>,
}

/// Starts the dispatcher thread. It ends when the server has stopped and everything that it received is handled, or when
/// the server has failed, with a RuntimeError to `sys.unraisablehook`.
///
/// # Errors
/// Returns the kernel's error if the thread can't be started.
pub(crate) fn dispatch(running: Arc<Running>, callbacks: Arc<Callbacks>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("wse-callbacks".into()).spawn(move || {
        loop {
            // Read before draining, so that events queued before the stop are not missed.
            let finished = running.is_finished();
            if let Some(failure) = running.failure() {
                Python::try_attach(|py| PyRuntimeError::new_err(failed(failure)).write_unraisable(py, None));
                return;
            }
            let batch = running.server.drain_batch(MESSAGES_PER_DRAIN, DRAIN_TIMEOUT);
            if batch.is_empty() {
                if finished {
                    return;
                }
                continue;
            }
            let attached = Python::try_attach(|py| {
                for (kind, id, data) in events::decode(py, &running, batch) {
                    // Presence events have no connection id and no callback. Applications request the members or drain
                    // the events.
                    if let Some(id) = id {
                        callbacks.call(py, &kind, id, data);
                    }
                }
            });
            if attached.is_none() {
                return;
            }
        }
    })
}

impl Callbacks {
    /// Calls the function for one event. An exception goes to `sys.unraisablehook` and doesn't affect the next event.
    fn call(&self, py: Python<'_>, kind: &Bound<'_, PyString>, id: Bound<'_, PyString>, data: Bound<'_, PyAny>) {
        let (callback, result) = if kind == "connect" || kind == "auth_connect" {
            (&self.on_connect, self.on_connect.bind(py).call1((id, data)))
        } else if kind == "disconnect" {
            (&self.on_disconnect, self.on_disconnect.bind(py).call1((id,)))
        } else {
            (&self.on_message, self.on_message.bind(py).call1((id, data)))
        };
        if let Err(error) = result {
            error.write_unraisable(py, Some(callback.bind(py)));
        }
    }
}
