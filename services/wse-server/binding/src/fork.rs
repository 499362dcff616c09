//! Detects that this process is a fork of the one that started a server.
//!
//! A fork copies the memory of a server but not its threads. In the copy, messages would never be sent, and joining the
//! threads would never return, so each call checks first in which process it runs.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::{
    prelude::*,
    types::{PyCFunction, PyDict, PyTuple},
};

/// The number of forks between the process that loaded this module and this one. A counter and not the process id,
/// because reading the id costs a system call for each message.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Identifies a process among the one that loaded this module and its forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The process that calls.
    pub(crate) fn this() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether the caller runs in another process than this one, that is in a fork of it.
    pub(crate) fn is_gone(self) -> bool {
        self != Self::this()
    }
}

/// Registers a hook with Python that counts forks (`os.fork()`, `multiprocessing`). Called once, when the module is
/// loaded.
pub(crate) fn count_forks(py: Python<'_>) -> PyResult<()> {
    let count = |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        FORKS.fetch_add(1, Ordering::Relaxed);
    };
    let options = PyDict::new(py);
    options.set_item("after_in_child", PyCFunction::new_closure(py, None, None, count)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&options))?;
    Ok(())
}
