//! The CPU time, threads and memory of a process, the CPUs that it may use, and the memory of the kernel's sockets.
//!
//! All values come from the kernel without the process's help, so a stopped or busy process can be read, too. CPU time
//! is the kernel's exact clock, not sampled ticks.

pub mod cgroup;
pub mod group;
mod kernel_memory;
pub mod machine;
mod threads;

use std::{fs, io};

pub use kernel_memory::{KernelMemory, kibibytes};
pub use threads::threads;

/// CPU time of a process since its start, over all threads including ended ones, in nanoseconds.
///
/// # Errors
/// An [`io::Error`] if there is no such process.
pub fn cpu_ns(pid: u32) -> io::Result<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a live variable that the call fills in.
    let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live variable that the call fills in; a clock that is gone makes it fail.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// An [`io::Error`] if there is no such process.
pub fn rss_bytes(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages: u64 = text.split(' ').nth(1).and_then(|field| field.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Number of CPUs in a list of the kernel's, such as `0-1,4`; 0 if it can't be read.
pub fn cpus_in(list: &str) -> u32 {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(last.trim().parse::<u32>().ok()?.checked_sub(first.trim().parse().ok()?)? + 1)
    };
    list.split(',').filter_map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!([cpus_in("0-1,4"), cpus_in("3"), cpus_in("")], [3, 1, 0]);
    }

    #[test]
    fn a_process_that_works_has_used_cpu_and_memory() {
        let own = std::process::id();
        let before = cpu_ns(own).unwrap();
        while cpu_ns(own).unwrap() < before + 1_000_000 {}
        assert!(rss_bytes(own).unwrap() > 100_000);
    }

    #[test]
    fn reading_an_ended_process_is_an_error() {
        // Above the largest process id of Linux (2^22).
        assert!(cpu_ns(5_000_000).is_err() && rss_bytes(5_000_000).is_err());
    }
}
