//! Opens a thread's connections: with a limited number of attempts in flight, or at the rate of a storm.

use super::{CHECK_INTERVAL_NS, LoadThread};
use crate::{
    clock::monotonic_ns,
    connect::ATTEMPT_TIMEOUT,
    error::Error,
    pattern::Pattern,
    schedule::{ConstantRate, Schedule},
    session::Stage,
    workload::Workload,
};

impl<W: Workload> LoadThread<W> {
    /// Opens connections until all attempts have succeeded or failed, or until `until_ns`.
    pub(super) fn connect(&mut self, until_ns: u64) -> Result<(), Error> {
        let mut pace = match self.plan.pattern {
            Pattern::Storm { rate_per_second: Some(rate) } => {
                let start = self.cx.load.as_ref().map_or(0, |load| load.phases.start_ns);
                Some((start, Schedule::Constant(ConstantRate::new(rate, self.plan.share))))
            }
            _ => None,
        };
        let mut due = pace.as_mut().map(|(start, schedule)| *start + schedule.next_due_ns());
        loop {
            let now = monotonic_ns();
            if now >= until_ns {
                return Ok(());
            }
            while self.attempted < self.sessions.len()
                && (self.cx.connections.in_flight < self.plan.in_flight || due.is_some())
                && due.is_none_or(|due| due <= now)
            {
                self.start_attempt(due.unwrap_or_else(monotonic_ns));
                due = pace.as_mut().map(|(start, schedule)| *start + schedule.next_due_ns());
            }
            if self.attempted == self.sessions.len() && self.cx.connections.in_flight == 0 {
                return Ok(());
            }
            self.handle_events(until_ns.min(due.unwrap_or(u64::MAX)).min(now + 10 * CHECK_INTERVAL_NS))?;
            self.give_up_old_attempts();
        }
    }

    pub(super) fn start_attempt(&mut self, due_ns: u64) {
        self.attempt_in(self.attempted as u32, due_ns);
        self.attempted += 1;
    }

    /// Attempts the connection of a slot, to the address that its index takes.
    pub(super) fn attempt_in(&mut self, slot: u32, due_ns: u64) {
        let session = &mut self.sessions[slot as usize];
        // One port serves each target once.
        let count = self.sources.len() as u32;
        let sources = &self.sources[(session.index % count) as usize];
        let source = sources.source((self.plan.first_connection + slot) / count);
        session.connect(&mut self.cx, sources.target(), source, due_ns, &mut self.random);
    }

    pub(super) fn give_up_old_attempts(&mut self) {
        let now = monotonic_ns();
        while let Some(session) = self.sessions[..self.attempted].get_mut(self.oldest_attempt) {
            if session.stage < Stage::Open {
                if now < session.started_ns + ATTEMPT_TIMEOUT.as_nanos() as u64 {
                    return;
                }
                session.time_out(&mut self.cx);
            }
            self.oldest_attempt += 1;
        }
    }
}
