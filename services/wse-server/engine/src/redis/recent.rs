//! A bounded map by topic that evicts the entries used least recently.
//!
//! It has two generations. When the young one is full, it becomes the old one, and the previous old one is dropped. An
//! entry that is used moves to the young generation. So an eviction costs no more than an insertion.

use std::collections::HashMap;

/// Keeps at least the `maximum` entries that were used last, and never more than twice as many.
#[derive(Debug)]
pub(super) struct Recent<V> {
    young: HashMap<Box<str>, V>,
    old: HashMap<Box<str>, V>,
    maximum: usize,
}

impl<V> Recent<V> {
    pub(super) fn new(maximum: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), maximum }
    }

    /// Returns the value of a topic; inserts the one that `fresh` creates if there is none.
    pub(super) fn get_or_insert_with(&mut self, topic: &str, fresh: impl FnOnce() -> V) -> &mut V {
        if !self.young.contains_key(topic) {
            let (name, value) = self.old.remove_entry(topic).unwrap_or_else(|| (Box::<str>::from(topic), fresh()));
            if self.young.len() >= self.maximum {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(name, value);
        }
        self.young.get_mut(topic).expect("it was inserted above")
    }

    /// Returns the value of a topic, if there is one. This doesn't count as a use.
    pub(super) fn get_mut(&mut self, topic: &str) -> Option<&mut V> {
        self.young.get_mut(topic).or_else(|| self.old.get_mut(topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_entries_are_kept_and_unused_ones_evicted() {
        let mut recent = Recent::new(10);
        for n in 0..1000 {
            *recent.get_or_insert_with("used", || 0) += 1;
            recent.get_or_insert_with(&format!("once {n}"), || 0);
            assert!(recent.young.len() <= 10 && recent.old.len() <= 10);
        }
        assert_eq!(recent.get_mut("used"), Some(&mut 1000));
        assert_eq!(recent.get_mut("once 3"), None);
        assert_eq!((0..10).filter(|n| recent.get_mut(&format!("once {}", 999 - n)).is_some()).count(), 10);
    }
}
