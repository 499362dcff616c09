//! SHA-256 digests, HMACs and message signatures.

use pyo3::{prelude::*, types::PyBytes};
use wse_utilities::signing::{self, hex};

use super::detached_if_long;

/// The HMAC-SHA256 of the data, as 32 bytes.
#[pyfunction]
pub(crate) fn rust_hmac_sha256<'py>(py: Python<'py>, key: &[u8], data: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &detached_if_long(py, data.len(), || signing::hmac_sha256(key, data)))
}

/// The SHA-256 of the data, in hexadecimal.
#[pyfunction]
pub(crate) fn rust_sha256(py: Python<'_>, data: &[u8]) -> String {
    hex(&detached_if_long(py, data.len(), || signing::sha256(data)))
}

/// The protocol's signature of a message: the HMAC-SHA256, in hexadecimal, of the hexadecimal SHA-256 of its JSON text.
#[pyfunction]
pub(crate) fn rust_sign_message(py: Python<'_>, payload_json: &str, secret: &[u8]) -> String {
    detached_if_long(py, payload_json.len(), || signing::sign_message(payload_json, secret))
}
