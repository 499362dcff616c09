//! The path of publications to the subscribers of this instance.

use std::sync::Arc;

use bytes::BytesMut;

use super::Hub;
use crate::{
    clock,
    frame::{self, Opcode},
    links::Publication,
    outbound::{Chunk, Command, Mailbox, Target},
};

impl Hub {
    /// Publishes what arrived from another instance to a topic's subscribers here. Never waits: the caller checks
    /// beforehand whether there is room ([`Hub::is_congested`]).
    pub(crate) fn receive(&self, topic: &str, publications: &[Publication<'_>]) {
        self.dispatch(topic, publications, Mailbox::put_now);
    }

    /// Does the same as [`Hub::receive`], and keeps what `origin` stamped for clients that reconnect.
    pub(crate) fn receive_and_store(&self, origin: &Arc<str>, topic: &str, publications: &[Publication<'_>]) {
        let Some(recovery) = &self.recovery else { return self.receive(topic, publications) };
        let epoch = |publication: &Publication<'_>| publication.stamp.map(|stamp| stamp.epoch);
        for run in publications.chunk_by(|one, other| epoch(one) == epoch(other)) {
            let Some(epoch) = epoch(&run[0]) else {
                self.receive(topic, run);
                continue;
            };
            recovery.store(origin, topic, epoch, clock::now_millis(), |log| {
                for Publication { text, stamp } in run {
                    let frame = frame::encode(Opcode::Text, text.as_bytes());
                    log.follow(stamp.map_or(0, |stamp| stamp.offset), frame, recovery.config.buffer_size);
                }
                // The log stays locked: a client that recovers gets the rest after what it missed.
                self.receive(topic, run);
            });
        }
    }

    /// Whether subscribers here have so much to take that publications from other instances have to wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.publications.is_full_locally() || self.mailboxes.iter().any(Mailbox::is_full)
    }

    /// Hands messages to the shards of a topic's subscribers: to each subscriber, and to one member of each queue
    /// group.
    pub(crate) fn dispatch(
        &self,
        topic: &str,
        publications: &[Publication<'_>],
        put: impl Fn(&Mailbox, Command) -> bool,
    ) {
        let audience = self.topics.audience(topic, publications.len() as u64);
        let texts = publications.iter().map(|publication| &*publication.text);
        if !audience.shards.is_empty() {
            let chunk = self.framed(texts.clone());
            for shard in audience.shards {
                let target = Target::Topics(audience.topics.clone());
                put(&self.mailboxes[shard], Command::Publish(target, chunk.clone()));
            }
        }
        // Each message has its own turn in the groups; the members for the first one were picked with the audience.
        let mut picks = audience.picks;
        for (index, text) in texts.enumerate() {
            if index > 0 {
                picks = self.topics.picks(&audience.topics);
            }
            if picks.is_empty() {
                break;
            }
            let frame = self.publications.track(frame::encode(Opcode::Text, text.as_bytes()));
            for pick in picks.drain(..) {
                put(&self.mailboxes[pick.connection.shard()], Command::Deliver(pick, frame.clone()));
            }
        }
    }

    /// Encodes texts as frames back to back. They count as backlog for as long as they are in memory.
    pub(crate) fn framed<'a>(&self, texts: impl Iterator<Item = &'a str> + Clone) -> Chunk {
        let length: usize = texts.clone().map(|text| text.len() + frame::MAX_HEADER).sum();
        let (mut frames, mut messages) = (BytesMut::with_capacity(length), 0);
        for text in texts {
            frame::put(&mut frames, Opcode::Text, text.as_bytes());
            messages += 1;
        }
        Chunk::shared(self.publications.track(frames.freeze()), messages)
    }
}
