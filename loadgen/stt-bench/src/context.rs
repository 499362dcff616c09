//! What the sessions of one load thread share: buffers, counters, histograms, expectations.

mod answers;

use std::{os::fd::OwnedFd, sync::Arc};

use bench_format::{histogram::Recorder as Values, result::Failures};
use loadgen_core::{
    connect::UpgradeRequest,
    frame::{Batch, Masks},
    phases::Phases,
    recorder::{Recorded, Recorder},
};

use crate::{
    answers::Aside,
    audio::Audio,
    books::{self, Attempts, Moving, Tally},
    error_samples::ErrorSamples,
    expected::Expected,
    metrics::Metric,
    samples::Feed,
};

/// One read takes at most this much, in bytes: many partials, should a gateway have fallen behind.
const READ_BUFFER: usize = 64 << 10;

/// See the module.
pub(crate) struct Context {
    pub(crate) upgrade: UpgradeRequest,
    pub(crate) epoll: OwnedFd,
    pub(crate) audio: Arc<Audio>,
    pub(crate) expected: Expected,
    pub(crate) masks: Masks,
    pub(crate) batch: Batch,
    pub(crate) read_buffer: Vec<u8>,
    pub(crate) attempts: Attempts,
    pub(crate) tally: Tally,
    /// Answers of the window that take long to judge.
    pub(crate) aside: Aside,
    pub(crate) failures: Failures,
    pub(crate) errors: ErrorSamples,
    /// From the start of an attempt until the upgrade was accepted.
    pub(crate) handshakes: Values,
    /// Partials that take longer are late.
    pub(crate) late_after_ns: u64,
    /// Sessions that are open.
    pub(crate) alive: u32,
    /// Set when load starts.
    pub(crate) load: Option<LoadState>,
}

/// What exists only once the start is known.
pub(crate) struct LoadState {
    pub(crate) phases: Phases,
    pub(crate) recorder: Recorder<Metric>,
    /// Of answers that were judged when the load was over.
    pub(crate) recorded_aside: Option<Recorded<Metric>>,
    /// Where raw rows go, if anywhere.
    pub(crate) rows: Option<Feed>,
}

impl Context {
    pub(crate) fn new(
        upgrade: UpgradeRequest,
        epoll: OwnedFd,
        audio: Arc<Audio>,
        expected: Expected,
        seed: u64,
    ) -> Self {
        Self {
            upgrade,
            epoll,
            audio,
            expected,
            masks: Masks::new(seed),
            batch: Batch::default(),
            read_buffer: vec![0; READ_BUFFER],
            attempts: Attempts::default(),
            tally: Tally::default(),
            aside: Aside::default(),
            failures: Failures::default(),
            errors: ErrorSamples::default(),
            handshakes: Values::new(),
            late_after_ns: u64::MAX,
            alive: 0,
            load: None,
        }
    }

    /// Counts what moved at a moment: for the whole trial, and for the window if it was then.
    #[inline]
    pub(crate) fn moved(&mut self, now_ns: u64, count: impl Fn(&mut Moving)) {
        count(&mut self.tally.moving);
        if self.load.as_ref().is_some_and(|load| load.phases.in_window(now_ns)) {
            count(&mut self.tally.window);
        }
    }

    /// Counts a failure at a moment.
    pub(crate) fn fail(&mut self, kind: &str, now_ns: u64) {
        let in_window = books::in_window(self.load.as_ref().map(|load| &load.phases), now_ns);
        books::count_failure(&mut self.failures, kind, in_window);
    }
}
