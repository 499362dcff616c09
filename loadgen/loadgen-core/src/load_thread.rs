//! One load thread: its connections, its epoll set, its recorder, and its part of a trial.
//!
//! A thread shares no data while it runs. It receives commands and returns its result at the end. In the order of a
//! trial: `attempts` opens connections, `patterns`, `churn` and `reconnect` offer the load, `ending` drains, closes
//! connections and collects the counts; all of them wait in `events`.

mod attempts;
mod churn;
mod ending;
mod events;
mod patterns;
mod reconnect;

pub use churn::CLOSE_TIMEOUT_NS;

use std::{
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
};

use bench_format::result::{WindowCounts, WorkerBook};
use rustix::event::epoll;

use crate::{
    clock::monotonic_ns,
    connect::Sources,
    context::{ConnectionTally, Context, LoadState, Tally},
    error::Error,
    pattern::Pattern,
    phases::{Phases, StartAt},
    recorder::{Recorded, Recorder},
    session::{Session, Stage},
    thread_plan::ThreadPlan,
    turnover::TurnoverTally,
    workload::Workload,
};

/// Largest number of events that one call returns.
const EVENTS: usize = 256;
/// Interval at which idle connections are looked for, in nanoseconds.
const SWEEP_NS: u64 = 4_000_000_000;
/// Interval, in nanoseconds, at which a waiting thread checks for finished attempts, settled connections and time-outs.
const CHECK_INTERVAL_NS: u64 = 5_000_000;
/// Identifies the wake-up descriptor in epoll events.
const WAKE: u64 = u64::MAX;

/// A command to a load thread.
pub(crate) enum Command {
    /// Start the load.
    Start(Phases, StartAt),
    /// Drain and close the connections. The service has been read.
    Drain,
    /// There will be no load, or it is no longer needed: close the connections.
    Stop,
}

/// A report of a load thread.
pub(crate) enum Report {
    /// All connection attempts have ended.
    Ready {
        open: u32,
        failed: std::collections::BTreeMap<String, u64>,
        /// TCP congestion control of the thread's sockets.
        congestion_control: Option<String>,
    },
    /// The thread's window is over.
    WindowEnded,
    /// The thread has finished.
    Finished(Box<ThreadResult>),
    /// The thread can't run.
    Failed(Error),
}

/// The result of one thread.
pub(crate) struct ThreadResult {
    pub(crate) tally: Tally,
    pub(crate) window: WindowCounts,
    pub(crate) connections: ConnectionTally,
    pub(crate) recorded: Option<Recorded>,
    pub(crate) books: Vec<WorkerBook>,
    /// Present only if connections came and went under load.
    pub(crate) turnover: Option<Box<TurnoverTally>>,
    /// Actual start minus planned start, in nanoseconds.
    pub(crate) skew_ns: i64,
}

/// Runs a thread from the first connection attempt to the last close. All results go through `report`.
pub(crate) fn run<W: Workload>(
    workload: Arc<W>,
    plan: ThreadPlan,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    report: Sender<Report>,
) {
    let thread = LoadThread::new(workload, plan, wake, commands, report.clone());
    // If the receiver of reports is gone, the report isn't needed.
    let _ = match thread.and_then(LoadThread::work) {
        Ok(result) => report.send(Report::Finished(Box::new(result))),
        Err(error) => report.send(Report::Failed(error)),
    };
}

struct LoadThread<W: Workload> {
    cx: Context<W>,
    sessions: Vec<Session>,
    /// Books of connections whose place another one has taken.
    earlier_books: Vec<WorkerBook>,
    plan: ThreadPlan,
    /// Those of each target.
    sources: Vec<Sources>,
    events: Vec<epoll::Event>,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    report: Sender<Report>,
    random: u64,
    /// Number of sessions attempted so far, in order.
    attempted: usize,
    /// Index of the first attempt that may still be pending.
    oldest_attempt: usize,
    next_check_ns: u64,
    next_sweep_ns: u64,
    /// When the counters are stored for a display again.
    next_publish_ns: u64,
    window_from: Option<Tally>,
    window_to: Option<Tally>,
    skew_ns: i64,
}

fn kernel(action: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |errno| Error::Kernel { action, source: errno.into() }
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
        // The default slack of 50 us would delay every message by that much.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).map_err(kernel("set the timer slack"))?;
        let random = plan.seed ^ (plan.share.index + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let source_addresses = workload.source_addresses();
        let sources = plan.targets.iter().map(|target| Sources::new(target.address, source_addresses)).collect();
        let cx = Context::new(workload, epoll, random, &plan);
        Ok(Self {
            cx,
            sessions: (0..plan.connections).map(|slot| Session::new(slot, plan.first_connection + slot)).collect(),
            earlier_books: Vec::new(),
            sources,
            events: Vec::with_capacity(EVENTS),
            wake,
            commands,
            report,
            random: random.rotate_left(17),
            attempted: 0,
            oldest_attempt: 0,
            next_check_ns: 0,
            next_sweep_ns: monotonic_ns() + SWEEP_NS,
            next_publish_ns: 0,
            window_from: None,
            window_to: None,
            skew_ns: 0,
            plan,
        })
    }

    /// Runs the thread's part of one trial.
    fn work(mut self) -> Result<ThreadResult, Error> {
        let storm = matches!(self.plan.pattern, Pattern::Storm { .. });
        if !storm {
            self.connect(u64::MAX)?;
        }
        self.report_ready();
        if let Command::Start(phases, start) = self.wait_for_command()? {
            self.start(phases, start)?;
            match self.plan.pattern {
                Pattern::Storm { .. } => self.storm()?,
                Pattern::PingPong { .. } => self.ping_pong()?,
                Pattern::Open { rate_per_second, arrivals } => self.open_loop(rate_per_second, arrivals)?,
                Pattern::Flood => self.flood()?,
                Pattern::Fanout { rate_per_second, arrivals } if self.plan.first_connection == 0 => {
                    self.publish(rate_per_second, arrivals)?;
                }
                Pattern::Churn { rate_per_second, arrivals, connections_per_second } => {
                    self.churn(rate_per_second, arrivals, connections_per_second)?;
                }
                Pattern::Reconnect { cut, spread_ns } => self.reconnect(cut, spread_ns)?,
                Pattern::Fanout { .. } | Pattern::Receive(_) | Pattern::Idle => self.receive()?,
            }
            let _ = self.report.send(Report::WindowEnded);
            if self.plan.pattern.may_end_early() {
                self.wait_for_command()?;
            }
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

    /// Keeps the connections open until the next command.
    fn wait_for_command(&mut self) -> Result<Command, Error> {
        loop {
            match self.commands.try_recv() {
                Ok(command) => return Ok(command),
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(Command::Stop),
                Err(std::sync::mpsc::TryRecvError::Empty) => self.handle_events(u64::MAX)?,
            }
        }
    }

    fn start(&mut self, phases: Phases, start: StartAt) -> Result<(), Error> {
        let recorder = Recorder::new(phases.window_start_ns, phases.window_end_ns).with_live(&self.cx.live);
        let publisher_offset_ns = self.cx.wall_offset_ns - start.clock_offset_ns + start.publisher_ahead_ns;
        self.cx.load = Some(LoadState { phases, recorder, publisher_offset_ns });
        loop {
            let now = monotonic_ns();
            if now >= phases.start_ns {
                self.skew_ns = now as i64 - phases.start_ns as i64;
                return Ok(());
            }
            self.handle_events(phases.start_ns)?;
        }
    }

    fn phases(&self) -> Phases {
        self.cx.load.as_ref().expect("load has started").phases
    }
}

fn congestion_control(socket: &OwnedFd) -> Option<String> {
    rustix::net::sockopt::tcp_congestion(socket).ok()
}
