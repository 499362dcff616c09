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
const MOST_TOPICS: usize = 1_000_000;
/// The most patterns of one peer: each is compared with every new name.
const MOST_PATTERNS: usize = 4096;
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
    is_boundless: bool,
    wanted: Wanted,
    /// The subscriptions before the peer began to send its list again: the new list may be incomplete.
    before: Option<Wanted>,
    budget: Budget,
}

#[derive(Debug, Default)]
struct Wanted {
    names: HashSet<Box<str>>,
    patterns: HashSet<Box<str>>,
    bytes: usize,
}

impl Wanted {
    fn has(&self, topic: &str) -> bool {
        self.names.contains(topic) || self.patterns.iter().any(|pattern| topics::matches(pattern, topic))
    }

    fn list(&mut self, topic: &str) -> &mut HashSet<Box<str>> {
        if topics::is_pattern(topic) { &mut self.patterns } else { &mut self.names }
    }
}

impl Interest {
    pub(super) fn new(budget: Budget) -> Self {
        Self { is_known: false, is_boundless: false, wanted: Wanted::default(), before: None, budget }
    }

    /// Whether the peer gets what is published to this topic.
    pub(super) fn wants(&self, topic: &str) -> bool {
        !self.is_known || self.says(topic)
    }

    /// Whether the peer has reported a subscription to this topic. It may have done so before it has sent its list: an
    /// instance of the reference has no list to send if it had no subscribers when the link was made.
    pub(super) fn says(&self, topic: &str) -> bool {
        self.is_boundless || self.wanted.has(topic) || self.before.as_ref().is_some_and(|before| before.has(topic))
    }

    /// Adds a subscription. Beyond the limits, all are discarded and the peer gets everything. An invalid topic is
    /// ignored.
    pub(super) fn add(&mut self, topic: &str) {
        if self.is_boundless || topics::check(topic).is_err() || self.wanted.list(topic).contains(topic) {
            return;
        }
        let bytes = topic.len() + TOPIC_BYTES;
        let is_full = self.wanted.names.len() >= MOST_TOPICS || self.wanted.patterns.len() >= MOST_PATTERNS;
        if is_full || self.budget.fetch_add(bytes, Ordering::Relaxed) + bytes > BUDGET {
            if !is_full {
                self.budget.fetch_sub(bytes, Ordering::Relaxed);
            }
            self.clear();
            self.is_boundless = true;
            return;
        }
        self.wanted.bytes += bytes;
        self.wanted.list(topic).insert(topic.into());
    }

    /// Removes a subscription; a topic that isn't subscribed is ignored.
    pub(super) fn remove(&mut self, topic: &str) {
        if self.wanted.list(topic).remove(topic) {
            let bytes = topic.len() + TOPIC_BYTES;
            self.wanted.bytes -= bytes;
            self.budget.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Reads a list of all subscriptions, one topic per line. With `goes_on` it continues the previous one.
    pub(super) fn resync(&mut self, lines: &str, goes_on: bool) {
        if !goes_on {
            self.settle();
            self.is_boundless = false;
            self.before = self.is_known.then(|| std::mem::take(&mut self.wanted));
        }
        self.is_known = true;
        lines.split('\n').for_each(|topic| self.add(topic));
    }

    /// Ends the list, because the peer has sent another frame. Returns whether that changes anything.
    pub(super) fn settle(&mut self) -> bool {
        let Some(before) = self.before.take() else { return false };
        self.budget.fetch_sub(before.bytes, Ordering::Relaxed);
        true
    }

    /// Removes all subscriptions, because the peer is gone: it gets nothing.
    pub(super) fn forget(&mut self) {
        self.clear();
        (self.is_known, self.is_boundless) = (true, false);
    }

    /// Expects a new list from a peer that is back after it was forgotten: it gets everything until then.
    pub(super) fn expect_all(&mut self) {
        self.is_known = false;
    }

    fn clear(&mut self) {
        self.settle();
        self.budget.fetch_sub(std::mem::take(&mut self.wanted).bytes, Ordering::Relaxed);
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
    fn everything_goes_to_a_peer_until_it_has_said_what_it_wants() {
        let mut interest = interest();
        assert!(interest.wants("a") && !interest.says("a"));
        interest.add("b");
        assert!(interest.wants("a") && !interest.says("a") && interest.says("b"));
        interest.resync("news.*\nb", false);
        assert!(interest.wants("b") && interest.says("news.es") && !interest.wants("a"));
        interest.remove("news.*");
        assert!(!interest.wants("news.es"));
        interest.resync("", false);
        interest.settle();
        assert!(!interest.wants("b") && bytes(&interest) == 0);
    }

    #[test]
    fn nothing_is_lost_between_two_parts_of_a_list() {
        let mut interest = interest();
        interest.resync("a\nb", false);
        interest.resync("a", false);
        assert!(interest.wants("b"));
        interest.resync("c", true);
        assert!(interest.wants("a") && interest.wants("b") && interest.wants("c"));
        assert!(interest.settle() && !interest.settle());
        assert!(interest.wants("a") && !interest.wants("b") && interest.wants("c"));
    }

    #[test]
    fn names_that_are_none_are_skipped() {
        let mut interest = interest();
        interest.resync(&format!("\n \n\u{1}\n{}\nok", "x".repeat(600)), false);
        assert_eq!((interest.wanted.names.len(), interest.wants("ok")), (1, true));
    }

    #[test]
    fn who_wants_more_than_can_be_remembered_gets_everything_until_it_says_less() {
        let mut interest = interest();
        interest.resync("", false);
        (0..=MOST_PATTERNS).for_each(|n| interest.add(&format!("{n}.*")));
        assert!(interest.wants("anything") && interest.says("anything") && bytes(&interest) == 0);
        interest.add("more");
        interest.resync("a", false);
        assert!(!interest.wants("anything") && interest.wants("a"));
    }

    #[test]
    fn all_peers_together_have_one_budget() {
        let budget = Budget::default();
        budget.store(BUDGET - 100, Ordering::Relaxed);
        let (mut one, mut other) = (Interest::new(Arc::clone(&budget)), Interest::new(Arc::clone(&budget)));
        one.resync("a", false);
        other.resync("b\nc", false);
        assert!(!one.wants("x") && other.wants("x"));
        drop((one, other));
        assert_eq!(budget.load(Ordering::Relaxed), BUDGET - 100);
    }

    #[test]
    fn a_peer_that_is_gone_wants_nothing_until_it_is_back() {
        let mut interest = interest();
        interest.resync("a", false);
        interest.forget();
        assert!(!interest.wants("a") && bytes(&interest) == 0);
        interest.expect_all();
        assert!(interest.wants("a"));
    }

    proptest! {
        #[test]
        fn it_wants_what_a_plain_set_has_and_the_budget_is_what_that_takes(
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
                    prop_assert_eq!(interest.wants(name), expected, "{}", name);
                }
                prop_assert_eq!(bytes(&interest), plain.iter().map(|topic| topic.len() + TOPIC_BYTES).sum::<usize>());
            }
        }
    }
}
