//! What of a session is worth a histogram.

use loadgen_core::{
    phases::Phases,
    recorder::{Metrics, Recorder},
};

/// The histograms of a trial, each over the measured window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// From when the last frame of a batch was due to its partial.
    Newest,
    /// From when the first frame of a batch was due to its partial.
    Oldest,
    /// From when the last frame was sent: as load generators measure that trust themselves.
    NewestService,
    /// From when the first frame was sent.
    OldestService,
    /// How late a flush was, says the gateway.
    FlushLateness,
    /// How late a frame was sent: the generator's own lateness, and what a blocked socket adds.
    Delay,
    /// How late a frame was tried to be sent: the generator's own lateness alone.
    Lateness,
}

impl Metrics for Metric {
    const NAMES: &'static [&'static str] = &[
        "newest_ns",
        "oldest_ns",
        "newest_service_ns",
        "oldest_service_ns",
        "flush_lateness_ns",
        "delay_ns",
        "lateness_ns",
    ];

    #[inline]
    fn index(self) -> usize {
        self as usize
    }
}

/// A recorder for a trial's window.
pub(crate) fn recorder(phases: &Phases) -> Recorder<Metric> {
    Recorder::new(phases.window_start_ns, phases.window_end_ns)
}
