//! The topics that clients of this instance subscribe to, and the subscriptions that Redis has confirmed.
//!
//! A change that is reverted before the subscriber task takes it is dropped. So there are never more pending changes
//! than subscriptions, however often clients subscribe and unsubscribe.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use super::CHANNEL;
use crate::{
    lock::lock,
    topics::{is_pattern, matches},
};

/// A topic's channel or a pattern, in the form in which Redis gets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Channel {
    Name(String),
    Pattern(String),
}

impl Channel {
    /// The channel of a topic, or the Redis pattern of a pattern.
    pub(super) fn of(topic: &str) -> Self {
        if is_pattern(topic) { Self::Pattern(pattern(topic)) } else { Self::Name(format!("{CHANNEL}{topic}")) }
    }
}

/// Translates one of our patterns into a Redis pattern that matches the same topics or more.
///
/// Our `?` is one character, that of Redis is one byte, so `?` becomes `?*`: one byte and any number more. Characters
/// that are special only in Redis are escaped.
fn pattern(topic: &str) -> String {
    let mut pattern = String::with_capacity(CHANNEL.len() + topic.len() + 8);
    pattern.push_str(CHANNEL);
    for character in topic.chars() {
        match character {
            '[' | '\\' => pattern.extend(['\\', character]),
            '?' => pattern.push_str("?*"),
            '*' if pattern.ends_with('*') => {}
            character => pattern.push(character),
        }
    }
    pattern
}

/// The text with one character for each of its bytes, so that our `?` matches one byte, as that of Redis does.
fn by_bytes(text: &str) -> String {
    text.bytes().map(char::from).collect()
}

/// The reverse of [`pattern`]: a Redis pattern as one of ours, which matches names [by bytes](by_bytes).
fn widened(pattern: &str) -> String {
    let mut escaped = false;
    let plain = |character: &char| {
        escaped = *character == '\\' && !escaped;
        !escaped
    };
    by_bytes(pattern.strip_prefix(CHANNEL).unwrap_or_default()).chars().filter(plain).collect()
}

#[derive(Default)]
struct DesiredTopics {
    /// Topics and patterns that the subscriber task has taken.
    applied: HashSet<Arc<str>>,
    /// The changes since then: true adds a topic or pattern, false removes it.
    changes: HashMap<Arc<str>, bool>,
}

#[derive(Default)]
struct Confirmed {
    names: HashSet<String>,
    /// The Redis patterns, each with the same pattern in our syntax.
    patterns: HashMap<String, String>,
}

/// What this instance needs from Redis, and what it has subscribed to there.
#[derive(Default)]
pub(super) struct Interest {
    desired: Mutex<DesiredTopics>,
    /// Notified when there is a new change.
    pub(super) changed: Notify,
    confirmed: RwLock<Confirmed>,
    /// The number of changes to `confirmed`; 0 if there was none so far.
    version: AtomicU64,
}

impl Interest {
    /// Adds a topic or pattern, or removes it.
    pub(super) fn set_interest(&self, topic: &str, is_desired: bool) {
        let mut desired = lock(&self.desired);
        if desired.applied.contains(topic) == is_desired {
            desired.changes.remove(topic);
            return;
        }
        desired.changes.insert(topic.into(), is_desired);
        drop(desired);
        self.changed.notify_one();
    }

    /// Takes at most `maximum` changes.
    pub(super) fn changes(&self, maximum: usize) -> Vec<(Arc<str>, bool)> {
        let mut desired = lock(&self.desired);
        let DesiredTopics { applied, changes } = &mut *desired;
        let taken: Vec<_> = if changes.len() <= maximum {
            std::mem::take(changes).into_iter().collect()
        } else {
            let names: Vec<Arc<str>> = changes.keys().take(maximum).cloned().collect();
            names.into_iter().filter_map(|name| changes.remove_entry(&name)).collect()
        };
        for (topic, is_desired) in &taken {
            if *is_desired {
                applied.insert(Arc::clone(topic));
            } else {
                applied.remove(topic);
            }
        }
        if !changes.is_empty() {
            // Wakes the subscriber task again for the rest.
            self.changed.notify_one();
        }
        taken
    }

    /// All topics and patterns that the subscriber task has taken.
    pub(super) fn applied(&self) -> Vec<Arc<str>> {
        lock(&self.desired).applied.iter().cloned().collect()
    }

    /// Redis has confirmed that this instance is subscribed to a channel or pattern, or no longer is.
    pub(super) fn confirm(&self, channel: &Channel, is_confirmed: bool) {
        let mut confirmed = self.confirmed.write().unwrap_or_else(PoisonError::into_inner);
        match (channel, is_confirmed) {
            (Channel::Name(name), true) => drop(confirmed.names.insert(name.clone())),
            (Channel::Name(name), false) => drop(confirmed.names.remove(name)),
            (Channel::Pattern(pattern), true) => {
                drop(confirmed.patterns.insert(pattern.clone(), widened(pattern)));
            }
            (Channel::Pattern(pattern), false) => drop(confirmed.patterns.remove(pattern)),
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The connection is lost, and with it all subscriptions.
    pub(super) fn forget_confirmed(&self) {
        *self.confirmed.write().unwrap_or_else(PoisonError::into_inner) = Confirmed::default();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A number that changes whenever the result of [`Interest::copies`] may change.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// How many copies of a publication to the topic Redis sends to this instance.
    pub(super) fn copies(&self, topic: &str) -> u64 {
        let confirmed = self.confirmed.read().unwrap_or_else(PoisonError::into_inner);
        let name = by_bytes(topic);
        let by_pattern = confirmed.patterns.values().filter(|pattern| matches(pattern, &name)).count();
        by_pattern as u64 + u64::from(confirmed.names.contains(&format!("{CHANNEL}{topic}")))
    }

    /// Whether this instance is subscribed to the topic by its name.
    pub(super) fn has_name(&self, topic: &str) -> bool {
        let confirmed = self.confirmed.read().unwrap_or_else(PoisonError::into_inner);
        confirmed.names.contains(&format!("{CHANNEL}{topic}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Redis' pattern matching in its simplest form.
    fn redis_matches(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| redis_matches(rest, &text[taken..])),
            ([b'?', rest @ ..], [_, texts @ ..]) => redis_matches(rest, texts),
            ([b'\\', escaped, rest @ ..], [first, texts @ ..]) => escaped == first && redis_matches(rest, texts),
            ([first, rest @ ..], [text, texts @ ..]) if first == text => redis_matches(rest, texts),
            _ => false,
        }
    }

    #[test]
    fn names_are_literal_and_patterns_escape_characters_special_to_redis() {
        assert_eq!(Channel::of("a[b]\\c"), Channel::Name("wse:a[b]\\c".into()));
        assert_eq!(Channel::of("a[b]\\c*"), Channel::Pattern("wse:a\\[b]\\\\c*".into()));
        assert_eq!(Channel::of("a?b**"), Channel::Pattern("wse:a?*b*".into()));
        assert_eq!(widened("wse:a\\[b]\\\\c*"), "a[b]\\c*");
    }

    #[test]
    fn a_change_that_is_reverted_before_it_is_reported_is_not_a_change() {
        let interest = Interest::default();
        for n in 0..10_000 {
            interest.set_interest(&n.to_string(), true);
            interest.set_interest(&n.to_string(), false);
        }
        assert!(lock(&interest.desired).changes.is_empty() && interest.changes(10).is_empty());
        interest.set_interest("a", true);
        interest.set_interest("a", true);
        assert_eq!(interest.changes(10), [("a".into(), true)]);
        interest.set_interest("a", false);
        interest.set_interest("a", true);
        assert!(interest.changes(10).is_empty());
        interest.set_interest("a", false);
        assert_eq!(interest.changes(10), [("a".into(), false)]);
        assert!(interest.applied().is_empty());
    }

    #[test]
    fn changes_are_taken_in_batches_and_none_is_missed() {
        let interest = Interest::default();
        (0..100).for_each(|n| interest.set_interest(&n.to_string(), true));
        let mut taken = 0;
        loop {
            let some = interest.changes(7).len();
            assert!(some <= 7);
            taken += some;
            if some == 0 {
                break;
            }
        }
        assert_eq!((taken, interest.applied().len()), (100, 100));
    }

    #[test]
    fn copies_are_counted_as_redis_sends_them() {
        let interest = Interest::default();
        assert_eq!((interest.copies("a.b"), interest.version()), (0, 0));
        for topic in ["a.b", "a.*", "*", "b.*", "a.?"] {
            interest.confirm(&Channel::of(topic), true);
        }
        assert_eq!((interest.copies("a.b"), interest.copies("a.c"), interest.copies("x")), (4, 3, 1));
        assert!(interest.has_name("a.b") && !interest.has_name("a.c"));
        interest.confirm(&Channel::of("*"), false);
        interest.confirm(&Channel::of("a.b"), false);
        assert_eq!(interest.copies("a.b"), 2);
        interest.forget_confirmed();
        assert_eq!(interest.copies("a.b"), 0);
    }

    proptest! {
        #[test]
        fn redis_sends_every_channel_that_matches_our_pattern(pattern in "[ab*?é\\[\\]\\\\^-]{0,6}[*?]", name in "[abé\\[\\]\\\\^-]{0,7}") {
            let Channel::Pattern(theirs) = Channel::of(&pattern) else { panic!("it is a pattern") };
            let fits = redis_matches(theirs.as_bytes(), format!("wse:{name}").as_bytes());
            prop_assert!(fits || !matches(&pattern, &name));
            // And what their pattern matches is what our translation counts.
            prop_assert_eq!(fits, matches(&widened(&theirs), &by_bytes(&name)));
        }
    }
}
