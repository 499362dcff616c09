//! `RustCircuitBreaker`: a circuit breaker for a dependency that may keep failing.

use std::{sync::Mutex, time::Duration};

use pyo3::{exceptions::PyValueError, prelude::*};
use wse_utilities::breaker::{Breaker, BreakerConfig};

use super::{START, lock};

/// A circuit breaker for calls that may keep failing.
///
/// It opens after `failure_threshold` failures in a row and then refuses calls. After `reset_timeout` seconds it is
/// half open and allows `success_threshold` calls. If all of them succeed it closes; if one fails it opens again.
#[pyclass(frozen, module = "wse_server")]
pub(crate) struct RustCircuitBreaker {
    breaker: Mutex<Breaker>,
}

/// Checks a number of calls: from 1 to 2^32 - 1.
fn calls(name: &str, value: i64) -> PyResult<u32> {
    let calls = u32::try_from(value).ok().filter(|calls| *calls > 0);
    calls.ok_or_else(|| PyValueError::new_err(format!("{name} is {value}: give a number from 1 to 4294967295")))
}

#[pymethods]
impl RustCircuitBreaker {
    #[new]
    #[pyo3(signature = (failure_threshold = 5, reset_timeout = 60.0, success_threshold = 3))]
    fn new(failure_threshold: i64, reset_timeout: f64, success_threshold: i64) -> PyResult<Self> {
        let failure_threshold = calls("failure_threshold", failure_threshold)?;
        let success_threshold = calls("success_threshold", success_threshold)?;
        let reset_timeout = Duration::try_from_secs_f64(reset_timeout)
            .map_err(|_| PyValueError::new_err(format!("reset_timeout is {reset_timeout}: give seconds from 0 on")))?;
        let config = BreakerConfig { failure_threshold, reset_timeout, success_threshold };
        Ok(Self { breaker: Mutex::new(Breaker::new(config)) })
    }

    /// Whether a call may be made now. If so, report its outcome with `record_success()` or `record_failure()`.
    fn allow(&self) -> bool {
        lock(&self.breaker).allow(START.elapsed())
    }

    /// Reports that a call succeeded.
    fn record_success(&self) {
        lock(&self.breaker).success(START.elapsed());
    }

    /// Reports that a call failed.
    fn record_failure(&self) {
        lock(&self.breaker).failure(START.elapsed());
    }

    /// The current state: `closed`, `open` or `half_open`.
    #[getter]
    fn state(&self) -> &'static str {
        lock(&self.breaker).state(START.elapsed()).label()
    }
}
