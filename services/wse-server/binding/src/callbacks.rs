//! Callback mode: one thread that drains and calls, in order.

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use pyo3::{prelude::*, types::PyString};

use crate::{events, running::Running};

/// Few enough that other threads get the interpreter in between.
const MESSAGES_PER_TURN: usize = 256;
/// Only a stop needs it, and a stop wakes it.
const TURN: Duration = Duration::from_millis(500);

/// What to call.
pub(crate) struct Callbacks {
    pub(crate) on_connect: Py<PyAny>,
    pub(crate) on_message: Py<PyAny>,
    pub(crate) on_disconnect: Py<PyAny>,
}

/// Starts the thread; it ends when the server has stopped and all that it received was handled.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn dispatch(running: Arc<Running>, callbacks: Arc<Callbacks>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("wse-callbacks".into()).spawn(move || {
        loop {
            // Asked before draining: what is queued until then is not missed.
            let finished = running.is_finished();
            let batch = running.server.drain_batch(MESSAGES_PER_TURN, TURN);
            if batch.is_empty() {
                if finished {
                    return;
                }
                continue;
            }
            let attached = Python::try_attach(|py| {
                for (kind, id, data) in events::decode(py, &running, batch) {
                    // Who is there is asked for, or drained; there is no callback for it.
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
    /// What the callback raises goes to `sys.unraisablehook`: the next message is not to suffer from it.
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
