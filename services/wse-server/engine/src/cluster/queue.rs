//! What waits for one peer: control frames first, then publications, which are bounded in bytes and numbered. Pure.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::{
    counters::{DropReason, PeerBooks},
    numbering::Count,
};

/// Publications are joined into chunks of up to this size, in bytes, so that a flood of small ones is few pieces.
const JOINED_BYTES: usize = 64 << 10;
/// Publications of at least this size, in bytes, are shared with the other peers' queues instead of copied.
const COPIED_BYTES: usize = 4 << 10;
/// The most bytes of control frames that may wait for a peer that doesn't read.
const MAX_CONTROL_BYTES: usize = 8 << 20;

/// Successive publications, framed back to back.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) messages: u64,
    pub(super) bytes: Bytes,
}

/// The last chunk, to which more is appended.
#[derive(Debug, Default)]
struct OpenChunk {
    messages: u64,
    bytes: BytesMut,
}

/// The frames that wait for one peer. The peer's current link takes them; without a link, publications stay until the
/// peer is given up.
#[derive(Debug)]
pub(super) struct Queue {
    control: VecDeque<Bytes>,
    control_bytes: usize,
    chunks: VecDeque<Chunk>,
    open: OpenChunk,
    bytes: usize,
    limit: usize,
    /// The count of the publications that were taken.
    taken: Count,
    /// The id of the link that takes from this queue; `None` if the peer has no link.
    owner: Option<u64>,
    /// The count that the owner reported to the peer last; `None` if it hasn't on this link.
    last_reported: Option<Count>,
    books: PeerBooks,
}

/// What a link writes next.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Control frames, which are written first.
    pub(super) control: Vec<Bytes>,
    /// Chunks of publications, which follow.
    pub(super) chunks: Vec<Chunk>,
    /// The count to report to the peer before the publications, if it has changed.
    pub(super) count: Option<Count>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.chunks.is_empty() && self.count.is_none()
    }

    pub(super) fn messages(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.messages).sum()
    }

    /// The bytes of the publications.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes.len()).sum()
    }
}

impl Queue {
    /// Makes a queue for at most `limit` bytes of publications.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            control: VecDeque::new(),
            control_bytes: 0,
            chunks: VecDeque::new(),
            open: OpenChunk::default(),
            bytes: 0,
            limit,
            taken: Count::default(),
            owner: None,
            last_reported: None,
            books: PeerBooks::default(),
        }
    }

    /// The outcome of the peer's publications that no longer wait.
    pub(super) fn books(&self) -> &PeerBooks {
        &self.books
    }

    /// Adds framed publications, all or none. Returns whether there was room; without room they are counted as dropped.
    pub(super) fn push(&mut self, frames: &Bytes, messages: u64) -> bool {
        if self.bytes + frames.len() > self.limit {
            self.count_dropped(DropReason::Overflow, messages);
            return false;
        }
        self.bytes += frames.len();
        let is_small = frames.len() < COPIED_BYTES;
        if !is_small || self.open.bytes.len() + frames.len() > JOINED_BYTES {
            self.close();
        }
        if is_small {
            self.open.bytes.extend_from_slice(frames);
            self.open.messages += messages;
        } else {
            self.chunks.push_back(Chunk { messages, bytes: frames.clone() });
        }
        true
    }

    /// Counts publications for the peer that are not sent to it, and starts a new session.
    pub(super) fn count_dropped(&mut self, reason: DropReason, messages: u64) {
        self.books.drop(reason, messages);
        self.taken.session = self.taken.session.wrapping_add(1);
    }

    /// Whether nothing waits, so that the link may be asleep.
    pub(super) fn is_idle(&self) -> bool {
        self.bytes == 0 && self.control.is_empty()
    }

    fn close(&mut self) {
        let OpenChunk { messages, bytes } = std::mem::take(&mut self.open);
        if messages > 0 {
            self.chunks.push_back(Chunk { messages, bytes: bytes.freeze() });
        }
    }

    /// Adds a control frame; without a link it is discarded. Returns false if too many bytes of control frames wait
    /// already.
    pub(super) fn push_control(&mut self, frame: Bytes) -> bool {
        if self.owner.is_none() {
            return true;
        }
        if self.control_bytes + frame.len() > MAX_CONTROL_BYTES {
            return false;
        }
        self.control_bytes += frame.len();
        self.control.push_back(frame);
        true
    }

    /// Makes `link` the owner of the queue, with `initial_frames` as its first control frames; `None` leaves the queue
    /// without an owner.
    pub(super) fn assign(&mut self, link: Option<u64>, initial_frames: Vec<Bytes>) {
        self.owner = link;
        self.last_reported = None;
        self.control_bytes = initial_frames.iter().map(Bytes::len).sum();
        self.control = initial_frames.into();
    }

    pub(super) fn owner(&self) -> Option<u64> {
        self.owner
    }

    /// Takes all control frames and up to `maximum` bytes of publications, but at least one chunk if there is any. Returns
    /// `None` if another link owns the queue.
    pub(super) fn take(&mut self, link: u64, maximum: usize) -> Option<Batch> {
        if self.owner != Some(link) {
            return None;
        }
        let mut batch = Batch { control: self.control.drain(..).collect(), ..Batch::default() };
        self.control_bytes = 0;
        batch.count = (self.last_reported != Some(self.taken)).then_some(self.taken);
        let mut taken = 0;
        loop {
            if self.chunks.is_empty() {
                self.close();
            }
            let fits = |chunk: &mut Chunk| taken == 0 || taken + chunk.bytes.len() <= maximum;
            let Some(chunk) = self.chunks.pop_front_if(fits) else { break };
            taken += chunk.bytes.len();
            self.taken.number += chunk.messages;
            batch.chunks.push(chunk);
        }
        self.bytes -= taken;
        self.books.sent += batch.messages();
        self.last_reported = Some(self.taken);
        Some(batch)
    }

    /// The count of what was taken, which a ping written after it reports.
    pub(super) fn taken(&self) -> Count {
        self.taken
    }

    /// Discards all publications and starts a new session. Returns them.
    pub(super) fn give_up(&mut self, reason: DropReason) -> Vec<Chunk> {
        self.close();
        self.bytes = 0;
        self.count_dropped(reason, self.messages());
        self.chunks.drain(..).collect()
    }

    /// The bytes of publications that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of publications that wait.
    pub(super) fn messages(&self) -> u64 {
        self.open.messages + self.chunks.iter().map(|chunk| chunk.messages).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: usize) -> Bytes {
        vec![b'x'; bytes].into()
    }

    fn queue(limit: usize) -> Queue {
        let mut queue = Queue::new(limit);
        queue.assign(Some(1), Vec::new());
        queue
    }

    #[test]
    fn small_publications_are_joined_and_large_ones_shared() {
        let mut queue = queue(1 << 20);
        let large = frames(COPIED_BYTES);
        for _ in 0..100 {
            assert!(queue.push(&frames(100), 1));
        }
        queue.push(&large, 7);
        queue.push(&frames(100), 1);
        let batch = queue.take(1, 1 << 20).unwrap();
        let shape: Vec<_> = batch.chunks.iter().map(|chunk| (chunk.messages, chunk.bytes.len())).collect();
        assert_eq!(shape, [(100, 10_000), (7, COPIED_BYTES), (1, 100)]);
        assert_eq!(batch.chunks[1].bytes.as_ptr(), large.as_ptr());
        assert_eq!((batch.messages(), batch.bytes(), queue.bytes(), queue.messages()), (108, 14_196, 0, 0));
        assert!(queue.take(1, 1).unwrap().is_empty());
    }

    #[test]
    fn a_dropped_publication_has_no_number_and_starts_another_session() {
        let mut queue = queue(250);
        assert!(queue.push(&frames(100), 1) && queue.push(&frames(100), 1));
        let count = |number, session| Some(Count { number, session });
        let first = queue.take(1, 1 << 20).unwrap();
        assert_eq!((first.count, first.messages()), (count(0, 0), 2));
        assert!(queue.push(&frames(200), 1) && !queue.push(&frames(100), 3));
        let second = queue.take(1, 1 << 20).unwrap();
        assert_eq!((second.count, second.messages()), (count(2, 1), 1));
        assert!(queue.push(&frames(100), 1));
        assert_eq!(queue.take(1, 1 << 20).unwrap().count, None);
        assert_eq!(queue.taken(), Count { number: 4, session: 1 });
    }

    #[test]
    fn a_batch_is_bounded_but_never_empty_if_something_waits() {
        let mut queue = queue(1 << 20);
        (0..4).for_each(|_| assert!(queue.push(&frames(10_000), 1)));
        assert_eq!(queue.take(1, 25_000).unwrap().messages(), 2);
        assert_eq!(queue.take(1, 1).unwrap().messages(), 1);
    }

    #[test]
    fn only_the_owning_link_takes_changes_and_a_new_link_gets_all_of_them() {
        let mut queue = queue(1000);
        queue.push(&frames(10), 1);
        queue.push_control(frames(3));
        queue.assign(Some(2), vec![frames(5)]);
        assert!(queue.take(1, 1000).is_none());
        let batch = queue.take(2, 1000).unwrap();
        assert_eq!((batch.control, batch.count), (vec![frames(5)], Some(Count::default())));
        queue.assign(None, Vec::new());
        assert!(queue.push_control(frames(3)));
        queue.assign(Some(3), Vec::new());
        assert_eq!(queue.take(3, 1000).unwrap().count, Some(Count { number: 1, session: 0 }));
    }

    #[test]
    fn frames_of_the_protocol_s_own_are_bounded() {
        let mut queue = queue(0);
        assert!(queue.push_control(frames(MAX_CONTROL_BYTES)) && !queue.push_control(frames(1)));
        queue.take(1, 0);
        assert!(queue.push_control(frames(1)));
    }

    #[test]
    fn giving_up_begins_another_session() {
        let mut queue = queue(1000);
        queue.push(&frames(10), 2);
        assert_eq!(queue.give_up(DropReason::PeerLost).len(), 1);
        assert_eq!((queue.bytes(), queue.messages(), queue.taken()), (0, 0, Count { number: 0, session: 1 }));
    }
}
