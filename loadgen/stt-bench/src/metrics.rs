//! The histograms that a trial of sessions records.

use std::sync::Arc;

use loadgen_core::{
    live::LiveCounts,
    phases::Phases,
    recorder::{Metrics, Recorder},
};

/// A histogram of what was due in the window, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// From when a frame was due until the partial that answers it arrived: one value for each frame due in the window,
    /// answered or not.
    Frame,
    /// From when the last frame of a batch was due until its partial arrived: one value for each answer.
    Newest,
    /// From when the first frame of a batch was due until its partial arrived: one value for each answer.
    Oldest,
    /// From when the last frame was sent until its partial arrived; for comparison with other load generators.
    NewestService,
    /// From when the first frame was sent until its partial arrived.
    OldestService,
    /// How late a flush was by the gateway's clock.
    FlushLateness,
    /// From when a frame was due until it was sent: the generator's own lateness, and what a blocked socket adds.
    Delay,
    /// From when a frame was due until the generator handled it: the generator's own lateness alone.
    Lateness,
}

impl Metrics for Metric {
    const NAMES: &'static [&'static str] = &[
        "frame_ns",
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

    #[inline]
    fn is_shown(self) -> bool {
        self == Self::Newest
    }
}

/// A recorder for a trial's window. What a display shows is added to `live` as well.
pub(crate) fn recorder(phases: &Phases, live: &Arc<LiveCounts>) -> Recorder<Metric> {
    Recorder::new(phases.window_start_ns, phases.window_end_ns).with_live(live)
}
