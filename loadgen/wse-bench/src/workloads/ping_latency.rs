//! `ping-latency`: pings that the service itself answers. Closed, as in the reference's published benchmarks: each
//! connection sends the next ping when the last was answered, all connections at once. Open: pings are due at a rate,
//! independent of the service's speed.

use bench_format::plan::Load;
use loadgen_core::Pattern;

use crate::protocol::Use;

pub(super) fn plan(load: &Load) -> (Pattern, Use) {
    let pattern = match load {
        Load::Open { rate_per_second, arrivals } => {
            Pattern::Open { rate_per_second: *rate_per_second, arrivals: *arrivals }
        }
        Load::Closed { messages_per_connection, .. } => Pattern::PingPong { per_connection: *messages_per_connection },
        Load::Sessions { .. } | Load::Churn { .. } | Load::Reconnect { .. } => {
            Pattern::PingPong { per_connection: None }
        }
    };
    (pattern, Use::Ping)
}
