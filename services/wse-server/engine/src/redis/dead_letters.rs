//! Dead letters: the last publications that were given up, kept until the application fetches them and until Redis
//! stores them.

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{CHANNEL, header::Header};
use crate::{
    links::recent_items::{ByteSize, RecentItems},
    recovery::Position,
};

/// How long Redis keeps a topic's dead letters after the last one was added, in seconds.
pub(super) const RETENTION_SECONDS: usize = 7 * 24 * 60 * 60;

/// A publication that did not reach Redis, or that Redis refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisDeadLetter {
    /// The channel that it was for.
    pub channel: String,
    /// Its text, as subscribers would have got it.
    pub payload: String,
    /// Why it was given up.
    pub error: String,
}

/// A dead letter as it is kept in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeadLetter {
    pub(super) topic: Box<str>,
    pub(super) text: Box<str>,
    /// The instance that published it first. Its subscribers got the publication already, even if another instance
    /// publishes it again.
    pub(super) origin: u64,
    pub(super) stamp: Option<Position>,
    pub(super) error: Cow<'static, str>,
}

/// A dead letter as JSON in a Redis list.
#[derive(Serialize, Deserialize)]
struct Saved<'a> {
    channel: Cow<'a, str>,
    payload: Cow<'a, str>,
    error: Cow<'a, str>,
    #[serde(default)]
    origin: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
}

impl DeadLetter {
    fn report(&self) -> RedisDeadLetter {
        let channel = format!("{CHANNEL}{}", self.topic);
        RedisDeadLetter { channel, payload: self.text.to_string(), error: self.error.to_string() }
    }

    /// The JSON that Redis stores.
    pub(super) fn saved(&self) -> Vec<u8> {
        let saved = Saved {
            channel: format!("{CHANNEL}{}", self.topic).into(),
            payload: (&*self.text).into(),
            error: (&*self.error).into(),
            origin: format!("{:016x}", self.origin).into(),
            epoch: self.stamp.map(|stamp| stamp.epoch),
            offset: self.stamp.map(|stamp| stamp.offset),
        };
        serde_json::to_vec(&saved).expect("text and numbers are JSON")
    }

    /// Parses what Redis stored; `None` if it is not a dead letter.
    pub(super) fn read(saved: &[u8]) -> Option<Self> {
        let saved: Saved<'_> = serde_json::from_slice(saved).ok()?;
        let stamp = saved.epoch.zip(saved.offset).map(|(epoch, offset)| Position { epoch, offset });
        Some(Self {
            topic: saved.channel.strip_prefix(CHANNEL)?.into(),
            text: saved.payload.into(),
            // A dead letter that another program stored may have no origin; 0 means that no instance delivered it.
            origin: u64::from_str_radix(&saved.origin, 16).unwrap_or(0),
            stamp,
            error: Cow::Owned(saved.error.into_owned()),
        })
    }

    /// The header for publishing it again. It has no number, so that receivers don't take it for a duplicate.
    pub(super) fn header(&self) -> Header {
        Header { origin: self.origin, number: None, stamp: self.stamp }
    }
}

impl ByteSize for Arc<DeadLetter> {
    fn bytes(&self) -> usize {
        self.topic.len() + self.text.len() + self.error.len() + size_of::<DeadLetter>()
    }
}

/// The dead letters of one instance, in two bounded lists: those that the application hasn't fetched, and those that
/// Redis hasn't stored.
#[derive(Debug, Default)]
pub(super) struct DeadLetters {
    unfetched: RecentItems<Arc<DeadLetter>>,
    unsaved: RecentItems<Arc<DeadLetter>>,
}

impl DeadLetters {
    pub(super) fn add(&mut self, dead_letter: DeadLetter) {
        let dead_letter = Arc::new(dead_letter);
        self.unfetched.push(Arc::clone(&dead_letter));
        self.unsaved.push(dead_letter);
    }

    /// The dead letters that weren't fetched; each is returned once.
    pub(super) fn fetch(&mut self) -> Vec<RedisDeadLetter> {
        self.unfetched.take().iter().map(|dead_letter| dead_letter.report()).collect()
    }

    /// How many dead letters the application may fetch.
    pub(super) fn unfetched(&self) -> usize {
        self.unfetched.len()
    }

    /// Takes the dead letters that Redis hasn't stored.
    pub(super) fn unsaved(&mut self) -> VecDeque<Arc<DeadLetter>> {
        self.unsaved.take()
    }

    pub(super) fn has_unsaved(&self) -> bool {
        self.unsaved.len() > 0
    }

    /// Puts dead letters back in front: Redis did not store them.
    pub(super) fn put_back(&mut self, dead_letters: impl IntoIterator<Item = Arc<DeadLetter>>) {
        let later = self.unsaved.take();
        dead_letters.into_iter().chain(later).for_each(|dead_letter| self.unsaved.push(dead_letter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::recent_items::{RETAINED_BYTES, RETAINED_ITEMS};

    fn dead_letter(text: &str) -> DeadLetter {
        let stamp = Some(Position { epoch: 7, offset: 3 });
        DeadLetter {
            topic: "a.b".into(),
            text: text.into(),
            origin: u64::MAX,
            stamp,
            error: "Redis could not be reached".into(),
        }
    }

    #[test]
    fn entries_stored_in_redis_are_read_back() {
        let dead_letter = dead_letter(r#"{"p":"\u0001"}"#);
        assert_eq!(DeadLetter::read(&dead_letter.saved()), Some(dead_letter));
        let foreign = DeadLetter::read(br#"{"channel":"wse:x","payload":"{}","error":"no","more":1}"#).unwrap();
        assert_eq!((&*foreign.topic, foreign.origin, foreign.stamp), ("x", 0, None));
        for saved in ["", "{}", "1", r#"{"channel":"x","payload":"","error":""}"#] {
            assert_eq!(DeadLetter::read(saved.as_bytes()), None, "{saved}");
        }
    }

    #[test]
    fn the_last_dead_letters_are_stored_in_order_and_fetched_once() {
        let mut dead_letters = DeadLetters::default();
        (0..RETAINED_ITEMS + 5).for_each(|n| dead_letters.add(dead_letter(&n.to_string())));
        assert_eq!(dead_letters.unfetched(), RETAINED_ITEMS);
        let fetched = dead_letters.fetch();
        assert_eq!(
            (fetched.len(), fetched[0].payload.as_str(), fetched[0].channel.as_str()),
            (RETAINED_ITEMS, "5", "wse:a.b")
        );
        assert!(dead_letters.fetch().is_empty());
        let unsaved = dead_letters.unsaved();
        dead_letters.add(dead_letter("later"));
        dead_letters.put_back(unsaved);
        let texts: Vec<_> = dead_letters.unsaved().iter().map(|dead_letter| dead_letter.text.to_string()).collect();
        assert_eq!(
            (texts.len(), texts[0].as_str(), texts[RETAINED_ITEMS - 1].as_str()),
            (RETAINED_ITEMS, "6", "later")
        );
        assert!(!dead_letters.has_unsaved());
    }

    #[test]
    fn large_dead_letters_are_bounded_by_their_bytes() {
        let mut dead_letters = DeadLetters::default();
        (0..40).for_each(|_| dead_letters.add(dead_letter(&"x".repeat(1 << 20))));
        assert_eq!(dead_letters.unfetched(), 15);
        dead_letters.add(dead_letter(&"x".repeat(RETAINED_BYTES)));
        assert_eq!(dead_letters.unfetched(), 1);
    }
}
