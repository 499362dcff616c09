//! The load threads of a worker: their plans, their reports, and the sum of their results.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use bench_format::{plan::Load, trial::Assignment};
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    clock::monotonic_ns,
    connect::resolve,
    error::Error,
    live::LiveCounts,
    load_thread::{self, Command, Report, ThreadResult},
    pattern::Pattern,
    preflight::{most_connections, open_files},
    schedule::Share,
    thread_plan::{Target, ThreadPlan},
    trial::{Gate, LiveReports},
    workload::Workload,
};

/// Attempts in flight over all workers, if the load doesn't set a number.
const OPEN_IN_FLIGHT: u32 = 256;

/// The reports of all threads when they were ready, summed.
#[derive(Default)]
pub(super) struct Prepared {
    pub(super) open: u32,
    pub(super) failed: BTreeMap<String, u64>,
    pub(super) congestion_control: Option<String>,
}

/// The running load threads of a worker.
pub(super) struct Threads {
    commands: Vec<(Sender<Command>, Arc<OwnedFd>)>,
    reports: Receiver<Report>,
    /// What each thread has done so far.
    live: Vec<Arc<LiveCounts>>,
}

impl Threads {
    /// Starts one thread per available CPU, but no more than connections.
    pub(super) fn start<W: Workload>(
        workload: W,
        assignment: &Assignment,
        pattern: Pattern,
        cpu_limit: f64,
        wall_offset_ns: i64,
    ) -> Result<Self, Error> {
        let targets = targets(&workload, &assignment.address)?;
        let count = (cpu_limit.ceil() as u32).min(assignment.connections).max(1);
        let workload = Arc::new(workload);
        let (report, reports) = channel();
        let mut threads = Self { commands: Vec::new(), reports, live: Vec::new() };
        for index in 0..count {
            let from = part(assignment.connections, index, count);
            let live = Arc::new(LiveCounts::default());
            threads.live.push(Arc::clone(&live));
            let plan = ThreadPlan {
                targets: Arc::clone(&targets),
                connections: part(assignment.connections, index + 1, count) - from,
                // The first workers may have one more than the others.
                connections_of_all: (assignment.connections + 1).saturating_mul(assignment.workers),
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
                late_after_ns: assignment.late_after_ns.unwrap_or(u64::MAX),
                most_connections: (most_connections(open_files(), 1) / u64::from(count)) as usize,
                live,
            };
            threads.spawn(Arc::clone(&workload), plan, report.clone())?;
        }
        Ok(threads)
    }

    fn spawn<W: Workload>(&mut self, workload: Arc<W>, plan: ThreadPlan, report: Sender<Report>) -> Result<(), Error> {
        let kernel = |action| move |source| Error::Kernel { action, source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| kernel("create a wake-up descriptor")(errno.into()))?;
        let wake = Arc::new(wake);
        let (command, commands) = channel();
        let descriptor = Arc::clone(&wake);
        thread::Builder::new()
            .name(format!("load-{}", self.commands.len()))
            .spawn(move || load_thread::run(workload, plan, descriptor, commands, report))
            .map_err(kernel("start a load thread"))?;
        self.commands.push((command, wake));
        Ok(())
    }

    pub(super) fn command(&self, command: impl Fn() -> Command) {
        for (sender, wake) in &self.commands {
            // A thread that has ended has reported why, or is missed at the next report.
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

    /// The next report. While there is none, hands the counts to the gate, until shortly before `edge_ns`.
    fn report_beside(&self, live: &mut LiveReports, edge_ns: u64, gate: &mut dyn Gate) -> Result<Report, Error> {
        loop {
            let wake_ns = live.wake_ns(edge_ns);
            if wake_ns >= edge_ns {
                return self.report();
            }
            match self.reports.recv_timeout(Duration::from_nanos(wake_ns.saturating_sub(monotonic_ns()))) {
                Ok(Report::Failed(error)) => return Err(error),
                Ok(report) => return Ok(report),
                Err(RecvTimeoutError::Timeout) => live.report(edge_ns, gate),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::ThreadDied),
            }
        }
    }

    /// Reports of what the threads have done so far, for a worker that may use so many CPUs.
    pub(super) fn live_reports(&self, cpu_limit: f64) -> LiveReports {
        LiveReports::new(self.live.clone(), cpu_limit)
    }

    pub(super) fn prepared(&self) -> Result<Prepared, Error> {
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

    /// Waits until every thread has ended its window, which ends at `end_ns` by plan, and hands the counts to the gate
    /// meanwhile. A fast thread may finish before a slow one ends its window.
    pub(super) fn window_ended(
        &self,
        live: &mut LiveReports,
        end_ns: u64,
        gate: &mut dyn Gate,
    ) -> Result<Vec<ThreadResult>, Error> {
        let mut early = Vec::new();
        let mut missing = self.commands.len();
        while missing > 0 {
            match self.report_beside(live, end_ns, gate)? {
                Report::WindowEnded => missing -= 1,
                Report::Finished(result) => early.push(*result),
                Report::Ready { .. } | Report::Failed(_) => {}
            }
        }
        Ok(early)
    }

    pub(super) fn finished(self, early: Vec<ThreadResult>) -> Result<ThreadResult, Error> {
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

    pub(super) fn abandon(&self) {
        self.command(|| Command::Stop);
        for _ in &self.commands {
            let _ = self.report();
        }
    }
}

/// Releases threads that wait for a command.
impl Drop for Threads {
    fn drop(&mut self) {
        self.command(|| Command::Stop);
    }
}

/// The addresses that connections take in turn, resolved.
fn targets<W: Workload>(workload: &W, first: &str) -> Result<Arc<[Target]>, Error> {
    let all = std::iter::once(first).chain(workload.more_addresses().iter().map(String::as_str));
    all.map(|host| Ok(Target { address: resolve(host)?, host: host.to_owned() })).collect()
}

/// Start of part `index` if `total` is divided evenly into `of` parts.
fn part(total: u32, index: u32, of: u32) -> u32 {
    (u64::from(total) * u64::from(index) / u64::from(of)) as u32
}

/// Attempts in flight of each thread. The assignment contains the worker's share.
fn in_flight(assignment: &Assignment, threads: u32) -> u32 {
    let of_worker = match assignment.load {
        Load::Closed { in_flight, .. } | Load::Sessions { in_flight, .. } => in_flight,
        Load::Reconnect { in_flight, .. } => in_flight,
        Load::Open { .. } | Load::Churn { .. } => OPEN_IN_FLIGHT / assignment.workers,
    };
    (of_worker / threads).max(1)
}

/// Converts the worker's rate to the rate over all workers, because schedules are shares of the whole.
fn over_all_workers(pattern: Pattern, workers: u32) -> Pattern {
    let workers = f64::from(workers);
    match pattern {
        Pattern::Open { rate_per_second, arrivals } => {
            Pattern::Open { rate_per_second: rate_per_second * workers, arrivals }
        }
        Pattern::Churn { rate_per_second, arrivals, connections_per_second } => Pattern::Churn {
            rate_per_second: rate_per_second * workers,
            arrivals,
            connections_per_second: connections_per_second * workers,
        },
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
        let (own, added) = (&mut self.window, &other.window);
        own.duration_ns = own.duration_ns.max(added.duration_ns);
        own.due += added.due;
        own.sent += added.sent;
        own.replies += added.replies;
        own.answered += added.answered;
        own.writes += added.writes;
        own.reads += added.reads;
        own.bytes_read += added.bytes_read;
        self.recorded = match (self.recorded.take(), other.recorded) {
            (Some(mut own), Some(added)) => {
                own.add(added);
                Some(own)
            }
            (own, added) => own.or(added),
        };
        self.books.extend(other.books);
        if let (Some(own), Some(added)) = (&mut self.turnover, other.turnover) {
            own.add(&added);
        }
        if other.skew_ns.abs() > self.skew_ns.abs() {
            self.skew_ns = other.skew_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_total_without_overlap() {
        for (total, of) in [(10, 3), (1, 1), (7, 7), (100_003, 16)] {
            let bounds: Vec<_> = (0..=of).map(|index| part(total, index, of)).collect();
            assert_eq!((bounds[0], bounds[of as usize]), (0, total));
            assert!(bounds.windows(2).all(|pair| pair[1] - pair[0] <= total.div_ceil(of)));
        }
    }
}
