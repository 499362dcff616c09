//! `RustSequencer`: sequence numbers, and detection of event ids that occurred before.

use std::sync::Mutex;

use pyo3::{exceptions::PyValueError, prelude::*};
use wse_utilities::sequencer::Sequencer;

use super::{lock, now_seconds, value_error};
use crate::arguments::size;

/// Counts sequence numbers, and remembers the last `window_size` event ids to detect duplicates.
#[pyclass(frozen, module = "wse_server")]
pub(crate) struct RustSequencer {
    sequencer: Mutex<Sequencer>,
}

#[pymethods]
impl RustSequencer {
    #[new]
    fn new(window_size: i64) -> PyResult<Self> {
        let sequencer = Sequencer::new(size("window_size", window_size)?).map_err(value_error)?;
        Ok(Self { sequencer: Mutex::new(sequencer) })
    }

    /// Returns the next sequence number; the first is 1.
    fn next_seq(&self) -> u64 {
        lock(&self.sequencer).next_number()
    }

    /// The last sequence number that was returned; 0 before the first.
    fn get_current_seq(&self) -> u64 {
        lock(&self.sequencer).current()
    }

    /// Whether the id is remembered. If it isn't, it is remembered from now on, and a full window forgets its oldest
    /// id.
    ///
    /// Raises ValueError if the id has more than 1024 bytes.
    fn is_duplicate(&self, event_id: &str) -> PyResult<bool> {
        lock(&self.sequencer).is_duplicate(event_id, now_seconds()).map_err(value_error)
    }

    /// Forgets the ids that are older than `max_age_secs` seconds.
    fn cleanup(&self, max_age_secs: f64) -> PyResult<()> {
        if max_age_secs.is_nan() || max_age_secs < 0.0 {
            return Err(PyValueError::new_err(format!("max_age_secs is {max_age_secs}: give a number from 0 on")));
        }
        lock(&self.sequencer).cleanup(max_age_secs, now_seconds());
        Ok(())
    }

    /// The number of remembered ids.
    fn seen_count(&self) -> usize {
        lock(&self.sequencer).seen_count()
    }
}
