//! The command line of the gateway.

use std::{
    net::IpAddr,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
    time::Duration,
};

use clap::{Parser, ValueEnum};

/// Flags of the gateway. Without `--flaw` it has no flaw.
#[derive(Clone, Debug, Parser)]
#[command(name = "self-test-gateway", version, about = "A speech-to-text gateway with a known flaw, for testing tests")]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "HOST", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port of the WebSocket; 0 lets the kernel choose
    #[arg(long, env = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Port of /stats and /metrics; 0 lets the kernel choose
    #[arg(long, env = "METRICS_PORT", default_value_t = 0)]
    pub metrics_port: u16,
    /// URL of the inference, http://HOST:PORT
    #[arg(long, env = "INFERENCE_URL", default_value = "http://127.0.0.1:9000", value_parser = address)]
    pub inference_url: String,
    /// Passes over the audio that the gateway requests from the inference
    #[arg(long, env = "CPU_PASSES", default_value = "4")]
    pub cpu_passes: NonZeroU32,
    /// The model's delay that partials report, in milliseconds
    #[arg(long, env = "MODEL_DELAY_MS", default_value_t = 75)]
    pub model_delay_ms: u64,
    /// Interval between two ticks, in milliseconds
    #[arg(long, env = "FLUSH_INTERVAL_MS", default_value = "1000")]
    pub flush_interval_ms: NonZeroU64,
    /// Largest offset of a session's schedule, in milliseconds
    #[arg(long, env = "FLUSH_PHASE_JITTER_MS", default_value_t = 0)]
    pub flush_phase_jitter_ms: u64,
    /// Longest duration of a request to the inference, in milliseconds
    #[arg(long, env = "INFERENCE_TIMEOUT_MS", default_value = "2000")]
    pub inference_timeout_ms: NonZeroU64,
    /// Largest number of frames that wait for their tick
    #[arg(long, env = "MAX_BUFFERED_FRAMES", default_value = "200")]
    pub max_buffered_frames: NonZeroU32,
    /// The way in which the gateway breaks its contract
    #[arg(long, value_enum, default_value_t = Flaw::None)]
    pub flaw: Flaw,
    /// The k of flaws that affect one frame in k
    #[arg(long, default_value = "100")]
    pub every: NonZeroU64,
    /// Shortest delay of a partial, in milliseconds (flaw `delay`)
    #[arg(long, default_value_t = 100)]
    pub delay_ms: u64,
    /// Mean of the exponential part that is added to the shortest delay, in milliseconds (flaw `delay`)
    #[arg(long, default_value_t = 20)]
    pub tail_ms: u64,
    /// Percentage of sessions that fall silent after some flushes
    #[arg(long, env = "SILENT_PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub silent_percent: u32,
    /// Number of flushes after which such a session falls silent
    #[arg(long, env = "SILENT_AFTER", default_value = "1")]
    pub silent_after: NonZeroU32,
    /// Interval between two ticks of a session that has fallen silent, in milliseconds
    #[arg(long, env = "SILENCE_MS", default_value = "12000")]
    pub silence_ms: NonZeroU64,
    /// Seed of the delays and of the phases
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder for `gateway-<flaw>-ready.json`, written at the start, and `gateway-<flaw>-recorded.json` and
    /// `gateway-<flaw>-recorded-oldest.json`, written at the end
    #[arg(long, env = "SELF_TEST_EVIDENCE")]
    pub evidence: Option<PathBuf>,
}

impl Config {
    /// Interval between two ticks.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.flush_interval_ms.get())
    }

    /// Interval between two ticks of a session that has fallen silent.
    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.silence_ms.get())
    }

    /// Longest duration of a request to the inference.
    pub fn timeout(&self) -> Duration {
        match self.flaw {
            Flaw::EndlessWait => Duration::from_secs(600),
            _ => Duration::from_millis(self.inference_timeout_ms.get()),
        }
    }

    /// Largest number of frames that wait for their tick.
    pub fn buffered_frames(&self) -> usize {
        match self.flaw {
            Flaw::UnboundedBuffer => usize::MAX,
            _ => self.max_buffered_frames.get() as usize,
        }
    }
}

fn address(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    match host {
        Some(host) if !host.is_empty() && !host.contains('/') => Ok(format!("http://{host}")),
        _ => Err("write http://HOST:PORT".into()),
    }
}

/// The gateway's flaw. The variants' texts are the program's help; `docs/CONFORMANCE.md` has the same texts, as a test
/// checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flaw {
    /// No flaw: the gateway keeps its contract.
    None,
    /// Each partial waits for a seeded delay, and the gateway records how old its frames were when it left.
    Delay,
    /// One frame in k is discarded before its batch, as a gap in the covers, and counted nowhere.
    SilentDrop,
    /// One frame in k is left out of the audio of its batch, and counted as delivered.
    LostFrame,
    /// The second batch of a session is lost, and counted as delivered.
    LostBatch,
    /// The second batch of a session is sent twice.
    RepeatedBatch,
    /// Two frames of the second batch of a session change places.
    SwappedFrames,
    /// A tick sends what it finds although a request is in flight.
    TwoInFlight,
    /// The first tick of a session that finds a request in flight sends all the same, in one session of three.
    RacyTwoInFlight,
    /// A tick that was skipped is made up for when the request in flight is answered.
    EagerFlush,
    /// Each interval is three per cent too long.
    DriftingTimer,
    /// The schedule begins with the connection.
    ScheduleFromConnect,
    /// Lateness is counted from a schedule that knows no missed ticks.
    AccumulatingLateness,
    /// What a client did wrong is answered with Close 1000.
    CloseCode,
    /// A start with a further key is taken.
    ExtraKey,
    /// Frames without a mask are taken.
    Unmasked,
    /// Fragmented messages are refused.
    NoFragments,
    /// Pings are not answered.
    NoPong,
    /// Close is not answered.
    DeafToClose,
    /// A partial lacks a key.
    MissingKey,
    /// A partial has a key too many.
    SurplusKey,
    /// A partial says another `cpu_passes` than it should.
    WrongEcho,
    /// An error frame lacks a key.
    MissingErrorKey,
    /// Error frames are not sent.
    SilentError,
    /// After the first error frame nothing of the session is sent to the inference.
    DeadAfterError,
    /// The inference may take as long as it likes.
    EndlessWait,
    /// An answer of the inference may have further keys.
    LenientParse,
    /// Any number of frames may wait.
    UnboundedBuffer,
    /// Any number of bytes may wait for a client that does not read.
    UnboundedOutbox,
    /// A session that ends during inference stays in the books.
    Leak,
    /// A batch counts for one frame more than it had.
    LyingBooks,
    /// SIGTERM ends the process at once.
    AbruptEnd,
}

impl Flaw {
    /// The flaw's name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().expect("no flaw is hidden").get_name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_flags_there_is_no_flaw_and_the_defaults_are_the_contracts() {
        let config = Config::parse_from(["self-test-gateway"]);
        assert_eq!((config.flaw, config.port, config.metrics_port), (Flaw::None, 0, 0));
        assert_eq!((config.interval(), config.timeout()), (Duration::from_secs(1), Duration::from_secs(2)));
        assert_eq!((config.buffered_frames(), config.cpu_passes.get(), config.model_delay_ms), (200, 4, 75));
    }

    #[test]
    fn invalid_values_are_refused() {
        for (flag, value) in [
            ("--flush-interval-ms", "0"),
            ("--inference-timeout-ms", "0"),
            ("--max-buffered-frames", "0"),
            ("--cpu-passes", "0"),
            ("--inference-url", "https://a:1"),
            ("--inference-url", "http://a:1/infer"),
            ("--flaw", "nonsense"),
        ] {
            assert!(Config::try_parse_from(["self-test-gateway", flag, value]).is_err(), "{flag} {value}");
        }
    }
}
