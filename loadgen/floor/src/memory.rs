//! Memory as the kernel accounts for it.

use std::fs;

use anyhow::Context;

/// Memory of the whole machine's kernel that connections take. Whatever else goes on moves it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Of kernel objects, in bytes: sockets, their inodes, files and watches among them.
    pub slab_bytes: u64,
    /// Of data in TCP's buffers, in bytes.
    pub tcp_bytes: u64,
}

impl Kernel {
    /// As it is now.
    ///
    /// # Errors
    /// When the kernel doesn't say.
    pub fn read() -> anyhow::Result<Self> {
        let slab = kibibytes(&read("/proc/meminfo")?, "Slab:").context("/proc/meminfo has no line Slab")?;
        let pages = tcp_pages(&read("/proc/net/sockstat")?).context("/proc/net/sockstat has no TCP mem")?;
        Ok(Self { slab_bytes: slab, tcp_bytes: pages * rustix::param::page_size() as u64 })
    }
}

/// Resident memory of this process, in bytes. Counted page by page: what `status` and `statm` say is behind by as much as
/// each CPU may hold back.
///
/// # Errors
/// When the kernel doesn't say.
pub fn resident_bytes() -> anyhow::Result<u64> {
    kibibytes(&read("/proc/self/smaps_rollup")?, "Rss:").context("/proc/self/smaps_rollup has no line Rss")
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {path}"))
}

/// The value of a `name: number kB` line, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// The number behind `mem` in the line of TCP.
fn tcp_pages(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_whitespace().skip_while(|word| *word != "mem");
    words.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read_by_their_names() {
        let meminfo = "MemTotal:       100 kB\nSlab:            12 kB\nSReclaimable:     5 kB\n";
        assert_eq!((kibibytes(meminfo, "Slab:"), kibibytes(meminfo, "Rss:")), (Some(12 * 1024), None));
        let sockstat = "sockets: used 9\nTCP: inuse 3 orphan 0 tw 1 alloc 4 mem 7\nUDP: inuse 1 mem 2\n";
        assert_eq!((tcp_pages(sockstat), tcp_pages("TCP6: inuse 1\n")), (Some(7), None));
    }

    #[test]
    fn memory_that_is_touched_is_resident() {
        let before = resident_bytes().unwrap();
        // Much, beside what other tests in this process take and give back.
        let touched = vec![1_u8; 64 << 20];
        let after = resident_bytes().unwrap();
        assert!(after >= before + (48 << 20), "{before} {after} {}", touched.len());
        assert!(Kernel::read().unwrap().slab_bytes > 0);
    }
}
