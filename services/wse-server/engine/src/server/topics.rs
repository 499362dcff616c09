//! Subscriptions, publications and recovery, as the owner of a server sees them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use super::Server;
use crate::{
    clock, envelope,
    frame::{self, Opcode},
    hub::Hub,
    key::ConnectionKey,
    links::{Links, Publication},
    outbound::{Chunk, Command, Mailbox, Target},
    recovery::{Log, Position, Recovered, Recovery},
    topics::{self, Change, TopicAcl, TopicError},
};

/// Messages that are framed and written as one: some hundred kilobytes of the usual ones.
const MESSAGES_AT_ONCE: usize = 1024;

/// Messages with their categories.
fn complete(texts: &[impl AsRef<str>]) -> Vec<Cow<'_, str>> {
    texts.iter().map(|text| envelope::with_category(text.as_ref())).collect()
}

impl Hub {
    /// What carries a connection's changes to its shard.
    fn teller(&self, connection: ConnectionKey) -> impl FnMut(Change) + '_ {
        // Without waiting: the topics are locked, and the shard may need them to go on.
        move |change| {
            self.mailboxes[connection.shard()].put_now(Command::Change(connection, change));
        }
    }

    /// Publishes `texts` to a topic's subscribers here and, through `links`, elsewhere, and keeps them for those who come back.
    fn publish(&self, topic: &str, texts: Vec<Cow<'_, str>>, links: Option<&Links>) {
        let hand_out = |publications: &[Publication<'_>]| {
            self.hand_out(topic, publications, Mailbox::put);
            if let Some(links) = links {
                links.publish(topic, publications);
            }
        };
        let Some(recovery) = &self.recovery else {
            let publications: Vec<_> = texts.into_iter().map(|text| Publication { text, stamp: None }).collect();
            return hand_out(&publications);
        };
        recovery.with(topic, clock::now_millis(), |log| {
            let mut stamped = |text: Cow<'_, str>| {
                if !text.starts_with('{') {
                    return Publication { text: text.into_owned().into(), stamp: None };
                }
                let text = log.stamp(topic, &text);
                log.push(frame::encode(Opcode::Text, text.as_bytes()), recovery.config.buffer_size);
                Publication { text: text.into(), stamp: Some(log.position()) }
            };
            let publications: Vec<_> = texts.into_iter().map(&mut stamped).collect();
            hand_out(&publications);
        });
    }

    /// Lets a publisher go on when there is room for more.
    pub(super) fn wait_for_listeners(&self) {
        self.publications.wait(|| !self.is_running());
    }

    /// Sends a connection what it missed of a topic whose log is locked.
    fn replay(&self, key: ConnectionKey, log: &Log, missed_from: Option<Position>, recovery: &Recovery) -> Recovered {
        let missed = missed_from.and_then(|position| log.after(position, recovery.config.max_messages));
        let (recovered, count) = (missed.is_some(), missed.as_ref().map_or(0, ExactSizeIterator::len));
        for frame in missed.into_iter().flatten() {
            self.mailboxes[key.shard()].put_now(Command::Replay(key, frame.clone()));
        }
        Recovered { position: log.position(), recovered, count }
    }

    /// Works on the log that a client's position is of, if it is another instance's and has all that the client missed.
    fn recover_foreign<T>(
        &self,
        recovery: &Recovery,
        topic: &str,
        missed_from: Option<Position>,
        replay: impl FnOnce(&mut Log) -> T,
    ) -> Option<T> {
        let position = missed_from?;
        let now_millis = clock::now_millis();
        let has_all = |log: &mut Log| log.after(position, recovery.config.max_messages).is_some();
        recovery.with_foreign(topic, position.epoch, now_millis, |log| has_all(log).then(|| replay(log)))?
    }

    /// Topics and bytes kept for recovery.
    pub(super) fn recovery_size(&self) -> (usize, usize) {
        self.recovery.as_ref().map_or((0, 0), Recovery::size)
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

    /// Subscribes a connection like [`Server::subscribe`], and sends it what it missed of each topic since `missed_from`,
    /// before anything new. Patterns are subscribed to and have no past. Returns what became of each permitted topic.
    ///
    /// # Errors
    /// As [`Server::subscribe`]; topics before the refused one stay subscribed.
    pub fn subscribe_with_recovery(
        &self,
        connection: &str,
        topics: &[&str],
        missed_from: Option<Position>,
    ) -> Result<BTreeMap<String, Option<Recovered>>, TopicError> {
        let shared = &self.shared;
        let mut outcomes = BTreeMap::new();
        let Some(key) = shared.registry.key(connection) else { return Ok(outcomes) };
        topics.iter().try_for_each(|topic| topics::check(topic))?;
        for topic in topics {
            let subscribe = || shared.topics.subscribe(key, &[topic], None, shared.teller(key));
            let outcome = match shared.recovery.as_ref().filter(|_| !topics::is_pattern(topic)) {
                None => subscribe()?.pop().map(|topic| (topic, None)),
                Some(recovery) => {
                    let replay = |log: &mut Log| {
                        let permitted = subscribe()?.pop();
                        Ok(permitted.map(|topic| (topic, Some(shared.replay(key, log, missed_from, recovery)))))
                    };
                    match shared.recover_foreign(recovery, topic, missed_from, replay) {
                        Some(recovered) => recovered?,
                        None => recovery.with(topic, clock::now_millis(), replay)?,
                    }
                }
            };
            outcomes.extend(outcome);
        }
        Ok(outcomes)
    }

    /// Ends a connection's subscriptions to `topics`, or all of them. Returns how many that were.
    pub fn unsubscribe(&self, connection: &str, topics: Option<&[&str]>) -> usize {
        let Some(key) = self.shared.registry.key(connection) else { return 0 };
        let ended = self.shared.topics.unsubscribe(key, topics, self.shared.teller(key));
        if let Some(presence) = &self.shared.presence {
            presence.leave(key, topics, self.shared.herald(key));
        }
        ended
    }

    /// Sets what a connection may subscribe to, in place of what its token said. Subscriptions that break the new rules end.
    /// Returns whether the connection is known.
    pub fn set_topic_acl(&self, connection: &str, acl: TopicAcl) -> bool {
        let Some(key) = self.shared.registry.key(connection) else { return false };
        self.shared.topics.set_acl(key, acl, self.shared.teller(key));
        true
    }

    /// Sends `text` to the subscribers of `topic`, of all connected instances, with its category as field `c` where it has none. Waits first if
    /// `max_publish_backlog_bytes` is set and reached.
    pub fn broadcast(&self, topic: &str, text: &str) {
        self.broadcast_many(topic, &[text]);
    }

    /// Sends `texts` to the subscribers of `topic`, as [`Server::broadcast`] does with each, for less than each would cost:
    /// what comes together is written together.
    pub fn broadcast_many(&self, topic: &str, texts: &[impl AsRef<str>]) {
        self.publish_in_parts(topic, texts, Some(&self.shared.links));
    }

    /// Sends `text` to the subscribers of `topic` that this instance has; otherwise like [`Server::broadcast`].
    pub fn broadcast_local(&self, topic: &str, text: &str) {
        self.publish_in_parts(topic, &[text], None);
    }

    fn publish_in_parts(&self, topic: &str, texts: &[impl AsRef<str>], links: Option<&Links>) {
        for texts in texts.chunks(MESSAGES_AT_ONCE) {
            self.shared.wait_for_listeners();
            self.shared.publish(topic, complete(texts), links);
        }
    }

    /// How many other instances want what is published to `topic`, as far as is known. May wait for an answer.
    pub fn topic_interest(&self, topic: &str) -> usize {
        self.shared.links.audience(topic)
    }

    /// Sends `text` to all connections, with its category as field `c` where it has none. Waits first if
    /// `max_publish_backlog_bytes` is set and reached.
    pub fn broadcast_all(&self, text: &str) {
        self.broadcast_all_many(&[text]);
    }

    /// Sends `texts` to all connections, as [`Server::broadcast_all`] does with each, for less than each would cost.
    pub fn broadcast_all_many(&self, texts: &[impl AsRef<str>]) {
        for texts in texts.chunks(MESSAGES_AT_ONCE) {
            let texts = complete(texts);
            self.publish_to_all(|| self.shared.framed(texts.iter().map(AsRef::as_ref)));
        }
    }

    /// Sends `bytes` to all connections as one binary message; otherwise like [`Server::broadcast_all`].
    pub fn broadcast_all_bytes(&self, bytes: &[u8]) {
        let frame = || self.shared.publications.hold(frame::encode(Opcode::Binary, bytes));
        self.publish_to_all(|| Chunk::shared(frame(), 1));
    }

    fn publish_to_all(&self, chunk: impl FnOnce() -> Chunk) {
        self.shared.wait_for_listeners();
        let chunk = chunk();
        for mailbox in &self.shared.mailboxes {
            mailbox.put(Command::Publish(Target::All, chunk.clone()));
        }
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
