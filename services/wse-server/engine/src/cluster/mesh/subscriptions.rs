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
    /// Implements [`crate::links::Carrier::set_interest`].
    pub(in crate::cluster) fn set_topic_interest(&self, topic: &str, is_interested: bool) {
        // Locked until the peers' queues have the frame: a whole list comes before or after a change, not in between.
        let mut subscriptions = lock(&self.subscriptions);
        if is_interested {
            if subscriptions.add(topic) {
                self.send_to_all(ROUTING, &frame::encode(Kind::Subscribe, 0, topic.as_bytes(), b""));
            }
            return;
        }
        let linger_deadline = self.linger_deadline(topic);
        match subscriptions.topics.get_mut(topic) {
            Some(end) if linger_deadline.is_some() => *end = linger_deadline,
            Some(_) => {
                subscriptions.topics.remove(topic);
                self.send_to_all(ROUTING, &frame::encode(Kind::Unsubscribe, 0, topic.as_bytes(), b""));
            }
            None => {}
        }
    }

    /// Ends the subscriptions that were kept only for recovery and whose time is over.
    pub(in crate::cluster) fn end_lingering_subscriptions(&self) {
        let now = Instant::now();
        let mut removed_logs = Vec::new();
        {
            let mut subscriptions = lock(&self.subscriptions);
            let is_expired = |end: &Option<Instant>| end.is_some_and(|end| end <= now);
            let expired: Vec<_> = subscriptions
                .topics
                .iter()
                .filter(|(_, end)| is_expired(end))
                .map(|(topic, _)| topic.clone())
                .collect();
            for topic in expired {
                subscriptions.topics.remove(&topic);
                removed_logs.extend(self.take_topic_history(&topic));
                self.send_to_all(ROUTING, &frame::encode(Kind::Unsubscribe, 0, topic.as_bytes(), b""));
            }
        }
        // Without the lock, because a thread that works on these logs may wait for it.
        for (shared, removed_logs) in removed_logs {
            if let Some(recovery) = &shared.recovery {
                recovery.end(removed_logs);
            }
        }
    }

    /// Sends the list of all subscriptions to all peers again.
    pub(in crate::cluster) fn resync(&self) {
        let subscriptions = lock(&self.subscriptions);
        for frame in subscriptions.frames() {
            self.send_to_all(ROUTING, &frame);
        }
    }

    /// Makes `link` the owner of the peer's queue. Its first frames report this instance's subscriptions and address,
    /// and the known addresses.
    pub(super) fn send_initial_state(&self, peer: &Peer, link: &Link) {
        let subscriptions = lock(&self.subscriptions);
        let mut initial_frames = if link.capabilities & ROUTING != 0 { subscriptions.frames() } else { Vec::new() };
        initial_frames.extend(self.advertised.iter().map(|own| frame::encode(Kind::Announce, 0, own.as_bytes(), b"")));
        initial_frames.push(self.address_frame());
        let mut queue = lock(&peer.queue);
        let was_unlinked = queue.owner().is_none();
        queue.assign(Some(link.id), initial_frames);
        if was_unlinked {
            self.publications.charge(queue.bytes());
        }
    }
}
