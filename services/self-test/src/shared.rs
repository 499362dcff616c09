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
    /// Number of pings that are still answered late.
    cold_pings: AtomicU64,
}

impl Shared {
    /// Creates the state of a service that starts.
    pub(crate) fn new(config: Config, ledger: Arc<Ledger>) -> Self {
        Self {
            dispositions: Dispositions::new(config.flaw, config.every),
            publisher: config.flaw.publishes().then(|| Publisher::new(config.rate, config.flaw)),
            admission_rules: AdmissionRules::new(config.secret.as_deref(), config.flaw, config.every),
            ledger,
            accepting: AtomicBool::new(true),
            recorded: Mutex::default(),
            streams: AtomicU64::new(0),
            cold_pings: AtomicU64::new(if config.flaw == Flaw::Cold { config.cold_pings } else { 0 }),
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
        let (shortest, tail) = (self.config.delay_ms, self.config.tail_ms);
        let delays =
            |tail| Delays::new(Duration::from_millis(shortest), Duration::from_millis(tail), self.config.seed, stream);
        match self.config.flaw {
            Flaw::Delay => delays(tail),
            Flaw::Cold => delays(0),
            _ => Delays::none(),
        }
    }

    /// How much later the next ping is answered: zero once the first ones have been read.
    pub(crate) fn cold_delay(&self) -> Duration {
        let one_less = |left: u64| left.checked_sub(1);
        match self.cold_pings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
            Ok(_) => Duration::from_millis(self.config.cold_ms),
            Err(_) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn shared(arguments: &[&str]) -> Shared {
        let config = Config::parse_from([&["self-test-service"], arguments].concat());
        let ledger = Arc::new(Ledger::new(config.flaw));
        Shared::new(config, ledger)
    }

    #[test]
    fn the_first_pings_of_a_cold_service_are_late_on_all_connections_together() {
        let shared = shared(&["--flaw", "cold", "--cold-pings", "3", "--cold-ms", "50", "--delay-ms", "100"]);
        let late: Vec<u128> = (0..5).map(|_| shared.cold_delay().as_millis()).collect();
        assert_eq!(late, [50, 50, 50, 0, 0]);
        assert!(shared.delays().take(10).all(|delay| delay.as_millis() == 100));
    }

    #[test]
    fn other_services_are_never_cold() {
        assert_eq!(shared(&["--flaw", "delay", "--cold-pings", "3"]).cold_delay(), Duration::ZERO);
    }
}
