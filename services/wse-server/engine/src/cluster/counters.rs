//! The cluster's books.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    links::ClusterStats,
    stats::{labelled, reasons},
};

reasons! {
    /// Why a publication didn't go to a peer.
    DropReason {
        /// No peer wants it.
        Unwanted = "unwanted",
        /// More waits for the peer than may.
        Overflow = "overflow",
        /// The peer has gone, or has been away for too long.
        Gone = "gone",
        /// It doesn't fit into a frame.
        TooBig = "too_big",
        /// The instance stopped before it was sent.
        Stopped = "stopped",
    }
}

reasons! {
    /// Why somebody didn't become a peer.
    RefuseReason {
        /// What it said first was no hello.
        Hello = "hello",
        /// It speaks another version.
        Version = "version",
        /// It took too long to introduce itself.
        Timeout = "timeout",
        /// It had no TLS where we want it, or no certificate that we trust.
        Tls = "tls",
        /// There are as many links as there may be.
        Full = "full",
        /// It came while too many others hadn't introduced themselves either.
        Crowded = "crowded",
        /// It is ourselves.
        Itself = "self",
        /// There is a link with it already.
        Duplicate = "duplicate",
        /// It is of another make, and its name is on the wrong side of ours: such a link stands only if the lower one dialled.
        Order = "order",
        /// It hung up.
        Lost = "lost",
    }
}

/// Declares the counters that [`ClusterStats`] tells of by the same names.
macro_rules! counters {
    ($($name:ident,)*) => {
        /// What the cluster has counted since it was connected.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
            dropped: [AtomicU64; DropReason::LABELS.len()],
            refused: [AtomicU64; RefuseReason::LABELS.len()],
        }

        impl Counters {
            /// One reading; what isn't counted here is the caller's to fill in.
            pub(super) fn stats(&self) -> ClusterStats {
                ClusterStats {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    dropped: labelled(&DropReason::LABELS, &read(&self.dropped)),
                    refused: labelled(&RefuseReason::LABELS, &read(&self.refused)),
                    ..ClusterStats::default()
                }
            }
        }
    };
}

counters! {
    sent,
    unconfirmed,
    received,
    delivered,
    unfit,
    lost,
    bytes_sent,
    bytes_received,
    reconnects,
    unknown_types,
    malformed,
}

/// What became of the publications for one peer, changed with its queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerBooks {
    pub(super) sent: u64,
    dropped: [u64; DropReason::LABELS.len()],
}

impl PeerBooks {
    pub(super) fn drop(&mut self, reason: DropReason, messages: u64) {
        self.dropped[reason as usize] += messages;
    }
}

impl ClusterStats {
    /// Adds what became of the publications for a peer, and of which some wait. So all of them are there in every reading.
    pub(super) fn add(&mut self, books: &PeerBooks, queued: u64) {
        self.sent += books.sent;
        self.queued += queued;
        for (label, count) in DropReason::LABELS.iter().zip(books.dropped).filter(|(_, count)| *count > 0) {
            *self.dropped.entry(label).or_default() += count;
        }
        self.balance();
    }

    /// All that is counted was handed over.
    pub(super) fn balance(&mut self) {
        self.published = self.sent + self.queued + self.dropped.values().sum::<u64>();
    }
}

impl Counters {
    /// A peer is forgotten altogether.
    pub(super) fn keep(&self, books: &PeerBooks) {
        add(&self.sent, books.sent);
        self.dropped.iter().zip(books.dropped).for_each(|(mine, count)| add(mine, count));
    }

    pub(super) fn drop(&self, reason: DropReason, messages: u64) {
        self.dropped[reason as usize].fetch_add(messages, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self, reason: RefuseReason) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// One reading of each.
fn read<const REASONS: usize>(counts: &[AtomicU64; REASONS]) -> [u64; REASONS] {
    counts.each_ref().map(|count| count.load(Ordering::Relaxed))
}

impl ClusterStats {
    /// Publications that a peer wanted and didn't get, or that came and weren't handed on.
    pub fn all_dropped(&self) -> u64 {
        let unwanted = self.dropped.get(DropReason::Unwanted.label()).copied().unwrap_or_default();
        self.dropped.values().sum::<u64>() - unwanted + self.unfit
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn reasons_that_never_happened_are_not_told() {
        let counters = Counters::default();
        counters.drop(DropReason::Gone, 3);
        counters.refuse(RefuseReason::Itself);
        add(&counters.sent, 2);
        let stats = counters.stats();
        assert_eq!((stats.dropped, stats.refused), (BTreeMap::from([("gone", 3)]), BTreeMap::from([("self", 1)])));
        assert_eq!((stats.sent, stats.received), (2, 0));
        let mut books = PeerBooks { sent: 5, ..PeerBooks::default() };
        books.drop(DropReason::Overflow, 7);
        let mut stats = counters.stats();
        stats.add(&books, 4);
        assert_eq!((stats.published, stats.sent, stats.queued), (3 + 7 + 2 + 5 + 4, 7, 4));
        counters.keep(&books);
        assert_eq!((counters.stats().sent, counters.stats().dropped["overflow"]), (7, 7));
    }
}
