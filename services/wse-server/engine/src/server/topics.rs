//! The part of the server's API for subscriptions, publications and recovery.

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
    topics::{self, SubscriptionChange, TopicAcl, TopicError},
};

/// Messages that are framed and written together: some hundred kilobytes at the usual sizes.
const MESSAGES_AT_ONCE: usize = 1024;

/// Adds its category to each message.
fn complete(texts: &[impl AsRef<str>]) -> Vec<Cow<'_, str>> {
    texts.iter().map(|text| envelope::with_category(text.as_ref())).collect()
}

impl Hub {
    /// Returns a callback that sends changes of a connection's subscriptions to its shard.
    fn change_sender(&self, connection: ConnectionKey) -> impl FnMut(SubscriptionChange) + '_ {
        // Doesn't wait: the topics are locked, and the shard may need that lock to go on.
        move |change| {
            self.mailboxes[connection.shard()].put_now(Command::SubscriptionChange(connection, change));
        }
    }

    /// Publishes `texts` to a topic's subscribers here and, through `links`, on other instances, and keeps them for
    /// recovery.
    fn publish(&self, topic: &str, texts: Vec<Cow<'_, str>>, links: Option<&Links>) {
        let dispatch = |publications: &[Publication<'_>]| {
            self.dispatch(topic, publications, Mailbox::put);
            if let Some(links) = links {
                links.publish(topic, publications);
            }
        };
        let Some(recovery) = &self.recovery else {
            let publications: Vec<_> = texts.into_iter().map(|text| Publication { text, stamp: None }).collect();
            return dispatch(&publications);
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
            dispatch(&publications);
        });
    }

    /// Makes a publisher wait while the backlog of publications is too large.
    pub(super) fn wait_for_backlog(&self) {
        self.publications.wait(|| !self.is_running());
    }

    /// Sends a connection what it missed of a topic. The topic's log is locked meanwhile.
    fn replay(&self, key: ConnectionKey, log: &Log, missed_from: Option<Position>, recovery: &Recovery) -> Recovered {
        let missed = missed_from.and_then(|position| log.after(position, recovery.config.max_messages));
        let (recovered, count) = (missed.is_some(), missed.as_ref().map_or(0, ExactSizeIterator::len));
        for frame in missed.into_iter().flatten() {
            self.mailboxes[key.shard()].put_now(Command::Replay(key, frame.clone()));
        }
        Recovered { position: log.position(), recovered, count }
    }

    /// Runs `replay` with the log that a client's position belongs to, if another instance stamped it and everything
    /// that the client missed is in it.
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

    /// How many topics have logs, and how many bytes they take.
    pub(super) fn recovery_size(&self) -> (usize, usize) {
        self.recovery.as_ref().map_or((0, 0), Recovery::size)
    }
}

impl Server {
    /// Subscribes a connection to those of `topics` that its rules permit. A topic is a name or a pattern, in which `*`
    /// stands for any run of characters and `?` for any one. With a `queue_group` the connection gets its share of the
    /// publications, otherwise all of them. Returns the permitted topics; none if the connection is unknown.
    ///
    /// # Errors
    /// Returns a [`TopicError`] if a name is empty, too long or has control characters, or if the connection would have
    /// too many subscriptions. Nothing has changed then.
    pub fn subscribe(
        &self,
        connection: &str,
        topics: &[&str],
        queue_group: Option<&str>,
    ) -> Result<Vec<String>, TopicError> {
        let Some(key) = self.shared.registry.key(connection) else { return Ok(Vec::new()) };
        self.shared.topics.subscribe(key, topics, queue_group, self.shared.change_sender(key))
    }

    /// Subscribes a connection as [`Server::subscribe`] does, and sends it what it missed of each topic since
    /// `missed_from` before anything new. Patterns are subscribed to without recovery. Returns the outcome of each
    /// permitted topic, which is `None` where nothing can be recovered.
    ///
    /// # Errors
    /// The same as [`Server::subscribe`]; topics before the refused one stay subscribed.
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
            let subscribe = || shared.topics.subscribe(key, &[topic], None, shared.change_sender(key));
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

    /// Ends a connection's subscriptions to `topics`; `None` means to all. Returns how many ended.
    pub fn unsubscribe(&self, connection: &str, topics: Option<&[&str]>) -> usize {
        let Some(key) = self.shared.registry.key(connection) else { return 0 };
        let ended = self.shared.topics.unsubscribe(key, topics, self.shared.change_sender(key));
        if let Some(presence) = &self.shared.presence {
            presence.leave(key, topics, self.shared.presence_notifier(key));
        }
        ended
    }

    /// Replaces the rules for a connection's topics, which its token may have set. Subscriptions that the new rules
    /// don't permit end. Returns whether the connection is known.
    pub fn set_topic_acl(&self, connection: &str, acl: TopicAcl) -> bool {
        let Some(key) = self.shared.registry.key(connection) else { return false };
        self.shared.topics.set_acl(key, acl, self.shared.change_sender(key));
        true
    }

    /// Sends `text` to the subscribers of `topic` on all linked instances. A text without a category gets one in its
    /// field `c`. Waits first if `max_publish_backlog_bytes` is set and reached.
    pub fn broadcast(&self, topic: &str, text: &str) {
        self.broadcast_many(topic, &[text]);
    }

    /// Sends each of `texts` to the subscribers of `topic`, as [`Server::broadcast`] does, but at a lower cost: they
    /// are written together.
    pub fn broadcast_many(&self, topic: &str, texts: &[impl AsRef<str>]) {
        self.publish_in_parts(topic, texts, Some(&self.shared.links));
    }

    /// Sends `text` to the subscribers of `topic` on this instance alone; otherwise the same as [`Server::broadcast`].
    pub fn broadcast_local(&self, topic: &str, text: &str) {
        self.publish_in_parts(topic, &[text], None);
    }

    fn publish_in_parts(&self, topic: &str, texts: &[impl AsRef<str>], links: Option<&Links>) {
        for texts in texts.chunks(MESSAGES_AT_ONCE) {
            self.shared.wait_for_backlog();
            self.shared.publish(topic, complete(texts), links);
        }
    }

    /// How many peers and other Redis connections are subscribed to `topic`, as far as is known. Pattern subscriptions
    /// in Redis aren't counted. May wait for a reply.
    pub fn topic_interest(&self, topic: &str) -> usize {
        self.shared.links.audience(topic)
    }

    /// Sends `text` to all connections. A text without a category gets one in its field `c`. Waits first if
    /// `max_publish_backlog_bytes` is set and reached.
    pub fn broadcast_all(&self, text: &str) {
        self.broadcast_all_many(&[text]);
    }

    /// Sends each of `texts` to all connections, as [`Server::broadcast_all`] does, but at a lower cost.
    pub fn broadcast_all_many(&self, texts: &[impl AsRef<str>]) {
        for texts in texts.chunks(MESSAGES_AT_ONCE) {
            let texts = complete(texts);
            self.publish_to_all(|| self.shared.framed(texts.iter().map(AsRef::as_ref)));
        }
    }

    /// Sends `bytes` to all connections as one binary message; otherwise the same as [`Server::broadcast_all`].
    pub fn broadcast_all_bytes(&self, bytes: &[u8]) {
        let frame = || self.shared.publications.track(frame::encode(Opcode::Binary, bytes));
        self.publish_to_all(|| Chunk::shared(frame(), 1));
    }

    fn publish_to_all(&self, chunk: impl FnOnce() -> Chunk) {
        self.shared.wait_for_backlog();
        let chunk = chunk();
        for mailbox in &self.shared.mailboxes {
            mailbox.put(Command::Publish(Target::All, chunk.clone()));
        }
    }

    /// How many connections are subscribed to this name, or to exactly this pattern, including members of queue groups.
    pub fn topic_subscriber_count(&self, topic: &str) -> usize {
        self.shared.topics.subscriber_count(topic)
    }

    /// The queue groups of a topic, each with its number of members.
    pub fn queue_groups(&self, topic: &str) -> HashMap<String, usize> {
        self.shared.topics.groups(topic)
    }

    /// Bytes of publications, with frame headers, that are in memory because a subscriber or another instance hasn't
    /// taken them.
    pub fn publish_backlog(&self) -> usize {
        self.shared.publications.bytes()
    }
}
