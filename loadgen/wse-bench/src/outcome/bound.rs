//! What bound a load: whose CPU was used up. Pure.

use bench_format::{
    plan::{Load, Thresholds},
    result::{BoundBy, WindowCounts, WorkerResult},
};

use super::{Asked, ProcessView};

/// Shares of the CPU that each side could have had; absent where nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    /// Of all workers together.
    pub(super) worker: Option<f64>,
    /// Of the service.
    pub(super) service: Option<f64>,
}

/// The shares of a window. All workers run on the same CPUs, at most one thread for each connection; and a side that
/// shares CPUs with the other could have had what the other left.
pub(super) fn shares(
    asked: &Asked,
    window: &WindowCounts,
    results: &[WorkerResult],
    process: Option<&ProcessView>,
) -> Shares {
    if window.duration_ns == 0 {
        return Shares::default();
    }
    let cpus = |ns: u64| ns as f64 / window.duration_ns as f64;
    let workers = cpus(window.cpu_ns);
    let limit = results.iter().map(|result| result.evidence.cpu_limit).fold(0.0, f64::max);
    let each = limit.ceil().min(f64::from((asked.tier / asked.workers.max(1)).max(1)));
    let service = process.and_then(|process| process.cpu_ns).map(cpus);
    let room = process.and_then(|process| process.room);
    let taken = |by: f64| if room.is_some_and(|room| room.shared) { by } else { 0.0 };
    let left = (limit - taken(service.unwrap_or(0.0))).min(each * f64::from(asked.workers));
    Shares {
        worker: share(workers, left),
        service: service.zip(room).and_then(|(used, room)| share(used, room.cpus - taken(workers))),
    }
}

/// More than all of it is a matter of two clocks.
fn share(used: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| (used / of).min(1.0))
}

/// What bound a closed loop; an open one is bound by its schedule. Where the service's CPU isn't known, only the
/// generator's own limit can be told.
pub(super) fn bound_by(load: &Load, shares: Shares) -> Option<BoundBy> {
    if load.is_open() {
        return None;
    }
    let used_up = |share: f64| share >= Thresholds::default().bound_share;
    match (shares.service.map(used_up), used_up(shares.worker?)) {
        (Some(true), true) => Some(BoundBy::Both),
        (Some(true), false) => Some(BoundBy::Service),
        (Some(false), false) => Some(BoundBy::Neither),
        (Some(false) | None, true) => Some(BoundBy::Generator),
        (None, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use loadgen_core::neighbour::Room;

    use super::*;
    use crate::{
        outcome::fixture::{asked, result},
        suite::Test,
    };

    const SECOND: u64 = 1_000_000_000;

    fn seen(workers_ns: u64, limit: f64, service_ns: Option<u64>, shared: bool) -> Shares {
        let asked = asked(Test::Throughput, 100);
        let mut result = result(&asked, 100, 1);
        result.window.cpu_ns = workers_ns;
        result.evidence.cpu_limit = limit;
        let room = Some(Room { cpus: 2.0, shared });
        let process = ProcessView { room, cpu_ns: service_ns, ..Default::default() };
        shares(&asked, &result.window.clone(), &[result], Some(&process))
    }

    fn bound(shares: Shares) -> Option<BoundBy> {
        bound_by(&Load::Closed { messages_per_connection: None, in_flight: 1 }, shares)
    }

    #[test]
    fn whoever_used_up_its_cpu_bound_a_closed_loop() {
        let of = |worker, service| bound(Shares { worker: Some(worker), service });
        assert_eq!(of(0.5, Some(0.95)), Some(BoundBy::Service));
        assert_eq!(of(0.95, Some(0.5)), Some(BoundBy::Generator));
        assert_eq!(of(0.95, Some(0.95)), Some(BoundBy::Both));
        assert_eq!(of(0.5, Some(0.5)), Some(BoundBy::Neither));
    }

    #[test]
    fn where_the_services_cpu_is_not_known_only_the_generators_limit_shows() {
        let of = |worker| bound(Shares { worker: Some(worker), service: None });
        assert_eq!((of(0.95), of(0.5)), (Some(BoundBy::Generator), None));
    }

    #[test]
    fn an_open_loop_is_bound_by_its_schedule() {
        let open = Load::Open { rate_per_second: 1.0, arrivals: Default::default() };
        assert_eq!(bound_by(&open, Shares { worker: Some(1.0), service: Some(1.0) }), None);
    }

    #[test]
    fn who_shares_cpus_could_have_had_what_the_other_left() {
        let apart = seen(SECOND / 2, 2.0, Some(SECOND), false);
        assert_eq!(apart, Shares { worker: Some(0.25), service: Some(0.5) });
        let together = seen(SECOND / 2, 2.0, Some(SECOND), true);
        assert_eq!(together, Shares { worker: Some(0.5), service: Some(1.0 / 1.5) });
    }

    #[test]
    fn one_connection_keeps_one_thread_busy_and_no_more() {
        let asked = asked(Test::Throughput, 1);
        let mut result = result(&asked, 1, 1);
        result.window.cpu_ns = SECOND;
        result.evidence.cpu_limit = 8.0;
        assert_eq!(shares(&asked, &result.window.clone(), &[result], None).worker, Some(1.0));
    }
}
