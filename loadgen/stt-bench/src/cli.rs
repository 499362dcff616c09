//! The command line: the flags that such generators have, and what they lacked.

use std::path::PathBuf;

use clap::Parser;

use crate::{
    load_thread::Patience,
    protocol::PATH,
    trial::{LEGAL_PASSES, Settings},
};

/// Load on a speech-to-text gateway, accounted for frame by frame.
///
/// Each session sends a frame of audio every 20 ms, whatever the gateway does. The summary is JSON on standard output;
/// progress and warnings are on standard error. Exit code: 0 when every frame was answered once and rightly and the
/// generator kept its pace, 1 when not, 2 for bad usage. Whether the objective was met is the summary's `verdict`.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Cli {
    /// The gateway's WebSocket, ws://host:port/ws/stt.
    #[arg(long, required_unless_present = "coordinator")]
    pub url: Option<String>,
    /// Concurrent sessions.
    #[arg(long, required_unless_present = "coordinator", value_parser = clap::value_parser!(u32).range(1..))]
    pub sessions: Option<u32>,
    /// Load before the window, once all sessions have started, in seconds; not measured.
    #[arg(long, default_value_t = 15.0)]
    pub warmup_secs: f64,
    /// Length of the measured window, in seconds.
    #[arg(long, default_value_t = 90.0)]
    pub measure_secs: f64,
    /// Sessions start one after another over so many seconds, before the warm-up.
    #[arg(long, default_value_t = 0.0)]
    pub ramp_up_secs: f64,
    /// Stretches the ramp by so many milliseconds.
    #[arg(long, default_value_t = 0.0)]
    pub session_start_spread_ms: f64,
    /// A label for the summary; it repeats nothing.
    #[arg(long, default_value_t = 1)]
    pub repeat: u32,
    /// A connection that is not open after so many milliseconds has failed.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub connect_timeout_ms: u64,
    /// A session whose socket takes nothing for so many milliseconds is over.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub send_timeout_ms: u64,
    /// How long the gateway may take to answer Close, in milliseconds.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub close_grace_ms: u64,
    /// Longest wait for what is in flight after the window, in seconds.
    #[arg(long, default_value_t = 15.0)]
    pub session_grace_secs: f64,
    /// Writes one row for each partial of the window to this file; `.csv`, or `.csv.zst` to compress it. Several workers
    /// write one file each, with the worker's index before the ending. Until the end the rows are in memory, compressed.
    #[arg(long)]
    pub samples_out: Option<PathBuf>,
    /// A name for the gateway in the summary.
    #[arg(long)]
    pub service_name: Option<String>,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: u32,
    /// Seed of the sessions' phases and of the masks.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Passes over the audio that the gateway asks of inference, as its CPU_PASSES says.
    #[arg(long, env = "CPU_PASSES", default_value_t = 4, value_parser = clap::value_parser!(u32).range(LEGAL_PASSES))]
    pub cpu_passes: u32,
    /// Connection attempts in flight at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub connect_in_flight: u32,
    /// Leaves out the check of the protocol before and after the load.
    #[arg(long)]
    pub no_conformance: bool,
    /// Metrics port of the gateway, as http://host:port. Its counters over the run then stand beside ours.
    #[arg(long)]
    pub metrics: Option<String>,
    /// Work for this coordinator instead: http://host:port. All else comes from it.
    #[arg(long, requires = "worker")]
    pub coordinator: Option<String>,
    /// Index of this worker, from 0; only with --coordinator.
    #[arg(long, requires = "coordinator")]
    pub worker: Option<u32>,
    /// Token that the coordinator asks for; better given in the environment.
    #[arg(long, env = "COORDINATOR_TOKEN", hide_env_values = true)]
    pub coordinator_token: Option<String>,
}

impl Cli {
    /// What the types alone can't check.
    ///
    /// # Errors
    /// In words, for a person.
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
            && !["csv", "zst"].iter().any(|ending| path.extension().is_some_and(|found| found == *ending))
        {
            return Err(format!("--samples-out {} ends in neither .csv nor .csv.zst", path.display()));
        }
        Ok(())
    }

    /// What no assignment says.
    pub fn settings(&self) -> Settings {
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        Settings {
            patience: Patience {
                connect_ns: ns(self.connect_timeout_ms),
                send_ns: ns(self.send_timeout_ms),
                close_ns: ns(self.close_grace_ms),
            },
            cpu_passes: self.cpu_passes,
            conformance: !self.no_conformance,
        }
    }
}

/// The `host:port` of a gateway's URL; the path is the protocol's.
///
/// # Errors
/// In words, when it is no such URL.
pub fn address(url: &str) -> Result<String, String> {
    let wanted = || format!("--url {url:?} is not of the form ws://host:port{PATH}");
    let rest = url.strip_prefix("ws://").ok_or_else(wanted)?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
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
        for (flags, words) in [
            ("--measure-secs 0", "--measure-secs 0 is not between"),
            ("--warmup-secs -1", "--warmup-secs -1"),
            ("--workers 9", "--workers 9 is more than --sessions 5"),
            ("--samples-out rows.parquet", "neither .csv nor .csv.zst"),
        ] {
            let flags = flags.replacen(' ', "=", 1);
            let cli = cli(&format!("stt-loadgen --url ws://a:1 --sessions 5 {flags}")).unwrap();
            assert!(cli.check().unwrap_err().contains(words), "{flags}");
        }
    }
}
