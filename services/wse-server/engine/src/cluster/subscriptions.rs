//! The subscriptions of this instance, and their list on the wire.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use bytes::Bytes;

use super::frame::{self, CONTINUED, Kind};

/// How many bytes of the list go into one frame.
const PART_BYTES: usize = 64 << 10;

/// The topics that have subscribers here, or had until recently.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// The time at which each subscription ends, if it is kept only for recovery; `None` while there are subscribers.
    pub(super) topics: BTreeMap<Arc<str>, Option<Instant>>,
}

impl Subscriptions {
    /// Adds a topic. Returns whether it is new.
    pub(super) fn add(&mut self, topic: &str) -> bool {
        match self.topics.get_mut(topic) {
            Some(end) => {
                *end = None;
                false
            }
            None => self.topics.insert(topic.into(), None).is_none(),
        }
    }

    /// Encodes the list as frames. The first one replaces the list that was sent before.
    pub(super) fn frames(&self) -> Vec<Bytes> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_sent_in_continued_parts() {
        let mut subscriptions = Subscriptions::default();
        assert!(
            (0..1000).all(|n| subscriptions.add(&format!("{n:0500}"))) && !subscriptions.add(&format!("{:0500}", 7))
        );
        let frames = subscriptions.frames();
        let (mut names, mut flags) = (Vec::new(), Vec::new());
        for frame in &frames {
            let (frame, _) = frame::parse(frame).unwrap().unwrap();
            flags.push(frame.flags);
            names.extend(std::str::from_utf8(frame.payload).unwrap().split('\n').map(str::to_owned));
        }
        assert!(flags.len() > 5 && flags[0] == 0 && flags[1..].iter().all(|flags| *flags == CONTINUED));
        assert!(names.iter().map(String::as_str).eq(subscriptions.topics.keys().map(|topic| &**topic)));
    }

    #[test]
    fn an_empty_subscription_list_is_sent_too() {
        let frames = Subscriptions::default().frames();
        assert_eq!(frames, [frame::encode(Kind::Resync, 0, b"", b"")]);
    }
}
