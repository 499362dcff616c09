//! Publications that were given up: the last of them, for the application to fetch, and until Redis has taken them in.

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{CHANNEL, header::Header};
use crate::{
    links::last::{Last, Weight},
    recovery::Position,
};

/// How long Redis keeps those of a topic after the last, in seconds.
pub(super) const KEPT_SECONDS: usize = 7 * 24 * 60 * 60;

/// A publication that did not reach Redis, or that it refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisDeadLetter {
    /// Where it was to be published.
    pub channel: String,
    /// Its text, as subscribers would have got it.
    pub payload: String,
    /// Why it was given up.
    pub error: String,
}

/// The same, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) topic: Box<str>,
    pub(super) text: Box<str>,
    /// Who published it: its own subscribers had it, whoever publishes it again.
    pub(super) origin: u64,
    pub(super) stamp: Option<Position>,
    pub(super) error: Cow<'static, str>,
}

/// What a list in Redis holds.
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

impl Letter {
    fn told(&self) -> RedisDeadLetter {
        let channel = format!("{CHANNEL}{}", self.topic);
        RedisDeadLetter { channel, payload: self.text.to_string(), error: self.error.to_string() }
    }

    /// As Redis keeps it: JSON.
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

    /// What Redis kept. Nothing if that is no dead letter.
    pub(super) fn read(saved: &[u8]) -> Option<Self> {
        let saved: Saved<'_> = serde_json::from_slice(saved).ok()?;
        let stamp = saved.epoch.zip(saved.offset).map(|(epoch, offset)| Position { epoch, offset });
        Some(Self {
            topic: saved.channel.strip_prefix(CHANNEL)?.into(),
            text: saved.payload.into(),
            // One from elsewhere has none: then nobody had it.
            origin: u64::from_str_radix(&saved.origin, 16).unwrap_or(0),
            stamp,
            error: Cow::Owned(saved.error.into_owned()),
        })
    }

    /// What stands in front of it when it is published again: no number, so that it isn't taken for one that came before.
    pub(super) fn header(&self) -> Header {
        Header { origin: self.origin, number: None, stamp: self.stamp }
    }
}

impl Weight for Arc<Letter> {
    fn bytes(&self) -> usize {
        self.topic.len() + self.text.len() + self.error.len() + size_of::<Letter>()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Letters {
    unfetched: Last<Arc<Letter>>,
    unsaved: Last<Arc<Letter>>,
}

impl Letters {
    pub(super) fn add(&mut self, letter: Letter) {
        let letter = Arc::new(letter);
        self.unfetched.push(Arc::clone(&letter));
        self.unsaved.push(letter);
    }

    /// For the application, once.
    pub(super) fn fetch(&mut self) -> Vec<RedisDeadLetter> {
        self.unfetched.take().iter().map(|letter| letter.told()).collect()
    }

    /// How many the application may fetch.
    pub(super) fn unfetched(&self) -> usize {
        self.unfetched.len()
    }

    /// Those that Redis hasn't got.
    pub(super) fn unsaved(&mut self) -> VecDeque<Arc<Letter>> {
        self.unsaved.take()
    }

    pub(super) fn has_unsaved(&self) -> bool {
        self.unsaved.len() > 0
    }

    /// Redis hasn't got these after all.
    pub(super) fn put_back(&mut self, letters: impl IntoIterator<Item = Arc<Letter>>) {
        let later = self.unsaved.take();
        letters.into_iter().chain(later).for_each(|letter| self.unsaved.push(letter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::last::{KEPT, KEPT_BYTES};

    fn letter(text: &str) -> Letter {
        let stamp = Some(Position { epoch: 7, offset: 3 });
        Letter { topic: "a.b".into(), text: text.into(), origin: u64::MAX, stamp, error: "it was away".into() }
    }

    #[test]
    fn what_redis_keeps_is_read_back() {
        let letter = letter(r#"{"p":"\u0001"}"#);
        assert_eq!(Letter::read(&letter.saved()), Some(letter));
        let foreign = Letter::read(br#"{"channel":"wse:x","payload":"{}","error":"no","more":1}"#).unwrap();
        assert_eq!((&*foreign.topic, foreign.origin, foreign.stamp), ("x", 0, None));
        for saved in ["", "{}", "1", r#"{"channel":"x","payload":"","error":""}"#] {
            assert_eq!(Letter::read(saved.as_bytes()), None, "{saved}");
        }
    }

    #[test]
    fn the_last_ones_are_kept_in_order_and_fetched_once() {
        let mut letters = Letters::default();
        (0..KEPT + 5).for_each(|n| letters.add(letter(&n.to_string())));
        assert_eq!(letters.unfetched(), KEPT);
        let fetched = letters.fetch();
        assert_eq!((fetched.len(), fetched[0].payload.as_str(), fetched[0].channel.as_str()), (KEPT, "5", "wse:a.b"));
        assert!(letters.fetch().is_empty());
        let unsaved = letters.unsaved();
        letters.add(letter("later"));
        letters.put_back(unsaved);
        let texts: Vec<_> = letters.unsaved().iter().map(|letter| letter.text.to_string()).collect();
        assert_eq!((texts.len(), texts[0].as_str(), texts[KEPT - 1].as_str()), (KEPT, "6", "later"));
        assert!(!letters.has_unsaved());
    }

    #[test]
    fn large_ones_are_bounded_by_their_bytes() {
        let mut letters = Letters::default();
        (0..40).for_each(|_| letters.add(letter(&"x".repeat(1 << 20))));
        assert_eq!(letters.unfetched(), 15);
        letters.add(letter(&"x".repeat(KEPT_BYTES)));
        assert_eq!(letters.unfetched(), 1);
    }
}
