//! The backlog: sequence numbers and read times of the frames that wait in the inbox, and of those that were dropped.
//! It holds no audio, does no I/O and reads no clock.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::protocol::Span;

/// The time at which a group of frames was read: those after the previous mark, up to `newest`.
#[derive(Clone, Copy, Debug)]
struct Mark {
    newest: u64,
    at: Instant,
}

/// Frames that left the backlog, and when they were read from the socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TakenFrames {
    /// The sequence numbers of these frames.
    pub(crate) span: Span,
    /// When the first frame was read.
    pub(crate) oldest_read: Instant,
    /// When the last frame was read.
    pub(crate) newest_read: Instant,
}

/// The frames of one session that wait for its next tick.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    marks: VecDeque<Mark>,
    /// Sequence number of the last frame that was taken or dropped.
    left: u64,
    /// Sequence number of the last frame that was read.
    arrived: u64,
    /// Frames that were dropped and not reported yet.
    overflow: Option<TakenFrames>,
}

impl Backlog {
    /// Adds frames that were read at `now`.
    pub(crate) fn arrived(&mut self, frames: u64, now: Instant) {
        if frames > 0 {
            self.arrived += frames;
            self.marks.push_back(Mark { newest: self.arrived, at: now });
        }
    }

    /// Number of frames that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.arrived - self.left
    }

    /// Removes the oldest frames: at least one, and no more than wait.
    pub(crate) fn leave(&mut self, frames: u64) -> TakenFrames {
        let span = Span { oldest: self.left + 1, frames };
        self.left += frames;
        let oldest_read = self.marks.front().expect("a frame that waits has a mark").at;
        while self.marks.front().is_some_and(|mark| mark.newest < self.left) {
            self.marks.pop_front();
        }
        let newest = *self.marks.front().expect("the last frame to leave has a mark");
        if newest.newest == self.left {
            self.marks.pop_front();
        }
        TakenFrames { span, oldest_read, newest_read: newest.at }
    }

    /// Drops the oldest frames and adds them to the overflow record.
    pub(crate) fn overflow(&mut self, frames: u64) {
        let later = self.leave(frames);
        self.overflow = Some(match self.overflow {
            // An overflow is reported before the next batch is taken, so the later frames directly follow the earlier
            // ones.
            Some(earlier) => TakenFrames {
                span: Span { oldest: earlier.span.oldest, frames: earlier.span.frames + later.span.frames },
                oldest_read: earlier.oldest_read,
                newest_read: later.newest_read,
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
    fn frames_leave_in_order_and_remember_when_they_were_read() {
        let (first, second) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let mut backlog = Backlog::default();
        backlog.arrived(3, first);
        backlog.arrived(0, second);
        backlog.arrived(2, second);
        let span = |oldest, frames| Span { oldest, frames };
        assert_eq!(backlog.leave(2), TakenFrames { span: span(1, 2), oldest_read: first, newest_read: first });
        assert_eq!(backlog.leave(2), TakenFrames { span: span(3, 2), oldest_read: first, newest_read: second });
        assert_eq!(backlog.leave(1), TakenFrames { span: span(5, 1), oldest_read: second, newest_read: second });
        assert_eq!(backlog.waiting(), 0);
    }

    #[test]
    fn drops_before_a_report_are_reported_together() {
        let now = Instant::now();
        let mut backlog = Backlog::default();
        backlog.arrived(6, now);
        backlog.overflow(2);
        backlog.overflow(3);
        assert_eq!(backlog.take_overflow().map(|taken| taken.span), Some(Span { oldest: 1, frames: 5 }));
        assert_eq!(backlog.take_overflow(), None);
        assert_eq!(backlog.leave(1).span, Span { oldest: 6, frames: 1 });
    }
}
