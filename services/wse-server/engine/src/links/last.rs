//! A bounded list of the last publications that did not reach other instances.

use std::collections::VecDeque;

/// The most items that are kept.
pub(crate) const KEPT: usize = 1000;
/// The most bytes that are kept.
pub(crate) const KEPT_BYTES: usize = 16 << 20;

/// An item with a known size.
pub(crate) trait Weight {
    /// The memory that the item takes, in bytes.
    fn bytes(&self) -> usize;
}

/// The most recent items, at most [`KEPT`] of them and [`KEPT_BYTES`] bytes. The oldest are discarded first.
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
    /// Adds an item and discards the oldest beyond the limits. The newest is kept even if it is too large by itself.
    pub(crate) fn push(&mut self, one: T) {
        self.bytes += one.bytes();
        self.kept.push_back(one);
        while self.kept.len() > KEPT || (self.bytes > KEPT_BYTES && self.kept.len() > 1) {
            self.bytes -= self.kept.pop_front().map_or(0, |oldest| oldest.bytes());
        }
    }

    /// Takes all items, oldest first.
    pub(crate) fn take(&mut self) -> VecDeque<T> {
        std::mem::take(self).kept
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }
}
