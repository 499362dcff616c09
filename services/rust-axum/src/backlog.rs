//! Which frames of a session wait, since when, and which were dropped: the numbers to the audio in the inbox. Pure.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::protocol::Span;

/// When frames were read: those up to a sequence number, and not those of the mark before.
#[derive(Clone, Copy, Debug)]
struct Mark {
    newest: u64,
    at: Instant,
}

/// Frames that left the backlog, and when they had been read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Taken {
    /// Which.
    pub(crate) span: Span,
    /// When the first was read.
    pub(crate) oldest_read: Instant,
    /// When the last was read.
    pub(crate) newest_read: Instant,
}

/// Frames that wait.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    marks: VecDeque<Mark>,
    /// Sequence number of the last frame that left.
    left: u64,
    /// Sequence number of the last frame that came.
    came: u64,
    /// Frames that were dropped since that was last reported.
    overflow: Option<Taken>,
}

impl Backlog {
    /// So many frames were read at `now`.
    pub(crate) fn arrived(&mut self, frames: u64, now: Instant) {
        if frames > 0 {
            self.came += frames;
            self.marks.push_back(Mark { newest: self.came, at: now });
        }
    }

    /// Frames that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.came - self.left
    }

    /// The oldest so many leave; at least one, and no more than wait.
    pub(crate) fn leave(&mut self, frames: u64) -> Taken {
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
        Taken { span, oldest_read, newest_read: newest.at }
    }

    /// The oldest so many are dropped.
    pub(crate) fn overflow(&mut self, frames: u64) {
        let later = self.leave(frames);
        self.overflow = Some(match self.overflow {
            // Frames only leave otherwise once this was reported: so the later follow right behind.
            Some(earlier) => Taken {
                span: Span { oldest: earlier.span.oldest, frames: earlier.span.frames + later.span.frames },
                oldest_read: earlier.oldest_read,
                newest_read: later.newest_read,
            },
            None => later,
        });
    }

    /// What was dropped and not reported yet.
    pub(crate) fn take_overflow(&mut self) -> Option<Taken> {
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
        assert_eq!(backlog.leave(2), Taken { span: span(1, 2), oldest_read: first, newest_read: first });
        assert_eq!(backlog.leave(2), Taken { span: span(3, 2), oldest_read: first, newest_read: second });
        assert_eq!(backlog.leave(1), Taken { span: span(5, 1), oldest_read: second, newest_read: second });
        assert_eq!(backlog.waiting(), 0);
    }

    #[test]
    fn what_is_dropped_before_a_report_is_reported_as_one() {
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
