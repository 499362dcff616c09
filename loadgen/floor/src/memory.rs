//! Resident memory of this process.

use std::fs;

use anyhow::Context;
use process_usage::kibibytes;

/// Resident memory of this process, in bytes. `smaps_rollup` counts page by page; the values in `status` and `statm`
/// lag behind by as much as each CPU may hold back.
///
/// # Errors
/// An error if the kernel doesn't report it.
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
        // A large amount, compared with what other tests of this process allocate and free.
        let touched = vec![1_u8; 64 << 20];
        let after = resident_bytes().unwrap();
        assert!(after >= before + (48 << 20), "{before} {after} {}", touched.len());
    }
}
