//! The methods of `RustWSEServer` that report the state of the server and of its connections.

use pyo3::prelude::*;

use crate::server::RustWSEServer;

#[pymethods]
impl RustWSEServer {
    /// Counters for a health check, under the reference's names, and the number of connections of each quality grade.
    ///
    /// Raises RuntimeError before the first start.
    fn health_snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let running = self.started()?;
        let snapshot = py.detach(|| running.server.health_snapshot());
        running.decoded(py, &serde_json::to_vec(&snapshot).expect("a snapshot is numbers and strings"))
    }

    /// The quality of a connection: its score from 100 down to 0, its grade, and what they are derived from. None if
    /// there is no such connection.
    ///
    /// Raises RuntimeError before the first start.
    fn get_connection_quality<'py>(&self, py: Python<'py>, connection_id: &str) -> PyResult<Bound<'py, PyAny>> {
        let running = self.started()?;
        let quality = py.detach(|| running.server.connection_quality(connection_id));
        running.decoded(py, &serde_json::to_vec(&quality).expect("a quality is numbers and strings"))
    }

    /// The text that `/metrics` returns.
    ///
    /// Raises RuntimeError before the first start.
    fn prometheus_metrics(&self, py: Python<'_>) -> PyResult<String> {
        let running = self.started()?;
        Ok(py.detach(|| running.server.prometheus_text()))
    }
}
