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
    presence_change::Change,
};

/// The capabilities that decide how frames are encoded.
const VARIANTS: u32 = COMPRESSION | RECOVERY;

impl Carrier for Mesh {
    fn publish(&self, topic: &str, publications: &[Publication<'_>]) {
        let routes = self.routes.of(topic, || self.peers());
        if routes.is_empty() {
            return self.counters.drop(DropReason::Unwanted, publications.len() as u64);
        }
        // Split into runs that fit into a frame and runs that don't, because numbers are given in order.
        for run in publications.chunk_by(|one, other| fits(topic, one) == fits(topic, other)) {
            self.post(&routes, topic, run);
        }
    }

    fn want(&self, topic: &str, wanted: bool) {
        self.want_topic(topic, wanted);
    }

    fn tell_change(&self, change: &Change) {
        self.spread_change(change);
    }

    fn audience(&self, topic: &str) -> usize {
        let is_there = |peer: &&std::sync::Arc<super::peer::Peer>| peer.link().is_some();
        let peers = self.peers();
        peers.iter().filter(is_there).filter(|peer| lock(&peer.interest).says(topic)).count()
    }
}

fn fits(topic: &str, publication: &Publication<'_>) -> bool {
    frame::fits(topic.as_bytes(), publication.text.as_bytes())
}

impl Mesh {
    /// Puts a run of publications into the peers' queues, all or none. A run that doesn't fit into frames is dropped
    /// and kept as dead letters.
    fn post(&self, routes: &[Route], topic: &str, run: &[Publication<'_>]) {
        let do_fit = fits(topic, &run[0]);
        let messages = run.len() as u64;
        let mut written: Vec<(u32, Bytes)> = Vec::new();
        for Route { peer, capabilities } in routes {
            let variant = capabilities & VARIANTS;
            if !do_fit {
                lock(&peer.queue).miss(DropReason::TooBig, messages);
                self.drop_now(peer, letters(topic, run), DropReason::TooBig);
                continue;
            }
            let known = written.iter().find(|(known, _)| *known == variant).map(|(_, frames)| frames.clone());
            let frames = known.unwrap_or_else(|| {
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
                self.drop_now(peer, letters(topic, run), DropReason::Overflow);
            }
        }
    }
}

fn letters(topic: &str, run: &[Publication<'_>]) -> impl ExactSizeIterator<Item = (String, String)> {
    run.iter().map(move |publication| (topic.to_owned(), beginning(&publication.text)))
}

/// The part of a text that would fit into a frame: a dead letter keeps no more, however large the publication is.
fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(LARGEST)].to_owned()
}

/// Encodes publications as frames, back to back.
fn encode(topic: &str, run: &[Publication<'_>], variant: u32) -> Bytes {
    let stamp = |publication: &Publication<'_>| publication.stamp.filter(|_| variant & RECOVERY != 0);
    let (topic, text) = (topic.as_bytes(), |publication: &Publication<'_>| publication.text.len());
    let most = run.iter().map(|publication| text(publication) + frame::size(topic, b"", publication.stamp)).sum();
    let mut frames = BytesMut::with_capacity(most);
    for publication in run {
        let (text, stamp) = (publication.text.as_bytes(), stamp(publication));
        let is_shortened = variant & COMPRESSION != 0
            && compression::shorten(text, |short| {
                frame::put(&mut frames, Kind::Message, COMPRESSED, topic, short, stamp);
            });
        if !is_shortened {
            frame::put(&mut frames, Kind::Message, 0, topic, text, stamp);
        }
    }
    frames.freeze()
}
