//! The only place where a thread waits: for the kernel's events and for periodic checks.

use rustix::{buffer::spare_capacity, event::epoll, time::Timespec};

use super::{LoadThread, SWEEP_NS, WAKE, kernel};
use crate::{clock::monotonic_ns, error::Error, live::PUBLISH_INTERVAL_NS, workload::Workload};

/// In a flood the clock is read after this many batches. With one message per batch that is about every 0.2 ms.
const BATCHES_PER_CLOCK: usize = 32;
impl<W: Workload> LoadThread<W> {
    /// Handles events for a while, so that checks of every connection don't run at every event.
    pub(super) fn handle_events_for(&mut self, duration_ns: u64, deadline_ns: u64) -> Result<(), Error> {
        self.next_check_ns = (monotonic_ns() + duration_ns).min(deadline_ns);
        while monotonic_ns() < self.next_check_ns {
            self.handle_events(self.next_check_ns)?;
        }
        Ok(())
    }

    /// Waits for events until `until_ns` at the latest, and handles them.
    pub(super) fn handle_events(&mut self, until_ns: u64) -> Result<(), Error> {
        let now = monotonic_ns();
        if now >= self.next_sweep_ns {
            self.sweep(now);
        }
        if now >= self.next_publish_ns {
            self.next_publish_ns = now + PUBLISH_INTERVAL_NS;
            self.cx.publish_counters();
        }
        let wait_ns = until_ns.min(self.next_sweep_ns).min(self.cx.timers.next_ns()).saturating_sub(now);
        let timeout = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        self.events.clear();
        match epoll::wait(&self.cx.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(kernel("wait for events")(errno)),
        }
        for at in 0..self.events.len() {
            let event = self.events[at];
            let slot = event.data.u64();
            if slot == WAKE {
                // The command is in the channel; the counter only wakes the thread.
                let _ = rustix::io::read(&*self.wake, &mut [0_u8; 8]);
                continue;
            }
            self.sessions[slot as usize].on_event(&mut self.cx, event.flags);
            if self.cx.flooding && at % BATCHES_PER_CLOCK == BATCHES_PER_CLOCK - 1 {
                self.end_flood_after_window(monotonic_ns());
            }
        }
        self.continue_after_timers();
        Ok(())
    }

    /// Continues attempts whose timers have ended. What arrived in time was handled before.
    #[inline]
    fn continue_after_timers(&mut self) {
        if self.cx.timers.next_ns() == u64::MAX {
            return;
        }
        let now = monotonic_ns();
        while let Some(timer) = self.cx.timers.take_ended(now) {
            self.sessions[timer.slot as usize].on_elapsed(&mut self.cx, timer);
        }
    }

    fn sweep(&mut self, now_ns: u64) {
        self.next_sweep_ns = now_ns + SWEEP_NS;
        // After 12 s, for example, a connection was idle for three sweeps: the keepalive is sent after 12 to 16 s.
        let seconds_per_sweep = (SWEEP_NS / 1_000_000_000) as u32;
        let limit = (self.cx.workload.keepalive_after_seconds() / seconds_per_sweep).clamp(1, u8::MAX.into()) as u8;
        for session in &mut self.sessions {
            session.sweep(&mut self.cx, limit);
        }
    }
}
