//! The state that connections and the metrics port share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bench_format::histogram::{Histogram, Recorder};

use crate::{
    config::{Config, Flaw},
    delay::Delays,
    disposition::Dispositions,
    ledger::Ledger,
    publisher::Publisher,
    upgrade::AdmissionRules,
};

/// The state that connections and the metrics port share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) dispositions: Dispositions,
    pub(crate) publisher: Option<Publisher>,
    /// Whether new connections are accepted; false once the service stops.
    pub(crate) accepting: AtomicBool,
    recorded: Mutex<Recorder>,
    pub(crate) admission_rules: AdmissionRules,
    /// Number of connections so far: each has its own sequence of delays.
    streams: AtomicU64,
}

impl Shared {
    /// Creates the state of a service that starts.
    pub(crate) fn new(config: Config, ledger: Arc<Ledger>) -> Self {
        Self {
            dispositions: Dispositions::new(config.flaw, config.every),
            publisher: config.flaw.publishes().then(|| Publisher::new(config.rate, config.flaw)),
            admission_rules: AdmissionRules::new(config.secret.as_deref(), config.flaw),
            ledger,
            accepting: AtomicBool::new(true),
            recorded: Mutex::default(),
            streams: AtomicU64::new(0),
            config,
        }
    }

    /// Records the time from when a ping was read until its reply was written.
    pub(crate) fn record(&self, duration: Duration) {
        let mut recorded = self.recorded.lock().expect("no holder of this lock can panic");
        recorded.record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The recorded times, in nanoseconds.
    pub(crate) fn recorded(&self) -> Histogram {
        self.recorded.lock().expect("no holder of this lock can panic").encode()
    }

    /// The delays of the next connection.
    pub(crate) fn delays(&self) -> Delays {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        match self.config.flaw {
            Flaw::Delay => Delays::new(
                Duration::from_millis(self.config.delay_ms),
                Duration::from_millis(self.config.tail_ms),
                self.config.seed,
                stream,
            ),
            _ => Delays::none(),
        }
    }
}
