//! How load is offered: what a workload derives from an assignment, and what each load thread then does.

/// How load is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Connections are opened inside the window, with a limited number of attempts in flight; no messages.
    Storm {
        /// Attempts per second over all workers; absent means as fast as attempts complete.
        rate_per_second: Option<f64>,
    },
    /// Each connection sends its next message when the last one was answered.
    PingPong {
        /// Messages per connection inside the window; absent means until it ends.
        per_connection: Option<u32>,
    },
    /// Messages are due at a rate, regardless of the service's replies.
    Open {
        /// Messages per second over all workers.
        rate_per_second: f64,
        /// Spacing of the due times.
        arrivals: bench_format::plan::Arrivals,
    },
    /// Each connection sends whenever its socket accepts more.
    Flood,
    /// Each connection receives what the service publishes and sends no messages.
    Receive(Publishing),
    /// The first connection of the first worker publishes at a rate, and all others receive what it publishes.
    Fanout {
        /// Publications per second; they are not divided among the workers.
        rate_per_second: f64,
        /// Spacing of the due times.
        arrivals: bench_format::plan::Arrivals,
    },
    /// As [`Self::Open`], while connections come and go.
    Churn {
        /// Messages per second over all workers.
        rate_per_second: f64,
        /// Spacing of the messages' due times.
        arrivals: bench_format::plan::Arrivals,
        /// Connections that come each second over all workers, evenly spaced. For each, the oldest one goes.
        connections_per_second: f64,
    },
    /// All connections are cut at the start of the window, and each connects again, once; no messages.
    Reconnect {
        /// How they are cut.
        cut: bench_format::plan::Cut,
        /// Time over which the attempts are spread, in nanoseconds.
        spread_ns: u64,
    },
    /// Connections are open and send nothing but keepalives.
    Idle,
}

/// How a service publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publishing {
    /// By a schedule. The time from a message's due time to its arrival is its latency.
    Paced,
    /// As fast as it can. That time is then the age of a backlog, not a latency.
    Flood,
}

impl Pattern {
    /// Whether the load may end before the window does.
    pub(crate) fn may_end_early(self) -> bool {
        matches!(self, Self::Storm { .. } | Self::PingPong { .. } | Self::Reconnect { .. })
    }

    /// How that is published which connections receive; `None` if they receive no publications.
    #[inline]
    pub(crate) fn publishing(self) -> Option<Publishing> {
        match self {
            Self::Receive(publishing) => Some(publishing),
            Self::Fanout { .. } => Some(Publishing::Paced),
            _ => None,
        }
    }

    /// Whether messages are due at a rate.
    #[inline]
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Open { .. } | Self::Churn { .. } | Self::Fanout { .. })
    }

    /// Whether connections end under load and others take their place.
    pub(crate) fn has_turnover(self) -> bool {
        matches!(self, Self::Churn { .. } | Self::Reconnect { .. })
    }
}
