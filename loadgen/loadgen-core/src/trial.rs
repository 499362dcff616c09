//! One trial of one worker: threads, the barrier, the window, the result.
//!
//! Generic over the workload; who holds the barrier (a coordinator, a parent process, nobody) is behind [`Gate`].

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use bench_format::{
    environment::Environment,
    result::{ConnectionCounts, MessageCounts, Witness, WorkerEvidence, WorkerResult},
    trial::Assignment,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    clock::{monotonic_ns, process_cpu_ns, wall_offset_ns},
    connect::resolve,
    context::Pattern,
    error::Error,
    evidence::{CpuCgroup, cpu_limit, peak_rss_bytes},
    phases::Phases,
    schedule::Share,
    worker::{self, Command, Report, ThreadPlan, ThreadResult},
    workload::Workload,
};

/// Who holds the barrier between "ready" and "start".
pub trait Gate {
    /// This worker has so many open connections, or can't take part. Returns when load starts.
    ///
    /// # Errors
    /// [`Error::Abandoned`] when there will be no load, or whatever kept the gate from being asked.
    fn ready(&mut self, open: u32, problem: Option<String>) -> Result<StartAt, Error>;

    /// The window has begun or ended, as near to the moment as the kernel wakes us. For readings of the service.
    fn window_edge(&mut self, _edge: Edge) {}
}

/// An edge of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Measuring starts.
    Start,
    /// Measuring ends.
    End,
}

/// When load starts, on whose clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartAt {
    /// Unix nanoseconds of the coordinator's clock.
    pub unix_ns: u64,
    /// This machine's clock minus the coordinator's, in nanoseconds.
    pub clock_offset_ns: i64,
    /// Half the best round trip, in nanoseconds.
    pub clock_uncertainty_ns: u64,
}

/// Nobody to wait for: load starts a moment after this worker is ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct AtOnce;

impl Gate for AtOnce {
    fn ready(&mut self, _open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        match problem {
            Some(reason) => Err(Error::Abandoned { reason }),
            // Enough for every thread to be told.
            None => Ok(StartAt {
                unix_ns: crate::clock::unix_ns() + 20_000_000,
                clock_offset_ns: 0,
                clock_uncertainty_ns: 0,
            }),
        }
    }
}

/// Carries out an assignment.
///
/// # Errors
/// When there can be no result: the address can't be resolved, the gate stays shut, no connection opens.
pub fn run<W: Workload>(
    workload: W,
    assignment: &Assignment,
    pattern: Pattern,
    witness: Witness,
    program: &str,
    gate: &mut dyn Gate,
) -> Result<WorkerResult, Error> {
    let cgroup = CpuCgroup::find();
    let limit = cpu_limit(cgroup.as_ref());
    let wall_before = wall_offset_ns();
    let cpu_before = process_cpu_ns();
    let threads = Threads::start(workload, assignment, pattern, limit, wall_before)?;
    let prepared = threads.prepared()?;
    let storm = matches!(pattern, Pattern::Storm { .. });
    let problem = (!storm && prepared.open == 0 && assignment.connections > 0).then(|| {
        let target = resolve(&assignment.address);
        target.map_or_else(
            |error| error.to_string(),
            |address| {
                Error::NothingOpen { wanted: assignment.connections, address, reasons: in_words(&prepared.failed) }
                    .to_string()
            },
        )
    });
    let start = match gate.ready(prepared.open, problem) {
        Ok(start) => start,
        Err(error) => {
            threads.abandon();
            return Err(error);
        }
    };
    let local_unix_ns = start.unix_ns as i64 + start.clock_offset_ns;
    let start_ns = (local_unix_ns - wall_before).max(0) as u64;
    let phases = Phases::new(start_ns, assignment.warmup_ns, assignment.window_ns, assignment.drain_ns);
    threads.command(|| Command::Start(phases));

    sleep_until(phases.window_start_ns);
    let (cpu_from, throttling_from) = (process_cpu_ns(), cgroup.as_ref().and_then(CpuCgroup::throttling));
    gate.window_edge(Edge::Start);
    let early = threads.window_ended()?;
    let (cpu_to, throttling_to) = (process_cpu_ns(), cgroup.as_ref().and_then(CpuCgroup::throttling));
    gate.window_edge(Edge::End);
    let mut done = threads.finished(early)?;

    done.window.cpu_ns = cpu_to - cpu_from;
    let throttling = throttling_from.zip(throttling_to);
    let evidence = WorkerEvidence {
        program: program.to_owned(),
        start_at_unix_ns: start.unix_ns,
        start_skew_ns: done.skew_ns,
        clock_offset_ns: start.clock_offset_ns,
        clock_uncertainty_ns: start.clock_uncertainty_ns,
        clock_step_ns: wall_offset_ns() - wall_before,
        cpu_limit: limit,
        cpu_seconds: (process_cpu_ns() - cpu_before) as f64 / 1e9,
        throttled_periods: throttling.map(|(from, to)| to.throttled - from.throttled),
        periods: throttling.map(|(from, to)| to.periods - from.periods),
        throttling: if throttling.is_some() { "measured" } else { "not_measured" }.to_owned(),
        rss_bytes: peak_rss_bytes(),
        nodelay: true,
        congestion_control: prepared.congestion_control.unwrap_or_else(|| Environment::read().congestion_control),
    };
    Ok(result(assignment, witness, done, evidence))
}

fn result(assignment: &Assignment, witness: Witness, done: ThreadResult, evidence: WorkerEvidence) -> WorkerResult {
    let tally = done.tally;
    let replies_counted = witness == Witness::Reply;
    let answered = if replies_counted { tally.replies + tally.wrong } else { 0 };
    WorkerResult {
        schema: bench_format::SCHEMA,
        run: assignment.run.clone(),
        trial: assignment.trial.clone(),
        attempt: assignment.attempt,
        worker: assignment.worker,
        witness,
        connections: ConnectionCounts {
            attempted: done.connections.attempted,
            open: done.connections.opened,
            failed: done.connections.failed,
            closed_early: done.connections.closed_early,
        },
        messages: MessageCounts {
            due: tally.due,
            sent: tally.sent,
            delivered: if replies_counted { tally.replies } else { 0 },
            wrong: tally.wrong,
            lost: if replies_counted { tally.sent - answered } else { 0 },
            unsent: tally.unsent,
            duplicates: tally.duplicates,
            reorders: tally.reorders,
            bytes_sent: tally.bytes_sent,
            bytes_received: tally.bytes_received,
            ..MessageCounts::default()
        },
        window: done.window,
        histograms: done.recorded.as_ref().map(|recorded| recorded.histograms()).unwrap_or_default(),
        intervals: done.recorded.as_ref().map(|recorded| recorded.intervals()).unwrap_or_default(),
        books: done.books,
        evidence,
        environment: Environment::read(),
    }
}

fn in_words(reasons: &BTreeMap<String, u64>) -> String {
    let words: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} x {reason}")).collect();
    if words.is_empty() { "no attempt ended".into() } else { words.join(", ") }
}

fn sleep_until(moment_ns: u64) {
    let now = monotonic_ns();
    if moment_ns > now {
        thread::sleep(Duration::from_nanos(moment_ns - now));
    }
}

/// What all threads said when they were ready.
#[derive(Default)]
struct Prepared {
    open: u32,
    failed: BTreeMap<String, u64>,
    congestion_control: Option<String>,
}

/// The threads of a worker.
struct Threads {
    commands: Vec<(Sender<Command>, Arc<OwnedFd>)>,
    reports: Receiver<Report>,
}

impl Threads {
    /// One thread per CPU that may be used, none without a connection.
    fn start<W: Workload>(
        workload: W,
        assignment: &Assignment,
        pattern: Pattern,
        cpu_limit: f64,
        wall_offset_ns: i64,
    ) -> Result<Self, Error> {
        let target = resolve(&assignment.address)?;
        let count = (cpu_limit.ceil() as u32).min(assignment.connections).max(1);
        let workload = Arc::new(workload);
        let (report, reports) = channel();
        let mut threads = Self { commands: Vec::new(), reports };
        for index in 0..count {
            let from = part(assignment.connections, index, count);
            let plan = ThreadPlan {
                target,
                host: assignment.address.clone(),
                connections: part(assignment.connections, index + 1, count) - from,
                first_connection: assignment.first_connection + from,
                in_flight: in_flight(assignment, count),
                pattern: over_all_workers(pattern, assignment.workers),
                coalesce: assignment.message.coalesce,
                share: Share {
                    index: u64::from(assignment.worker + assignment.workers * index),
                    of: u64::from(assignment.workers * count),
                },
                seed: assignment.seed,
                wall_offset_ns,
            };
            threads.spawn(Arc::clone(&workload), plan, report.clone())?;
        }
        Ok(threads)
    }

    fn spawn<W: Workload>(&mut self, workload: Arc<W>, plan: ThreadPlan, report: Sender<Report>) -> Result<(), Error> {
        let kernel = |what| move |source| Error::Kernel { what, source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| kernel("create a wake-up descriptor")(errno.into()))?;
        let wake = Arc::new(wake);
        let (command, commands) = channel();
        let descriptor = Arc::clone(&wake);
        thread::Builder::new()
            .name(format!("load-{}", self.commands.len()))
            .spawn(move || worker::run(workload, plan, descriptor, commands, report))
            .map_err(kernel("start a load thread"))?;
        self.commands.push((command, wake));
        Ok(())
    }

    fn command(&self, command: impl Fn() -> Command) {
        for (sender, wake) in &self.commands {
            // A thread that is gone has reported why, or is missed at the next report.
            let _ = sender.send(command());
            let _ = rustix::io::write(&**wake, &1_u64.to_ne_bytes());
        }
    }

    fn report(&self) -> Result<Report, Error> {
        match self.reports.recv() {
            Ok(Report::Failed(error)) => Err(error),
            Ok(report) => Ok(report),
            Err(_) => Err(Error::ThreadDied),
        }
    }

    fn prepared(&self) -> Result<Prepared, Error> {
        let mut all = Prepared::default();
        for _ in &self.commands {
            if let Report::Ready { open, failed, congestion_control } = self.report()? {
                all.open += open;
                failed.into_iter().for_each(|(reason, count)| *all.failed.entry(reason).or_default() += count);
                all.congestion_control = all.congestion_control.or(congestion_control);
            }
        }
        Ok(all)
    }

    /// Waits until every thread has ended its window. A quick thread may be finished before a slow one ends its own.
    fn window_ended(&self) -> Result<Vec<ThreadResult>, Error> {
        let mut early = Vec::new();
        let mut missing = self.commands.len();
        while missing > 0 {
            match self.report()? {
                Report::WindowEnded => missing -= 1,
                Report::Finished(result) => early.push(*result),
                Report::Ready { .. } | Report::Failed(_) => {}
            }
        }
        Ok(early)
    }

    fn finished(self, early: Vec<ThreadResult>) -> Result<ThreadResult, Error> {
        let mut results = early;
        while results.len() < self.commands.len() {
            if let Report::Finished(result) = self.report()? {
                results.push(*result);
            }
        }
        results
            .into_iter()
            .reduce(|mut all, result| {
                all.add(result);
                all
            })
            .ok_or(Error::ThreadDied)
    }

    fn abandon(&self) {
        self.command(|| Command::Stop);
        for _ in &self.commands {
            let _ = self.report();
        }
    }
}

/// Where part `index` of `of` begins when `whole` is cut evenly.
fn part(whole: u32, index: u32, of: u32) -> u32 {
    (u64::from(whole) * u64::from(index) / u64::from(of)) as u32
}

fn in_flight(assignment: &Assignment, threads: u32) -> u32 {
    let over_all = match assignment.load {
        bench_format::plan::Load::Closed { in_flight, .. } => in_flight,
        bench_format::plan::Load::Open { .. } => 256,
    };
    (over_all / (assignment.workers * threads)).max(1)
}

/// An assignment's rate is the worker's share; schedules are cut out of the whole.
fn over_all_workers(pattern: Pattern, workers: u32) -> Pattern {
    let workers = f64::from(workers);
    match pattern {
        Pattern::Open { rate_per_second, arrivals } => {
            Pattern::Open { rate_per_second: rate_per_second * workers, arrivals }
        }
        Pattern::Storm { rate_per_second } => {
            Pattern::Storm { rate_per_second: rate_per_second.map(|rate| rate * workers) }
        }
        closed => closed,
    }
}

impl ThreadResult {
    fn add(&mut self, other: ThreadResult) {
        self.tally.add(&other.tally);
        self.connections.add(other.connections);
        let (mine, theirs) = (&mut self.window, &other.window);
        mine.duration_ns = mine.duration_ns.max(theirs.duration_ns);
        mine.due += theirs.due;
        mine.sent += theirs.sent;
        mine.replies += theirs.replies;
        mine.writes += theirs.writes;
        self.recorded = match (self.recorded.take(), other.recorded) {
            (Some(mut mine), Some(theirs)) => {
                mine.add(theirs);
                Some(mine)
            }
            (mine, theirs) => mine.or(theirs),
        };
        self.books.extend(other.books);
        if other.skew_ns.abs() > self.skew_ns.abs() {
            self.skew_ns = other.skew_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_whole_without_overlap() {
        for (whole, of) in [(10, 3), (1, 1), (7, 7), (100_003, 16)] {
            let borders: Vec<_> = (0..=of).map(|index| part(whole, index, of)).collect();
            assert_eq!((borders[0], borders[of as usize]), (0, whole));
            assert!(borders.windows(2).all(|pair| pair[1] - pair[0] <= whole.div_ceil(of)));
        }
    }

    #[test]
    fn without_a_problem_the_gate_of_nobody_opens_at_once() {
        let start = AtOnce.ready(1, None).unwrap();
        assert!(start.unix_ns > crate::clock::unix_ns());
        assert!(matches!(AtOnce.ready(0, Some("x".into())), Err(Error::Abandoned { .. })));
    }
}
