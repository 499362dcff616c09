//! A barrier with a trial for the tests.

use super::Barrier;
use crate::coordinator::upload::fixture::assignment;

/// A barrier of the run "run" that has offered a trial to so many workers.
pub(super) fn offered(workers: u32) -> Barrier {
    let mut barrier = Barrier::new("run");
    barrier.offer((0..workers).map(|worker| assignment(worker, workers)).collect());
    barrier
}
