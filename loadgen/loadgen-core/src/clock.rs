//! The clocks, in nanoseconds. Nothing else in the load path asks the kernel what time it is.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Monotonic: for schedules and latencies.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Wall clock: for what other machines are told.
pub fn unix_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// CPU that this process has used, kernel included; exact, unlike sampled ticks.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Wall clock minus monotonic clock: constant unless somebody sets the wall clock.
pub fn wall_offset_ns() -> i64 {
    // The smallest of a few readings: a preemption between the two calls makes it too large.
    (0..5).map(|_| unix_ns() as i64 - monotonic_ns() as i64).min().expect("five readings are not none")
}

#[inline]
fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
