//! The counters that a described service keeps by itself, and which of the harness's counters each of them is.

use std::{collections::BTreeSet, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a service serves its own counters, and what they count. A counter is the sum of all samples of a page in the
/// Prometheus text format or OpenMetrics that have its name and labels, such as `app_messages_total{direction="in"}`,
/// or the number at a JSON pointer of a JSON page, such as `/messages/in`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// The page: `http://HOST:PORT/PATH`. With a command, `{port}` stands for the port of the service's URL and
    /// `{metrics_port}` for a second free port. `{{env.NAME}}` is a variable of ladder's environment.
    pub url: String,
    /// The counters count nothing but this load, and all of it. An equation that doesn't hold then makes the trial
    /// invalid; otherwise it is a remark.
    #[serde(default)]
    pub exact: bool,
    /// All messages of clients that the service read, those of openings, responses and keepalives included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<String>,
    /// Messages of the load that reached the service's application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<String>,
    /// Messages of the load that the service dropped instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// Connections that the service accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_accepted: Option<String>,
    /// Connections that are open now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_open: Option<String>,
}

/// A counter of the harness that a service's own counter can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Messages that the service read from sockets.
    Received,
    /// Messages that reached the service's application.
    Delivered,
    /// Messages that the service dropped.
    Dropped,
    /// Connections that the service accepted.
    ConnectionsAccepted,
    /// Connections that are open.
    ConnectionsOpen,
}

/// Which counters a service has by its plan; in `trial.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedCounters {
    /// The counters that the plan maps.
    pub counted: BTreeSet<Counter>,
    /// They count nothing but the trial's load, so a difference makes the trial invalid.
    #[serde(default)]
    pub exact: bool,
}

impl Counters {
    /// Each counter that is mapped, with the text that says where it is.
    pub fn mapped(&self) -> impl Iterator<Item = (Counter, &str)> {
        let all = [
            (Counter::Received, &self.received),
            (Counter::Delivered, &self.delivered),
            (Counter::Dropped, &self.dropped),
            (Counter::ConnectionsAccepted, &self.connections_accepted),
            (Counter::ConnectionsOpen, &self.connections_open),
        ];
        all.into_iter().filter_map(|(counter, text)| Some((counter, text.as_deref()?)))
    }

    /// Which counters are mapped, for a trial.
    pub fn reported(&self) -> ReportedCounters {
        ReportedCounters { counted: self.mapped().map(|(counter, _)| counter).collect(), exact: self.exact }
    }
}

impl fmt::Display for Counter {
    /// Writes the counter's name as plans spell it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_called_as_its_field() {
        let all = Counters {
            received: Some("a".into()),
            delivered: Some("b".into()),
            dropped: Some("c".into()),
            connections_accepted: Some("d".into()),
            connections_open: Some("e".into()),
            ..Counters::default()
        };
        let fields = serde_json::to_value(&all).unwrap();
        assert_eq!(all.mapped().count(), 5);
        for (counter, text) in all.mapped() {
            assert_eq!(fields[counter.to_string()], text);
        }
        assert_eq!(all.reported().counted.len(), 5);
    }
}
