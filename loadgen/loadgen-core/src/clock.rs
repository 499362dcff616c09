//! The clocks, in nanoseconds. No other code in the load path reads the time.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Monotonic clock, for schedules and latencies.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Wall clock in nanoseconds since the Unix epoch, for values that other machines see.
pub fn unix_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// CPU time of this process in user and kernel mode. It is exact, unlike sampled ticks.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Wall clock minus monotonic clock. It is constant unless the wall clock is set.
pub fn wall_offset_ns() -> i64 {
    // The smallest of five readings, because a preemption between the two calls makes the value too large.
    (0..5).map(|_| unix_ns() as i64 - monotonic_ns() as i64).min().expect("five readings are not none")
}

#[inline]
fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
