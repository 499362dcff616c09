//! The methods of `RustWSEServer` that connect it with the other instances through Redis.

use pyo3::{
    exceptions::{PyOSError, PyRuntimeError, PyValueError},
    intern,
    prelude::*,
    types::{PyDict, PyList},
};
use wse_engine::RedisError;

use crate::{arguments, server::RustWSEServer};

#[pymethods]
impl RustWSEServer {
    /// Exchanges publications with other servers through Redis Pub/Sub. Returns at once; connections are made in the
    /// background.
    ///
    /// Raises ValueError if the URL is invalid or has the scheme `rediss`, and RuntimeError if the server isn't running
    /// or has a Redis already.
    fn connect_redis(&self, py: Python<'_>, url: &str) -> PyResult<()> {
        let running = self.started()?;
        py.detach(|| running.server.connect_redis(url)).map_err(to_exception)
    }

    /// Whether both connections to Redis are open now.
    fn redis_connected(&self) -> PyResult<bool> {
        Ok(self.running()?.is_some_and(|running| running.server.redis_connected()))
    }

    /// Removes and returns the last publications (at most 1000) that Redis didn't get, each as a dict of `channel`,
    /// `payload` and `error`.
    fn get_dlq_entries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let dead_letters =
            self.running()?.map(|running| py.detach(|| running.server.dead_letters())).unwrap_or_default();
        let entries = PyList::empty(py);
        for dead_letter in dead_letters {
            let entry = PyDict::new(py);
            entry.set_item(intern!(py, "channel"), dead_letter.channel)?;
            entry.set_item(intern!(py, "payload"), dead_letter.payload)?;
            entry.set_item(intern!(py, "error"), dead_letter.error)?;
            entries.append(entry)?;
        }
        Ok(entries)
    }

    /// Publishes up to `limit` dead letters of the topic again, which Redis keeps for all servers, the oldest first.
    /// Returns their number.
    ///
    /// Raises RuntimeError without Redis, or if Redis doesn't reply.
    #[pyo3(signature = (topic, limit = 1000))]
    fn replay_dlq(&self, py: Python<'_>, topic: &str, limit: i64) -> PyResult<usize> {
        let limit = arguments::size("limit", limit)?;
        let running = self.started()?;
        py.detach(|| running.server.replay_dead_letters(topic, limit)).map_err(to_exception)
    }
}

/// The Python exception for a Redis error: `ValueError` for the URL, `OSError` for a thread that can't start,
/// `RuntimeError` for the rest.
fn to_exception(error: RedisError) -> PyErr {
    match error {
        RedisError::Address(error) => PyValueError::new_err(error.to_string()),
        RedisError::Thread(error) => PyOSError::new_err(error.to_string()),
        RedisError::AlreadyConnected | RedisError::NotConnected | RedisError::Stopped | RedisError::Replay(_) => {
            PyRuntimeError::new_err(error.to_string())
        }
    }
}
