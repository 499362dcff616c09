//! Publications on their way to those who listen here.

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
    /// Publishes what came from another instance to a topic's subscribers here. Never waits: who calls it looks whether there
    /// is room ([`Hub::is_congested`]) before.
    pub(crate) fn receive(&self, topic: &str, publications: &[Publication<'_>]) {
        self.hand_out(topic, publications, Mailbox::put_now);
    }

    /// The same, and keeps what `origin` stamped for those who come back.
    pub(crate) fn receive_and_keep(&self, origin: &Arc<str>, topic: &str, publications: &[Publication<'_>]) {
        let Some(recovery) = &self.recovery else { return self.receive(topic, publications) };
        let epoch = |publication: &Publication<'_>| publication.stamp.map(|stamp| stamp.epoch);
        for run in publications.chunk_by(|one, other| epoch(one) == epoch(other)) {
            let Some(epoch) = epoch(&run[0]) else {
                self.receive(topic, run);
                continue;
            };
            recovery.keep(origin, topic, epoch, clock::now_millis(), |log| {
                for Publication { text, stamp } in run {
                    let frame = frame::encode(Opcode::Text, text.as_bytes());
                    log.follow(stamp.map_or(0, |stamp| stamp.offset), frame, recovery.config.buffer_size);
                }
                // With the log locked: who asks for the past gets the rest behind it.
                self.receive(topic, run);
            });
        }
    }

    /// Whether listeners here have so much to take that what comes from elsewhere has to wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.publications.is_full_here() || self.mailboxes.iter().any(Mailbox::is_full)
    }

    /// Hands messages to the shards of a topic's subscribers: for each listener, and for one member of each queue group.
    pub(crate) fn hand_out(
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
        // Each message has its turn; those of the first were taken with the audience.
        let mut picks = audience.picks;
        for (index, text) in texts.enumerate() {
            if index > 0 {
                picks = self.topics.picks(&audience.topics);
            }
            if picks.is_empty() {
                break;
            }
            let frame = self.publications.hold(frame::encode(Opcode::Text, text.as_bytes()));
            for pick in picks.drain(..) {
                put(&self.mailboxes[pick.connection.shard()], Command::Deliver(pick, frame.clone()));
            }
        }
    }

    /// Texts as frames back to back, which count as backlog while anyone has them.
    pub(crate) fn framed<'a>(&self, texts: impl Iterator<Item = &'a str> + Clone) -> Chunk {
        let length: usize = texts.clone().map(|text| text.len() + frame::MAXIMAL_HEADER).sum();
        let (mut frames, mut messages) = (BytesMut::with_capacity(length), 0);
        for text in texts {
            frame::put(&mut frames, Opcode::Text, text.as_bytes());
            messages += 1;
        }
        Chunk::shared(self.publications.hold(frames.freeze()), messages)
    }
}
