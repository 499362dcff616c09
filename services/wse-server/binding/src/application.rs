//! The application's own counters, which the engine reads by calling Python functions.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use pyo3::prelude::*;
use service_contract::ApplicationStats;
use wse_engine::ApplicationSource;

/// The counters `delivered`, `sequence_sum` and `unnumbered` of [`ApplicationStats`], in this order.
type Counts = (u64, u64, u64);

/// The Python functions that return the counters. Both are `None` until the application sets them.
#[derive(Default)]
pub(crate) struct Application {
    totals: Mutex<Option<Py<PyAny>>>,
    connections: Mutex<Option<Py<PyAny>>>,
}

impl Application {
    pub(crate) fn set(&self, totals: Option<Py<PyAny>>, connections: Option<Py<PyAny>>) {
        for (slot, callable) in [(&self.totals, totals), (&self.connections, connections)] {
            let previous = std::mem::replace(&mut *slot.lock().unwrap_or_else(PoisonError::into_inner), callable);
            // Dropped after the lock is released, because dropping a callable can run Python code.
            drop(previous);
        }
    }
}

/// Calls a Python function. `None` if there is none, if it raises (the exception goes to `sys.unraisablehook`), or if
/// the interpreter is shutting down.
fn call<T>(slot: &Mutex<Option<Py<PyAny>>>) -> Option<T>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    Python::try_attach(|py| {
        let callable = slot.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.bind(py).clone();
        let result = callable.call0().and_then(|result| result.extract::<T>());
        result.map_err(|error| error.write_unraisable(py, Some(&callable))).ok()
    })?
}

impl ApplicationSource for Application {
    fn totals(&self) -> Option<ApplicationStats> {
        call::<Counts>(&self.totals).map(stats)
    }

    fn connections(&self) -> HashMap<String, ApplicationStats> {
        let books = call::<HashMap<String, Counts>>(&self.connections).unwrap_or_default();
        books.into_iter().map(|(id, counts)| (id, stats(counts))).collect()
    }
}

fn stats((delivered, sequence_sum, unnumbered): Counts) -> ApplicationStats {
    ApplicationStats { delivered, sequence_sum, unnumbered }
}
