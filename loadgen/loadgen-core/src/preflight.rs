//! Checks the machine's limits before many connections are opened. Raises those that it may, and reports the others.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that a worker needs in addition to its connections.
pub const SPARE_DESCRIPTORS: u64 = 100;

/// Raises the limit of open files to the hard limit; returns the limit in force.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Without a hard limit there is nothing to raise to.
    if limit.maximum.is_some() {
        // A sandbox may refuse this; the old limit then stays and is reported.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    open_files()
}

/// The highest limit of open files that [`raise_open_files`] can set.
pub fn most_open_files() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// The limit of open files in force.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Number of connections that `workers` processes can hold together with this limit of open files.
pub fn most_connections(open_files: u64, workers: u32) -> u64 {
    open_files.saturating_sub(SPARE_DESCRIPTORS).saturating_mul(u64::from(workers))
}

/// Remarks on limits that are too low for this number of connections; empty if there are none.
pub fn remarks(connections: u32, workers: u32, open_files: u64) -> Vec<String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default().trim().to_owned();
    let mut remarks = Vec::new();
    let most = most_connections(open_files, workers);
    if u64::from(connections) > most {
        remarks.push(format!(
            "{open_files} open files allow {most} connections of the {connections} asked for; raise `ulimit -n` or use \
             more --workers"
        ));
    }
    let range = read("ipv4/ip_local_port_range");
    let bounds: Vec<u32> = range.split_whitespace().filter_map(|bound| bound.parse().ok()).collect();
    if let [first, last] = bounds[..]
        && connections > last.saturating_sub(first)
    {
        remarks.push(format!(
            "ports {first} to {last} don't reach for {connections} connections from one address; on loopback more \
             source addresses are used, elsewhere widen net.ipv4.ip_local_port_range"
        ));
    }
    if let Ok(backlog) = read("core/somaxconn").parse::<u32>()
        && backlog < 1024
    {
        remarks.push(format!("net.core.somaxconn is {backlog}: a storm loses SYNs and waits a second for each"));
    }
    if read("ipv4/tcp_tw_reuse") == "0" {
        remarks.push("net.ipv4.tcp_tw_reuse is 0: ports stay taken for a minute after each test".into());
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_connections_for_the_descriptors_are_remarked_with_the_remedy() {
        let remarks = remarks(5000, 2, 1124);
        assert!(remarks[0].contains("1124 open files allow 2048 connections of the 5000"), "{remarks:?}");
        assert!(remarks[0].contains("--workers"));
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let raised = raise_open_files();
        assert_eq!(Some(raised), getrlimit(Resource::Nofile).maximum.or(Some(raised)));
    }
}
