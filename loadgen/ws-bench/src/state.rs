//! What the worker keeps of one connection.

use crate::framing::Rest;

/// Longest captured value, in bytes: longer than any session id or token, and bounded.
pub const LONGEST_CAPTURED: usize = 16 << 10;

/// The state of one connection.
#[derive(Debug, Default)]
pub struct Connection {
    /// Index among the connections of all workers.
    pub index: u32,
    /// Number of steps of the opening that are done.
    pub step: usize,
    /// Values of the opening, in the order of their names' first capture.
    pub captured: Vec<Box<[u8]>>,
    /// The beginning of a message that the service hasn't sent completely.
    pub rest: Rest,
}
