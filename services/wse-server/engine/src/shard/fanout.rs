//! Writes publications to a shard's subscribers, joined where there are many at once.

use bytes::{Bytes, BytesMut};

use super::Shard;
use crate::{
    config::Delivery,
    connection::{Connection, Phase},
    inbound::Kind,
    key::ConnectionKey,
    outbound::{Chunk, Command, Target},
    priority::Level,
    publications::Publications,
    stats::SendDropReason,
    topics::{Pick, SubscriptionChange},
};

/// Publications are joined up to this many bytes: one write instead of many.
const JOINED_BYTES: usize = 256 << 10;

impl Shard {
    /// Writes the joined publications to their subscribers.
    pub(super) fn publish(&mut self, joined: &mut Joined) {
        let Some((target, chunk)) = joined.take(&self.core.shared.publications) else { return };
        match target {
            Target::All => {
                for slot in 0..self.table.slots() {
                    if let Some(connection) = self.table.take_slot(slot) {
                        self.publish_to(connection, &chunk);
                    }
                }
            }
            Target::Topics(topics) => {
                let listeners = self.audiences.take(&topics);
                for key in &listeners {
                    if let Some(connection) = self.table.take(*key) {
                        self.publish_to(connection, &chunk);
                    }
                }
                self.audiences.put_back(&topics, listeners);
            }
        }
    }

    #[inline]
    fn publish_to(&mut self, mut connection: Box<Connection>, chunk: &Chunk) {
        if connection.phase == Phase::Open {
            self.core.publish(&mut connection, &chunk.bytes, chunk.messages);
        }
        // If the connection failed, the next read finds out and removes it.
        self.table.put(connection);
    }

    /// Queues a message for a member of a queue group; if that member can't take it, another one is tried.
    pub(super) fn deliver(&mut self, pick: Pick, frame: Bytes, dirty: &mut Vec<ConnectionKey>) {
        let connection = self.table.get_mut(pick.connection).filter(|connection| connection.phase == Phase::Open);
        let reason = match connection {
            Some(connection) if !self.core.is_over_limit(connection) => {
                return self.queue_sealed(pick.connection, frame, dirty);
            }
            Some(_) => SendDropReason::SlowConsumer,
            None => SendDropReason::Disconnected,
        };
        match self.core.shared.topics.next_pick(&pick) {
            // Doesn't wait: shards that waited for each other would do so for ever.
            Some(next) => self.core.shared.mailboxes[next.connection.shard()].put_now(Command::Deliver(next, frame)),
            None => {
                self.core.counters.send_dropped[reason as usize] += 1;
                self.core.counters.slow_by_level[Level::Normal as usize] +=
                    u64::from(reason == SendDropReason::SlowConsumer);
                false
            }
        };
    }

    /// Applies a change of a connection's subscriptions to this shard's lists.
    pub(super) fn resubscribe(&mut self, key: ConnectionKey, change: SubscriptionChange) {
        match self.table.get_mut(key) {
            Some(connection) => {
                connection.is_subscriber = true;
                self.audiences.change(key, change);
            }
            // The connection was closed meanwhile, so its subscriptions are removed here.
            None => self.core.shared.end_subscriptions(key),
        }
    }

    /// Notifies the application that a user joined or left, if the application takes messages.
    pub(super) fn push_presence_event(&mut self, kind: Kind, detail: &str) {
        if self.core.shared.config.delivery == Delivery::Queue {
            self.core.intake.push_event(kind, ConnectionKey::from_u64(u64::MAX), "", detail.as_bytes());
        }
    }

    /// Removes the subscriptions of a connection that is about to be removed. Sends and closes nothing.
    pub(super) fn end_subscriptions(&mut self, connection: &Connection) {
        if connection.is_subscriber {
            self.audiences.forget(connection.key);
            self.core.shared.end_subscriptions(connection.key);
        }
    }
}

/// Consecutive publications for the same subscribers, joined into one.
#[derive(Default)]
pub(super) struct Joined {
    target: Option<Target>,
    /// The first publication, as it came, while it is the only one.
    first: Option<Chunk>,
    bytes: BytesMut,
    messages: u32,
}

impl Joined {
    /// Whether a publication for `target` may be added.
    pub(super) fn accepts(&self, target: &Target) -> bool {
        self.bytes.len() < JOINED_BYTES && self.target.as_ref().is_none_or(|mine| mine == target)
    }

    pub(super) fn push(&mut self, target: Target, chunk: Chunk) {
        if self.target.is_none() {
            self.target = Some(target);
            self.first = Some(chunk);
            return;
        }
        for chunk in self.first.take().into_iter().chain([chunk]) {
            self.bytes.extend_from_slice(&chunk.bytes);
            self.messages += chunk.messages;
        }
    }

    fn take(&mut self, publications: &Publications) -> Option<(Target, Chunk)> {
        let target = self.target.take()?;
        let messages = std::mem::take(&mut self.messages);
        let joined = || Chunk::shared(publications.track(self.bytes.split().freeze()), messages);
        Some((target, self.first.take().unwrap_or_else(joined)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn take(joined: &mut Joined) -> Option<(Target, Chunk)> {
        joined.take(&Publications::new(0))
    }

    #[test]
    fn one_publication_is_shared_and_several_are_joined_in_order() {
        let mut joined = Joined::default();
        assert!(take(&mut joined).is_none());
        let frame = Bytes::from_static(b"one");
        joined.push(Target::All, Chunk::shared(frame.clone(), 1));
        let (_, alone) = take(&mut joined).unwrap();
        assert_eq!((alone.bytes.as_ptr(), alone.messages), (frame.as_ptr(), 1));
        for (text, messages) in [("one", 1), ("twothree", 2), ("four", 1)] {
            joined.push(Target::All, Chunk::shared(Bytes::from_static(text.as_bytes()), messages));
        }
        let (_, chunk) = take(&mut joined).unwrap();
        assert_eq!((chunk.bytes.as_ref(), chunk.messages), (b"onetwothreefour".as_slice(), 4));
        assert!(take(&mut joined).is_none());
    }

    #[test]
    fn only_publications_for_the_same_subscribers_are_joined() {
        let topics = |ids: &[u64]| Target::Topics(Arc::from(ids));
        let mut joined = Joined::default();
        assert!(joined.accepts(&Target::All));
        joined.push(topics(&[1, 2]), Chunk::shared(Bytes::from_static(b"x"), 1));
        assert!(joined.accepts(&topics(&[1, 2])) && !joined.accepts(&topics(&[1])) && !joined.accepts(&Target::All));
    }
}
