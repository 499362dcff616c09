//! The moment between "ready" and "start" of a trial by hand: opens the gate, and looks at the service while it does.

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bench_format::trial::Release;
use judge::published;
use loadgen_core::{
    Error,
    clock::{monotonic_ns, unix_ns},
    memory::KernelMemory,
    neighbour::Neighbour,
    trial::{Gate, StartAt},
};

use crate::{
    stats::{Stats, Timed},
    watch::Watch,
};

/// From "all are ready" to the start: enough to tell every worker.
const START_IN_NS: u64 = 50_000_000;

/// Between two looks whether the service publishes.
const PUBLISHING_PAUSE: Duration = Duration::from_millis(20);

/// What becomes of a trial for which a worker opened no connection at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NothingOpen {
    /// There is nothing to measure.
    Abandon,
    /// That is what was asked: a probe counts it.
    GoOn,
}

/// See the module.
pub(super) struct ByHand<'a> {
    stats: Option<&'a Stats>,
    /// That service, where it has to publish before load starts.
    publisher: Option<&'a Stats>,
    neighbour: Option<&'a Neighbour>,
    /// Warm-up and window, in nanoseconds, where they are known beforehand.
    edges: Option<(u64, u64)>,
    nothing_open: NothingOpen,
    noted: Noted,
}

/// What was noted when all were ready.
#[derive(Default)]
pub(super) struct Noted {
    /// The moment, in nanoseconds of the monotonic clock.
    pub(super) ready_ns: Option<u64>,
    /// When load starts, on the same clock.
    pub(super) start_ns: Option<u64>,
    /// CPU that the service had used by then, in nanoseconds.
    pub(super) cpu_ns: Option<u64>,
    /// Its resident memory then, in bytes.
    pub(super) rss_bytes: Option<u64>,
    /// The machine's kernel's memory then.
    pub(super) kernel: Option<KernelMemory>,
    /// Its CPU from then on.
    pub(super) watch: Option<Watch>,
    /// Its counters at the window's edges.
    pub(super) readings: Option<JoinHandle<anyhow::Result<[Timed; 2]>>>,
}

impl<'a> ByHand<'a> {
    pub(super) fn new(
        stats: Option<&'a Stats>,
        neighbour: Option<&'a Neighbour>,
        edges: Option<(u64, u64)>,
        nothing_open: NothingOpen,
    ) -> Self {
        Self { stats, publisher: None, neighbour, edges, nothing_open, noted: Noted::default() }
    }

    /// Load starts once the service publishes, too.
    pub(super) fn after_publishing(self, receives: bool) -> Self {
        Self { publisher: self.stats.filter(|_| receives), ..self }
    }

    /// What several workers are told once each has said how far it is.
    pub(super) fn decide(&mut self, problem: Option<String>) -> Release {
        match problem {
            Some(reason) if self.nothing_open == NothingOpen::Abandon => Release::Abandoned { reason },
            _ => match self.silence() {
                Some(reason) => Release::Abandoned { reason },
                None => Release::Start { start_at_unix_ns: self.start() },
            },
        }
    }

    /// Waits until the service publishes, if it has to; why it doesn't, when patience is over.
    fn silence(&self) -> Option<String> {
        let publisher = self.publisher?;
        let since = Instant::now();
        loop {
            match published::Start::after(since.elapsed(), publisher.publisher().map_err(|error| format!("{error:#}")))
            {
                published::Start::Now => return None,
                published::Start::Never(words) => return Some(format!("the service publishes nothing: {words}")),
                published::Start::Later => thread::sleep(PUBLISHING_PAUSE),
            }
        }
    }

    /// What was noted meanwhile.
    pub(super) fn noted(self) -> Noted {
        self.noted
    }

    /// Everyone is ready: returns when load starts, unix nanoseconds.
    fn start(&mut self) -> u64 {
        let now = monotonic_ns();
        let start = now + START_IN_NS;
        let unix_start = unix_ns() + START_IN_NS;
        self.noted = Noted {
            ready_ns: Some(now),
            start_ns: Some(start),
            cpu_ns: self.neighbour.and_then(Neighbour::cpu_ns),
            rss_bytes: self.neighbour.and_then(Neighbour::rss_bytes),
            kernel: KernelMemory::read(),
            watch: self.neighbour.cloned().map(Watch::start),
            readings: self.stats.zip(self.edges).map(|(stats, (warmup_ns, window_ns))| {
                stats.read_at([start + warmup_ns, start + warmup_ns + window_ns])
            }),
        };
        unix_start
    }
}

impl Gate for ByHand<'_> {
    fn ready(&mut self, _open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        match self.decide(problem) {
            Release::Start { start_at_unix_ns } => {
                Ok(StartAt { unix_ns: start_at_unix_ns, clock_offset_ns: 0, clock_uncertainty_ns: 0 })
            }
            Release::Abandoned { reason } => Err(Error::Abandoned { reason }),
            Release::Wait => Err(Error::Abandoned { reason: "a gate by hand never waits".into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(nothing_open: NothingOpen, problem: Option<&str>) -> Result<StartAt, Error> {
        ByHand::new(None, None, None, nothing_open).ready(0, problem.map(str::to_owned))
    }

    #[test]
    fn only_a_probe_goes_on_with_nothing_open() {
        assert!(ready(NothingOpen::Abandon, None).is_ok());
        assert!(matches!(ready(NothingOpen::Abandon, Some("x")), Err(Error::Abandoned { reason }) if reason == "x"));
        assert!(ready(NothingOpen::GoOn, Some("x")).is_ok());
    }
}
