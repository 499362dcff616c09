//! A bounded list of the last publications that did not reach other instances.

use std::collections::VecDeque;

/// The most items that are kept.
pub(crate) const RETAINED_ITEMS: usize = 1000;
/// The most bytes that are kept.
pub(crate) const RETAINED_BYTES: usize = 16 << 20;

/// An item with a known size.
pub(crate) trait ByteSize {
    /// The memory that the item takes, in bytes.
    fn bytes(&self) -> usize;
}

/// The most recent items, at most [`RETAINED_ITEMS`] of them and [`RETAINED_BYTES`] bytes. The oldest are discarded first.
#[derive(Debug)]
pub(crate) struct RecentItems<T> {
    items: VecDeque<T>,
    bytes: usize,
}

impl<T> Default for RecentItems<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), bytes: 0 }
    }
}

impl<T: ByteSize> RecentItems<T> {
    /// Adds an item and discards the oldest beyond the limits. The newest is kept even if it is too large by itself.
    pub(crate) fn push(&mut self, item: T) {
        self.bytes += item.bytes();
        self.items.push_back(item);
        while self.items.len() > RETAINED_ITEMS || (self.bytes > RETAINED_BYTES && self.items.len() > 1) {
            self.bytes -= self.items.pop_front().map_or(0, |oldest| oldest.bytes());
        }
    }

    /// Takes all items, oldest first.
    pub(crate) fn take(&mut self) -> VecDeque<T> {
        std::mem::take(self).items
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}
