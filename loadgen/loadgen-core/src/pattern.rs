//! How load is offered: what a family makes of an assignment, and what each load thread then does.

/// How load is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Connections are opened inside the window, with so many attempts in flight; no messages.
    Storm {
        /// Attempts per second over all workers; absent means as fast as attempts complete.
        rate_per_second: Option<f64>,
    },
    /// Each connection sends its next message when the last was answered.
    PingPong {
        /// Messages per connection inside the window; absent means until it ends.
        per_connection: Option<u32>,
    },
    /// Messages are due at a rate, whatever the service does.
    Open {
        /// Messages per second over all workers.
        rate_per_second: f64,
        /// How they are spaced.
        arrivals: bench_format::plan::Arrivals,
    },
    /// Each connection sends whenever its socket takes more.
    Flood,
    /// Each connection receives what the service publishes, and sends nothing.
    Receive(Publishing),
}

/// How a service publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publishing {
    /// By a schedule: the time from when a message was due until it came is its latency.
    Paced,
    /// As fast as it can: that time is the age of a backlog.
    Flood,
}

impl Pattern {
    /// Whether all that is to be done may be done before the window's time.
    pub(crate) fn may_end_early(self) -> bool {
        matches!(self, Self::Storm { .. } | Self::PingPong { .. })
    }
}
