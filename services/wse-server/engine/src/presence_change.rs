//! A change of presence, as subscribers, the application and other instances get it. No I/O.

use std::sync::Arc;

/// What happened to a user in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// The user's first connection joined.
    Join,
    /// The user's data changed.
    Update,
    /// The user's last connection left.
    Leave,
}

/// A change for the topic's subscribers. The application gets it too if the user joined or left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PresenceEvent {
    pub(crate) kind: ChangeKind,
    pub(crate) topic: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) data: Arc<str>,
}

impl PresenceEvent {
    /// The message for subscribers. Its keys are sorted, as in every message that the protocol's reference builds as a
    /// tree.
    pub(crate) fn message(&self) -> String {
        let (user, data) = (serde_json::Value::from(&*self.user), &self.data);
        let kind = match self.kind {
            ChangeKind::Join => "presence_join",
            ChangeKind::Update => "presence_update",
            ChangeKind::Leave => "presence_leave",
        };
        format!(r#"{{"c":"WSE","p":{{"data":{data},"user_id":{user}}},"t":"{kind}"}}"#)
    }

    /// The JSON for the application.
    pub(crate) fn detail(&self) -> String {
        let (topic, user) = (serde_json::Value::from(&*self.topic), serde_json::Value::from(&*self.user));
        format!(r#"{{"topic":{topic},"user_id":{user},"data":{}}}"#, self.data)
    }
}

/// A change as it affects this instance and the others. They can differ: a user that is on both remains in the topic
/// until the last instance has none of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PresenceChange {
    /// What subscribers of this instance get, and the application if the user joined or left; `None` if nothing changes
    /// for them.
    pub(crate) local_kind: Option<ChangeKind>,
    /// What other instances get; `None` if nothing changes for them.
    pub(crate) remote_kind: Option<ChangeKind>,
    pub(crate) topic: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) data: Arc<str>,
    /// When the data was set, in milliseconds since the Unix epoch; of a user that left, when the last connection left.
    pub(crate) updated_at: u64,
}

impl PresenceChange {
    /// The event for this instance.
    pub(crate) fn event(&self) -> Option<PresenceEvent> {
        let (topic, user, data) = (Arc::clone(&self.topic), Arc::clone(&self.user), Arc::clone(&self.data));
        self.local_kind.map(|kind| PresenceEvent { kind, topic, user, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_use_the_protocols_names() {
        let event =
            PresenceEvent { kind: ChangeKind::Join, topic: "a".into(), user: "u\"".into(), data: r#"{"s":1}"#.into() };
        assert_eq!(event.message(), r#"{"c":"WSE","p":{"data":{"s":1},"user_id":"u\""},"t":"presence_join"}"#);
        assert_eq!(event.detail(), r#"{"topic":"a","user_id":"u\"","data":{"s":1}}"#);
    }
}
