//! The methods of `RustWSEServer` that send to one connection or to all.

use pyo3::{prelude::*, types::PyDict};

use super::RustWSEServer;
use crate::{arguments, outgoing};

#[pymethods]
impl RustWSEServer {
    /// Sends a text message unchanged. Returns False if there is no such connection.
    fn send(&self, py: Python<'_>, connection_id: &str, message: &str) -> PyResult<bool> {
        Ok(self.running()?.is_some_and(|running| py.detach(|| running.server.send_text(connection_id, message))))
    }

    /// Sends a binary message unchanged. Returns False if there is no such connection.
    fn send_bytes(&self, py: Python<'_>, connection_id: &str, message: &[u8]) -> PyResult<bool> {
        Ok(self.running()?.is_some_and(|running| py.detach(|| running.server.send_bytes(connection_id, message))))
    }

    /// Sends an event in the connection's own format, as one binary message. Missing fields of the envelope are added.
    ///
    /// JSON longer than `compression_threshold` bytes is compressed; 0 means never. Returns the size of the payload in
    /// bytes, or 0 if nothing was sent: no such connection, a duplicate id, or the rate limit.
    ///
    /// Raises ValueError if the event is nested more than 128 deep or the threshold is negative.
    #[pyo3(signature = (connection_id, event, compression_threshold = 1024))]
    fn send_event(
        &self,
        py: Python<'_>,
        connection_id: &str,
        event: &Bound<'_, PyDict>,
        compression_threshold: i64,
    ) -> PyResult<usize> {
        let threshold = arguments::size("compression_threshold", compression_threshold)?;
        let Some(running) = self.running()? else { return Ok(0) };
        outgoing::send(py, &running.server, connection_id, event, threshold)
    }

    /// Sends a text message to every connection.
    fn broadcast_all(&self, py: Python<'_>, message: &str) -> PyResult<()> {
        if let Some(running) = self.running()? {
            py.detach(|| running.server.broadcast_all(message));
        }
        Ok(())
    }

    /// Sends a binary message to every connection.
    fn broadcast_all_bytes(&self, py: Python<'_>, message: &[u8]) -> PyResult<()> {
        if let Some(running) = self.running()? {
            py.detach(|| running.server.broadcast_all_bytes(message));
        }
        Ok(())
    }
}
