//! `fanout-broadcast`, `fanout-redis`, `fanout-cluster`: every connection receives what the service publishes, and sends
//! nothing. Receivers are the same whatever way a message takes inside the service. Open: the service publishes by a schedule (its own: the rate of the load says what it must be), and latency counts from when a message was due.
//! Closed: it publishes as fast as it can, and what would be a latency is the age of its backlog.

use bench_format::plan::Load;
use loadgen_core::{Pattern, Publishing};

use crate::protocol::Use;

pub(super) fn plan(load: &Load) -> (Pattern, Use) {
    let publishing = if load.is_open() { Publishing::Paced } else { Publishing::Flood };
    (Pattern::Receive(publishing), Use::Receive)
}
