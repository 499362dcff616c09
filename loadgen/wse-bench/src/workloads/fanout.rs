//! `fanout-broadcast`, `fanout-redis`, `fanout-cluster`: every connection receives what the service publishes, and
//! sends nothing. The three differ only inside the service, so the receivers are the same.
//!
//! An open load states the rate at which the service publishes, and latency counts from the due time. With a closed
//! load the service publishes as fast as it can; the age of a message is then the age of the service's backlog, not a
//! latency.

use bench_format::plan::Load;
use loadgen_core::{Pattern, Publishing};

use crate::protocol::Use;

pub(super) fn plan(load: &Load) -> (Pattern, Use) {
    let publishing = if load.is_open() { Publishing::Paced } else { Publishing::Flood };
    (Pattern::Receive(publishing), Use::Receive)
}
