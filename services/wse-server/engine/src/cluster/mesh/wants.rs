//! Reports the subscriptions of this instance to its peers: each change in order, and at intervals the whole list.

use std::time::Instant;

use super::Mesh;
use crate::{
    cluster::{
        frame::{self, Kind},
        hello::ROUTING,
        peer::{Link, Peer},
    },
    lock::lock,
};

impl Mesh {
    /// Implements [`crate::links::Carrier::want`].
    pub(in crate::cluster) fn want_topic(&self, topic: &str, wanted: bool) {
        // Locked until the peers' queues have the frame: a whole list comes before or after a change, not in between.
        let mut wants = lock(&self.wants);
        if wanted {
            if wants.add(topic) {
                self.tell_all(ROUTING, &frame::encode(Kind::Subscribe, 0, topic.as_bytes(), b""));
            }
            return;
        }
        let linger = self.linger(topic);
        match wants.topics.get_mut(topic) {
            Some(end) if linger.is_some() => *end = linger,
            Some(_) => {
                wants.topics.remove(topic);
                self.tell_all(ROUTING, &frame::encode(Kind::Unsubscribe, 0, topic.as_bytes(), b""));
            }
            None => {}
        }
    }

    /// Ends the subscriptions that were kept only for recovery and whose time is over.
    pub(in crate::cluster) fn end_lingering(&self) {
        let now = Instant::now();
        let mut forgotten = Vec::new();
        {
            let mut wants = lock(&self.wants);
            let is_over = |end: &Option<Instant>| end.is_some_and(|end| end <= now);
            let over: Vec<_> =
                wants.topics.iter().filter(|(_, end)| is_over(end)).map(|(topic, _)| topic.clone()).collect();
            for topic in over {
                wants.topics.remove(&topic);
                forgotten.extend(self.forget_past(&topic));
                self.tell_all(ROUTING, &frame::encode(Kind::Unsubscribe, 0, topic.as_bytes(), b""));
            }
        }
        // Without the lock, because a thread that works on these logs may wait for it.
        for (shared, forgotten) in forgotten {
            if let Some(recovery) = &shared.recovery {
                recovery.end(forgotten);
            }
        }
    }

    /// Sends the list of all subscriptions to all peers again.
    pub(in crate::cluster) fn resync(&self) {
        let wants = lock(&self.wants);
        for frame in wants.frames() {
            self.tell_all(ROUTING, &frame);
        }
    }

    /// Makes `link` the owner of the peer's queue. Its first frames report this instance's subscriptions and address,
    /// and the known addresses.
    pub(super) fn greet(&self, peer: &Peer, link: &Link) {
        let wants = lock(&self.wants);
        let mut greeting = if link.capabilities & ROUTING != 0 { wants.frames() } else { Vec::new() };
        greeting.extend(self.advertised.iter().map(|own| frame::encode(Kind::Announce, 0, own.as_bytes(), b"")));
        greeting.push(self.directory());
        let mut queue = lock(&peer.queue);
        let was_away = queue.owner().is_none();
        queue.assign(Some(link.id), greeting);
        if was_away {
            self.publications.charge(queue.bytes());
        }
    }
}
