//! When the worker's main thread reports what its load threads have done so far.

use std::{ops::ControlFlow, sync::Arc};

use super::{Gate, sleep_until};
use crate::{
    clock::monotonic_ns,
    live::{LiveCounts, LiveReport},
};

/// Interval between two reports, in nanoseconds.
const REPORT_INTERVAL_NS: u64 = 500_000_000;
/// No report begins less than this before an edge of the window, in nanoseconds. It is longer than a report may take, so
/// that the readings at the edges are in time.
const NO_REPORT_BEFORE_EDGE_NS: u64 = 300_000_000;

/// Reports what the load threads have done, in the time in which the main thread would sleep.
#[derive(Debug)]
pub struct LiveReports {
    threads: Vec<Arc<LiveCounts>>,
    cpu_limit: f64,
    /// When the next report is due; absent once no more are wanted.
    next_ns: Option<u64>,
}

impl LiveReports {
    /// Creates reports over these threads of a worker that may use so many CPUs.
    pub fn new(threads: Vec<Arc<LiveCounts>>, cpu_limit: f64) -> Self {
        Self { threads, cpu_limit, next_ns: Some(monotonic_ns() + REPORT_INTERVAL_NS) }
    }

    /// When the main thread has to wake, if the next edge of the window is at `edge_ns`: for a report, or at the edge.
    pub fn wake_ns(&self, edge_ns: u64) -> u64 {
        self.next_ns.filter(|next_ns| is_in_time(*next_ns, edge_ns)).unwrap_or(edge_ns)
    }

    /// Hands the counts to the gate, unless the thread woke so late that the edge is near.
    pub fn report(&mut self, edge_ns: u64, gate: &mut dyn Gate) {
        if !is_in_time(monotonic_ns(), edge_ns) {
            self.next_ns = Some(edge_ns);
            return;
        }
        self.next_ns = match gate.progress(&LiveReport::of(&self.threads, self.cpu_limit)) {
            ControlFlow::Continue(()) => Some(monotonic_ns() + REPORT_INTERVAL_NS),
            ControlFlow::Break(()) => None,
        };
    }

    /// Sleeps until a moment and reports meanwhile.
    pub fn sleep_until(&mut self, edge_ns: u64, gate: &mut dyn Gate) {
        loop {
            let wake_ns = self.wake_ns(edge_ns);
            sleep_until(wake_ns);
            if wake_ns >= edge_ns {
                return;
            }
            self.report(edge_ns, gate);
        }
    }
}

fn is_in_time(report_ns: u64, edge_ns: u64) -> bool {
    report_ns.saturating_add(NO_REPORT_BEFORE_EDGE_NS) < edge_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::Error, trial::StartAt};

    #[derive(Default)]
    struct Watched {
        reports: Vec<(u64, LiveReport)>,
        wanted: usize,
    }

    impl Gate for Watched {
        fn ready(&mut self, _open: u32, _problem: Option<String>) -> Result<StartAt, Error> {
            Err(Error::ThreadDied)
        }

        fn progress(&mut self, report: &LiveReport) -> ControlFlow<()> {
            self.reports.push((monotonic_ns(), report.clone()));
            if self.reports.len() < self.wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
    }

    #[test]
    fn no_report_begins_shortly_before_an_edge_and_none_after_the_last_that_is_wanted() {
        let mut reports = LiveReports::new(vec![], 1.0);
        let next_ns = reports.next_ns.unwrap();
        assert_eq!(reports.wake_ns(next_ns + NO_REPORT_BEFORE_EDGE_NS + 1), next_ns);
        let close_ns = next_ns + NO_REPORT_BEFORE_EDGE_NS;
        assert_eq!(reports.wake_ns(close_ns), close_ns);
        let mut gate = Watched { wanted: 1, ..Watched::default() };
        let edge_ns = next_ns + 2 * NO_REPORT_BEFORE_EDGE_NS;
        reports.sleep_until(edge_ns, &mut gate);
        assert!(monotonic_ns() >= edge_ns);
        assert!(gate.reports.len() == 1 && (next_ns..edge_ns).contains(&gate.reports[0].0), "{:?}", gate.reports);
        assert_eq!(reports.wake_ns(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_thread_that_wakes_late_reports_after_the_edge() {
        let (mut reports, mut gate) = (LiveReports::new(vec![], 1.0), Watched { wanted: 9, ..Watched::default() });
        let edge_ns = monotonic_ns() + NO_REPORT_BEFORE_EDGE_NS;
        reports.report(edge_ns, &mut gate);
        assert_eq!((gate.reports.len(), reports.wake_ns(edge_ns)), (0, edge_ns));
        assert_eq!(reports.wake_ns(u64::MAX), edge_ns);
    }
}
