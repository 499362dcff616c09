//! Times the same work on several CPUs, to see what no counter shows: a busy sibling hardware thread, another clock of the
//! host. The work stays in the first-level cache: what others take of shared caches and memory doesn't show in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    hint::black_box,
    thread,
    time::Duration,
};

use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

/// CPU time that all rounds should take together.
const TARGET: Duration = Duration::from_millis(50);
/// Rounds whose time is taken to choose the number of rounds.
const TRIAL_ROUNDS: u64 = 2_000;
/// Numbers that a round changes: 8 KiB, so that they stay in the first-level cache.
const NUMBERS: usize = 1024;
/// An odd number with a pattern of bits that looks random: 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// One timing of the work on some CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Number of rounds of the work.
    pub rounds: u64,
    /// CPU time by CPU, in nanoseconds.
    pub cpu_ns: BTreeMap<u32, u64>,
}

/// Chooses the number of rounds that take about 50 ms on the calling thread's CPU.
pub fn calibrate() -> u64 {
    timed(TRIAL_ROUNDS);
    let ns = timed(TRIAL_ROUNDS).max(1);
    (TARGET.as_nanos() as u64 * TRIAL_ROUNDS / ns).max(1)
}

/// Does the work on each of the CPUs at the same time and returns when all have ended; `None` if this process may not use
/// one of them.
pub fn time_on(cpus: &BTreeSet<usize>, rounds: u64) -> Option<Timing> {
    let on_cpu = |cpu: usize| {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).ok()?;
        // The CPU's clock and caches adapt first.
        timed(rounds / 10);
        Some((cpu as u32, timed(rounds)))
    };
    let times: Option<BTreeMap<u32, u64>> = thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|cpu| scope.spawn(move || on_cpu(*cpu))).collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    Some(Timing { rounds, cpu_ns: times? })
}

/// The CPU time that the calling thread takes for so many rounds, in nanoseconds.
fn timed(rounds: u64) -> u64 {
    let before = thread_cpu_time();
    black_box(work(black_box(rounds)));
    (thread_cpu_time() - before).as_nanos() as u64
}

/// Hashes the same numbers again and again; each step needs the result of the one before it.
fn work(rounds: u64) -> u64 {
    let mut numbers = [0_u64; NUMBERS];
    let mut hash = FACTOR;
    for _ in 0..rounds {
        for number in &mut numbers {
            hash = (hash ^ *number).wrapping_mul(FACTOR).rotate_left(23);
            *number = number.wrapping_add(hash);
        }
    }
    hash
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    fn each_cpu_is_timed_for_the_same_number_of_rounds() {
        let allowed = sched_getaffinity(None).unwrap();
        let cpus: BTreeSet<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(2).collect();
        let timing = time_on(&cpus, 50).unwrap();
        assert_eq!(timing.rounds, 50);
        assert_eq!(timing.cpu_ns.keys().map(|cpu| *cpu as usize).collect::<BTreeSet<_>>(), cpus);
        assert!(timing.cpu_ns.values().all(|ns| *ns > 0));
        let after = sched_getaffinity(None).unwrap();
        assert_eq!(after, allowed, "the caller's own CPUs stay as they are");
    }

    #[test]
    fn a_cpu_that_may_not_be_used_gives_no_timing() {
        let none = (0..CpuSet::MAX_CPU).rev().find(|cpu| !sched_getaffinity(None).unwrap().is_set(*cpu)).unwrap();
        assert_eq!(time_on(&[none].into(), 1), None);
    }

    #[test]
    fn the_work_depends_on_the_number_of_its_rounds_only() {
        assert_eq!(work(3), work(3));
        assert_ne!(work(3), work(4));
        assert!(calibrate() >= 1);
    }
}
