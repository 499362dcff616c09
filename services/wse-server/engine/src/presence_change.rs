//! A change to who is there, as it is told: to subscribers and the application here, and to other instances. Pure.

use std::sync::Arc;

/// What happened to a user in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Its first connection came.
    Join,
    /// It says something else about itself.
    Update,
    /// Its last connection went.
    Leave,
}

/// A change that the topic's subscribers, and for joining and leaving the application, are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Move,
    pub(crate) topic: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) data: Arc<str>,
}

impl Event {
    /// As subscribers are told. Keys are sorted, as in all that the protocol builds as a tree.
    pub(crate) fn message(&self) -> String {
        let (user, data) = (serde_json::Value::from(&*self.user), &self.data);
        let kind = match self.kind {
            Move::Join => "presence_join",
            Move::Update => "presence_update",
            Move::Leave => "presence_leave",
        };
        format!(r#"{{"c":"WSE","p":{{"data":{data},"user_id":{user}}},"t":"{kind}"}}"#)
    }

    /// As the application is told.
    pub(crate) fn detail(&self) -> String {
        let (topic, user) = (serde_json::Value::from(&*self.topic), serde_json::Value::from(&*self.user));
        format!(r#"{{"topic":{topic},"user_id":{user},"data":{}}}"#, self.data)
    }
}

/// A change, as those here and the other instances are concerned by it: a user of both is in a topic as long as any has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// What subscribers here, and for joining and leaving the application, are told.
    pub(crate) here: Option<Move>,
    /// What other instances are told.
    pub(crate) elsewhere: Option<Move>,
    pub(crate) topic: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) data: Arc<str>,
    /// When that was said, in milliseconds since 1970.
    pub(crate) updated_at: u64,
}

impl Change {
    /// As it is told here.
    pub(crate) fn event(&self) -> Option<Event> {
        let (topic, user, data) = (Arc::clone(&self.topic), Arc::clone(&self.user), Arc::clone(&self.data));
        self.here.map(|kind| Event { kind, topic, user, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_in_the_protocol_s_words() {
        let event = Event { kind: Move::Join, topic: "a".into(), user: "u\"".into(), data: r#"{"s":1}"#.into() };
        assert_eq!(event.message(), r#"{"c":"WSE","p":{"data":{"s":1},"user_id":"u\""},"t":"presence_join"}"#);
        assert_eq!(event.detail(), r#"{"topic":"a","user_id":"u\"","data":{"s":1}}"#);
    }
}
