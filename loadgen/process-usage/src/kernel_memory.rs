//! Memory of the kernel that connections use.

use std::fs;

/// Kernel memory of the whole machine. Other programs change it, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelMemory {
    /// Memory of kernel objects in bytes, among them sockets, inodes, files and epoll watches (`Slab` in
    /// `/proc/meminfo`).
    pub slab_bytes: u64,
    /// Data in TCP buffers, in bytes (`mem` in `/proc/net/sockstat`).
    pub tcp_bytes: u64,
}

impl KernelMemory {
    /// The current values; `None` if the kernel doesn't report them.
    pub fn read() -> Option<Self> {
        let slab_bytes = kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "Slab:")?;
        let pages = tcp_pages(&fs::read_to_string("/proc/net/sockstat").ok()?)?;
        Some(Self { slab_bytes, tcp_bytes: pages * rustix::param::page_size() as u64 })
    }

    /// Sum of both kinds, in bytes.
    pub fn total_bytes(self) -> u64 {
        self.slab_bytes + self.tcp_bytes
    }
}

/// The value of a line `name: number kB`, in bytes.
pub fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// The number after `mem` in the `TCP:` line, in pages.
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
    fn this_kernel_has_objects() {
        let memory = KernelMemory::read().unwrap();
        assert!(memory.slab_bytes > 0 && memory.total_bytes() >= memory.slab_bytes);
    }
}
