//! The methods of `RustWSEServer` for subscriptions, publications, recovery and presence.

use std::collections::{BTreeMap, HashMap};

use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    intern,
    prelude::*,
    pybacked::PyBackedStr,
    types::PyDict,
};
use wse_engine::{JoinError, Position, PresenceError, Recovered, TopicAcl, TopicError};

use crate::server::RustWSEServer;

/// The outcome for each topic of a subscription with recovery. `None` if the topic has no history.
type Outcomes = BTreeMap<String, Option<Recovered>>;

#[pymethods]
impl RustWSEServer {
    /// Subscribes a connection to topics. A topic is a name or a pattern with `*` and `?`.
    ///
    /// `presence_data` announces the connection's user in the topics. Of the members of a `queue_group` each message
    /// goes to one. Returns the topics that the connection's rules allow; an empty list if there is no such connection.
    ///
    /// Raises ValueError if a topic or the data is invalid, and RuntimeError if a limit is exceeded or presence is off.
    #[pyo3(signature = (connection_id, topics, presence_data = None, queue_group = None))]
    fn subscribe_connection(
        &self,
        py: Python<'_>,
        connection_id: &str,
        topics: Vec<String>,
        presence_data: Option<&Bound<'_, PyDict>>,
        queue_group: Option<&str>,
    ) -> PyResult<Vec<String>> {
        let Some(running) = self.running()? else { return Ok(Vec::new()) };
        let presence = presence_data.map(json).transpose()?;
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        py.detach(|| match &presence {
            None => running.server.subscribe(connection_id, &topics, queue_group).map_err(topic_exception),
            Some(data) => {
                let joined = running.server.subscribe_and_join(connection_id, &topics, queue_group, data);
                joined.map_err(|error| match error {
                    JoinError::Topic(error) => topic_exception(error),
                    JoinError::Presence(error) => presence_exception(error),
                })
            }
        })
    }

    /// Subscribes a connection, and sends it the messages after `offset` in `epoch` before any new ones.
    ///
    /// Returns `recovered`, and for each topic its `epoch` and `offset`, whether it was `recovered`, and the `count` of
    /// messages sent.
    ///
    /// Raises ValueError if a topic or the epoch is invalid, and RuntimeError if a limit is exceeded.
    #[pyo3(signature = (connection_id, topics, recover = false, epoch = None, offset = None))]
    fn subscribe_with_recovery<'py>(
        &self,
        py: Python<'py>,
        connection_id: &str,
        topics: Vec<String>,
        recover: bool,
        epoch: Option<&str>,
        offset: Option<i64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let missed_from = match (recover, epoch, offset) {
            (true, Some(epoch), Some(offset)) => Some(Position { epoch: parse_epoch(epoch)?, offset }),
            _ => None,
        };
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let outcomes = match self.running()? {
            Some(running) => py.detach(|| running.server.subscribe_with_recovery(connection_id, &topics, missed_from)),
            None => Ok(BTreeMap::new()),
        };
        recovery_dict(py, &outcomes.map_err(topic_exception)?)
    }

    /// Ends these subscriptions of a connection, or all of them. Returns how many were ended.
    #[pyo3(signature = (connection_id, topics = None))]
    fn unsubscribe_connection(
        &self,
        py: Python<'_>,
        connection_id: &str,
        topics: Option<Vec<String>>,
    ) -> PyResult<usize> {
        let Some(running) = self.running()? else { return Ok(0) };
        let topics: Option<Vec<&str>> = topics.as_ref().map(|topics| topics.iter().map(String::as_str).collect());
        Ok(py.detach(|| running.server.unsubscribe(connection_id, topics.as_deref())))
    }

    /// Sets which topics a connection may subscribe to. A denial has priority; without `allow` all other topics are
    /// allowed. Subscriptions that break the new rules end. Returns whether there is such a connection.
    ///
    /// Raises ValueError if a rule is invalid.
    #[pyo3(signature = (connection_id, allow = None, deny = None))]
    fn set_topic_acl(
        &self,
        py: Python<'_>,
        connection_id: &str,
        allow: Option<Vec<String>>,
        deny: Option<Vec<String>>,
    ) -> PyResult<bool> {
        let acl = TopicAcl::new(allow.unwrap_or_default(), deny.unwrap_or_default()).map_err(topic_exception)?;
        let Some(running) = self.running()? else { return Ok(false) };
        Ok(py.detach(|| running.server.set_topic_acl(connection_id, acl)))
    }

    /// Sends a text message to the topic's subscribers, on connected servers too. With `max_publish_backlog_bytes` it
    /// may wait for slow subscribers.
    fn broadcast(&self, py: Python<'_>, topic: &str, message: &str) -> PyResult<()> {
        if let Some(running) = self.running()? {
            py.detach(|| running.server.broadcast(topic, message));
        }
        Ok(())
    }

    /// Sends several text messages to the topic's subscribers, at a lower cost than single calls of `broadcast()`.
    fn broadcast_many(&self, py: Python<'_>, topic: &str, messages: Vec<PyBackedStr>) -> PyResult<()> {
        if let Some(running) = self.running()? {
            py.detach(|| running.server.broadcast_many(topic, &messages));
        }
        Ok(())
    }

    /// Sends several text messages to every connection, at a lower cost than single calls of `broadcast_all()`.
    fn broadcast_all_many(&self, py: Python<'_>, messages: Vec<PyBackedStr>) -> PyResult<()> {
        if let Some(running) = self.running()? {
            py.detach(|| running.server.broadcast_all_many(&messages));
        }
        Ok(())
    }

    /// Sends a text message to the topic's subscribers on this server only.
    fn broadcast_local(&self, py: Python<'_>, topic: &str, message: &str) -> PyResult<()> {
        if let Some(running) = self.running()? {
            py.detach(|| running.server.broadcast_local(topic, message));
        }
        Ok(())
    }

    /// The number of other servers that subscribe to the topic, as far as is known. It may wait for Redis.
    fn get_topic_interest(&self, py: Python<'_>, topic: &str) -> PyResult<usize> {
        Ok(self.running()?.map_or(0, |running| py.detach(|| running.server.topic_interest(topic))))
    }

    /// The number of connections that subscribe to this name, or to this pattern as it is written.
    fn get_topic_subscriber_count(&self, py: Python<'_>, topic: &str) -> PyResult<usize> {
        Ok(self.running()?.map_or(0, |running| py.detach(|| running.server.topic_subscriber_count(topic))))
    }

    /// The topic's queue groups, each with its number of members.
    fn get_queue_group_info(&self, py: Python<'_>, topic: &str) -> PyResult<HashMap<String, usize>> {
        Ok(self.running()?.map_or_else(HashMap::new, |running| py.detach(|| running.server.queue_groups(topic))))
    }

    /// The users of a topic: by user id, their `data` and their number of `connections`.
    ///
    /// Raises RuntimeError before the first start.
    fn presence<'py>(&self, py: Python<'py>, topic: &str) -> PyResult<Bound<'py, PyAny>> {
        let running = self.started()?;
        let members = py.detach(|| running.server.members(topic));
        running.decoded(py, &serde_json::to_vec(&members).expect("members are JSON"))
    }

    /// The number of users (`num_users`) and of their connections (`num_connections`) of a topic.
    fn presence_stats<'py>(&self, py: Python<'py>, topic: &str) -> PyResult<Bound<'py, PyDict>> {
        let (users, connections) =
            self.running()?.map_or((0, 0), |running| py.detach(|| running.server.presence_stats(topic)));
        let stats = PyDict::new(py);
        stats.set_item("num_users", users)?;
        stats.set_item("num_connections", connections)?;
        Ok(stats)
    }

    /// Replaces the presence data of a connection's user, in all topics of the connection. Returns whether there is
    /// such a connection.
    ///
    /// Raises ValueError if the data is invalid or too long, and RuntimeError if presence is off.
    fn update_presence(&self, py: Python<'_>, connection_id: &str, data: &Bound<'_, PyDict>) -> PyResult<bool> {
        let data = json(data)?;
        let Some(running) = self.running()? else { return Ok(false) };
        py.detach(|| running.server.update_presence(connection_id, &data)).map_err(presence_exception)
    }

    /// The bytes of publications, as framed, that are in memory because not every subscriber has taken them.
    fn publish_backlog(&self) -> PyResult<usize> {
        Ok(self.running()?.map_or(0, |running| running.server.publish_backlog()))
    }
}

/// The Python exception for a topic error: `RuntimeError` for a limit of the connection, as in the reference,
/// `ValueError` for an invalid argument.
fn topic_exception(error: TopicError) -> PyErr {
    match error {
        TopicError::TooManySubscriptions { .. } => PyRuntimeError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// The Python exception for a presence error: `RuntimeError` if presence is off, `ValueError` for an invalid argument.
fn presence_exception(error: PresenceError) -> PyErr {
    match error {
        PresenceError::Disabled => PyRuntimeError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Encodes a user's presence data with Python's `json` module. This is too rare to need an encoder of its own.
fn json(data: &Bound<'_, PyDict>) -> PyResult<String> {
    let py = data.py();
    let options = PyDict::new(py);
    options.set_item(intern!(py, "allow_nan"), false)?;
    py.import("json")?.call_method(intern!(py, "dumps"), (data,), Some(&options))?.extract()
}

/// Parses an epoch from the 8 hexadecimal digits that clients receive.
fn parse_epoch(epoch: &str) -> PyResult<u32> {
    u32::from_str_radix(epoch, 16)
        .map_err(|_| PyValueError::new_err(format!("epoch is {epoch:?}: give the 8 hexadecimal digits of a stamp")))
}

fn recovery_dict<'py>(py: Python<'py>, outcomes: &Outcomes) -> PyResult<Bound<'py, PyDict>> {
    let topics = PyDict::new(py);
    for (topic, outcome) in outcomes {
        let recovery_dict = PyDict::new(py);
        recovery_dict.set_item("epoch", outcome.map(|outcome| format!("{:08x}", outcome.position.epoch)))?;
        recovery_dict.set_item("offset", outcome.map(|outcome| outcome.position.offset))?;
        recovery_dict.set_item("recoverable", outcome.is_some())?;
        recovery_dict.set_item("recovered", outcome.is_some_and(|outcome| outcome.recovered))?;
        recovery_dict.set_item("count", outcome.map_or(0, |outcome| outcome.count))?;
        topics.set_item(topic, recovery_dict)?;
    }
    let all = outcomes.values().all(|outcome| outcome.is_some_and(|outcome| outcome.recovered));
    let recovery_dict = PyDict::new(py);
    recovery_dict.set_item("recovered", all && !outcomes.is_empty())?;
    recovery_dict.set_item("topics", topics)?;
    Ok(recovery_dict)
}
