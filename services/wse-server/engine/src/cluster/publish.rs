//! From publishers to the peers' queues, on the publishers' threads. Each publication is encoded once for all peers
//! with the same capabilities. Never waits.

use bytes::{Bytes, BytesMut};

use super::{
    compression,
    counters::DropReason,
    frame::{self, COMPRESSED, Kind, LARGEST},
    hello::{COMPRESSION, RECOVERY},
    mesh::Mesh,
    routes::Route,
};
use crate::{
    links::{Carrier, Publication},
    lock::lock,
    presence_change::PresenceChange,
};

/// The capabilities that decide how frames are encoded.
const VARIANTS: u32 = COMPRESSION | RECOVERY;

impl Carrier for Mesh {
    fn publish(&self, topic: &str, publications: &[Publication<'_>]) {
        let routes = self.routes.for_topic(topic, || self.peers());
        if routes.is_empty() {
            return self.counters.drop(DropReason::Unwanted, publications.len() as u64);
        }
        // Split into runs that fit into a frame and runs that don't, because numbers are given in order.
        for run in publications.chunk_by(|one, other| fits(topic, one) == fits(topic, other)) {
            self.enqueue_publications(&routes, topic, run);
        }
    }

    fn set_interest(&self, topic: &str, is_interested: bool) {
        self.set_topic_interest(topic, is_interested);
    }

    fn notify_change(&self, change: &PresenceChange) {
        self.send_presence_update(change);
    }

    fn audience(&self, topic: &str) -> usize {
        let is_linked = |peer: &&std::sync::Arc<super::peer::Peer>| peer.link().is_some();
        let peers = self.peers();
        peers.iter().filter(is_linked).filter(|peer| lock(&peer.interest).is_subscribed(topic)).count()
    }
}

fn fits(topic: &str, publication: &Publication<'_>) -> bool {
    frame::fits(topic.as_bytes(), publication.text.as_bytes())
}

impl Mesh {
    /// Puts a run of publications into the peers' queues, all or none. A run that doesn't fit into frames is dropped
    /// and kept as dead letters.
    fn enqueue_publications(&self, routes: &[Route], topic: &str, run: &[Publication<'_>]) {
        let all_fit = fits(topic, &run[0]);
        let messages = run.len() as u64;
        let mut written: Vec<(u32, Bytes)> = Vec::new();
        for Route { peer, capabilities } in routes {
            let variant = capabilities & VARIANTS;
            if !all_fit {
                lock(&peer.queue).count_dropped(DropReason::TooBig, messages);
                self.add_unqueued_dead_letters(peer, dead_letters(topic, run), DropReason::TooBig);
                continue;
            }
            let encoded = written.iter().find(|(encoded, _)| *encoded == variant).map(|(_, frames)| frames.clone());
            let frames = encoded.unwrap_or_else(|| {
                let frames = encode(topic, run, variant);
                written.push((variant, frames.clone()));
                frames
            });
            let (has_room, was_idle) = {
                let mut queue = lock(&peer.queue);
                let was_idle = queue.is_idle();
                let has_room = queue.push(&frames, messages);
                if has_room && queue.owner().is_some() {
                    self.publications.charge(frames.len());
                }
                (has_room, was_idle)
            };
            if was_idle {
                peer.wake.notify_one();
            }
            if !has_room {
                self.add_unqueued_dead_letters(peer, dead_letters(topic, run), DropReason::Overflow);
            }
        }
    }
}

fn dead_letters(topic: &str, run: &[Publication<'_>]) -> impl ExactSizeIterator<Item = (String, String)> {
    run.iter().map(move |publication| (topic.to_owned(), truncated(&publication.text)))
}

/// The part of a text that would fit into a frame: a dead letter keeps no more, however large the publication is.
fn truncated(text: &str) -> String {
    text[..text.floor_char_boundary(LARGEST)].to_owned()
}

/// Encodes publications as frames, back to back.
fn encode(topic: &str, run: &[Publication<'_>], variant: u32) -> Bytes {
    let stamp = |publication: &Publication<'_>| publication.stamp.filter(|_| variant & RECOVERY != 0);
    let (topic, text) = (topic.as_bytes(), |publication: &Publication<'_>| publication.text.len());
    let maximum = run.iter().map(|publication| text(publication) + frame::size(topic, b"", publication.stamp)).sum();
    let mut frames = BytesMut::with_capacity(maximum);
    for publication in run {
        let (text, stamp) = (publication.text.as_bytes(), stamp(publication));
        let is_compressed = variant & COMPRESSION != 0
            && compression::compress(text, |compressed| {
                frame::put(&mut frames, Kind::Message, COMPRESSED, topic, compressed, stamp);
            });
        if !is_compressed {
            frame::put(&mut frames, Kind::Message, 0, topic, text, stamp);
        }
    }
    frames.freeze()
}
