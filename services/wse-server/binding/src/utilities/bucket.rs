//! `RustTokenBucket`: a rate limit as a token bucket.

use std::sync::Mutex;

use pyo3::{exceptions::PyValueError, prelude::*};
use wse_utilities::bucket::TokenBucket;

use super::{lock, now_seconds};

/// A token bucket. It holds at most `capacity` tokens and gains `refill_rate` tokens each second. It is full at
/// first, unless `initial_tokens` is given.
#[pyclass(frozen, module = "wse_server")]
pub(crate) struct RustTokenBucket {
    bucket: Mutex<TokenBucket>,
}

/// Checks a number of tokens: finite and not negative.
fn finite_non_negative(name: &str, value: f64) -> PyResult<f64> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    Err(PyValueError::new_err(format!("{name} is {value}: give a number from 0 on")))
}

#[pymethods]
impl RustTokenBucket {
    #[new]
    #[pyo3(signature = (capacity, refill_rate, initial_tokens = None))]
    fn new(capacity: f64, refill_rate: f64, initial_tokens: Option<f64>) -> PyResult<Self> {
        let capacity = finite_non_negative("capacity", capacity)?;
        let refill_rate = finite_non_negative("refill_rate", refill_rate)?;
        let tokens = initial_tokens.map_or(Ok(capacity), |tokens| finite_non_negative("initial_tokens", tokens))?;
        Ok(Self { bucket: Mutex::new(TokenBucket::new(capacity, refill_rate, tokens, now_seconds())) })
    }

    /// Takes this many tokens and returns True if the bucket holds enough; otherwise takes none.
    ///
    /// Raises ValueError if the number is negative, infinite or NaN.
    fn acquire(&self, tokens: f64) -> PyResult<bool> {
        let tokens = finite_non_negative("tokens", tokens)?;
        Ok(lock(&self.bucket).acquire(tokens, now_seconds()))
    }

    /// The number of tokens in the bucket now.
    #[getter]
    fn tokens(&self) -> f64 {
        lock(&self.bucket).tokens(now_seconds())
    }

    /// Fills the bucket to its capacity.
    fn reset(&self) {
        lock(&self.bucket).reset(now_seconds());
    }
}
