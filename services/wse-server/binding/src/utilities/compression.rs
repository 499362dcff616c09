//! `RustCompressionManager` and the functions beside it: zlib compression and MessagePack.

use std::sync::Mutex;

use pyo3::{
    exceptions::PyRuntimeError,
    prelude::*,
    types::{PyBytes, PyDict},
};
use wse_engine::msgpack;
use wse_utilities::compression::{self, CompressionError, CompressionStats};

use super::{detached_if_long, encode::Encoder, lock, value_error, with_names};
use crate::{
    arguments::size,
    values::{Decoder, Integers, Malformed},
};

fn to_exception(error: CompressionError) -> PyErr {
    match error {
        CompressionError::Library => PyRuntimeError::new_err(error.to_string()),
        error => value_error(error),
    }
}

/// Compresses bytes to a zlib stream, at a level from 1 (the fastest) to 9 (the smallest output).
///
/// Raises ValueError if there is no such level.
#[pyfunction]
pub(crate) fn rust_compress<'py>(py: Python<'py>, data: &[u8], level: i64) -> PyResult<Bound<'py, PyBytes>> {
    let level = compression::level(level).map_err(to_exception)?;
    let stream = detached_if_long(py, data.len(), || compression::compress(data, level)).map_err(to_exception)?;
    Ok(PyBytes::new(py, &stream))
}

/// Decompresses a zlib stream.
///
/// Raises ValueError if the data isn't exactly one complete stream, or decompresses to more than 10 MiB.
#[pyfunction]
pub(crate) fn rust_decompress<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // The output can be a thousand times as long as the input, so shorter inputs already release the interpreter.
    let message =
        detached_if_long(py, data.len().saturating_mul(16), || compression::decompress(data)).map_err(to_exception)?;
    Ok(PyBytes::new(py, &message))
}

/// Whether the data is longer than the threshold, in bytes.
#[pyfunction]
pub(crate) fn rust_should_compress(data: &[u8], threshold: i64) -> PyResult<bool> {
    Ok(compression::should_compress(data.len(), size("threshold", threshold)?))
}

/// Compresses with zlib and encodes MessagePack, with counters of compression. Threads can share it.
///
/// Data longer than `threshold` bytes is worth compressing. `compression_level` is from 1 (the fastest) to 9 (the
/// smallest output).
#[pyclass(frozen, module = "wse_server")]
pub(crate) struct RustCompressionManager {
    threshold_bytes: usize,
    level: u32,
    stats: Mutex<CompressionStats>,
}

#[pymethods]
impl RustCompressionManager {
    #[new]
    #[pyo3(signature = (threshold = 1024, compression_level = 6))]
    fn new(threshold: i64, compression_level: i64) -> PyResult<Self> {
        let level = compression::level(compression_level).map_err(to_exception)?;
        Ok(Self { threshold_bytes: size("threshold", threshold)?, level, stats: Mutex::default() })
    }

    /// Whether the data is longer than the manager's threshold.
    fn should_compress(&self, data: &[u8]) -> bool {
        compression::should_compress(data.len(), self.threshold_bytes)
    }

    /// Compresses bytes to a zlib stream, at the manager's level unless another is given.
    ///
    /// Raises ValueError if there is no such level.
    #[pyo3(signature = (data, level = None))]
    fn compress<'py>(&self, py: Python<'py>, data: &[u8], level: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let level = level.map_or(Ok(self.level), compression::level).map_err(to_exception)?;
        let stream = detached_if_long(py, data.len(), || compression::compress(data, level));
        lock(&self.stats).count_compressed(data.len(), stream.as_deref().ok());
        Ok(PyBytes::new(py, &stream.map_err(to_exception)?))
    }

    /// Decompresses a zlib stream.
    ///
    /// Raises ValueError if the data isn't exactly one complete stream, or decompresses to more than 10 MiB.
    fn decompress<'py>(&self, py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let message = rust_decompress(py, data);
        lock(&self.stats).count_decompressed(message.is_ok());
        message
    }

    /// Encodes a dict as MessagePack. Objects without an equivalent become text, dates and times in ISO 8601.
    ///
    /// Raises ValueError if an integer has more than 64 bits, or the dict is nested more than 64 deep.
    fn pack_msgpack<'py>(&self, py: Python<'py>, data: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &Encoder::message_pack(data)?))
    }

    /// Decodes one MessagePack value. An extension becomes a list of its type and its bytes.
    ///
    /// Raises ValueError if the data isn't exactly one value, or is nested more than 64 deep.
    fn unpack_msgpack<'py>(&self, py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        unpacked(py, data)
    }

    /// Encodes a dict as MessagePack or JSON. In JSON, bytes become hexadecimal text, NaN and infinities null, and keys
    /// text.
    ///
    /// Raises ValueError if the dict can't be encoded.
    #[pyo3(signature = (event, use_msgpack = true))]
    fn pack_event<'py>(
        &self,
        py: Python<'py>,
        event: &Bound<'py, PyDict>,
        use_msgpack: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let packed = if use_msgpack { Encoder::message_pack(event) } else { Encoder::json(event) };
        Ok(PyBytes::new(py, &packed?))
    }

    /// Decodes MessagePack, or JSON if the data isn't valid MessagePack.
    ///
    /// Raises ValueError if the data is neither.
    #[pyo3(signature = (data, is_msgpack = true))]
    fn unpack_event<'py>(&self, py: Python<'py>, data: &[u8], is_msgpack: bool) -> PyResult<Bound<'py, PyAny>> {
        if is_msgpack && msgpack::check(data).is_some() {
            return unpacked(py, data);
        }
        let event = with_names(|names| Decoder::new(py, names, Integers::Exact).json_value(data));
        let problem = if is_msgpack { "neither MessagePack nor JSON" } else { "not JSON" };
        event.map_err(|Malformed(why)| value_error(format!("the {} bytes are {problem}: {why}", data.len())))
    }

    /// The number of compressed and decompressed messages, of failures, and the bytes saved.
    fn get_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = *lock(&self.stats);
        let dict = PyDict::new(py);
        dict.set_item("total_compressed", stats.compressed)?;
        dict.set_item("total_decompressed", stats.decompressed)?;
        dict.set_item("compression_failures", stats.compression_failures)?;
        dict.set_item("decompression_failures", stats.decompression_failures)?;
        dict.set_item("total_bytes_saved", stats.bytes_saved)?;
        dict.set_item("compression_success_rate", stats.compression_success_rate())?;
        dict.set_item("decompression_success_rate", stats.decompression_success_rate())?;
        dict.set_item("average_bytes_saved", stats.average_bytes_saved())?;
        Ok(dict)
    }

    /// Sets all counters to 0.
    fn reset_stats(&self) {
        *lock(&self.stats) = CompressionStats::default();
    }
}

/// Decodes MessagePack. It is checked in full before any object is built.
fn unpacked<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if msgpack::check(data).is_none() {
        return Err(value_error(format!(
            "the {} bytes are not exactly one MessagePack value, nested at most {} deep",
            data.len(),
            msgpack::MAX_DEPTH
        )));
    }
    let value = with_names(|names| Decoder::new(py, names, Integers::Exact).messagepack_value(data));
    value.map_err(|Malformed(why)| value_error(format!("the MessagePack value has no equivalent in Python: {why}")))
}
