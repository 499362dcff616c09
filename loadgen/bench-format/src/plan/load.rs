//! How load is offered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How load is offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Load {
    /// A schedule fixes the due time of every message before the trial starts. Latency counts from the due time.
    Open {
        /// Messages per second over all connections of all workers.
        rate_per_second: f64,
        /// Spacing of the due times.
        #[serde(default)]
        arrivals: Arrivals,
    },
    /// Each connection sends its next message when the reply to the last one arrives or, in a flood, when the socket
    /// accepts it.
    Closed {
        /// Messages per connection; absent means that connections send until the window ends.
        #[serde(default)]
        messages_per_connection: Option<u32>,
        /// Largest number of connection attempts in flight over all workers (connection storms).
        #[serde(default = "in_flight")]
        in_flight: u32,
    },
    /// Each session sends at the pace that its protocol fixes (speech: one audio frame every 20 ms), from its own start
    /// until the window ends, regardless of the service's replies. Latency counts from the due time, as in `open`.
    Sessions {
        /// Seconds before the warm-up over which sessions start one after another.
        #[serde(default)]
        ramp_seconds: f64,
        /// Milliseconds by which the ramp is extended, also before the warm-up, so that sessions don't send in step.
        #[serde(default)]
        spread_ms: f64,
        /// Largest number of connection attempts in flight over all workers.
        #[serde(default = "in_flight")]
        in_flight: u32,
    },
    /// As `open`, while connections come and go: by a schedule of its own, a new connection is attempted and the oldest one
    /// goes. It gets no more messages, and is closed once its messages are answered, at the latest after the plan's
    /// `drain_seconds`. Exactly one of `connections_per_second` and `life_seconds` is given.
    Churn {
        /// Messages per second over all connections of all workers.
        rate_per_second: f64,
        /// Spacing of the messages' due times. Connections come evenly spaced.
        #[serde(default)]
        arrivals: Arrivals,
        /// Connections that come each second, over all workers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connections_per_second: Option<f64>,
        /// Seconds from the moment at which a connection is due until it has to go. As many come each second as the
        /// tier's connections divided by it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        life_seconds: Option<f64>,
    },
    /// All connections are cut at the start of the window, and each connects again, once. There are no messages. The window
    /// ends when the last attempt has ended.
    Reconnect {
        /// How the worker cuts the connections.
        #[serde(default)]
        cut: Cut,
        /// Seconds over which the attempts are spread evenly; 0 means that all are due at the moment of the cut.
        #[serde(default)]
        spread_seconds: f64,
        /// Largest number of attempts in flight over all workers while connections open before the load. Attempts after
        /// the cut have no such limit.
        #[serde(default = "in_flight")]
        in_flight: u32,
    },
}

/// How a worker cuts its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// By TCP reset, without a Close frame: what a service sees when a proxy in front of it fails.
    #[default]
    Reset,
    /// By a Close frame and the end of the TCP stream, without waiting for the service's Close frame: what a service sees
    /// when its clients are restarted.
    Close,
}

impl Load {
    /// Whether a schedule fixes when each message is due. Only then can the generator be late.
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Closed { .. } | Self::Reconnect { .. })
    }

    /// Whether each connection stops after a fixed number of messages. Messages sent before the window are then missing
    /// from it.
    pub fn ends_by_itself(&self) -> bool {
        matches!(self, Self::Closed { messages_per_connection: Some(_), .. })
    }

    /// Connections that come each second, if `connections` are open: over all workers, or of one worker if the load and
    /// the connections are its share. `None` if none come and go.
    pub fn churn_per_second(&self, connections: u32) -> Option<f64> {
        match *self {
            Self::Churn { connections_per_second, life_seconds, .. } => {
                connections_per_second.or_else(|| life_seconds.map(|life| f64::from(connections) / life))
            }
            _ => None,
        }
    }

    /// Seconds from the start of the load until all of it is offered. They come before the warm-up.
    pub fn ramp_seconds(&self) -> f64 {
        match *self {
            Self::Sessions { ramp_seconds, spread_ms, .. } => ramp_seconds + spread_ms / 1e3,
            _ => 0.0,
        }
    }
}

/// Spacing of the due times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Equal gaps between due times.
    #[default]
    Constant,
    /// Exponentially distributed gaps, drawn from the plan's seed.
    Poisson,
}

fn in_flight() -> u32 {
    256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_come_at_the_rate_that_is_given_or_that_their_life_implies() {
        let churn = |connections_per_second, life_seconds| Load::Churn {
            rate_per_second: 1.0,
            arrivals: Arrivals::Constant,
            connections_per_second,
            life_seconds,
        };
        assert_eq!(churn(Some(7.0), None).churn_per_second(100), Some(7.0));
        assert_eq!(churn(None, Some(20.0)).churn_per_second(100), Some(5.0));
        let open = Load::Open { rate_per_second: 1.0, arrivals: Arrivals::Constant };
        assert_eq!(open.churn_per_second(100), None);
    }
}
