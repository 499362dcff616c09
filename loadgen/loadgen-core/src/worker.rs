//! One load thread: its connections, its epoll set, its recorder, and the loop that keeps the schedule.
//!
//! A thread shares nothing while it works. It is told when to start, and hands in its books at the end.

use std::{
    net::SocketAddr,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
};

use bench_format::{
    plan::Arrivals,
    result::{WindowCounts, WorkerBook},
};
use rustix::{buffer::spare_capacity, event::epoll, time::Timespec};

use crate::{
    clock::monotonic_ns,
    connect::Sources,
    context::{ConnectionTally, Context, LoadState, Pattern, Tally},
    error::Error,
    phases::Phases,
    recorder::{Recorded, Recorder},
    schedule::{ConstantRate, PoissonArrivals, Schedule, Share},
    session::{Session, Stage},
    workload::Workload,
};

/// Events taken from the kernel at once.
const EVENTS: usize = 256;
/// In a flood the clock is read after this many batches: at one message per batch that is about 0.2 ms.
const BATCHES_PER_CLOCK: usize = 32;
/// In an open loop, replies are read after at most this many messages that were due.
const DUE_PER_TURN: usize = 64;
/// An attempt that has not led to a ready connection by then has failed.
const ATTEMPT_TIMEOUT_NS: u64 = 15_000_000_000;
/// How often idle connections are looked for.
const SWEEP_NS: u64 = 4_000_000_000;
/// A connection that was idle at this many sweeps in a row sends something: after 12 to 16 s, never more than 20.
const IDLE_SWEEPS: u8 = 3;
/// How often finished attempts, settled connections and timeouts are looked for while waiting, in nanoseconds.
const LOOK_NS: u64 = 5_000_000;
/// How long the service may take to end the stream after both sides have said goodbye.
const LINGER_NS: u64 = 500_000_000;
/// epoll's name for the wake-up descriptor.
const WAKE: u64 = u64::MAX;

/// What a thread is to do.
pub(crate) struct ThreadPlan {
    pub(crate) target: SocketAddr,
    /// As in the `Host` header.
    pub(crate) host: String,
    pub(crate) connections: u32,
    /// Index of the first connection among those of all workers.
    pub(crate) first_connection: u32,
    pub(crate) in_flight: u32,
    pub(crate) pattern: Pattern,
    pub(crate) coalesce: u32,
    /// Among the threads of all workers.
    pub(crate) share: Share,
    pub(crate) seed: u64,
    pub(crate) wall_offset_ns: i64,
}

/// What the trial tells a thread.
pub(crate) enum Command {
    /// Load starts.
    Start(Phases),
    /// There will be no load.
    Stop,
}

/// What a thread tells the trial.
pub(crate) enum Report {
    /// All attempts have ended.
    Ready {
        open: u32,
        failed: std::collections::BTreeMap<String, u64>,
        /// Congestion control on its sockets.
        congestion_control: Option<String>,
    },
    /// Its window is over.
    WindowEnded,
    /// It is done.
    Finished(Box<ThreadResult>),
    /// It can't work.
    Failed(Error),
}

/// A thread's books.
pub(crate) struct ThreadResult {
    pub(crate) tally: Tally,
    pub(crate) window: WindowCounts,
    pub(crate) connections: ConnectionTally,
    pub(crate) recorded: Option<Recorded>,
    pub(crate) books: Vec<WorkerBook>,
    /// Actual start minus planned start.
    pub(crate) skew_ns: i64,
}

/// Runs a thread from the first connection to the last. Everything it has to say goes through `report`.
pub(crate) fn run<W: Workload>(
    workload: Arc<W>,
    plan: ThreadPlan,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    report: Sender<Report>,
) {
    let thread = LoadThread::new(workload, plan, wake, commands, report.clone());
    // A receiver that is gone has no use for the report either.
    let _ = match thread.and_then(LoadThread::work) {
        Ok(result) => report.send(Report::Finished(Box::new(result))),
        Err(error) => report.send(Report::Failed(error)),
    };
}

struct LoadThread<W: Workload> {
    cx: Context<W>,
    sessions: Vec<Session>,
    plan: ThreadPlan,
    sources: Sources,
    events: Vec<epoll::Event>,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    report: Sender<Report>,
    random: u64,
    /// Sessions attempted so far; they are attempted in order.
    attempted: usize,
    /// All attempts before this one have an outcome.
    oldest_attempt: usize,
    next_look_ns: u64,
    next_sweep_ns: u64,
    window_from: Option<Tally>,
    window_to: Option<Tally>,
    skew_ns: i64,
}

fn kernel(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |errno| Error::Kernel { what, source: errno.into() }
}

impl<W: Workload> LoadThread<W> {
    fn new(
        workload: Arc<W>,
        plan: ThreadPlan,
        wake: Arc<OwnedFd>,
        commands: Receiver<Command>,
        report: Sender<Report>,
    ) -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(kernel("create an epoll set"))?;
        epoll::add(&epoll, &*wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)
            .map_err(kernel("watch the wake-up descriptor"))?;
        // The default slack of 50 us would make every message late by as much.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).map_err(kernel("set the timer slack"))?;
        let random = plan.seed ^ (plan.share.index + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let cx = Context::new(workload, &plan.host, epoll, random, plan.pattern, plan.coalesce, plan.wall_offset_ns);
        Ok(Self {
            cx,
            sessions: (0..plan.connections).map(Session::new).collect(),
            sources: Sources::new(plan.target),
            events: Vec::with_capacity(EVENTS),
            wake,
            commands,
            report,
            random: random.rotate_left(17),
            attempted: 0,
            oldest_attempt: 0,
            next_look_ns: 0,
            next_sweep_ns: monotonic_ns() + SWEEP_NS,
            window_from: None,
            window_to: None,
            skew_ns: 0,
            plan,
        })
    }

    /// The sequence of a trial.
    fn work(mut self) -> Result<ThreadResult, Error> {
        let storm = matches!(self.plan.pattern, Pattern::Storm { .. });
        if !storm {
            self.connect(u64::MAX)?;
        }
        self.report_ready();
        if let Command::Start(phases) = self.hold()? {
            self.start(phases)?;
            match self.plan.pattern {
                Pattern::Storm { .. } => self.storm()?,
                Pattern::PingPong { .. } => self.ping_pong()?,
                Pattern::Open { rate_per_second, arrivals } => self.open_loop(rate_per_second, arrivals)?,
                Pattern::Flood => self.flood()?,
            }
            let _ = self.report.send(Report::WindowEnded);
            self.drain()?;
        }
        self.close()?;
        Ok(self.finish())
    }

    fn report_ready(&self) {
        let congestion_control = self.sessions.iter().find_map(Session::socket).and_then(congestion_control);
        let open = self.sessions.iter().filter(|session| session.stage == Stage::Open).count() as u32;
        let failed = self.cx.connections.failed.clone();
        let _ = self.report.send(Report::Ready { open, failed, congestion_control });
    }

    /// Opens connections until all have been attempted and have an outcome, or until a moment.
    fn connect(&mut self, until_ns: u64) -> Result<(), Error> {
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
                self.attempt(due.unwrap_or_else(monotonic_ns));
                due = pace.as_mut().map(|(start, schedule)| *start + schedule.next_due_ns());
            }
            if self.attempted == self.sessions.len() && self.cx.connections.in_flight == 0 {
                return Ok(());
            }
            self.turn(until_ns.min(due.unwrap_or(u64::MAX)).min(now + 10 * LOOK_NS))?;
            self.give_up_old_attempts();
        }
    }

    fn attempt(&mut self, due_ns: u64) {
        let source = self.sources.source(self.plan.first_connection + self.attempted as u32);
        let session = &mut self.sessions[self.attempted];
        session.connect(&mut self.cx, self.plan.target, source, due_ns, &mut self.random);
        self.attempted += 1;
    }

    fn give_up_old_attempts(&mut self) {
        let now = monotonic_ns();
        while let Some(session) = self.sessions[..self.attempted].get_mut(self.oldest_attempt) {
            if session.stage < Stage::Open {
                if now < session.started_ns + ATTEMPT_TIMEOUT_NS {
                    return;
                }
                let why = if session.stage == Stage::Greeting { "ready_timeout" } else { "timeout" };
                session.give_up(&mut self.cx, why);
            }
            self.oldest_attempt += 1;
        }
    }

    /// Keeps the connections alive until the trial says what comes next.
    fn hold(&mut self) -> Result<Command, Error> {
        loop {
            match self.commands.try_recv() {
                Ok(command) => return Ok(command),
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(Command::Stop),
                Err(std::sync::mpsc::TryRecvError::Empty) => self.turn(u64::MAX)?,
            }
        }
    }

    fn start(&mut self, phases: Phases) -> Result<(), Error> {
        let recorder = Recorder::new(phases.window_start_ns, phases.window_end_ns);
        self.cx.load = Some(LoadState { phases, recorder });
        loop {
            let now = monotonic_ns();
            if now >= phases.start_ns {
                self.skew_ns = now as i64 - phases.start_ns as i64;
                return Ok(());
            }
            self.turn(phases.start_ns)?;
        }
    }

    fn phases(&self) -> Phases {
        self.cx.load.as_ref().expect("load has started").phases
    }

    /// Takes the counters when the window's edges are passed.
    #[inline]
    fn mark(&mut self, now_ns: u64) {
        let phases = self.phases();
        if self.window_from.is_none() && now_ns >= phases.window_start_ns {
            self.window_from = Some(self.cx.tally);
        }
        if self.window_to.is_none() && now_ns >= phases.window_end_ns {
            self.window_to = Some(self.cx.tally);
        }
    }

    fn end_window(&mut self, now_ns: u64) {
        let load = self.cx.load.as_mut().expect("load has started");
        load.phases.end_window(now_ns);
        load.recorder.end_window(load.phases.window_end_ns);
        self.mark(now_ns.max(self.phases().window_end_ns));
    }

    fn storm(&mut self) -> Result<(), Error> {
        self.mark(monotonic_ns());
        self.connect(self.phases().window_end_ns)?;
        let last = self.cx.connections.last_outcome_ns;
        for session in &mut self.sessions {
            if session.stage < Stage::Open {
                session.give_up(&mut self.cx, "window_over");
            }
        }
        self.end_window(if last == 0 { monotonic_ns() } else { last });
        Ok(())
    }

    fn ping_pong(&mut self) -> Result<(), Error> {
        for session in &mut self.sessions {
            session.join(&mut self.cx, monotonic_ns());
        }
        loop {
            let now = monotonic_ns();
            self.mark(now);
            let phases = self.phases();
            if now >= phases.window_end_ns || self.cx.playing == 0 {
                self.end_window(now);
                return Ok(());
            }
            let edge = if now < phases.window_start_ns { phases.window_start_ns } else { phases.window_end_ns };
            self.turn(edge)?;
        }
    }

    fn open_loop(&mut self, rate_per_second: f64, arrivals: Arrivals) -> Result<(), Error> {
        let Phases { start_ns, window_end_ns, .. } = self.phases();
        // A slot of the schedule is one write: its messages are due together.
        let rate = rate_per_second / self.cx.coalesce as f64;
        let mut schedule = match arrivals {
            Arrivals::Constant => Schedule::Constant(ConstantRate::new(rate, self.plan.share)),
            Arrivals::Poisson => Schedule::Poisson(PoissonArrivals::new(rate, self.plan.share, self.plan.seed)),
        };
        let mut due = start_ns + schedule.next_due_ns();
        let mut turn = 0;
        loop {
            let now = monotonic_ns();
            self.mark(now);
            let mut burst = 0;
            while due <= now && due < window_end_ns && burst < DUE_PER_TURN && !self.sessions.is_empty() {
                let session = &mut self.sessions[turn];
                (0..self.cx.coalesce).for_each(|_| session.offer(&mut self.cx, due));
                session.pump(&mut self.cx);
                turn = (turn + 1) % self.sessions.len();
                due = start_ns + schedule.next_due_ns();
                burst += 1;
            }
            if now >= window_end_ns && due >= window_end_ns {
                return Ok(());
            }
            self.turn(due.min(window_end_ns))?;
        }
    }

    fn flood(&mut self) -> Result<(), Error> {
        self.cx.flooding = true;
        for session in &mut self.sessions {
            session.watch_writes(&mut self.cx);
        }
        while self.cx.flooding {
            let now = monotonic_ns();
            self.cut_flood(now);
            let phases = self.phases();
            let edge = if now < phases.window_start_ns { phases.window_start_ns } else { phases.window_end_ns };
            self.turn(edge)?;
        }
        for session in &mut self.sessions {
            session.watch_writes(&mut self.cx);
        }
        Ok(())
    }

    fn cut_flood(&mut self, now_ns: u64) {
        self.mark(now_ns);
        self.cx.flooding = self.window_to.is_none();
    }

    /// Waits until nothing is on its way, not past the deadline.
    fn drain(&mut self) -> Result<(), Error> {
        let deadline = self.phases().drain_deadline_ns();
        loop {
            let now = monotonic_ns();
            if now >= deadline || self.sessions.iter().all(|session| session.is_settled(&self.cx)) {
                return Ok(());
            }
            self.turn_for(LOOK_NS, deadline)?;
        }
    }

    /// Says goodbye to every service end and waits for its answer, not past the deadline.
    fn close(&mut self) -> Result<(), Error> {
        for session in &mut self.sessions {
            session.close(&mut self.cx);
        }
        let patience = self.cx.load.as_ref().map_or(LINGER_NS, |load| load.phases.drain_ns);
        let deadline = monotonic_ns() + patience;
        let mut all_answered_ns = None;
        loop {
            let now = monotonic_ns();
            let waiting = |stage: Stage| !matches!(stage, Stage::Idle | Stage::Closed | Stage::Ended);
            if !self.sessions.iter().any(|session| waiting(session.stage)) {
                let since = *all_answered_ns.get_or_insert(now);
                if now >= since + LINGER_NS || self.sessions.iter().all(|session| session.stage != Stage::Closed) {
                    break;
                }
            }
            if now >= deadline {
                break;
            }
            self.turn_for(LOOK_NS, deadline)?;
        }
        for session in &mut self.sessions {
            session.give_up(&mut self.cx, "unclosed");
        }
        Ok(())
    }

    /// Handles events for a while: what looks at every connection must not do so at every event.
    fn turn_for(&mut self, duration_ns: u64, deadline_ns: u64) -> Result<(), Error> {
        self.next_look_ns = (monotonic_ns() + duration_ns).min(deadline_ns);
        while monotonic_ns() < self.next_look_ns {
            self.turn(self.next_look_ns)?;
        }
        Ok(())
    }

    /// Waits for events, at the latest until a moment, and handles them.
    fn turn(&mut self, until_ns: u64) -> Result<(), Error> {
        let now = monotonic_ns();
        if now >= self.next_sweep_ns {
            self.sweep(now);
        }
        let wait_ns = until_ns.min(self.next_sweep_ns).saturating_sub(now);
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
                // The message is in the channel; the counter only wakes us up.
                let _ = rustix::io::read(&*self.wake, &mut [0_u8; 8]);
                continue;
            }
            self.sessions[slot as usize].on_event(&mut self.cx, event.flags);
            if self.cx.flooding && at % BATCHES_PER_CLOCK == BATCHES_PER_CLOCK - 1 {
                self.cut_flood(monotonic_ns());
            }
        }
        Ok(())
    }

    fn sweep(&mut self, now_ns: u64) {
        self.next_sweep_ns = now_ns + SWEEP_NS;
        for session in &mut self.sessions {
            session.sweep(&mut self.cx, IDLE_SWEEPS);
        }
    }

    fn finish(self) -> ThreadResult {
        let books = self.sessions.iter().filter_map(|session| session.book(&self.cx)).collect();
        let Context { tally, connections, load, .. } = self.cx;
        let (from, to) = (self.window_from.unwrap_or_default(), self.window_to.unwrap_or(tally));
        let flood = self.plan.pattern == Pattern::Flood;
        let window = WindowCounts {
            duration_ns: load.as_ref().map_or(0, |load| load.phases.window_end_ns - load.phases.window_start_ns),
            due: if flood { to.due - from.due } else { tally.window_due },
            sent: to.sent - from.sent,
            replies: to.replies - from.replies,
            writes: to.writes - from.writes,
            cpu_ns: 0,
        };
        let recorded = load.map(|load| load.recorder.finish());
        ThreadResult { tally, window, connections, recorded, books, skew_ns: self.skew_ns }
    }
}

fn congestion_control(socket: &OwnedFd) -> Option<String> {
    rustix::net::sockopt::tcp_congestion(socket).ok()
}
