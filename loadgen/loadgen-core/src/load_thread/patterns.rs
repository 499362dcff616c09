//! The load of one thread: one method for each [`Pattern`](crate::Pattern). Each runs until its load is over, and
//! records the counters at the start and the end of the window.

use bench_format::plan::Arrivals;

use super::LoadThread;
use crate::{
    clock::monotonic_ns,
    error::Error,
    phases::Phases,
    schedule::{ConstantRate, PoissonArrivals, Schedule, Share},
    workload::Workload,
};

/// How long a publisher goes on after the window, in nanoseconds.
const PUBLISH_ON_NS: u64 = 500_000_000;
/// In an open loop, replies are read after at most this many due messages.
pub(super) const DUE_PER_TURN: usize = 64;

impl<W: Workload> LoadThread<W> {
    /// Opens connections until the window ends; attempts that are still open then have failed.
    pub(super) fn storm(&mut self) -> Result<(), Error> {
        self.record_window_edges(monotonic_ns());
        self.connect(self.phases().window_end_ns)?;
        self.end_attempts();
        Ok(())
    }

    /// Each session sends its next message when the reply to the last one has arrived.
    pub(super) fn ping_pong(&mut self) -> Result<(), Error> {
        for session in &mut self.sessions {
            session.join_ping_pong(&mut self.cx, monotonic_ns());
        }
        loop {
            let now = monotonic_ns();
            self.record_window_edges(now);
            let phases = self.phases();
            if now >= phases.window_end_ns || self.cx.in_ping_pong == 0 {
                self.end_window(now);
                return Ok(());
            }
            let edge = if now < phases.window_start_ns { phases.window_start_ns } else { phases.window_end_ns };
            self.handle_events(edge)?;
        }
    }

    /// Sends each message when it is due, until the window ends. `rate_per_second` counts over all threads and workers.
    /// Messages that are due but can't be sent before the drain ends are counted as unsent.
    pub(super) fn open_loop(&mut self, rate_per_second: f64, arrivals: Arrivals) -> Result<(), Error> {
        let phases @ Phases { start_ns, window_end_ns, .. } = self.phases();
        let drain_deadline_ns = phases.drain_deadline_ns();
        // One slot of the schedule is one write, whose messages are due together.
        let rate = rate_per_second / self.cx.coalesce as f64;
        let mut schedule = self.schedule(rate, arrivals);
        let mut due = start_ns + schedule.next_due_ns();
        let mut next_session = 0;
        loop {
            let now = monotonic_ns();
            self.record_window_edges(now);
            if now >= drain_deadline_ns {
                self.count_unsent(due, schedule);
                return Ok(());
            }
            let mut burst = 0;
            while due <= now && due < window_end_ns && burst < DUE_PER_TURN && !self.sessions.is_empty() {
                let session = &mut self.sessions[next_session];
                (0..self.cx.coalesce).for_each(|_| session.offer(&mut self.cx, due));
                self.cx.handled(due, now);
                session.pump(&mut self.cx);
                next_session = (next_session + 1) % self.sessions.len();
                due = start_ns + schedule.next_due_ns();
                burst += 1;
            }
            if now >= window_end_ns && due >= window_end_ns {
                return Ok(());
            }
            self.handle_events(due.min(window_end_ns))?;
        }
    }

    /// The thread's share of a schedule. `rate_per_second` counts over all threads and workers.
    pub(super) fn schedule(&self, rate_per_second: f64, arrivals: Arrivals) -> Schedule {
        let (share, seed) = (self.plan.share, self.plan.seed);
        match arrivals {
            Arrivals::Constant => Schedule::Constant(ConstantRate::new(rate_per_second, share)),
            Arrivals::Poisson => Schedule::Poisson(PoissonArrivals::new(rate_per_second, share, seed)),
        }
    }

    /// Counts all messages from `due` on as unsent, so that a generator that is far behind its schedule ends in time.
    fn count_unsent(&mut self, mut due: u64, mut schedule: Schedule) {
        let Phases { start_ns, window_end_ns, .. } = self.phases();
        while due < window_end_ns && !self.sessions.is_empty() {
            self.cx.count_unsent(self.cx.coalesce, due);
            due = start_ns + schedule.next_due_ns();
        }
    }

    /// Each session sends whenever its socket accepts bytes, until the window ends.
    pub(super) fn flood(&mut self) -> Result<(), Error> {
        self.cx.flooding = true;
        for session in &mut self.sessions {
            session.watch_writes(&mut self.cx);
        }
        while self.cx.flooding {
            let now = monotonic_ns();
            self.end_flood_after_window(now);
            let phases = self.phases();
            let edge = if now < phases.window_start_ns { phases.window_start_ns } else { phases.window_end_ns };
            self.handle_events(edge)?;
        }
        for session in &mut self.sessions {
            session.watch_writes(&mut self.cx);
        }
        Ok(())
    }

    /// Publishes on the first session, and lets all others receive. It publishes on for a moment after the window, so that
    /// each receiver shows that it has everything of the window.
    pub(super) fn publish(&mut self, rate_per_second: f64, arrivals: Arrivals) -> Result<(), Error> {
        let Phases { start_ns, window_end_ns, drain_ns, .. } = self.phases();
        let end_ns = window_end_ns + PUBLISH_ON_NS.min(drain_ns / 2);
        let whole = Share { index: 0, of: 1 };
        let mut schedule = match arrivals {
            Arrivals::Constant => Schedule::Constant(ConstantRate::new(rate_per_second, whole)),
            Arrivals::Poisson => Schedule::Poisson(PoissonArrivals::new(rate_per_second, whole, self.plan.seed)),
        };
        let mut due = start_ns + schedule.next_due_ns();
        let mut published = 0;
        loop {
            let now = monotonic_ns();
            self.record_window_edges(now);
            let mut burst = 0;
            while due <= now && due < end_ns && burst < DUE_PER_TURN {
                if due < window_end_ns {
                    self.cx.last_of_window = Some(self.cx.workload.first_sequence() + published);
                }
                let session = &mut self.sessions[0];
                session.offer(&mut self.cx, due);
                self.cx.handled(due, now);
                session.pump(&mut self.cx);
                due = start_ns + schedule.next_due_ns();
                (published, burst) = (published + 1, burst + 1);
            }
            if now >= end_ns {
                return Ok(());
            }
            self.handle_events(due.min(end_ns))?;
        }
    }

    /// Waits until the window ends. Events of the sessions meanwhile read what the service publishes.
    pub(super) fn receive(&mut self) -> Result<(), Error> {
        loop {
            let now = monotonic_ns();
            self.record_window_edges(now);
            let phases = self.phases();
            if now >= phases.window_end_ns {
                return Ok(());
            }
            let edge = if now < phases.window_start_ns { phases.window_start_ns } else { phases.window_end_ns };
            self.handle_events(edge)?;
        }
    }

    /// Ends a flood once the window is over. Called between writes as well, because one turn can last long.
    pub(super) fn end_flood_after_window(&mut self, now_ns: u64) {
        self.record_window_edges(now_ns);
        self.cx.flooding = self.window_to.is_none();
    }

    /// Records the counters when the window starts or ends, and what was sent in each second of it.
    #[inline]
    pub(super) fn record_window_edges(&mut self, now_ns: u64) {
        let phases = self.phases();
        if let Some(load) = &mut self.cx.load {
            load.recorder.note_sent(self.cx.tally.sent, now_ns);
        }
        if self.window_from.is_none() && now_ns >= phases.window_start_ns {
            self.window_from = Some(self.cx.tally);
        }
        if self.window_to.is_none() && now_ns >= phases.window_end_ns {
            self.window_to = Some(self.cx.tally);
        }
    }

    /// Ends the window at `now_ns` if its planned end is later, because the load is over.
    pub(super) fn end_window(&mut self, now_ns: u64) {
        let load = self.cx.load.as_mut().expect("load has started");
        load.phases.end_window(now_ns);
        load.recorder.end_window(load.phases.window_end_ns);
        self.record_window_edges(now_ns.max(self.phases().window_end_ns));
    }
}
