//! What this process reads and sets on its machine before a climb: CPU affinity, cgroups, limit of open files.

use std::io;

use anyhow::Context;
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::{backend::local::cgroup::Hierarchy, plan::check::MachineLimits};

/// CPUs on which this process may run (its affinity mask).
pub(super) fn allowed_cpus() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("failed to read the CPUs on which ladder may run")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// The properties of the machine that the validity of a plan depends on.
pub(super) fn machine_limits() -> anyhow::Result<MachineLimits> {
    Ok(MachineLimits { cpus: allowed_cpus()?.len(), no_fractions: Hierarchy::detect().err() })
}

/// Sets the CPU affinity of this process. Call it before any thread is started: existing threads keep their affinity.
pub(super) fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Raises the soft limit of open files to the hard limit. Services and workers inherit it.
pub(super) fn raise_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}
