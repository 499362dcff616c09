//! The command line of `stt-loadgen`.
//!
//! Clap checks each flag on its own; [`Cli::check`] checks what depends on more than a flag's type.

use std::path::PathBuf;

use clap::Parser;

use crate::{
    load_thread::SessionTimeouts,
    protocol::PATH,
    trial::{LEGAL_PASSES, Settings},
};

/// Puts load on a speech-to-text gateway and accounts for every frame.
///
/// Each session sends a frame of audio every 20 ms, regardless of how the gateway responds. The summary is JSON on
/// standard output; progress and warnings are on standard error. Exit code: 0 when every frame was answered once and
/// correctly and the generator kept its pace, 1 when not, 2 for bad usage. Whether the objective was met is the
/// summary's `verdict`.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Cli {
    /// URL of the gateway's WebSocket, ws://host:port/ws/stt.
    #[arg(long, required_unless_present = "coordinator")]
    pub url: Option<String>,
    /// Number of concurrent sessions.
    #[arg(long, required_unless_present = "coordinator", value_parser = clap::value_parser!(u32).range(1..))]
    pub sessions: Option<u32>,
    /// Load before the measured window, once all sessions have started, in seconds.
    #[arg(long, default_value_t = 15.0)]
    pub warmup_secs: f64,
    /// Length of the measured window, in seconds.
    #[arg(long, default_value_t = 90.0)]
    pub measure_secs: f64,
    /// Seconds over which the sessions start one after another, before the warm-up.
    #[arg(long, default_value_t = 0.0)]
    pub ramp_up_secs: f64,
    /// Milliseconds that are added to the ramp-up.
    #[arg(long, default_value_t = 0.0)]
    pub session_start_spread_ms: f64,
    /// Label for the summary; it does not repeat the run.
    #[arg(long, default_value_t = 1)]
    pub repeat: u32,
    /// How long a connection attempt may take before it counts as failed, in milliseconds.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub connect_timeout_ms: u64,
    /// How long a session's socket may accept no bytes before the session ends, in milliseconds.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub send_timeout_ms: u64,
    /// How long the gateway may take to answer Close, in milliseconds.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub close_grace_ms: u64,
    /// Longest wait after the window for frames that are not answered yet, in seconds.
    #[arg(long, default_value_t = 15.0)]
    pub session_grace_secs: f64,
    /// File for raw rows, one for each partial of the window: `.csv`, or `.csv.zst` to compress it. With several
    /// workers each writes its own file, with the worker's index before the ending. The rows are kept in memory,
    /// compressed, until the load ends.
    #[arg(long)]
    pub samples_out: Option<PathBuf>,
    /// Name of the gateway in the summary.
    #[arg(long)]
    pub service_name: Option<String>,
    /// Number of worker processes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: u32,
    /// Seed of the sessions' phases and of the frames' masks.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Passes over the audio that the gateway requests from inference: the gateway's CPU_PASSES.
    #[arg(long, env = "CPU_PASSES", default_value_t = 4, value_parser = clap::value_parser!(u32).range(LEGAL_PASSES))]
    pub cpu_passes: u32,
    /// Largest number of connection attempts in flight at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub connect_in_flight: u32,
    /// Skips the check of the protocol before and after the load.
    #[arg(long)]
    pub no_conformance: bool,
    /// Metrics port of the gateway, as http://host:port. The summary then includes what the gateway counted over the
    /// run.
    #[arg(long)]
    pub metrics: Option<String>,
    /// Takes work from this coordinator, http://host:port. The load then comes from its assignments.
    #[arg(long, requires = "worker")]
    pub coordinator: Option<String>,
    /// Index of this worker, from 0; only with --coordinator.
    #[arg(long, requires = "coordinator")]
    pub worker: Option<u32>,
    /// Token that the coordinator requires; better set in the environment than on the command line.
    #[arg(long, env = "COORDINATOR_TOKEN", hide_env_values = true)]
    pub coordinator_token: Option<String>,
}

impl Cli {
    /// Checks what the flags' types can't express.
    ///
    /// # Errors
    /// When the URL is not `ws://host:port/ws/stt`, a duration is out of its range, there are more workers than
    /// sessions, or the file for raw rows has another ending than `.csv` or `.zst`. The text names the flag and its
    /// value.
    pub fn check(&self) -> Result<(), String> {
        if let Some(url) = &self.url {
            address(url)?;
        }
        for (name, value, least) in [
            ("measure-secs", self.measure_secs, f64::MIN_POSITIVE),
            ("warmup-secs", self.warmup_secs, 0.0),
            ("ramp-up-secs", self.ramp_up_secs, 0.0),
            ("session-start-spread-ms", self.session_start_spread_ms, 0.0),
            ("session-grace-secs", self.session_grace_secs, 0.0),
        ] {
            if !(value >= least && value <= 1e6) {
                return Err(format!(
                    "--{name} {value} is not between {} and 1000000",
                    if least > 0.0 { "0 (excluded)" } else { "0" }
                ));
            }
        }
        if let Some(sessions) = self.sessions
            && self.workers > sessions
        {
            return Err(format!("--workers {} is more than --sessions {sessions}", self.workers));
        }
        if let Some(path) = &self.samples_out
            && !["csv", "zst"].iter().any(|ending| path.extension().is_some_and(|extension| extension == *ending))
        {
            return Err(format!("--samples-out {} ends in neither .csv nor .csv.zst", path.display()));
        }
        Ok(())
    }

    /// The settings of a worker that an assignment doesn't contain.
    pub fn settings(&self) -> Settings {
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        Settings {
            timeouts: SessionTimeouts {
                connect_ns: ns(self.connect_timeout_ms),
                send_ns: ns(self.send_timeout_ms),
                close_ns: ns(self.close_grace_ms),
            },
            cpu_passes: self.cpu_passes,
            conformance: !self.no_conformance,
        }
    }
}

/// The `host:port` of a gateway's URL; the port is 80 when the URL has none.
///
/// # Errors
/// When the URL doesn't begin with `ws://`, has no host, or has a path other than the protocol's. The text quotes the
/// URL.
pub fn address(url: &str) -> Result<String, String> {
    let wanted = || format!("--url {url:?} is not of the form ws://host:port{PATH}");
    let authority_and_path = url.strip_prefix("ws://").ok_or_else(wanted)?;
    let (authority, path) =
        authority_and_path.split_at(authority_and_path.find('/').unwrap_or(authority_and_path.len()));
    if authority.is_empty() || !(path == PATH || path.trim_matches('/').is_empty()) {
        return Err(wanted());
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok(if has_port { authority.to_owned() } else { format!("{authority}:80") })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn cli(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_line_of_the_known_ladders_is_understood() {
        let line = "stt-loadgen --url ws://gateway:3000/ws/stt --sessions 2200 --warmup-secs 10 --measure-secs 45 \
                    --ramp-up-secs 30 --session-start-spread-ms 1000 --repeat 1 --service-name rust --samples-out /r/a.csv";
        let cli = cli(line).unwrap();
        assert_eq!((cli.sessions, cli.measure_secs, cli.check()), (Some(2200), 45.0, Ok(())));
    }

    #[test]
    fn urls_become_addresses() {
        assert_eq!(address("ws://127.0.0.1:3000/ws/stt").unwrap(), "127.0.0.1:3000");
        assert_eq!(address("ws://gateway/ws/stt").unwrap(), "gateway:80");
        for url in ["http://a:1/ws/stt", "ws://", "ws://a:1/other", "a:1"] {
            assert!(address(url).unwrap_err().contains("ws://host:port/ws/stt"), "{url}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["stt-loadgen", "stt-loadgen --url ws://a:1", "stt-loadgen --url ws://a:1 --sessions 0"] {
            assert!(cli(line).is_err(), "{line}");
        }
        for (flags, description) in [
            ("--measure-secs 0", "--measure-secs 0 is not between"),
            ("--warmup-secs -1", "--warmup-secs -1"),
            ("--workers 9", "--workers 9 is more than --sessions 5"),
            ("--samples-out rows.parquet", "neither .csv nor .csv.zst"),
        ] {
            let flags = flags.replacen(' ', "=", 1);
            let cli = cli(&format!("stt-loadgen --url ws://a:1 --sessions 5 {flags}")).unwrap();
            assert!(cli.check().unwrap_err().contains(description), "{flags}");
        }
    }
}
