//! `RustPriorityQueue` and `RustPriorityMessageQueue`: bounded queues that return the most urgent message first.

use pyo3::{
    prelude::*,
    pyclass::{PyTraverseError, PyVisit},
    types::{PyDict, PyList},
};
use wse_utilities::priority::{Enqueued, LEVELS, MessageQueue, PriorityQueue};

use super::{now_seconds, value_error};
use crate::arguments::size;

// Not frozen, for the reason given at `RustEventSequencer`.
/// A bounded priority queue. It returns the message with the highest priority first, and of equal priorities the
/// oldest. A full queue refuses messages. `max_size` is its capacity, at most ten million messages.
#[pyclass(module = "wse_server")]
pub(crate) struct RustPriorityQueue {
    queue: PriorityQueue<Py<PyAny>>,
}

#[pymethods]
impl RustPriorityQueue {
    #[new]
    fn new(max_size: i64) -> PyResult<Self> {
        Ok(Self { queue: PriorityQueue::new(size("max_size", max_size)?).map_err(value_error)? })
    }

    /// Adds a message. Returns False if the queue is full.
    fn push(&mut self, priority: i64, message: Py<PyAny>) -> bool {
        self.queue.push(priority, message).is_ok()
    }

    /// Removes and returns the most urgent message; None if the queue is empty.
    fn pop(&mut self) -> Option<Py<PyAny>> {
        self.queue.pop()
    }

    /// Removes and returns at most `max_count` messages, the most urgent first.
    fn drain<'py>(&mut self, py: Python<'py>, max_count: i64) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.queue.drain(size("max_count", max_count)?))
    }

    /// The number of messages in the queue.
    fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the queue is at its capacity and refuses messages.
    fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Removes all messages without returning them.
    fn clear(&mut self) {
        drop(self.queue.clear());
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.queue.iter().try_for_each(|message| visit.call(message))
    }

    fn __clear__(&mut self) {
        self.clear();
    }
}

/// A bounded queue with five priority levels (10, 8, 5, 3, 1), each first in, first out. A full queue drops the least
/// urgent messages.
///
/// `max_size` is its capacity, and `batch_size` the number of messages that `dequeue_batch()` returns at most.
#[pyclass(module = "wse_server")]
pub(crate) struct RustPriorityMessageQueue {
    queue: MessageQueue<Py<PyAny>>,
}

#[pymethods]
impl RustPriorityMessageQueue {
    #[new]
    #[pyo3(signature = (max_size = 1000, batch_size = 10))]
    fn new(max_size: i64, batch_size: i64) -> PyResult<Self> {
        let queue = MessageQueue::new(size("max_size", max_size)?, size("batch_size", batch_size)?);
        Ok(Self { queue: queue.map_err(value_error)? })
    }

    /// Adds a message at the level nearest to `priority`: 10, 8, 5, 3 or 1.
    ///
    /// A full queue drops the oldest message of level 1, or else 3, or else 5, even for a message that is less urgent.
    /// Returns False if the queue has only messages of levels 10 and 8; then this message is dropped.
    #[pyo3(signature = (message, priority = 5))]
    fn enqueue(&mut self, message: Py<PyAny>, priority: i64) -> bool {
        !matches!(self.queue.enqueue(message, priority, now_seconds()), Enqueued::Refused(_))
    }

    /// Removes and returns the next batch, the most urgent first, as tuples of level and message.
    fn dequeue_batch<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.queue.dequeue_batch())
    }

    /// The number of messages in the queue.
    #[getter]
    fn size(&self) -> usize {
        self.queue.len()
    }

    /// Removes all messages. Counters are kept.
    fn clear(&mut self) {
        drop(self.queue.clear());
    }

    /// The messages in the queue and those that were dropped, by level, whether there is backpressure (more than 80 %
    /// full), and the age of the oldest message in seconds.
    fn get_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.queue.stats(now_seconds());
        let (distribution, depths, dropped) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
        for (index, level) in LEVELS.into_iter().enumerate() {
            distribution.set_item(level, stats.depths[index])?;
            depths.set_item(format!("priority_{level}_depth"), stats.depths[index])?;
            dropped.set_item(level, stats.dropped[index])?;
        }
        let dict = PyDict::new(py);
        dict.set_item("size", stats.size)?;
        dict.set_item("capacity", stats.capacity)?;
        dict.set_item("utilization_percent", stats.utilization() * 100.0)?;
        dict.set_item("priority_distribution", distribution)?;
        dict.set_item("priority_queue_depths", depths)?;
        dict.set_item("dropped_by_priority", dropped)?;
        dict.set_item("total_dropped", stats.dropped.iter().sum::<u64>())?;
        dict.set_item("backpressure", stats.backpressure())?;
        dict.set_item("oldest_message_age", stats.oldest_age_seconds)?;
        // The reference has this key, and its value is always 0.
        dict.set_item("processing_rate", 0.0)?;
        Ok(dict)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.queue.iter().try_for_each(|message| visit.call(message))
    }

    fn __clear__(&mut self) {
        self.clear();
    }
}
