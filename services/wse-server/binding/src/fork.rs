//! Notices that this process is a fork of the one that started a server. Threads don't survive a fork, so in the copy
//! the server is only memory: what it is asked to send goes nowhere, and joining its threads never ends.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::{
    prelude::*,
    types::{PyCFunction, PyDict, PyTuple},
};

/// How many forks lie between the process that loaded this module and this one. A counter instead of the process id,
/// because that would cost a system call with each message.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as far as forks tell it apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This process.
    pub(crate) fn this() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is another process by now.
    pub(crate) fn is_gone(self) -> bool {
        self != Self::this()
    }
}

/// Makes Python count its forks, which `os.fork()` and `multiprocessing` report. Called once, when the module is
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
