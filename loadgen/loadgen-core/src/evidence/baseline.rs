//! The state of the worker process before a trial, and what it used since.

use bench_format::{
    result::{ThreadReading, ThreadsUse, WorkerEvidence},
    trial::Assignment,
};
use process_usage::{
    cgroup::{CpuCgroup, Throttling, cpu_limit},
    threads,
};

use super::peak_rss_bytes;
use crate::{
    clock::{process_cpu_ns, wall_offset_ns},
    phases::{Phases, StartAt},
};

/// The worker process and its clock before the trial. Later readings are compared with it.
pub struct Baseline {
    cgroup: Option<CpuCgroup>,
    /// Number of CPUs that this process may use.
    pub cpu_limit: f64,
    /// Wall clock minus monotonic clock, in nanoseconds.
    pub wall_offset_ns: i64,
    cpu_ns: u64,
}

/// What this process has used since it started.
pub struct Usage {
    /// CPU time in user and kernel mode, in nanoseconds.
    pub cpu_ns: u64,
    /// Throttling by the CPU quota; absent without a quota.
    pub throttling: Option<Throttling>,
    /// The threads; absent if there are too many to read.
    pub threads: Option<Vec<ThreadReading>>,
}

impl Baseline {
    /// Reads the current state.
    pub fn read() -> Self {
        let cgroup = CpuCgroup::find();
        let cpu_limit = cpu_limit(cgroup.as_ref());
        Self { cgroup, cpu_limit, wall_offset_ns: wall_offset_ns(), cpu_ns: process_cpu_ns() }
    }

    /// What the process has used up to now.
    pub fn usage(&self) -> Usage {
        Usage {
            cpu_ns: process_cpu_ns(),
            throttling: self.cgroup.as_ref().and_then(CpuCgroup::throttling),
            threads: threads(&[std::process::id()]),
        }
    }

    /// The trial's phases on this machine's monotonic clock.
    pub fn phases(&self, assignment: &Assignment, start: StartAt) -> Phases {
        let local_unix_ns = start.unix_ns as i64 + start.clock_offset_ns;
        let start_ns = (local_unix_ns - self.wall_offset_ns).max(0) as u64;
        Phases::new(start_ns, assignment.warmup_ns, assignment.window_ns, assignment.drain_ns)
    }

    /// The evidence of the process, which used `from` up to the start of the window and `to` up to its end.
    pub fn evidence(&self, start: StartAt, from: &Usage, to: &Usage) -> WorkerEvidence {
        let throttling = from.throttling.zip(to.throttling);
        WorkerEvidence {
            start_at_unix_ns: start.unix_ns,
            clock_offset_ns: start.clock_offset_ns,
            clock_uncertainty_ns: start.clock_uncertainty_ns,
            clock_step_ns: wall_offset_ns() - self.wall_offset_ns,
            cpu_limit: self.cpu_limit,
            cpu_seconds: (process_cpu_ns() - self.cpu_ns) as f64 / 1e9,
            throttled_periods: throttling.map(|(from, to)| to.throttled - from.throttled),
            periods: throttling.map(|(from, to)| to.periods - from.periods),
            throttling: if throttling.is_some() { "measured" } else { "not_measured" }.to_owned(),
            throttled_ns: throttling.map(|(from, to)| to.throttled_ns - from.throttled_ns),
            threads: from
                .threads
                .as_ref()
                .zip(to.threads.as_ref())
                .and_then(|(from, to)| ThreadsUse::between(from, to)),
            rss_bytes: peak_rss_bytes(),
            nodelay: true,
            ..WorkerEvidence::default()
        }
    }
}
