//! One load thread: its sessions, its epoll set, and the pace at which it sends frames.
//!
//! Every session has the same period, so the schedule is a ring: sessions ordered by their phase within 20 ms, walked
//! lap by lap. The thread sleeps until the next frame is due, but at least [`TICK_NS`], then sends the frames that are
//! due by then and reads what has arrived. Frames are evenly spread over the 20 ms, so a short sleep makes no burst.

mod ring;

use std::{mem::MaybeUninit, num::NonZeroU64, os::fd::OwnedFd};

use bench_format::result::WorkerBook;
use loadgen_core::{
    Error, clock::monotonic_ns, connect::Sources, live::PUBLISH_INTERVAL_NS, phases::Phases, recorder::Recorded,
};
use ring::{Cursor, Spot};
use rustix::{event::epoll, time::Timespec};

use crate::{
    audio::FRAME_NS,
    books::{Attempts, Tally},
    context::{Context, LoadState},
    metrics::Metric,
    schedule::Start,
    session::{Session, Stage},
};

/// Shortest sleep while frames come due, in nanoseconds: waking costs as much as sending a frame.
pub(crate) const TICK_NS: u64 = 250_000;
/// Most frames that are sent after one reading of the clock, before the thread reads again.
const FRAMES_PER_CHECK: usize = 16;
/// Most events taken from the kernel at once.
const EVENTS: usize = 256;
/// Interval at which the thread checks for sessions that are at rest, closed or timed out while no frame is due, in
/// nanoseconds.
const CHECK_INTERVAL_NS: u64 = 5_000_000;
/// Laps of the ring between two searches for blocked sockets: half a second.
const LAPS_PER_TIMEOUT_CHECK: u64 = 25;
/// How long a gateway may take to end the stream after both sides have sent Close.
const LINGER_NS: u64 = 500_000_000;

/// Timeouts of a session, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct SessionTimeouts {
    /// From the start of a connection attempt until the gateway accepts the upgrade.
    pub connect_ns: u64,
    /// How long a socket may accept no bytes.
    pub send_ns: u64,
    /// From our Close frame to the gateway's.
    pub close_ns: u64,
}

/// The counts and values of one thread over a trial.
pub(crate) struct ThreadResult {
    pub(crate) tally: Tally,
    pub(crate) attempts: Attempts,
    /// The trial's times, with the end of the window as it was.
    pub(crate) phases: Phases,
    pub(crate) recorded: Recorded<Metric>,
    pub(crate) handshakes: bench_format::histogram::Recorder,
    pub(crate) failures: bench_format::result::Failures,
    /// Sessions with a failure in the window.
    pub(crate) failing_sessions: u64,
    /// Largest number of failures of one session in the window.
    pub(crate) most_failures: u64,
    pub(crate) errors: crate::error_samples::ErrorSamples,
    pub(crate) books: Vec<WorkerBook>,
    /// Actual start minus planned start, in nanoseconds.
    pub(crate) skew_ns: i64,
}

/// Sessions, the epoll set that watches them, and the ring that says when each sends.
pub(crate) struct LoadThread {
    pub(crate) cx: Context,
    sessions: Vec<Session>,
    sources: Sources,
    timeouts: SessionTimeouts,
    random: u64,
    ring: Vec<Spot>,
    skew_ns: i64,
    /// When the counters are stored for a display again.
    next_publish_ns: u64,
}

fn kernel(action: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |errno| Error::Kernel { action, source: errno.into() }
}

/// Creates an epoll set for a thread.
pub(crate) fn epoll_set() -> Result<OwnedFd, Error> {
    epoll::create(epoll::CreateFlags::CLOEXEC).map_err(kernel("create an epoll set"))
}

impl LoadThread {
    pub(crate) fn new(cx: Context, sources: Sources, timeouts: SessionTimeouts, seed: u64) -> Self {
        Self {
            cx,
            sessions: Vec::new(),
            sources,
            timeouts,
            random: seed,
            ring: Vec::new(),
            skew_ns: 0,
            next_publish_ns: 0,
        }
    }

    /// Opens `wanted` sessions: keeps those that are at rest, closes surplus ones, and attempts the missing ones, at
    /// most `in_flight` at a time. `first` is the index of the thread's first session among those of all workers.
    pub(crate) fn open(&mut self, wanted: u32, first: u32, in_flight: u32) -> Result<(), Error> {
        self.close(wanted as usize)?;
        self.sessions.truncate(wanted as usize);
        let mut missing: Vec<u32> = (0..wanted)
            .filter(|slot| self.sessions.get(*slot as usize).is_none_or(|kept| !kept.is_at_rest()))
            .collect();
        missing.reverse();
        let mut oldest = 0;
        let mut attempted: Vec<u32> = Vec::new();
        loop {
            while self.cx.attempts.in_flight < in_flight.max(1)
                && let Some(slot) = missing.pop()
            {
                let source = self.sources.source(first + slot);
                let session = Session::connect(&mut self.cx, slot, self.sources.target(), source, &mut self.random);
                match self.sessions.get_mut(slot as usize) {
                    Some(old) => *old = session,
                    None => self.sessions.push(session),
                }
                attempted.push(slot);
            }
            if missing.is_empty() && self.cx.attempts.in_flight == 0 {
                return Ok(());
            }
            let now = monotonic_ns();
            self.handle_events(now, now + 10 * CHECK_INTERVAL_NS)?;
            self.give_up_old_attempts(&attempted, &mut oldest);
        }
    }

    /// Ends attempts that have timed out. Attempts are made in order, and all before `oldest` have an outcome.
    fn give_up_old_attempts(&mut self, attempted: &[u32], oldest: &mut usize) {
        let now = monotonic_ns();
        while let Some(slot) = attempted.get(*oldest) {
            let session = &mut self.sessions[*slot as usize];
            if session.stage < Stage::Open {
                if now < session.attempted_ns + self.timeouts.connect_ns {
                    return;
                }
                session.give_up(&mut self.cx, "connect_timeout");
            }
            *oldest += 1;
        }
    }

    /// Number of open sessions.
    pub(crate) fn alive(&self) -> u32 {
        self.cx.alive
    }

    /// Congestion control of the first socket that is there; all sockets use the same.
    pub(crate) fn congestion_control(&self) -> Option<String> {
        let socket = self.sessions.iter().find_map(Session::socket)?;
        rustix::net::sockopt::tcp_congestion(socket).ok()
    }

    /// Offers the load of a trial until its window ends or no session is left, then waits for frames that are not
    /// answered yet. Calls `window_over` between the two.
    pub(crate) fn work(&mut self, load: LoadState, start: Start, window_over: impl FnOnce()) -> Result<(), Error> {
        // The default slack of 50 us would delay every frame by as much.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).map_err(kernel("set the timer slack"))?;
        let phases = load.phases;
        self.cx.load = Some(load);
        self.schedule_sessions(&start, phases.start_ns);
        while monotonic_ns() < phases.start_ns {
            self.handle_events(monotonic_ns(), phases.start_ns)?;
        }
        self.skew_ns = monotonic_ns() as i64 - phases.start_ns as i64;
        self.pace(phases)?;
        window_over();
        self.drain(phases.drain_deadline_ns())
    }

    /// Gives every open session its place in the ring.
    fn schedule_sessions(&mut self, start: &Start, start_ns: u64) {
        self.ring.clear();
        for (slot, session) in self.sessions.iter_mut().enumerate().filter(|(_, session)| session.stage == Stage::Open)
        {
            let start_of_session = start.of(slot as u32);
            session.assign(
                start_of_session.index,
                start_ns + start_of_session.first_lap * FRAME_NS + u64::from(start_of_session.phase_ns),
            );
            self.ring.push(Spot {
                phase_ns: start_of_session.phase_ns,
                first_lap: u32::try_from(start_of_session.first_lap).unwrap_or(u32::MAX),
                slot: slot as u32,
            });
        }
        self.ring.sort_unstable_by_key(|spot| spot.phase_ns);
    }

    fn pace(&mut self, phases: Phases) -> Result<(), Error> {
        let mut cursor = Cursor { lap: 0, at: 0 };
        loop {
            let now = monotonic_ns();
            if self.cx.alive == 0 {
                return Ok(());
            }
            if now >= phases.drain_deadline_ns() {
                self.forgo(cursor, phases, now);
                return Ok(());
            }
            let mut sent = 0;
            let next_due_ns = loop {
                let due = cursor.due_ns(&self.ring, phases.start_ns).min(phases.window_end_ns);
                if due > now || due == phases.window_end_ns || sent == FRAMES_PER_CHECK {
                    break due;
                }
                if let Some(session) = cursor.session(&mut self.ring, &mut self.sessions) {
                    session.on_due(&mut self.cx, due, now);
                    sent += 1;
                }
                self.advance(&mut cursor, now);
            };
            if next_due_ns == phases.window_end_ns && now >= next_due_ns {
                return Ok(());
            }
            let wake_ns = if next_due_ns <= now { now } else { next_due_ns.max(now + TICK_NS) };
            self.handle_events(now, wake_ns.min(phases.window_end_ns.max(now)))?;
        }
    }

    /// Counts the frames from the cursor on as due, without sending them: a generator that is this far behind its
    /// schedule must also end.
    fn forgo(&mut self, mut cursor: Cursor, phases: Phases, now_ns: u64) {
        loop {
            let due = cursor.due_ns(&self.ring, phases.start_ns);
            if due >= phases.window_end_ns {
                return;
            }
            if let Some(session) = cursor.session(&mut self.ring, &mut self.sessions) {
                session.count_due(&mut self.cx, due, now_ns);
            }
            cursor.advance(&self.ring);
        }
    }

    #[inline]
    fn advance(&mut self, cursor: &mut Cursor, now_ns: u64) {
        if cursor.advance(&self.ring) && cursor.lap.is_multiple_of(LAPS_PER_TIMEOUT_CHECK) {
            self.check_timeouts(now_ns);
        }
    }

    fn check_timeouts(&mut self, now_ns: u64) {
        for session in &mut self.sessions {
            session.check_timeout(&mut self.cx, now_ns, self.timeouts.send_ns);
        }
    }

    /// Waits until every frame is covered, at most until the deadline.
    fn drain(&mut self, deadline_ns: u64) -> Result<(), Error> {
        loop {
            let now = monotonic_ns();
            let waiting = |session: &Session| session.stage == Stage::Open && !session.is_at_rest();
            if now >= deadline_ns || !self.sessions.iter().any(waiting) {
                return Ok(());
            }
            self.check_timeouts(now);
            self.handle_events_until(now + CHECK_INTERVAL_NS)?;
        }
    }

    /// Closes every session from `from` on, and those that are not at rest, and waits for the gateway's Close frames.
    pub(crate) fn close(&mut self, from: usize) -> Result<(), Error> {
        for (slot, session) in self.sessions.iter_mut().enumerate() {
            if slot >= from || !session.is_at_rest() {
                session.close(&mut self.cx);
            }
        }
        let deadline = monotonic_ns() + self.timeouts.close_ns;
        let mut answered_ns = None;
        loop {
            let now = monotonic_ns();
            let any = |stage| self.sessions.iter().any(|session| session.stage == stage);
            if !any(Stage::Closing) {
                let since = *answered_ns.get_or_insert(now);
                if !any(Stage::Closed) || now >= since + LINGER_NS {
                    break;
                }
            } else if now >= deadline {
                break;
            }
            self.handle_events_until(now + CHECK_INTERVAL_NS)?;
        }
        for session in self.sessions.iter_mut().filter(|session| session.stage > Stage::Open) {
            session.give_up(&mut self.cx, "close_timeout");
        }
        self.cx.judge_deferred();
        Ok(())
    }

    /// Handles events until a moment. Callers that look at every session use it, so that they don't do so at every
    /// event.
    fn handle_events_until(&mut self, until_ns: u64) -> Result<(), Error> {
        loop {
            let now = monotonic_ns();
            if now >= until_ns {
                return Ok(());
            }
            self.handle_events(now, until_ns)?;
        }
    }

    /// Waits for events, at most until a moment, and handles them.
    fn handle_events(&mut self, now_ns: u64, until_ns: u64) -> Result<(), Error> {
        if now_ns >= self.next_publish_ns {
            self.next_publish_ns = now_ns + PUBLISH_INTERVAL_NS;
            self.cx.publish_counters();
        }
        let wait_ns = until_ns.saturating_sub(now_ns);
        let timeout = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let events = match epoll::wait(&self.cx.epoll, &mut room, Some(&timeout)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(kernel("wait for events")(errno)),
        };
        for event in events {
            let slot = event.data.u64() as usize;
            self.sessions[slot].on_event(&mut self.cx, event.flags);
        }
        Ok(())
    }

    /// Ends the trial's counts and returns them; sessions stay. Returns `None` when no load was given.
    pub(crate) fn report(&mut self) -> Option<ThreadResult> {
        let mut books = Vec::new();
        for session in &mut self.sessions {
            books.extend(session.settle(&mut self.cx));
            session.reset_trial();
        }
        let LoadState { phases, recorder, recorded_deferred, rows } = self.cx.load.take()?;
        drop(rows);
        let mut recorded = recorder.finish();
        recorded_deferred.into_iter().for_each(|aside| recorded.add(aside));
        let tally = std::mem::take(&mut self.cx.tally);
        censor(&mut recorded, &tally);
        let attempts = std::mem::take(&mut self.cx.attempts);
        let by_session = std::mem::take(&mut self.cx.failures_of_session);
        Some(ThreadResult {
            tally,
            attempts,
            phases,
            recorded,
            handshakes: std::mem::take(&mut self.cx.handshakes),
            failures: std::mem::take(&mut self.cx.failures),
            failing_sessions: by_session.len() as u64,
            most_failures: by_session.into_values().max().unwrap_or(0),
            errors: std::mem::take(&mut self.cx.errors),
            books,
            skew_ns: self.skew_ns,
        })
    }
}

/// Enters what is still unanswered as older than every recorded value: each frame of the window without a right answer,
/// and the answers that they lack.
fn censor(recorded: &mut Recorded<Metric>, tally: &Tally) {
    let answered = recorded.values(Metric::Frame).total();
    let frames = tally.window_scheduled.saturating_sub(answered);
    recorded.censor(Metric::Frame, frames);
    for metric in [Metric::Newest, Metric::Oldest, Metric::NewestService, Metric::OldestService] {
        recorded.censor(metric, tally.window_unanswered);
    }
}
