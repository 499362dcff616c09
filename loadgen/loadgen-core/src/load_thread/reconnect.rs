//! All connections are cut at once and connect again.

use bench_format::plan::Cut;

use super::{CHECK_INTERVAL_NS, LoadThread};
use crate::{
    clock::monotonic_ns,
    error::Error,
    phases::Phases,
    recorder::Metric,
    session::{Session, Stage},
    workload::Workload,
};

/// Events are handled after at most this many attempts.
const ATTEMPTS_PER_TURN: usize = 64;

impl<W: Workload> LoadThread<W> {
    /// Cuts all connections at the start of the window, and lets each connect again. The window ends with the last
    /// attempt; what is still being attempted at its planned end has failed.
    pub(super) fn reconnect(&mut self, cut: Cut, spread_ns: u64) -> Result<(), Error> {
        let Phases { window_start_ns, window_end_ns, .. } = self.phases();
        while monotonic_ns() < window_start_ns {
            self.handle_events(window_start_ns)?;
        }
        self.record_window_edges(monotonic_ns());
        let slots = self.cut_all(cut, window_start_ns);
        // The threads of all workers take turns.
        let (index, of, count) = (self.plan.share.index, self.plan.share.of, slots.len() as u64);
        let slot_of_spread = |nth: usize| u128::from(nth as u64 * of + index) * u128::from(spread_ns);
        let due = |nth: usize| window_start_ns + (slot_of_spread(nth) / u128::from((count * of).max(1))) as u64;
        let mut next = 0;
        loop {
            let now = monotonic_ns();
            if now >= window_end_ns || (next == slots.len() && self.cx.connections.in_flight == 0) {
                break;
            }
            let turn_end = slots.len().min(next + ATTEMPTS_PER_TURN);
            while next < turn_end && due(next) <= now {
                self.attempt_again(slots[next], due(next));
                next += 1;
            }
            let next_due = if next < slots.len() { due(next) } else { u64::MAX };
            self.handle_events(window_end_ns.min(next_due).min(now + 10 * CHECK_INTERVAL_NS))?;
            self.give_up_old_attempts();
        }
        self.count_not_made((slots.len() - next) as u64);
        self.end_attempts();
        Ok(())
    }

    /// Cuts all open connections; returns their slots. Each slot has a new connection then, which waits for its attempt.
    fn cut_all(&mut self, cut: Cut, cut_ns: u64) -> Vec<u32> {
        let mut slots = Vec::new();
        for slot in 0..self.sessions.len() {
            if self.sessions[slot].cut(&mut self.cx, cut) {
                slots.push(slot as u32);
            }
        }
        for &slot in &slots {
            let index = self.sessions[slot as usize].index;
            self.replace(slot, index);
        }
        if let Some(turnover) = &mut self.cx.turnover {
            turnover.cut_ns = Some(cut_ns);
            turnover.counts.closed += slots.len() as u64;
        }
        self.oldest_attempt = 0;
        slots
    }

    /// Puts a new connection into a slot, and keeps the book of the one that was there.
    pub(super) fn replace(&mut self, slot: u32, index: u32) {
        let at = slot as usize;
        self.earlier_books.extend(self.sessions[at].book(&self.cx));
        self.sessions[at] = Session::new(slot, index);
        self.cx.protocol[at] = W::Connection::default();
    }

    fn attempt_again(&mut self, slot: u32, due_ns: u64) {
        self.attempted = slot as usize;
        self.start_attempt_due(due_ns);
    }

    /// Starts the next attempt and counts it as due.
    fn start_attempt_due(&mut self, due_ns: u64) {
        self.count_attempt(due_ns);
        self.start_attempt(due_ns);
    }

    /// Counts an attempt that is made now, and how late that is.
    pub(super) fn count_attempt(&mut self, due_ns: u64) {
        let now_ns = monotonic_ns();
        if let (Some(turnover), Some(load)) = (&mut self.cx.turnover, &mut self.cx.load)
            && load.phases.in_window(due_ns)
        {
            turnover.counts.due += 1;
            load.recorder.record(Metric::AttemptLateness, now_ns.saturating_sub(due_ns), now_ns);
        }
    }

    /// Counts attempts that were due in the window and are not made.
    pub(super) fn count_not_made(&mut self, count: u64) {
        if let Some(turnover) = &mut self.cx.turnover {
            turnover.counts.due += count;
            turnover.counts.not_made += count;
        }
    }

    /// Ends what is still being attempted, and the window with the last attempt that ended before.
    pub(super) fn end_attempts(&mut self) {
        let last = self.cx.connections.last_outcome_ns;
        for session in &mut self.sessions {
            if session.stage < Stage::Open {
                session.give_up(&mut self.cx, "window_over");
            }
        }
        self.end_window(if last == 0 { monotonic_ns() } else { last });
    }
}
