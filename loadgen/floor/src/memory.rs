//! Memory of this process.

use std::fs;

use anyhow::Context;
use process_usage::kibibytes;

/// Resident memory of this process, in bytes. Counted page by page: what `status` and `statm` say is behind by as much as
/// each CPU may hold back.
///
/// # Errors
/// When the kernel doesn't say.
pub fn resident_bytes() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").context("failed to read /proc/self/smaps_rollup")?;
    kibibytes(&text, "Rss:").context("/proc/self/smaps_rollup has no line Rss")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_is_resident() {
        let before = resident_bytes().unwrap();
        // Much, beside what other tests in this process take and give back.
        let touched = vec![1_u8; 64 << 20];
        let after = resident_bytes().unwrap();
        assert!(after >= before + (48 << 20), "{before} {after} {}", touched.len());
    }
}
