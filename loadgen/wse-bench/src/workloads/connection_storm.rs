//! `connection-storm`: connections open inside the window, with a bounded number of attempts in flight.
//!
//! An attempt lasts from the first SYN (with a rate: from its due time) until the service has reported that it is ready
//! and our first message is sent.

use bench_format::plan::Load;
use loadgen_core::Pattern;

use crate::protocol::Use;

pub(super) fn plan(load: &Load) -> (Pattern, Use) {
    let rate_per_second = match load {
        Load::Open { rate_per_second, .. } => Some(*rate_per_second),
        _ => None,
    };
    (Pattern::Storm { rate_per_second }, Use::Open)
}
