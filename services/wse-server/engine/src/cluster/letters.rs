//! Dead letters: the last publications that a peer didn't get, kept for the application to inspect.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{
    compression::Stretcher,
    counters::DropReason,
    frame::{self, COMPRESSED},
};
use crate::{
    links::last::{Last, Weight},
    lock::lock,
};

/// A dead letter: a publication that a peer didn't get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLetter {
    /// The topic that it was published to.
    pub topic: String,
    /// The publication's text, which is cut to one mebibyte if it didn't fit into a frame.
    pub payload: String,
    /// The peer's address, or its name if no address is known.
    pub peer: String,
    /// The label of the reason why the peer didn't get it.
    pub reason: &'static str,
}

impl Weight for ClusterLetter {
    fn bytes(&self) -> usize {
        self.topic.len() + self.payload.len()
    }
}

/// The publications in frames that were never sent.
pub(super) fn in_frames(frames: &[u8], peer: &str, reason: DropReason) -> impl Iterator<Item = ClusterLetter> + use<> {
    let (mut letters, mut rest) = (Vec::new(), frames);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    while let Ok(Some((frame, length))) = frame::parse(rest) {
        rest = &rest[length..];
        let stretched = || Stretcher::new().ok()?.stretch(frame.payload).ok();
        let payload = if frame.flags & COMPRESSED == 0 { None } else { stretched() };
        letters.push(ClusterLetter {
            topic: text(frame.topic),
            payload: text(payload.as_deref().unwrap_or(frame.payload)),
            peer: peer.into(),
            reason: reason.label(),
        });
    }
    letters.into_iter()
}

/// The dead letters of all peers, within the limits of [`Last`].
#[derive(Debug)]
pub(super) struct DeadLetters {
    kept: Mutex<Last<ClusterLetter>>,
    /// Dropped publications that the log hasn't reported yet.
    untold: AtomicU64,
    started: Instant,
    /// The second since the start from which the log may report again.
    next_told: AtomicU64,
}

impl DeadLetters {
    pub(super) fn new() -> Self {
        let started = Instant::now();
        Self { kept: Mutex::default(), untold: AtomicU64::new(0), started, next_told: AtomicU64::new(0) }
    }

    /// Counts dropped publications and keeps `letters`, the last of them. The log reports them at most once a second.
    pub(super) fn add(&self, dropped: u64, letters: impl Iterator<Item = ClusterLetter>, reason: &str, peer: &str) {
        {
            let mut kept = lock(&self.kept);
            letters.for_each(|letter| kept.push(letter));
        }
        let untold = self.untold.fetch_add(dropped, Ordering::Relaxed) + dropped;
        let second = self.started.elapsed().as_secs();
        let next = self.next_told.load(Ordering::Relaxed);
        let may_tell = second >= next
            && self.next_told.compare_exchange(next, second + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if may_tell {
            self.untold.fetch_sub(untold, Ordering::Relaxed);
            tracing::warn!(dropped = untold, reason, peer, "publications for peers were dropped");
        }
    }

    /// Takes all dead letters, oldest first.
    pub(super) fn take(&self) -> Vec<ClusterLetter> {
        lock(&self.kept).take().into()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.kept).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::last::KEPT;

    fn letter(number: usize, bytes: usize) -> ClusterLetter {
        ClusterLetter { topic: number.to_string(), payload: "x".repeat(bytes), peer: "p".into(), reason: "overflow" }
    }

    #[test]
    fn the_last_thousand_are_kept_and_taken_once() {
        let letters = DeadLetters::new();
        letters.add(1200, (0..1200).map(|number| letter(number, 1)), "overflow", "p");
        assert_eq!(letters.len(), KEPT);
        let taken = letters.take();
        assert_eq!((taken[0].topic.as_str(), taken[999].topic.as_str()), ("200", "1199"));
        assert!(letters.take().is_empty());
    }

    #[test]
    fn large_ones_are_kept_in_smaller_number() {
        let letters = DeadLetters::new();
        letters.add(40, (0..40).map(|number| letter(number, 1 << 20)), "overflow", "p");
        assert_eq!(letters.take().last().map(|letter| letter.topic.clone()), Some("39".into()));
        letters.add(40, (0..40).map(|number| letter(number, 1 << 20)), "overflow", "p");
        assert!((10..=16).contains(&letters.len()));
    }
}
