//! The subscriptions of one peer: names and patterns, as it reports them. Pure.
//!
//! A peer gets everything until it has sent its list. So does a peer with more subscriptions than may be remembered: it
//! loses no message, and the memory stays bounded.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::topics;

/// The most names that are remembered of one peer.
const MAX_TOPICS: usize = 1_000_000;
/// The most patterns of one peer: each is compared with every new name.
const MAX_PATTERNS: usize = 4096;
/// The memory that a topic takes beside its name, in bytes.
const TOPIC_BYTES: usize = 48;
/// The most bytes that the subscriptions of all peers may take together.
pub(super) const BUDGET: usize = 256 << 20;

/// How many bytes the subscriptions of all peers take, shared by their [`Interest`]s.
pub(super) type Budget = Arc<AtomicUsize>;

/// What one peer has subscribed to.
#[derive(Debug)]
pub(super) struct Interest {
    /// Whether the peer has sent its list.
    is_known: bool,
    /// Whether the peer has more subscriptions than are remembered, so that it gets everything.
    receives_all: bool,
    current: TopicSet,
    /// The subscriptions before the peer began to send its list again: the new list may be incomplete.
    previous: Option<TopicSet>,
    budget: Budget,
}

#[derive(Debug, Default)]
struct TopicSet {
    names: HashSet<Box<str>>,
    patterns: HashSet<Box<str>>,
    bytes: usize,
}

impl TopicSet {
    fn has(&self, topic: &str) -> bool {
        self.names.contains(topic) || self.patterns.iter().any(|pattern| topics::matches(pattern, topic))
    }

    fn list(&mut self, topic: &str) -> &mut HashSet<Box<str>> {
        if topics::is_pattern(topic) { &mut self.patterns } else { &mut self.names }
    }
}

impl Interest {
    pub(super) fn new(budget: Budget) -> Self {
        Self { is_known: false, receives_all: false, current: TopicSet::default(), previous: None, budget }
    }

    /// Whether the peer gets what is published to this topic.
    pub(super) fn should_receive(&self, topic: &str) -> bool {
        !self.is_known || self.is_subscribed(topic)
    }

    /// Whether the peer has reported a subscription to this topic. It may have done so before it has sent its list: an
    /// instance of the reference has no list to send if it had no subscribers when the link was made.
    pub(super) fn is_subscribed(&self, topic: &str) -> bool {
        self.receives_all
            || self.current.has(topic)
            || self.previous.as_ref().is_some_and(|previous| previous.has(topic))
    }

    /// Adds a subscription. Beyond the limits, all are discarded and the peer gets everything. An invalid topic is
    /// ignored.
    pub(super) fn add(&mut self, topic: &str) {
        if self.receives_all || topics::check(topic).is_err() || self.current.list(topic).contains(topic) {
            return;
        }
        let bytes = topic.len() + TOPIC_BYTES;
        let is_full = self.current.names.len() >= MAX_TOPICS || self.current.patterns.len() >= MAX_PATTERNS;
        if is_full || self.budget.fetch_add(bytes, Ordering::Relaxed) + bytes > BUDGET {
            if !is_full {
                self.budget.fetch_sub(bytes, Ordering::Relaxed);
            }
            self.clear();
            self.receives_all = true;
            return;
        }
        self.current.bytes += bytes;
        self.current.list(topic).insert(topic.into());
    }

    /// Removes a subscription; a topic that isn't subscribed is ignored.
    pub(super) fn remove(&mut self, topic: &str) {
        if self.current.list(topic).remove(topic) {
            let bytes = topic.len() + TOPIC_BYTES;
            self.current.bytes -= bytes;
            self.budget.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Reads a list of all subscriptions, one topic per line. With `is_continued` it continues the previous one.
    pub(super) fn resync(&mut self, lines: &str, is_continued: bool) {
        if !is_continued {
            self.settle();
            self.receives_all = false;
            self.previous = self.is_known.then(|| std::mem::take(&mut self.current));
        }
        self.is_known = true;
        lines.split('\n').for_each(|topic| self.add(topic));
    }

    /// Ends the list, because the peer has sent another frame. Returns whether that changes anything.
    pub(super) fn settle(&mut self) -> bool {
        let Some(previous) = self.previous.take() else { return false };
        self.budget.fetch_sub(previous.bytes, Ordering::Relaxed);
        true
    }

    /// Removes all subscriptions, because the peer is gone: it gets nothing.
    pub(super) fn forget(&mut self) {
        self.clear();
        (self.is_known, self.receives_all) = (true, false);
    }

    /// Expects a new list from a peer that is back after it was forgotten: it gets everything until then.
    pub(super) fn expect_all(&mut self) {
        self.is_known = false;
    }

    fn clear(&mut self) {
        self.settle();
        self.budget.fetch_sub(std::mem::take(&mut self.current).bytes, Ordering::Relaxed);
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interest() -> Interest {
        Interest::new(Budget::default())
    }

    fn bytes(interest: &Interest) -> usize {
        interest.budget.load(Ordering::Relaxed)
    }

    #[test]
    fn everything_goes_to_a_peer_until_its_subscriptions_are_known() {
        let mut interest = interest();
        assert!(interest.should_receive("a") && !interest.is_subscribed("a"));
        interest.add("b");
        assert!(interest.should_receive("a") && !interest.is_subscribed("a") && interest.is_subscribed("b"));
        interest.resync("news.*\nb", false);
        assert!(interest.should_receive("b") && interest.is_subscribed("news.es") && !interest.should_receive("a"));
        interest.remove("news.*");
        assert!(!interest.should_receive("news.es"));
        interest.resync("", false);
        interest.settle();
        assert!(!interest.should_receive("b") && bytes(&interest) == 0);
    }

    #[test]
    fn no_subscription_is_missing_between_two_parts_of_a_list() {
        let mut interest = interest();
        interest.resync("a\nb", false);
        interest.resync("a", false);
        assert!(interest.should_receive("b"));
        interest.resync("c", true);
        assert!(interest.should_receive("a") && interest.should_receive("b") && interest.should_receive("c"));
        assert!(interest.settle() && !interest.settle());
        assert!(interest.should_receive("a") && !interest.should_receive("b") && interest.should_receive("c"));
    }

    #[test]
    fn invalid_names_are_skipped() {
        let mut interest = interest();
        interest.resync(&format!("\n \n\u{1}\n{}\nok", "x".repeat(600)), false);
        assert_eq!((interest.current.names.len(), interest.should_receive("ok")), (1, true));
    }

    #[test]
    fn a_peer_with_too_many_subscriptions_gets_everything_until_it_has_fewer() {
        let mut interest = interest();
        interest.resync("", false);
        (0..=MAX_PATTERNS).for_each(|n| interest.add(&format!("{n}.*")));
        assert!(interest.should_receive("anything") && interest.is_subscribed("anything") && bytes(&interest) == 0);
        interest.add("more");
        interest.resync("a", false);
        assert!(!interest.should_receive("anything") && interest.should_receive("a"));
    }

    #[test]
    fn all_peers_together_have_one_budget() {
        let budget = Budget::default();
        budget.store(BUDGET - 100, Ordering::Relaxed);
        let (mut one, mut other) = (Interest::new(Arc::clone(&budget)), Interest::new(Arc::clone(&budget)));
        one.resync("a", false);
        other.resync("b\nc", false);
        assert!(!one.should_receive("x") && other.should_receive("x"));
        drop((one, other));
        assert_eq!(budget.load(Ordering::Relaxed), BUDGET - 100);
    }

    #[test]
    fn a_disconnected_peer_has_no_subscriptions_until_it_reconnects() {
        let mut interest = interest();
        interest.resync("a", false);
        interest.forget();
        assert!(!interest.should_receive("a") && bytes(&interest) == 0);
        interest.expect_all();
        assert!(interest.should_receive("a"));
    }

    proptest! {
        #[test]
        fn it_matches_a_plain_set_and_charges_its_bytes_to_the_budget(
            steps in prop::collection::vec((0..4_u8, "[ab*]{1,2}"), 0..60),
        ) {
            let mut interest = interest();
            interest.resync("", false);
            let mut plain = std::collections::BTreeSet::new();
            for (step, topic) in steps {
                match step {
                    0 | 1 => { interest.add(&topic); plain.insert(topic); }
                    2 => { interest.remove(&topic); plain.remove(&topic); }
                    _ => { interest.resync(&topic, false); plain = [topic].into(); }
                }
                interest.settle();
                for name in ["a", "b", "ab", "ba", "aa"] {
                    let expected = plain.iter().any(|topic| topics::matches(topic, name));
                    prop_assert_eq!(interest.should_receive(name), expected, "{}", name);
                }
                prop_assert_eq!(bytes(&interest), plain.iter().map(|topic| topic.len() + TOPIC_BYTES).sum::<usize>());
            }
        }
    }
}
