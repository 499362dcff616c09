//! The input of a load thread: its share of an assignment.

use std::{net::SocketAddr, sync::Arc};

use crate::{live::LiveCounts, pattern::Pattern, schedule::Share};

/// An address of the service.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// The same as the `Host` header has it.
    pub(crate) host: String,
}

/// The parameters of one load thread.
pub(crate) struct ThreadPlan {
    /// The addresses that connections take in turn by their index among those of all workers; at least one.
    pub(crate) targets: Arc<[Target]>,
    pub(crate) connections: u32,
    /// At least the number of connections of all workers.
    pub(crate) connections_of_all: u32,
    /// Index of the thread's first connection among those of all workers.
    pub(crate) first_connection: u32,
    pub(crate) in_flight: u32,
    pub(crate) pattern: Pattern,
    pub(crate) coalesce: u32,
    /// The thread's share of the schedule, among the threads of all workers.
    pub(crate) share: Share,
    pub(crate) seed: u64,
    pub(crate) wall_offset_ns: i64,
    /// Reply time in nanoseconds above which a reply is late.
    pub(crate) late_after_ns: u64,
    /// Largest number of connections that the thread may hold at a time, those that are opened or closed included.
    pub(crate) most_connections: usize,
    /// Where the thread writes what it has done so far.
    pub(crate) live: Arc<LiveCounts>,
}
