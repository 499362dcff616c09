//! `MessageBatch`: many messages in memory that the engine and Python share. Python takes them out as lists of tuples
//! or as views of single messages.

mod message;

use std::sync::Arc;

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyIndexError,
    prelude::*,
    types::{PyBytes, PyList, PyString, PyTuple},
};
use wse_engine::{Batch, ConnectionKey, Entry, Kind, Segment};

pub(crate) use self::message::Message;
use crate::{events::kind_name, running::Running};

/// A batch of messages and connection events, as `drain_batch` returns it. It shares its memory with the server and
/// frees it when the batch and all views of it are gone.
#[pyclass(frozen, module = "wse_server")]
pub(crate) struct MessageBatch {
    batch: Batch,
    running: Arc<Running>,
}

impl MessageBatch {
    pub(crate) fn new(batch: Batch, running: Arc<Running>) -> Self {
        Self { batch, running }
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        self.batch.segments()
    }
}

impl Drop for MessageBatch {
    /// Forgets the ids of the connections whose disconnect event is in this batch, because no later entry names them.
    fn drop(&mut self) {
        let entries = self.batch.segments().iter().flat_map(|segment| &segment.entries);
        let mut disconnected =
            entries.filter(|entry| entry.kind == Kind::Disconnect).map(|entry| entry.connection).peekable();
        if disconnected.peek().is_some() {
            self.running.forget(disconnected);
        }
    }
}

#[pymethods]
impl MessageBatch {
    fn __len__(&self) -> usize {
        self.batch.len()
    }

    fn __repr__(&self) -> String {
        format!("<MessageBatch of {}>", self.batch.len())
    }

    fn __iter__(slf: Bound<'_, Self>) -> Messages {
        Messages { batch: slf.unbind(), segment: 0, entry: 0 }
    }

    fn __getitem__(slf: Bound<'_, Self>, index: isize) -> PyResult<Message> {
        let length = slf.get().batch.len();
        let resolved = if index < 0 { index.checked_add_unsigned(length) } else { Some(index) };
        let mut entry = resolved
            .and_then(|index| usize::try_from(index).ok())
            .filter(|index| *index < length)
            .ok_or_else(|| PyIndexError::new_err(format!("index {index} in a batch of {length}")))?;
        let mut segment = 0;
        while entry >= slf.get().segments()[segment].entries.len() {
            entry -= slf.get().segments()[segment].entries.len();
            segment += 1;
        }
        Ok(Message::new(slf.unbind(), segment, entry))
    }

    /// All messages, as a list of tuples: connection key, type and data. Connection events are left out.
    fn tuples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut rows = Vec::with_capacity(self.batch.len());
        self.running.with_names(|names| {
            // Consecutive messages mostly have the same connection and type, so the last Python objects are reused.
            let mut key = (None, py.None().into_bound(py));
            let mut name: (&[u8], _) = (b"", py.None().into_bound(py));
            for segment in self.batch.segments() {
                for entry in segment.entries.iter().filter(|entry| entry.kind.is_message()) {
                    if key.0 != Some(entry.connection) {
                        key = (Some(entry.connection), entry.connection.as_u64().into_bound_py_any(py)?);
                    }
                    let label = segment.label(entry);
                    if name.0 != label {
                        let text = segment.message(entry).message_type.map(|text| names.get(py, text).into_any());
                        name = (label, text.unwrap_or_else(|| py.None().into_bound(py)));
                    }
                    let data = PyBytes::new(py, &segment.blob[entry.start as usize..entry.end as usize]);
                    rows.push(PyTuple::new(py, [key.1.clone(), name.1.clone(), data.into_any()])?);
                }
            }
            PyList::new(py, rows)
        })
    }

    /// All messages, in runs of one connection and type, as a list of tuples: connection key, type and a list of the
    /// data of each message. It is faster than `tuples()` if runs are long.
    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let runs = PyList::empty(py);
        self.running.with_names(|names| {
            let mut current: (Option<ConnectionKey>, &[u8]) = (None, b"");
            let mut run = Vec::new();
            let mut append_run = |current: (Option<ConnectionKey>, &[u8]), run: &mut Vec<Bound<'py, PyBytes>>| {
                let (Some(key), false) = (current.0, run.is_empty()) else { return Ok(()) };
                // The engine has checked that the type is UTF-8, so this filters only the empty one, which means no
                // type.
                let text = std::str::from_utf8(current.1).ok().filter(|text| !text.is_empty());
                runs.append((key.as_u64(), text.map(|text| names.get(py, text)), PyList::new(py, run.drain(..))?))
            };
            for segment in self.batch.segments() {
                for entry in segment.entries.iter().filter(|entry| entry.kind.is_message()) {
                    let label = segment.label(entry);
                    if current != (Some(entry.connection), label) {
                        append_run(current, &mut run)?;
                        current = (Some(entry.connection), label);
                    }
                    run.push(PyBytes::new(py, &segment.blob[entry.start as usize..entry.end as usize]));
                }
            }
            append_run(current, &mut run)
        })?;
        Ok(runs)
    }

    /// All messages, in runs of one connection and type, as a list of tuples: connection key, type, the data of all
    /// messages joined, and where each ends as unsigned 32-bit integers in native byte order.
    ///
    /// It is the fastest access, because it creates no object for a single message. Consecutive runs can have the same
    /// connection and type.
    fn packed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let runs = PyList::empty(py);
        self.running.with_names(|names| {
            for segment in self.batch.segments() {
                let same_run = |one: &Entry, next: &Entry| {
                    one.connection == next.connection
                        && one.kind.is_message() == next.kind.is_message()
                        && segment.label(one) == segment.label(next)
                };
                for run in segment.entries.chunk_by(same_run).filter(|run| run[0].kind.is_message()) {
                    let name = segment.message(&run[0]).message_type.map(|text| names.get(py, text));
                    let (data, ends) = pack(py, &segment.blob, run)?;
                    runs.append((run[0].connection.as_u64(), name, data, ends))?;
                }
            }
            PyResult::Ok(())
        })?;
        Ok(runs)
    }

    /// The connection events, as a list of tuples: kind, connection key, connection id and detail. The detail is the
    /// cookie header for `connect`, the user id for `auth_connect`, and otherwise empty.
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let events = PyList::empty(py);
        for segment in self.batch.segments() {
            for entry in segment.entries.iter().filter(|entry| !entry.kind.is_message()) {
                let message = segment.message(entry);
                let id = self.running.id(py, message.connection);
                let id = id.unwrap_or_else(|| PyString::new(py, message.message_type.unwrap_or("")));
                let detail = String::from_utf8_lossy(message.data);
                events.append((kind_name(py, message.kind), message.connection.as_u64(), id, detail))?;
            }
        }
        Ok(events)
    }
}

/// The data of messages back to back, and the end offset of each as a 32-bit integer in native byte order.
fn pack<'py>(py: Python<'py>, blob: &[u8], run: &[Entry]) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let length = run.iter().map(|entry| (entry.end - entry.start) as usize).sum();
    let mut ends = Vec::with_capacity(run.len());
    let data = PyBytes::new_with(py, length, |buffer| {
        let mut at = 0;
        for entry in run {
            let message = &blob[entry.start as usize..entry.end as usize];
            buffer[at..at + message.len()].copy_from_slice(message);
            at += message.len();
            ends.push(at as u32);
        }
        Ok(())
    })?;
    let ends = PyBytes::new_with(py, size_of_val(&ends[..]), |buffer| {
        for (buffer, end) in buffer.as_chunks_mut().0.iter_mut().zip(&ends) {
            *buffer = end.to_ne_bytes();
        }
        Ok(())
    })?;
    Ok((data, ends))
}

/// The iterator over the messages of a batch.
#[pyclass(module = "wse_server")]
pub(crate) struct Messages {
    batch: Py<MessageBatch>,
    segment: usize,
    entry: usize,
}

#[pymethods]
impl Messages {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> Option<Message> {
        let segments = self.batch.get().segments();
        while self.entry >= segments.get(self.segment)?.entries.len() {
            (self.segment, self.entry) = (self.segment + 1, 0);
        }
        self.entry += 1;
        Some(Message::new(self.batch.clone_ref(py), self.segment, self.entry - 1))
    }
}
