//! File descriptors that a load needs, for those who write plans.

use bench_format::plan::Load;
use loadgen_core::{CLOSE_TIMEOUT_NS, preflight};

/// Number of connections that workers may hold at a time, and the limit from which it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Open files that each worker may have.
    pub open_files: u64,
    /// Connections of all workers together.
    pub connections: u64,
}

impl Room {
    /// The room of workers with this limit of open files.
    pub fn of(open_files: u64, workers: u32) -> Self {
        Self { open_files, connections: preflight::most_connections(open_files, workers) }
    }
}

/// Open files that each worker may have on this machine: it raises its limit as far as it may.
pub fn open_files_here() -> u64 {
    preflight::most_open_files()
}

/// Descriptors that a process with this many connections needs. A service is taken to need as many beside them as a
/// worker.
pub fn of_process(connections: u32) -> u64 {
    u64::from(connections) + preflight::SPARE_DESCRIPTORS
}

/// Most connections of a process with this limit of open files.
pub fn most_of_process(open_files: u64) -> u64 {
    preflight::most_connections(open_files, 1)
}

/// Connections that a load may need at a time, if the service answers neither messages nor Close frames, and the seconds
/// for which each then stays after it had to go. `None` if no connections go under this load.
pub fn needed(load: &Load, connections: u32, drain_seconds: f64) -> Option<(u64, f64)> {
    let stay_seconds = drain_seconds + CLOSE_TIMEOUT_NS as f64 / 1e9;
    let going = load.churn_per_second(connections)? * stay_seconds;
    Some((u64::from(connections) + going.ceil() as u64, stay_seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_go_stay_until_the_service_has_had_its_time() {
        let churn = Load::Churn {
            rate_per_second: 1.0,
            arrivals: Default::default(),
            connections_per_second: Some(100.0),
            life_seconds: None,
        };
        assert_eq!(needed(&churn, 10, 10.0), Some((1510, 15.0)));
        assert_eq!(needed(&Load::Open { rate_per_second: 1.0, arrivals: Default::default() }, 10, 10.0), None);
        assert_eq!(Room::of(1100, 2), Room { open_files: 1100, connections: 2000 });
    }
}
