//! The methods of `RustWSEServer` by which the application receives events: callbacks, or batches that it drains.

use std::sync::Arc;

use pyo3::{exceptions::PyRuntimeError, prelude::*};

use super::{Mode, RustWSEServer};
use crate::{
    arguments,
    batch::MessageBatch,
    callbacks::Callbacks,
    events::{self, Event},
    running::Running,
};

impl RustWSEServer {
    /// The started server, for the drain methods. It is an error if callbacks are set, because they get every message.
    fn running_in_drain_mode(&self) -> PyResult<Arc<Running>> {
        if matches!(self.state().mode, Mode::Callbacks(_)) {
            return Err(PyRuntimeError::new_err(
                "callbacks are set: they get every message, so there is nothing to drain",
            ));
        }
        self.started()
    }
}

#[pymethods]
impl RustWSEServer {
    /// Sets functions that one thread of the server calls for all events, in order, instead of draining.
    ///
    /// `on_connect` gets the connection id and the cookie header, or the user id if the server checked a token.
    /// `on_message` gets the connection id and a decoded object, a `str` that isn't a JSON object, or `bytes`.
    /// `on_disconnect` gets the connection id. Exceptions go to `sys.unraisablehook`.
    ///
    /// Raises RuntimeError if the server is running or drain mode is enabled.
    fn set_callbacks(&self, on_connect: Py<PyAny>, on_message: Py<PyAny>, on_disconnect: Py<PyAny>) -> PyResult<()> {
        if self.is_server_running() {
            return Err(PyRuntimeError::new_err("the server is running: set callbacks before start()"));
        }
        let callbacks = Arc::new(Callbacks { on_connect, on_message, on_disconnect });
        let previous = {
            let mut state = self.state();
            if matches!(state.mode, Mode::Drain) {
                return Err(PyRuntimeError::new_err(
                    "drain mode is on: an application either drains batches or has callbacks",
                ));
            }
            std::mem::replace(&mut state.mode, Mode::Callbacks(callbacks))
        };
        // Dropped after the lock is released, because dropping a callable can run Python code.
        drop(previous);
        Ok(())
    }

    /// Declares that the application drains events, so that callbacks can't be set any more.
    ///
    /// Raises RuntimeError if callbacks are set.
    fn enable_drain_mode(&self) -> PyResult<()> {
        let mut state = self.state();
        if matches!(state.mode, Mode::Callbacks(_)) {
            return Err(PyRuntimeError::new_err(
                "callbacks are set: an application either drains batches or has callbacks",
            ));
        }
        state.mode = Mode::Drain;
        Ok(())
    }

    /// Waits at most `timeout_ms` milliseconds for the first event, then returns up to `max_count` events that are
    /// ready, as tuples of kind, connection id and decoded data.
    ///
    /// Integers beyond 64 signed bits become floats, as in the reference. A malformed message is returned as `raw` and
    /// counted.
    ///
    /// Raises RuntimeError if callbacks are set, before the first start, and if the server has failed (`failure()`).
    #[pyo3(signature = (max_count = 256, timeout_ms = 50))]
    fn drain_inbound<'py>(&self, py: Python<'py>, max_count: i64, timeout_ms: i64) -> PyResult<Vec<Event<'py>>> {
        let running = self.running_in_drain_mode()?;
        let batch = running.drain(
            py,
            arguments::size("max_count", max_count)?,
            arguments::milliseconds("timeout_ms", timeout_ms)?,
        )?;
        Ok(events::decode(py, &running, batch))
    }

    /// Waits at most `timeout_ms` milliseconds for the first entry, then returns a batch of up to `max_count` entries
    /// that are ready, undecoded. The batch is empty after the timeout or a stop.
    ///
    /// Raises RuntimeError if callbacks are set, before the first start, and if the server has failed (`failure()`).
    #[pyo3(signature = (max_count = 4096, timeout_ms = 50))]
    fn drain_batch(&self, py: Python<'_>, max_count: i64, timeout_ms: i64) -> PyResult<MessageBatch> {
        let running = self.running_in_drain_mode()?;
        let batch = running.drain(
            py,
            arguments::size("max_count", max_count)?,
            arguments::milliseconds("timeout_ms", timeout_ms)?,
        )?;
        Ok(MessageBatch::new(batch, running))
    }

    /// The number of messages that were dropped because they found no room; 0 with `inbound_overflow="wait"`.
    fn inbound_dropped_count(&self) -> PyResult<u64> {
        Ok(self.running()?.map_or(0, |running| running.server.inbound_dropped_count()))
    }

    /// The number of messages that wait for the application.
    fn inbound_queue_depth(&self) -> PyResult<usize> {
        Ok(self.running()?.map_or(0, |running| running.server.inbound_queue_depth()))
    }
}
