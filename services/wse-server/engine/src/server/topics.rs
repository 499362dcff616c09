//! Subscriptions and publications, as the owner of a server sees them.

use std::collections::HashMap;

use super::{Server, Shared};
use crate::{
    envelope,
    frame::{self, Opcode},
    key::ConnectionKey,
    outbound::{Command, Target},
    topics::{Change, TopicAcl, TopicError},
};

impl Shared {
    /// What carries a connection's changes to its shard.
    fn teller(&self, connection: ConnectionKey) -> impl FnMut(Change) + '_ {
        // Without waiting: the topics are locked, and the shard may need them to go on.
        move |change| {
            self.mailboxes[connection.shard()].put_now(Command::Change(connection, change));
        }
    }

    /// Publishes framed bytes to a topic's subscribers: each listener, and one member of each queue group.
    fn publish(&self, topic: &str, text: &str) {
        let audience = self.topics.audience(topic);
        if audience.shards.is_empty() && audience.picks.is_empty() {
            return;
        }
        let frame = self.publications.hold(frame::encode(Opcode::Text, text.as_bytes()));
        for shard in audience.shards {
            let target = Target::Topics(audience.topics.clone());
            self.mailboxes[shard].put(Command::Publish(target, frame.clone()));
        }
        for pick in audience.picks {
            self.mailboxes[pick.connection.shard()].put(Command::Deliver(pick, frame.clone()));
        }
    }

    /// Lets a publisher go on when there is room for more.
    pub(super) fn wait_for_listeners(&self) {
        self.publications.wait(|| !self.is_running());
    }
}

impl Server {
    /// Subscribes a connection to those of `topics` (names, or patterns with `*` for any run of characters and `?` for any
    /// one) that its rules permit, to be sent what is published there; as a member of `queue_group`, to get its share of that.
    /// Returns the permitted ones; none if the connection is unknown.
    ///
    /// # Errors
    /// A topic that is empty, too long or holds control characters, or more than the connection may have. Then nothing has
    /// changed.
    pub fn subscribe(
        &self,
        connection: &str,
        topics: &[&str],
        queue_group: Option<&str>,
    ) -> Result<Vec<String>, TopicError> {
        let Some(key) = self.shared.registry.key(connection) else { return Ok(Vec::new()) };
        self.shared.topics.subscribe(key, topics, queue_group, self.shared.teller(key))
    }

    /// Ends a connection's subscriptions to `topics`, or all of them. Returns how many that were.
    pub fn unsubscribe(&self, connection: &str, topics: Option<&[&str]>) -> usize {
        let Some(key) = self.shared.registry.key(connection) else { return 0 };
        self.shared.topics.unsubscribe(key, topics, self.shared.teller(key))
    }

    /// Sets what a connection may subscribe to, in place of what its token said. Subscriptions that break the new rules end.
    /// Returns whether the connection is known.
    pub fn set_topic_acl(&self, connection: &str, acl: TopicAcl) -> bool {
        let Some(key) = self.shared.registry.key(connection) else { return false };
        self.shared.topics.set_acl(key, acl, self.shared.teller(key));
        true
    }

    /// Sends `text` to the subscribers of `topic`, with its category as field `c` where it has none. Waits first if
    /// `max_publish_backlog_bytes` is set and reached.
    pub fn broadcast(&self, topic: &str, text: &str) {
        self.shared.wait_for_listeners();
        self.shared.publish(topic, &envelope::with_category(text));
    }

    /// How many connections have subscribed to this name, or to this pattern as it is written; members of queue groups too.
    pub fn topic_subscriber_count(&self, topic: &str) -> usize {
        self.shared.topics.subscriber_count(topic)
    }

    /// The queue groups of a topic, each with its number of members.
    pub fn queue_groups(&self, topic: &str) -> HashMap<String, usize> {
        self.shared.topics.groups(topic)
    }

    /// Bytes of publications, as framed, that are in memory because not every listener has taken them.
    pub fn publish_backlog(&self) -> usize {
        self.shared.publications.bytes()
    }
}
