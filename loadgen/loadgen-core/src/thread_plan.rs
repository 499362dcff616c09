//! What a load thread is given: its share of an assignment.

use std::net::SocketAddr;

use crate::{pattern::Pattern, schedule::Share};

/// What a thread is to do.
pub(crate) struct ThreadPlan {
    pub(crate) target: SocketAddr,
    /// As in the `Host` header.
    pub(crate) host: String,
    pub(crate) connections: u32,
    /// Index of the first connection among those of all workers.
    pub(crate) first_connection: u32,
    pub(crate) in_flight: u32,
    pub(crate) pattern: Pattern,
    pub(crate) coalesce: u32,
    /// Among the threads of all workers.
    pub(crate) share: Share,
    pub(crate) seed: u64,
    pub(crate) wall_offset_ns: i64,
    /// Replies that take longer are late.
    pub(crate) late_after_ns: u64,
}
