//! What is wanted here, as peers are told it: in the order in which it changes, and now and then all of it.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    frame::{self, CONTINUED, Kind},
    hello::ROUTING,
    mesh::Mesh,
    peer::{Link, Peer},
};
use crate::lock::lock;

/// How much of a list goes into one frame.
const PART_BYTES: usize = 64 << 10;

/// Topics that somebody here wants.
#[derive(Debug, Default)]
pub(super) struct Wants {
    /// Each with when it ends, if it is only still asked for.
    topics: BTreeMap<Arc<str>, Option<Instant>>,
}

impl Wants {
    /// Returns whether that is news.
    fn add(&mut self, topic: &str) -> bool {
        match self.topics.get_mut(topic) {
            Some(end) => {
                *end = None;
                false
            }
            None => self.topics.insert(topic.into(), None).is_none(),
        }
    }

    /// The list as frames, the first of which takes the place of what was said before.
    fn frames(&self) -> Vec<Bytes> {
        let (mut frames, mut part) = (Vec::new(), String::new());
        let frame = |part: &str, flags| frame::encode(Kind::Resync, flags, b"", part.as_bytes());
        for topic in self.topics.keys() {
            if part.len() + topic.len() > PART_BYTES {
                frames.push(frame(&part, if frames.is_empty() { 0 } else { CONTINUED }));
                part.clear();
            }
            if !part.is_empty() {
                part.push('\n');
            }
            part.push_str(topic);
        }
        frames.push(frame(&part, if frames.is_empty() { 0 } else { CONTINUED }));
        frames
    }
}

impl Mesh {
    /// See [`crate::links::Carrier::want`].
    pub(super) fn want_topic(&self, topic: &str, wanted: bool) {
        // Locked until the peers' queues have it: a list of everything comes before or behind, not between.
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

    /// Ends what was only still asked for.
    pub(super) fn end_lingering(&self) {
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
        // Without the lock: who works on these may wait for it.
        for (shared, forgotten) in forgotten {
            if let Some(recovery) = &shared.recovery {
                recovery.end(forgotten);
            }
        }
    }

    /// Says all that is wanted to all peers again.
    pub(super) fn resync(&self) {
        let wants = lock(&self.wants);
        for frame in wants.frames() {
            self.tell_all(ROUTING, &frame);
        }
    }

    /// From now on a peer's queue is that of `link`, whose first frames say what we want and who we are.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_said_in_parts_that_go_on() {
        let mut wants = Wants::default();
        assert!((0..1000).all(|n| wants.add(&format!("{n:0500}"))) && !wants.add(&format!("{:0500}", 7)));
        let frames = wants.frames();
        let (mut names, mut flags) = (Vec::new(), Vec::new());
        for frame in &frames {
            let (frame, _) = frame::parse(frame).unwrap().unwrap();
            flags.push(frame.flags);
            names.extend(std::str::from_utf8(frame.payload).unwrap().split('\n').map(str::to_owned));
        }
        assert!(flags.len() > 5 && flags[0] == 0 && flags[1..].iter().all(|flags| *flags == CONTINUED));
        assert!(names.iter().map(String::as_str).eq(wants.topics.keys().map(|topic| &**topic)));
    }

    #[test]
    fn nothing_wanted_is_said_too() {
        let frames = Wants::default().frames();
        assert_eq!(frames, [frame::encode(Kind::Resync, 0, b"", b"")]);
    }
}
