//! The state of the worker process before a trial, and what it used since.

use bench_format::{result::WorkerEvidence, trial::Assignment};
use process_usage::cgroup::{CpuCgroup, Throttling, cpu_limit};

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
        Usage { cpu_ns: process_cpu_ns(), throttling: self.cgroup.as_ref().and_then(CpuCgroup::throttling) }
    }

    /// The trial's phases on this machine's monotonic clock.
    pub fn phases(&self, assignment: &Assignment, start: StartAt) -> Phases {
        let local_unix_ns = start.unix_ns as i64 + start.clock_offset_ns;
        let start_ns = (local_unix_ns - self.wall_offset_ns).max(0) as u64;
        Phases::new(start_ns, assignment.warmup_ns, assignment.window_ns, assignment.drain_ns)
    }

    /// The evidence of the process; `throttling` was read at the start and the end of the window.
    pub fn evidence(&self, start: StartAt, throttling: Option<(Throttling, Throttling)>) -> WorkerEvidence {
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
            rss_bytes: peak_rss_bytes(),
            nodelay: true,
            ..WorkerEvidence::default()
        }
    }
}
