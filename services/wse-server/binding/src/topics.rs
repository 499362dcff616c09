//! Subscriptions and publications of `RustWSEServer`.

use std::collections::HashMap;

use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
};
use wse_engine::{TopicAcl, TopicError};

use crate::server::RustWSEServer;

#[pymethods]
impl RustWSEServer {
    #[pyo3(signature = (connection_id, topics, *, queue_group = None))]
    fn subscribe_connection(
        &self,
        py: Python<'_>,
        connection_id: &str,
        topics: Vec<String>,
        queue_group: Option<&str>,
    ) -> PyResult<Vec<String>> {
        let Some(running) = self.running() else { return Ok(Vec::new()) };
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        py.detach(|| running.server.subscribe(connection_id, &topics, queue_group)).map_err(refused)
    }

    #[pyo3(signature = (connection_id, topics = None))]
    fn unsubscribe_connection(&self, py: Python<'_>, connection_id: &str, topics: Option<Vec<String>>) -> usize {
        let Some(running) = self.running() else { return 0 };
        let topics: Option<Vec<&str>> = topics.as_ref().map(|topics| topics.iter().map(String::as_str).collect());
        py.detach(|| running.server.unsubscribe(connection_id, topics.as_deref()))
    }

    #[pyo3(signature = (connection_id, allow = None, deny = None))]
    fn set_topic_acl(
        &self,
        py: Python<'_>,
        connection_id: &str,
        allow: Option<Vec<String>>,
        deny: Option<Vec<String>>,
    ) -> PyResult<bool> {
        let acl = TopicAcl::new(allow.unwrap_or_default(), deny.unwrap_or_default()).map_err(refused)?;
        let Some(running) = self.running() else { return Ok(false) };
        Ok(py.detach(|| running.server.set_topic_acl(connection_id, acl)))
    }

    fn broadcast(&self, py: Python<'_>, topic: &str, message: &str) {
        if let Some(running) = self.running() {
            py.detach(|| running.server.broadcast(topic, message));
        }
    }

    fn broadcast_local(&self, py: Python<'_>, topic: &str, message: &str) {
        if let Some(running) = self.running() {
            py.detach(|| running.server.broadcast(topic, message));
        }
    }

    fn get_topic_subscriber_count(&self, py: Python<'_>, topic: &str) -> usize {
        self.running().map_or(0, |running| py.detach(|| running.server.topic_subscriber_count(topic)))
    }

    fn get_queue_group_info(&self, py: Python<'_>, topic: &str) -> HashMap<String, usize> {
        self.running().map_or_else(HashMap::new, |running| py.detach(|| running.server.queue_groups(topic)))
    }

    fn publish_backlog(&self) -> usize {
        self.running().map_or(0, |running| running.server.publish_backlog())
    }
}

/// A limit is the state of a connection, as in the reference; everything else is what was given.
fn refused(error: TopicError) -> PyErr {
    match error {
        TopicError::TooManySubscriptions { .. } => PyRuntimeError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}
