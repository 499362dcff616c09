//! `Message`: a view of one entry of a batch. It copies no data until a property or method needs a copy.

use std::ffi::{c_int, c_void};

use pyo3::{
    exceptions::{PyBufferError, PyLookupError, PyValueError},
    ffi,
    prelude::*,
    types::{PyBytes, PyString},
};
use wse_engine::Kind;

use super::MessageBatch;
use crate::{
    events::kind_name,
    running::Running,
    values::{Decoder, Integers, Malformed},
};

/// One message or connection event of a batch. It supports the buffer protocol (read-only), so `memoryview(message)`
/// reads the data without a copy.
#[pyclass(frozen, module = "wse_server")]
pub(crate) struct Message {
    batch: Py<MessageBatch>,
    segment: usize,
    entry: usize,
}

impl Message {
    pub(crate) fn new(batch: Py<MessageBatch>, segment: usize, entry: usize) -> Self {
        Self { batch, segment, entry }
    }

    fn running(&self) -> &Running {
        self.batch.get().running()
    }

    fn message(&self) -> wse_engine::Message<'_> {
        let segment = &self.batch.get().segments()[self.segment];
        segment.message(&segment.entries[self.entry])
    }
}

#[pymethods]
impl Message {
    /// What the entry is: `msg`, `raw`, `bin`, `connect`, `auth_connect`, `disconnect`, `presence_join` or
    /// `presence_leave`.
    #[getter]
    fn kind<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        kind_name(py, self.message().kind)
    }

    /// The key of the connection: an integer that the server never gives to another connection.
    #[getter]
    fn connection(&self) -> u64 {
        self.message().connection.as_u64()
    }

    /// The id of the connection, as its client knows it.
    ///
    /// Raises LookupError if the server no longer knows the connection.
    #[getter]
    fn connection_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let key = self.message().connection;
        self.running().id(py, key).ok_or_else(|| {
            PyLookupError::new_err(format!("connection {} is closed and its id is no longer stored", key.as_u64()))
        })
    }

    /// The message's top-level `t` or else `type`, if that is a string; otherwise None.
    #[getter]
    fn r#type<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        let message = self.message();
        let text = message.message_type.filter(|_| message.kind.is_message())?;
        Some(self.running().with_names(|names| names.get(py, text)))
    }

    /// A copy of the payload, without the prefix of its format.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.message().data)
    }

    /// The payload as Python objects, from JSON or MessagePack. Top-level `type` and `payload` are renamed to `t` and
    /// `p`. Integers below `2**64` are exact.
    ///
    /// Raises ValueError if the payload is neither.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let message = self.message();
        let value = self.running().with_names(|names| {
            let mut decoder = Decoder::new(py, names, Integers::Exact);
            match message.kind {
                Kind::Json => decoder.json(message.data).inspect_err(|_| self.running().server.count_malformed(1)),
                Kind::MessagePack => decoder.messagepack(message.data),
                Kind::PresenceJoin | Kind::PresenceLeave => decoder.json(message.data),
                other => Err(Malformed(format!("its kind is {}", kind_name(py, other)))),
            }
        });
        value.map_err(|Malformed(why)| {
            PyValueError::new_err(format!("the message is not a JSON or MessagePack object: {why}"))
        })
    }

    fn __len__(&self) -> usize {
        self.message().data.len()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let message = self.message();
        format!("<Message {} of {} bytes>", kind_name(py, message.kind), message.data.len())
    }

    /// Fills in a read-only view of the message's bytes (Python's buffer protocol); refuses a writable one.
    ///
    /// # Safety
    /// Python calls this with a `Py_buffer` to fill in, or with null.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() || flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("a message is read-only"));
        }
        let data = slf.get().message().data;
        // SAFETY: `view` comes from Python and isn't null. The data lives as long as the batch, which this object owns, and
        // the view owns this object. Nothing writes to a batch, and the view is marked read-only. A consumer that didn't
        // request shape or strides reads the null pointers as contiguous bytes.
        unsafe {
            let filled = ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                data.as_ptr().cast::<c_void>().cast_mut(),
                data.len() as ffi::Py_ssize_t,
                1,
                flags,
            );
            if filled != 0 {
                return Err(PyErr::fetch(slf.py()));
            }
        }
        Ok(())
    }
}
