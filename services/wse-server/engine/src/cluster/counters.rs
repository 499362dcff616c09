//! The counters of the cluster, with the reasons for dropped publications and refused connections.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    links::ClusterStats,
    stats::{labelled, reasons},
};

reasons! {
    /// Why a publication was not sent to a peer.
    DropReason {
        /// No peer has subscribers for it.
        Unwanted = "unwanted",
        /// The peer's queue has no room.
        Overflow = "overflow",
        /// The peer has left, or has been without a link for too long.
        PeerLost = "gone",
        /// It doesn't fit into a frame.
        TooBig = "too_big",
        /// The instance stopped before it was sent.
        Stopped = "stopped",
    }
}

reasons! {
    /// Why a connection did not become a link.
    RefuseReason {
        /// The first frame is not a valid hello.
        Hello = "hello",
        /// The other side uses another protocol version.
        Version = "version",
        /// The other side took too long to connect or to send its hello.
        Timeout = "timeout",
        /// The other side uses no TLS where it is required, or has no trusted certificate.
        Tls = "tls",
        /// Only one of the two sides has a secret, or the other side has another one.
        Secret = "secret",
        /// The other side's certificate has other names than that of the peer that it says it is.
        Name = "name",
        /// The address is not on this machine, and links have neither TLS nor a secret.
        Open = "open",
        /// The limit on links or peers is reached.
        Full = "full",
        /// Too many connections had not sent their hello.
        Crowded = "crowded",
        /// The other side is this instance itself.
        Itself = "self",
        /// There is a link with the instance already.
        Duplicate = "duplicate",
        /// The other side is another implementation and the instance with the higher name dialled. Such a link stays
        /// only if the one with the lower name dialled.
        Order = "order",
        /// The connection could not be made or was lost.
        Lost = "lost",
    }
}

/// Declares the counters that [`ClusterStats`] reports under the same names.
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
            /// One reading. The caller fills in the fields that aren't counted here.
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

/// The outcome of the publications for one peer, changed under the lock of its queue.
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
    /// Adds the outcome of the publications for a peer and the number that still wait, so that every reading accounts
    /// for all of them.
    pub(super) fn add(&mut self, books: &PeerBooks, queued: u64) {
        self.sent += books.sent;
        self.queued += queued;
        for (label, count) in DropReason::LABELS.iter().zip(books.dropped).filter(|(_, count)| *count > 0) {
            *self.dropped.entry(label).or_default() += count;
        }
        self.balance();
    }

    /// Sets `published` to the sum of its parts.
    pub(super) fn balance(&mut self) {
        self.published = self.sent + self.queued + self.dropped.values().sum::<u64>();
    }
}

impl Counters {
    /// Takes over the counts of a peer that is forgotten.
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

/// One reading of each counter.
fn read<const REASONS: usize>(counts: &[AtomicU64; REASONS]) -> [u64; REASONS] {
    counts.each_ref().map(|count| count.load(Ordering::Relaxed))
}

impl ClusterStats {
    /// Publications that a peer subscribed to and didn't get, and those that arrived and weren't handed on.
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
    fn reasons_that_never_occurred_are_not_printed() {
        let counters = Counters::default();
        counters.drop(DropReason::PeerLost, 3);
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
