//! The methods of `RustWSEServer` that report the state of the server and of its connections.

use pyo3::prelude::*;

use crate::server::RustWSEServer;

#[pymethods]
impl RustWSEServer {
    fn health_snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let running = self.started()?;
        let snapshot = py.detach(|| running.server.health_snapshot());
        running.decoded(py, &serde_json::to_vec(&snapshot).expect("a snapshot is numbers and strings"))
    }

    fn get_connection_quality<'py>(&self, py: Python<'py>, connection_id: &str) -> PyResult<Bound<'py, PyAny>> {
        let running = self.started()?;
        let quality = py.detach(|| running.server.connection_quality(connection_id));
        running.decoded(py, &serde_json::to_vec(&quality).expect("a quality is numbers and a word"))
    }

    fn prometheus_metrics(&self, py: Python<'_>) -> PyResult<String> {
        let running = self.started()?;
        Ok(py.detach(|| running.server.prometheus_text()))
    }
}
