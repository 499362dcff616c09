//! What is the same for all messages of a trial, and what placeholders stand for with it.

use crate::{rows::Rows, state::Connection, template::Values};

/// The constants of a worker's trial.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    /// Seed of all random choices, from the assignment.
    pub seed: u64,
    /// Index of the worker.
    pub worker: u32,
    /// Rows of the connections.
    pub rows: Rows,
}

impl Constants {
    /// The values of one message of a connection.
    #[inline]
    pub fn values<'a>(&'a self, connection: &'a Connection, sequence: u64, due_us: u64) -> Values<'a> {
        Values {
            seed: self.seed,
            connection: connection.index,
            worker: self.worker,
            sequence,
            due_us,
            captured: &connection.captured,
            row: self.rows.of_connection(connection.index),
        }
    }
}
