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
    fn connect_redis(&self, py: Python<'_>, url: &str) -> PyResult<()> {
        let running = self.started()?;
        py.detach(|| running.server.connect_redis(url)).map_err(told)
    }

    fn redis_connected(&self) -> bool {
        self.running().is_some_and(|running| running.server.redis_connected())
    }

    fn get_dlq_entries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let letters = self.running().map(|running| py.detach(|| running.server.dead_letters())).unwrap_or_default();
        let entries = PyList::empty(py);
        for letter in letters {
            let entry = PyDict::new(py);
            entry.set_item(intern!(py, "channel"), letter.channel)?;
            entry.set_item(intern!(py, "payload"), letter.payload)?;
            entry.set_item(intern!(py, "error"), letter.error)?;
            entries.append(entry)?;
        }
        Ok(entries)
    }

    #[pyo3(signature = (topic, limit = 1000))]
    fn replay_dlq(&self, py: Python<'_>, topic: &str, limit: i64) -> PyResult<usize> {
        let limit = arguments::size("limit", limit)?;
        let running = self.started()?;
        py.detach(|| running.server.replay_dead_letters(topic, limit)).map_err(told)
    }
}

/// The Python exception for a Redis error: `ValueError` for the URL, `OSError` for a thread that can't start,
/// `RuntimeError` for the rest.
fn told(error: RedisError) -> PyErr {
    match error {
        RedisError::Address(error) => PyValueError::new_err(error.to_string()),
        RedisError::Thread(error) => PyOSError::new_err(error.to_string()),
        RedisError::Twice | RedisError::Never | RedisError::Stopped | RedisError::Replay(_) => {
            PyRuntimeError::new_err(error.to_string())
        }
    }
}
