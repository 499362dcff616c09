//! Connections that come and go under load.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Connections that came and went under load. Only the load models `churn` and `reconnect` have it.
///
/// Attempts count by the moment at which they were due: `due = ready + sum(refused) + sum(failed) + not_made`. Over the whole
/// trial, each connection that was open went in one of three ways: `open = closed + closed_early + open_at_end`, where
/// `open` and `closed_early` are those of the connection counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Turnover {
    /// Attempts that were due in the window.
    pub due: u64,
    /// Those whose connection became ready: the handshake and the opening of the protocol were done.
    pub ready: u64,
    /// Those that the service refused, by reason: TCP refused, an HTTP status other than 101, a subprotocol, a Close frame or
    /// a refusal of the protocol before the connection was ready.
    pub refused: BTreeMap<String, u64>,
    /// Those that failed in another way, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Those that the worker did not make, because it was too late or had no file descriptor left.
    pub not_made: u64,
    /// Connections that were closed or cut as planned before the end of the load, over the whole trial.
    pub closed: u64,
    /// Those of them whose Close frame the service did not answer. A cut waits for no answer and counts none.
    pub unanswered_closes: u64,
    /// Messages without an answer when their connection was closed as planned, over the whole trial.
    pub unanswered_messages: u64,
    /// Connections that were open at the end of the load.
    pub open_at_end: u64,
}

impl Turnover {
    /// Adds the counts of another thread or worker.
    pub fn add(&mut self, other: &Self) {
        // All fields are named, so a new field that isn't added doesn't compile.
        let Self { due, ready, refused, failed, not_made, closed, unanswered_closes, unanswered_messages, open_at_end } =
            other;
        self.due += due;
        self.ready += ready;
        add_counts(&mut self.refused, refused);
        add_counts(&mut self.failed, failed);
        self.not_made += not_made;
        self.closed += closed;
        self.unanswered_closes += unanswered_closes;
        self.unanswered_messages += unanswered_messages;
        self.open_at_end += open_at_end;
    }
}

/// Adds counts by reason.
pub fn add_counts(sum: &mut BTreeMap<String, u64>, added: &BTreeMap<String, u64>) {
    for (reason, count) in added {
        *sum.entry(reason.clone()).or_default() += count;
    }
}
