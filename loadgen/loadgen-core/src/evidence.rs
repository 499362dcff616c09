//! Evidence about the worker itself: CPU, quota, throttling, memory, clocks.
//!
//! All values come from the kernel's exact clocks and the cgroup's own files, never from load averages or sampled
//! ticks.

mod baseline;

pub use self::baseline::{Baseline, Usage};

use std::fs;

use process_usage::kibibytes;

/// Peak resident memory of this process, in bytes.
pub fn peak_rss_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kibibytes(&status, "VmHWM:").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        assert!(peak_rss_bytes() > 100_000);
    }
}
