//! The barrier between "ready" and "start", as a worker sees it.

use std::ops::ControlFlow;

use crate::{error::Error, live::LiveReport, phases::StartAt};

/// Holds the barrier between "ready" and "start": a coordinator, a parent process, or [`ImmediateGate`].
pub trait Gate {
    /// Reports the number of open connections, or why this worker can't take part. Returns the start of the load.
    ///
    /// # Errors
    /// [`Error::Abandoned`] if there will be no load, otherwise the error with which the barrier could not be asked.
    fn ready(&mut self, open: u32, problem: Option<String>) -> Result<StartAt, Error>;

    /// Called when the window starts and ends, as close to the time as the kernel wakes the worker. For readings of the
    /// service.
    fn window_edge(&mut self, _edge: Edge) {}

    /// Called twice a second under load, but not shortly before an edge of the window, with what the worker has done so
    /// far. It must return within a fifth of a second. `Break` means that no more reports are wanted in this trial.
    fn progress(&mut self, _report: &LiveReport) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    /// Called when a load that may end early has ended. The connections stay open until this returns, so that the
    /// reading at the end of the window doesn't contain the cost of closing them.
    fn window_over(&mut self) {}
}

/// The start or the end of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The edge at which the window starts.
    Start,
    /// The edge at which the window ends.
    End,
}

/// A gate that waits for no other worker: load starts a moment after this worker is ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImmediateGate;

impl Gate for ImmediateGate {
    fn ready(&mut self, _open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        match problem {
            Some(reason) => Err(Error::Abandoned { reason }),
            // Enough time for every thread to receive the start.
            None => Ok(StartAt {
                unix_ns: crate::clock::unix_ns() + 20_000_000,
                clock_offset_ns: 0,
                clock_uncertainty_ns: 0,
                publisher_ahead_ns: 0,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_without_workers_opens_at_once() {
        let start = ImmediateGate.ready(1, None).unwrap();
        assert!(start.unix_ns > crate::clock::unix_ns());
        assert!(matches!(ImmediateGate.ready(0, Some("x".into())), Err(Error::Abandoned { .. })));
    }
}
