//! What the sessions of one load thread share: buffers, counters, histograms and expected answers.

mod partials;

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    sync::Arc,
};

use bench_format::{histogram::Recorder as Values, result::Failures};
use loadgen_core::{
    connect::UpgradeRequest,
    frame::{Batch, Masks},
    live::{Counters, LiveCounts},
    phases::Phases,
    recorder::{Recorded, Recorder},
};

use crate::{
    audio::Audio,
    books::{self, Attempts, Moving, Tally},
    deferred::Deferred,
    error_samples::ErrorSamples,
    expected::Expected,
    metrics::Metric,
    samples::Feed,
};

/// Size of the read buffer, in bytes: many partials, in case a gateway sends a backlog. A longer incomplete message
/// enlarges it.
const READ_BUFFER: usize = 64 << 10;

/// The state of one load thread that each of its sessions uses.
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
    /// Answers of the window that take long to judge, until the load is over.
    pub(crate) deferred: Deferred,
    pub(crate) failures: Failures,
    /// Failures of the window, by the index of the session among those of all workers.
    pub(crate) failures_of_session: HashMap<u64, u64>,
    pub(crate) errors: ErrorSamples,
    /// From the start of an attempt until the gateway accepted the upgrade, in nanoseconds.
    pub(crate) handshakes: Values,
    /// Largest age at which an answered frame isn't late, in nanoseconds; `u64::MAX` when the assignment has no limit.
    pub(crate) late_after_ns: u64,
    /// Number of open sessions.
    pub(crate) alive: u32,
    /// Set while a trial offers load.
    pub(crate) load: Option<LoadState>,
    /// Where the thread writes what it has done so far in a trial.
    pub(crate) live: Arc<LiveCounts>,
}

/// The part of the state that exists once a trial's start is known.
pub(crate) struct LoadState {
    pub(crate) phases: Phases,
    pub(crate) recorder: Recorder<Metric>,
    /// Values of answers that were judged after the load.
    pub(crate) recorded_deferred: Option<Recorded<Metric>>,
    /// Where raw rows go; absent when none are requested.
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
            deferred: Deferred::default(),
            failures: Failures::default(),
            failures_of_session: HashMap::new(),
            errors: ErrorSamples::default(),
            handshakes: Values::new(),
            late_after_ns: u64::MAX,
            alive: 0,
            load: None,
            live: Arc::default(),
        }
    }

    /// Stores the counters for a display.
    #[cold]
    pub(crate) fn publish_counters(&self) {
        let (tally, attempts) = (&self.tally, &self.attempts);
        let sum = |reasons: &BTreeMap<String, u64>| reasons.values().sum::<u64>();
        let failures = sum(&self.failures.window) + sum(&self.failures.outside);
        self.live.publish(&Counters {
            open: u64::from(self.alive),
            due: tally.due,
            sent: tally.moving.sent,
            answered: tally.moving.answered,
            // What a session did wrong, and how it ended, is among the failures.
            errors: failures + sum(&attempts.failed) + tally.unsent,
        });
    }

    /// Counts what moved on the wire: for the trial, and for the window when `now_ns` is inside it.
    #[inline]
    pub(crate) fn moved(&mut self, now_ns: u64, count: impl Fn(&mut Moving)) {
        count(&mut self.tally.moving);
        if self.load.as_ref().is_some_and(|load| load.phases.in_window(now_ns)) {
            count(&mut self.tally.window);
        }
    }

    /// Counts a failure of a session that occurred at `now_ns`.
    pub(crate) fn fail(&mut self, session: u64, kind: &str, now_ns: u64) {
        let in_window = books::in_window(self.load.as_ref().map(|load| &load.phases), now_ns);
        if in_window {
            *self.failures_of_session.entry(session).or_default() += 1;
        }
        books::count_failure(&mut self.failures, kind, in_window);
        if let Some(load) = &mut self.load {
            load.recorder.record_failure(now_ns);
        }
    }
}
