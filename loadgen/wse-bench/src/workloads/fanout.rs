//! `fanout-broadcast`, `fanout-redis`, `fanout-cluster`: every connection receives what the service publishes, and
//! sends nothing. Receivers are the same for every path of a message inside the service.
//!
//! Open: the service publishes by a schedule, whose rate the load must name, and latency counts from when a message was
//! due. Closed: it publishes as fast as it can, and the age of a message is that of the service's backlog, not a
//! latency.

use bench_format::plan::Load;
use loadgen_core::{Pattern, Publishing};

use crate::protocol::Use;

pub(super) fn plan(load: &Load) -> (Pattern, Use) {
    let publishing = if load.is_open() { Publishing::Paced } else { Publishing::Flood };
    (Pattern::Receive(publishing), Use::Receive)
}
