//! Dead letters: the last publications that a peer didn't get, kept for the application to inspect.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{
    compression::FrameDecompressor,
    counters::DropReason,
    frame::{self, COMPRESSED},
};
use crate::{
    links::recent_items::{ByteSize, RecentItems},
    lock::lock,
};

/// A dead letter: a publication that a peer didn't get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDeadLetter {
    /// The topic that it was published to.
    pub topic: String,
    /// The publication's text, which is cut to one mebibyte if it didn't fit into a frame.
    pub payload: String,
    /// The peer's address, or its name if no address is known.
    pub peer: String,
    /// The label of the reason why the peer didn't get it.
    pub reason: &'static str,
}

impl ByteSize for ClusterDeadLetter {
    fn bytes(&self) -> usize {
        self.topic.len() + self.payload.len()
    }
}

/// The publications in frames that were never sent.
pub(super) fn in_frames(
    frames: &[u8],
    peer: &str,
    reason: DropReason,
) -> impl Iterator<Item = ClusterDeadLetter> + use<> {
    let (mut dead_letters, mut rest) = (Vec::new(), frames);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    while let Ok(Some((frame, length))) = frame::parse(rest) {
        rest = &rest[length..];
        let decompressed = || FrameDecompressor::new().ok()?.decompress(frame.payload).ok();
        let payload = if frame.flags & COMPRESSED == 0 { None } else { decompressed() };
        dead_letters.push(ClusterDeadLetter {
            topic: text(frame.topic),
            payload: text(payload.as_deref().unwrap_or(frame.payload)),
            peer: peer.into(),
            reason: reason.label(),
        });
    }
    dead_letters.into_iter()
}

/// The dead letters of all peers, within the limits of [`RecentItems`].
#[derive(Debug)]
pub(super) struct DeadLetters {
    retained: Mutex<RecentItems<ClusterDeadLetter>>,
    /// Dropped publications that the log hasn't reported yet.
    unreported: AtomicU64,
    started: Instant,
    /// The second since the start from which the log may report again.
    next_report_second: AtomicU64,
}

impl DeadLetters {
    pub(super) fn new() -> Self {
        let started = Instant::now();
        Self {
            retained: Mutex::default(),
            unreported: AtomicU64::new(0),
            started,
            next_report_second: AtomicU64::new(0),
        }
    }

    /// Counts dropped publications and keeps `dead_letters`, the last of them. The log reports them at most once a second.
    pub(super) fn add(
        &self,
        dropped: u64,
        dead_letters: impl Iterator<Item = ClusterDeadLetter>,
        reason: &str,
        peer: &str,
    ) {
        {
            let mut retained = lock(&self.retained);
            dead_letters.for_each(|dead_letter| retained.push(dead_letter));
        }
        let unreported = self.unreported.fetch_add(dropped, Ordering::Relaxed) + dropped;
        let second = self.started.elapsed().as_secs();
        let next = self.next_report_second.load(Ordering::Relaxed);
        let may_report = second >= next
            && self.next_report_second.compare_exchange(next, second + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if may_report {
            self.unreported.fetch_sub(unreported, Ordering::Relaxed);
            tracing::warn!(dropped = unreported, reason, peer, "publications for peers were dropped");
        }
    }

    /// Takes all dead letters, oldest first.
    pub(super) fn take(&self) -> Vec<ClusterDeadLetter> {
        lock(&self.retained).take().into()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.retained).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::recent_items::RETAINED_ITEMS;

    fn dead_letter(number: usize, bytes: usize) -> ClusterDeadLetter {
        ClusterDeadLetter {
            topic: number.to_string(),
            payload: "x".repeat(bytes),
            peer: "p".into(),
            reason: "overflow",
        }
    }

    #[test]
    fn the_last_thousand_are_stored_and_taken_once() {
        let dead_letters = DeadLetters::new();
        dead_letters.add(1200, (0..1200).map(|number| dead_letter(number, 1)), "overflow", "p");
        assert_eq!(dead_letters.len(), RETAINED_ITEMS);
        let taken = dead_letters.take();
        assert_eq!((taken[0].topic.as_str(), taken[999].topic.as_str()), ("200", "1199"));
        assert!(dead_letters.take().is_empty());
    }

    #[test]
    fn fewer_large_dead_letters_are_stored() {
        let dead_letters = DeadLetters::new();
        dead_letters.add(40, (0..40).map(|number| dead_letter(number, 1 << 20)), "overflow", "p");
        assert_eq!(dead_letters.take().last().map(|dead_letter| dead_letter.topic.clone()), Some("39".into()));
        dead_letters.add(40, (0..40).map(|number| dead_letter(number, 1 << 20)), "overflow", "p");
        assert!((10..=16).contains(&dead_letters.len()));
    }
}
