//! The backlog: sequence numbers and read times of the frames that wait in the inbox, and of those that were dropped.
//! It holds no audio, does no I/O and reads no clock.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::protocol::Span;

/// The time at which a group of frames was read: those after the previous mark, up to `newest`.
#[derive(Clone, Copy, Debug)]
struct Mark {
    newest: u64,
    read_at: Instant,
}

/// Frames that were removed from the backlog, and when they were read from the socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TakenFrames {
    /// The sequence numbers of these frames.
    pub(crate) span: Span,
    /// When the first frame was read.
    pub(crate) oldest_read_at: Instant,
    /// When the last frame was read.
    pub(crate) newest_read_at: Instant,
}

/// The frames of one session that wait for its next tick.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    marks: VecDeque<Mark>,
    /// Sequence number of the last frame that was taken or dropped.
    last_removed: u64,
    /// Sequence number of the last frame that was read.
    last_read: u64,
    /// Frames that were dropped and not reported yet.
    overflow: Option<TakenFrames>,
}

impl Backlog {
    /// Adds frames that were read at `now`.
    pub(crate) fn add(&mut self, frames: u64, now: Instant) {
        if frames > 0 {
            self.last_read += frames;
            self.marks.push_back(Mark { newest: self.last_read, read_at: now });
        }
    }

    /// Number of frames that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.last_read - self.last_removed
    }

    /// Removes the oldest frames: at least one, and no more than wait.
    pub(crate) fn remove(&mut self, frames: u64) -> TakenFrames {
        let span = Span { oldest: self.last_removed + 1, frames };
        self.last_removed += frames;
        let oldest_read_at = self.marks.front().expect("a frame that waits has a mark").read_at;
        while self.marks.front().is_some_and(|mark| mark.newest < self.last_removed) {
            self.marks.pop_front();
        }
        let newest = *self.marks.front().expect("the last frame to leave has a mark");
        if newest.newest == self.last_removed {
            self.marks.pop_front();
        }
        TakenFrames { span, oldest_read_at, newest_read_at: newest.read_at }
    }

    /// Drops the oldest frames and adds them to the overflow record.
    pub(crate) fn drop_oldest(&mut self, frames: u64) {
        let later = self.remove(frames);
        self.overflow = Some(match self.overflow {
            // An overflow is reported before the next batch is taken, so the later frames directly follow the earlier
            // ones.
            Some(earlier) => TakenFrames {
                span: Span { oldest: earlier.span.oldest, frames: earlier.span.frames + later.span.frames },
                oldest_read_at: earlier.oldest_read_at,
                newest_read_at: later.newest_read_at,
            },
            None => later,
        });
    }

    /// Takes the overflow record; `None` if no frame was dropped since the last call.
    pub(crate) fn take_overflow(&mut self) -> Option<TakenFrames> {
        self.overflow.take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn frames_are_removed_in_order_with_their_read_times() {
        let (first, second) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let mut backlog = Backlog::default();
        backlog.add(3, first);
        backlog.add(0, second);
        backlog.add(2, second);
        let span = |oldest, frames| Span { oldest, frames };
        assert_eq!(backlog.remove(2), TakenFrames { span: span(1, 2), oldest_read_at: first, newest_read_at: first });
        assert_eq!(backlog.remove(2), TakenFrames { span: span(3, 2), oldest_read_at: first, newest_read_at: second });
        assert_eq!(backlog.remove(1), TakenFrames { span: span(5, 1), oldest_read_at: second, newest_read_at: second });
        assert_eq!(backlog.waiting(), 0);
    }

    #[test]
    fn drops_before_a_report_are_reported_together() {
        let now = Instant::now();
        let mut backlog = Backlog::default();
        backlog.add(6, now);
        backlog.drop_oldest(2);
        backlog.drop_oldest(3);
        assert_eq!(backlog.take_overflow().map(|taken| taken.span), Some(Span { oldest: 1, frames: 5 }));
        assert_eq!(backlog.take_overflow(), None);
        assert_eq!(backlog.remove(1).span, Span { oldest: 6, frames: 1 });
    }
}
