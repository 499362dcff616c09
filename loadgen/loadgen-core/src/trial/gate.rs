//! The barrier between "ready" and "start", as a worker sees it: a coordinator, a parent process or nobody holds it.

use crate::{error::Error, phases::StartAt};

/// Who holds the barrier between "ready" and "start".
pub trait Gate {
    /// This worker has so many open connections, or can't take part. Returns when load starts.
    ///
    /// # Errors
    /// [`Error::Abandoned`] when there will be no load, or whatever kept the gate from being asked.
    fn ready(&mut self, open: u32, problem: Option<String>) -> Result<StartAt, Error>;

    /// The window has begun or ended, as near to the moment as the kernel wakes us. For readings of the service.
    fn window_edge(&mut self, _edge: Edge) {}

    /// The window of a load that may be done before its time is over. The connections stay open until this returns, so that
    /// whoever reads the service at the window's end does not read the cost of closing them.
    fn window_over(&mut self) {}
}

/// An edge of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Measuring starts.
    Start,
    /// Measuring ends.
    End,
}

/// Nobody to wait for: load starts a moment after this worker is ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtOnce;

impl Gate for AtOnce {
    fn ready(&mut self, _open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        match problem {
            Some(reason) => Err(Error::Abandoned { reason }),
            // Enough for every thread to be told.
            None => Ok(StartAt {
                unix_ns: crate::clock::unix_ns() + 20_000_000,
                clock_offset_ns: 0,
                clock_uncertainty_ns: 0,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_problem_the_gate_of_nobody_opens_at_once() {
        let start = AtOnce.ready(1, None).unwrap();
        assert!(start.unix_ns > crate::clock::unix_ns());
        assert!(matches!(AtOnce.ready(0, Some("x".into())), Err(Error::Abandoned { .. })));
    }
}
