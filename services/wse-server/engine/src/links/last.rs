//! The last publications that did not get to others, within bounds.

use std::collections::VecDeque;

/// How many are kept.
pub(crate) const KEPT: usize = 1000;
/// How many bytes of them.
pub(crate) const KEPT_BYTES: usize = 16 << 20;

/// What takes memory while it is kept.
pub(crate) trait Weight {
    /// How much, in bytes.
    fn bytes(&self) -> usize;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Last<T> {
    kept: VecDeque<T>,
    bytes: usize,
}

impl<T> Default for Last<T> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), bytes: 0 }
    }
}

impl<T: Weight> Last<T> {
    /// Keeps one more, and at least this one.
    pub(crate) fn push(&mut self, one: T) {
        self.bytes += one.bytes();
        self.kept.push_back(one);
        while self.kept.len() > KEPT || (self.bytes > KEPT_BYTES && self.kept.len() > 1) {
            self.bytes -= self.kept.pop_front().map_or(0, |oldest| oldest.bytes());
        }
    }

    /// Takes all that are kept, oldest first.
    pub(crate) fn take(&mut self) -> VecDeque<T> {
        std::mem::take(self).kept
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }
}
