//! `RustEventSequencer`: restores the order of the events of each topic.

use pyo3::{
    prelude::*,
    pyclass::{PyTraverseError, PyVisit},
    types::{PyDict, PyList},
};
use wse_utilities::order::{EventSequencer, TopicState};

use super::{now_seconds, value_error};
use crate::arguments::size;

// Not frozen, so no lock: dropping an event can run Python code, which would deadlock if its own thread held the lock.
/// Puts the events of topics in the order of their sequence numbers, and detects event ids that occurred before.
///
/// It remembers the last `window_size` ids, and buffers an event that is up to `max_out_of_order` numbers ahead of its
/// turn.
#[pyclass(module = "wse_server")]
pub(crate) struct RustEventSequencer {
    sequencer: EventSequencer<Py<PyAny>>,
}

#[pymethods]
impl RustEventSequencer {
    #[new]
    #[pyo3(signature = (window_size = 10_000, max_out_of_order = 100))]
    fn new(window_size: i64, max_out_of_order: i64) -> PyResult<Self> {
        let ahead = size("max_out_of_order", max_out_of_order)? as u64;
        let sequencer = EventSequencer::new(size("window_size", window_size)?, ahead).map_err(value_error)?;
        Ok(Self { sequencer })
    }

    /// Returns the next sequence number for an outgoing event; the first is 1.
    fn next_seq(&mut self) -> u64 {
        self.sequencer.next_number()
    }

    /// The last sequence number that was returned; 0 before the first.
    fn get_current_sequence(&self) -> u64 {
        self.sequencer.current()
    }

    /// Whether the id is remembered. If it isn't, it is remembered from now on. Duplicates are counted.
    ///
    /// Raises ValueError if the id has more than 1024 bytes.
    fn is_duplicate(&mut self, event_id: &str) -> PyResult<bool> {
        self.sequencer.is_duplicate(event_id, now_seconds()).map_err(value_error)
    }

    /// Processes an event of a topic. Returns the events that can be delivered now, in order, or None if this one is
    /// buffered or dropped.
    ///
    /// The first event of a topic defines where it begins. An event too far ahead is delivered, and all numbers before
    /// it are skipped.
    ///
    /// Raises ValueError if the number is negative or 2**36 or more ahead, if the topic has more than 1024 bytes, or if
    /// too many topics or events are kept already.
    fn process_sequenced_event<'py>(
        &mut self,
        py: Python<'py>,
        topic: &str,
        sequence: i64,
        event: Py<PyAny>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let number = size("sequence", sequence)? as u64;
        let delivered = self.sequencer.process(topic, number, event, now_seconds()).map_err(value_error)?;
        let Some((event, released)) = delivered else { return Ok(None) };
        let list = PyList::new(py, [event])?;
        for event in released {
            list.append(event)?;
        }
        Ok(Some(list))
    }

    /// Drops events that were buffered for more than five minutes, and forgets topics that were idle for an hour.
    fn cleanup(&mut self) {
        self.sequencer.cleanup(now_seconds());
    }

    /// Forgets one topic, or all, with the buffered events. The last number and the remembered ids are kept.
    #[pyo3(signature = (topic = None))]
    fn reset_sequence(&mut self, topic: Option<&str>) {
        self.sequencer.reset(topic);
    }

    /// The buffered events of each topic, and their total.
    fn get_buffer_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (states, topics) = (self.sequencer.topics(now_seconds()), PyDict::new(py));
        for state in &states {
            topics.set_item(&state.topic, buffer(py, state)?)?;
        }
        let stats = PyDict::new(py);
        stats.set_item("total_topics", states.len())?;
        stats.set_item("total_buffered", self.sequencer.buffered())?;
        stats.set_item("topics", topics)?;
        Ok(stats)
    }

    /// Counters of duplicate, out-of-order and dropped events, and the progress and gaps of each topic.
    fn get_sequence_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (states, topics) = (self.sequencer.topics(now_seconds()), PyDict::new(py));
        for state in &states {
            topics.set_item(&state.topic, progress(py, state)?)?;
        }
        let (counts, stats) = (self.sequencer.counts(), PyDict::new(py));
        stats.set_item("current_sequence", self.sequencer.current())?;
        stats.set_item("duplicate_count", counts.duplicates)?;
        stats.set_item("out_of_order_count", counts.out_of_order)?;
        stats.set_item("dropped_count", counts.dropped)?;
        stats.set_item("topics", topics)?;
        stats.set_item("total_topics", states.len())?;
        stats.set_item("total_buffered", self.sequencer.buffered())?;
        stats.set_item("seen_ids_count", self.sequencer.seen_count())?;
        Ok(stats)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.sequencer.iter().try_for_each(|event| visit.call(event))
    }

    fn __clear__(&mut self) {
        self.sequencer.reset(None);
    }
}

/// The buffer of one topic, as `get_buffer_stats` returns it.
fn buffer<'py>(py: Python<'py>, state: &TopicState) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("expected_sequence", state.expected)?;
    dict.set_item("buffered_count", state.buffered.len())?;
    dict.set_item("buffered_sequences", &state.buffered)?;
    dict.set_item("gap_size", state.buffered.first().map_or(0, |first| first - state.expected))?;
    dict.set_item("oldest_buffered_age", state.oldest_age_seconds)?;
    Ok(dict)
}

/// The progress of one topic, as `get_sequence_stats` returns it.
fn progress<'py>(py: Python<'py>, state: &TopicState) -> PyResult<Bound<'py, PyDict>> {
    let gaps = PyList::empty(py);
    for (start, end) in state.gaps() {
        let gap = PyDict::new(py);
        gap.set_item("start", start)?;
        gap.set_item("end", end)?;
        gap.set_item("size", end - start + 1)?;
        gaps.append(gap)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("expected", state.expected)?;
    dict.set_item("buffered", state.buffered.len())?;
    dict.set_item("gaps", gaps)?;
    dict.set_item("buffered_sequences", &state.buffered)?;
    Ok(dict)
}
