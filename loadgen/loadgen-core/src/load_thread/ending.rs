//! The end of a trial: data in flight arrives, connections close, and the counts are collected.

use bench_format::result::WindowCounts;

use super::{CHECK_INTERVAL_NS, LoadThread, ThreadResult};
use crate::{
    clock::monotonic_ns, context::Context, error::Error, pattern::Pattern, recorder::Metric, session::Stage,
    workload::Workload,
};

/// Longest time between the exchange of Close frames and the service's end of the stream, in nanoseconds.
const LINGER_NS: u64 = 500_000_000;

impl<W: Workload> LoadThread<W> {
    /// Waits until nothing is in flight, at the latest until the deadline.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        let deadline = self.phases().drain_deadline_ns();
        loop {
            let now = monotonic_ns();
            if now >= deadline || self.sessions.iter().all(|session| session.is_settled(&self.cx)) {
                return Ok(());
            }
            self.handle_events_for(CHECK_INTERVAL_NS, deadline)?;
        }
    }

    /// Starts the close handshake on every connection and waits for the responses, at the latest until the deadline.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        for session in &mut self.sessions {
            let was_open = session.close(&mut self.cx);
            if let Some(turnover) = &mut self.cx.turnover {
                turnover.counts.open_at_end += u64::from(was_open);
            }
        }
        let timeout_ns = self.cx.load.as_ref().map_or(LINGER_NS, |load| load.phases.drain_ns);
        let deadline = monotonic_ns() + timeout_ns;
        let mut all_closed_ns = None;
        loop {
            let now = monotonic_ns();
            let waiting = |stage: Stage| !matches!(stage, Stage::Idle | Stage::Closed | Stage::Ended);
            if !self.sessions.iter().any(|session| waiting(session.stage)) {
                let since = *all_closed_ns.get_or_insert(now);
                if now >= since + LINGER_NS || self.sessions.iter().all(|session| session.stage != Stage::Closed) {
                    break;
                }
            }
            if now >= deadline {
                break;
            }
            self.handle_events_for(CHECK_INTERVAL_NS, deadline)?;
        }
        for session in &mut self.sessions {
            session.give_up(&mut self.cx, "unclosed");
        }
        Ok(())
    }

    pub(super) fn finish(self) -> ThreadResult {
        let remaining = self.sessions.iter().filter_map(|session| session.book(&self.cx));
        let books = self.earlier_books.into_iter().chain(remaining).collect();
        let Context { tally, connections, load, workload, turnover, .. } = self.cx;
        let (from, to) = (self.window_from.unwrap_or_default(), self.window_to.unwrap_or(tally));
        let flood = self.plan.pattern == Pattern::Flood;
        let open_with_replies =
            matches!(self.plan.pattern, Pattern::Open { .. } | Pattern::Churn { .. }) && workload.expects_replies();
        // One of the two is 0, because a connection that receives sends no messages.
        let replies = to.replies - from.replies + tally.window_deliveries;
        let window = WindowCounts {
            duration_ns: load.as_ref().map_or(0, |load| load.phases.window_end_ns - load.phases.window_start_ns),
            due: if flood { to.due - from.due } else { tally.window_due },
            sent: to.sent - from.sent,
            replies,
            answered: replies,
            writes: to.writes - from.writes,
            reads: tally.window_reads,
            bytes_read: tally.window_bytes,
            ..WindowCounts::default()
        };
        let mut recorded = load.map(|load| load.recorder.finish());
        if let Some(recorded) = recorded.as_mut().filter(|_| open_with_replies) {
            // A message without a right reply waited longer than every other: left out, a service that stops to answer
            // would have no slow reply.
            let answered = recorded.values(Metric::Response).total();
            recorded.censor(Metric::Response, window.due.saturating_sub(answered));
        }
        if let (Some(recorded), Some(turnover)) = (&mut recorded, &turnover) {
            // In the same way, a connection that never became ready took longer than every other.
            turnover.censor(recorded);
        }
        ThreadResult { tally, window, connections, recorded, books, turnover, skew_ns: self.skew_ns }
    }
}
