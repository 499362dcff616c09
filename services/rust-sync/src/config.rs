//! The settings, from environment variables and from flags of the same names. A flag overrides its variable.

use std::{
    net::{IpAddr, SocketAddr},
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use clap::{Parser, builder::RangedU64ValueParser};

/// Upper limit of `VISIT_INTERVAL_MS`. With it, the bytes that wait in a socket stay within its default receive buffer.
const LONGEST_VISIT_INTERVAL_MS: u64 = 1000;
/// Upper limit of other durations: a day. Longer ones are mistakes, and sums of shorter ones can't overflow.
const LONGEST_MS: u64 = 24 * 3600 * 1000;

/// A streaming speech-to-text gateway on epoll threads, without an async runtime.
#[derive(Clone, Debug, Parser)]
#[command(name = "rust-sync", version)]
pub struct Config {
    /// Address to listen on, for clients and for the metrics port.
    #[arg(long, env = "HOST", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port for WebSocket clients; 0 lets the kernel pick one.
    #[arg(long, env = "PORT", default_value_t = 3000)]
    pub port: u16,
    /// Port for /healthz, /readyz, /stats and /metrics; 0 lets the kernel pick one.
    #[arg(long, env = "METRICS_PORT", default_value_t = 0)]
    pub metrics_port: u16,
    /// URL of the inference, as http://host:port.
    #[arg(long, env = "INFERENCE_URL", default_value = "http://127.0.0.1:9000")]
    pub inference_url: InferenceUrl,
    /// Passes that the inference makes over each batch.
    #[arg(long, env = "CPU_PASSES", default_value = "4")]
    pub cpu_passes: NonZeroU32,
    /// Model delay that partials report, in milliseconds; it has no other effect.
    #[arg(long, env = "MODEL_DELAY_MS", default_value_t = 75)]
    pub model_delay_ms: u64,
    /// Time between a session's flush ticks, in milliseconds.
    #[arg(long, env = "FLUSH_INTERVAL_MS", default_value_t = 1000, value_parser = milliseconds(1))]
    flush_interval_ms: u64,
    /// Upper bound of the random offset of a session's ticks, in milliseconds; drawn once per session.
    #[arg(long, env = "FLUSH_PHASE_JITTER_MS", default_value_t = 0, value_parser = milliseconds(0))]
    flush_phase_jitter_ms: u64,
    /// Time limit of one inference request, counted from its flush tick, in milliseconds.
    #[arg(long, env = "INFERENCE_TIMEOUT_MS", default_value_t = 2000, value_parser = milliseconds(1))]
    inference_timeout_ms: u64,
    /// Maximum of connections to the inference, over all threads; further requests wait for one.
    #[arg(long, env = "INFERENCE_HTTP_CLIENTS", default_value = "2048")]
    pub inference_http_clients: NonZeroUsize,
    /// WebSocket threads, each with an inference thread; 0 means one per available CPU.
    #[arg(long, env = "WORKER_THREADS", default_value_t = 0)]
    worker_threads: usize,
    /// Frames that may wait in a session, besides the batch in flight; beyond that the oldest are dropped.
    #[arg(long, env = "MAX_BUFFERED_FRAMES", default_value = "200")]
    pub max_buffered_frames: NonZeroUsize,
    /// Maximum of open WebSockets; more are refused with 503. 0 means no limit.
    #[arg(long, env = "MAX_CONNECTIONS", default_value_t = 0)]
    max_connections: usize,
    /// Longest time between two reads of a session's socket, in milliseconds; pings and closes wait at most this long.
    #[arg(long, env = "VISIT_INTERVAL_MS", default_value_t = 450, value_parser = visit_milliseconds())]
    visit_interval_ms: u64,
}

fn milliseconds(least: u64) -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(least..=LONGEST_MS)
}

fn visit_milliseconds() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=LONGEST_VISIT_INTERVAL_MS)
}

impl Config {
    /// Time between two flush ticks of a session.
    pub fn flush_interval(&self) -> Duration {
        Duration::from_millis(self.flush_interval_ms)
    }

    /// Upper bound of the random offset of a session's ticks.
    pub fn flush_phase_jitter(&self) -> Duration {
        Duration::from_millis(self.flush_phase_jitter_ms)
    }

    /// Time limit of one inference request, counted from its flush tick.
    pub fn inference_timeout(&self) -> Duration {
        Duration::from_millis(self.inference_timeout_ms)
    }

    /// Longest time between two visits of a started session.
    pub fn visit_interval(&self) -> Duration {
        Duration::from_millis(self.visit_interval_ms)
    }

    /// Number of WebSocket threads: the setting, or the number of available CPUs if it is 0.
    pub fn threads(&self) -> usize {
        match self.worker_threads {
            0 => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            threads => threads,
        }
    }

    /// Maximum of open WebSockets; `usize::MAX` if the setting is 0.
    pub fn connection_limit(&self) -> usize {
        if self.max_connections == 0 { usize::MAX } else { self.max_connections }
    }

    /// Address of the client port.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// Address of the metrics port.
    pub fn metrics_address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.metrics_port)
    }
}

/// A validated URL of the form `http://host:port`, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferenceUrl {
    /// `host:port` as in the `Host` header; an IPv6 address is in brackets.
    pub authority: String,
}

impl std::str::FromStr for InferenceUrl {
    type Err = &'static str;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "an address of the form http://host:port is wanted";
        let authority = url.strip_prefix("http://").ok_or(WANTED)?;
        let (host, port) = authority.rsplit_once(':').ok_or(WANTED)?;
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
        };
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0);
        if is_host && is_port { Ok(Self { authority: authority.into() }) } else { Err(WANTED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Config, String> {
        let all = std::iter::once("rust-sync").chain(arguments.iter().copied());
        Config::try_parse_from(all).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_the_contracts() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.address(), SocketAddr::from(([127, 0, 0, 1], 3000)));
        assert_eq!((config.flush_interval().as_millis(), config.inference_timeout().as_millis()), (1000, 2000));
        assert_eq!((config.cpu_passes.get(), config.model_delay_ms, config.max_buffered_frames.get()), (4, 75, 200));
        assert_eq!(
            (config.connection_limit(), config.inference_url.authority.as_str()),
            (usize::MAX, "127.0.0.1:9000")
        );
    }

    #[test]
    fn a_value_that_makes_no_sense_is_named() {
        for (flag, value) in [
            ("--host", "nowhere"),
            ("--port", "65536"),
            ("--cpu-passes", "0"),
            ("--model-delay-ms", "-1"),
            ("--flush-interval-ms", "0"),
            ("--flush-interval-ms", "1e3"),
            ("--inference-timeout-ms", "0"),
            ("--inference-http-clients", "0"),
            ("--max-buffered-frames", "0"),
            ("--visit-interval-ms", "1001"),
            ("--inference-url", "https://a:1"),
        ] {
            let message = parse(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(message.contains(flag) && message.contains(value), "{message}");
        }
    }

    #[test]
    fn only_addresses_without_a_path_are_taken() {
        for good in ["http://127.0.0.1:9000", "http://inference-sim:80", "http://[::1]:9000"] {
            assert_eq!(good.parse::<InferenceUrl>().unwrap().authority, good[7..]);
        }
        for bad in [
            "",
            "127.0.0.1:9000",
            "http://",
            "http://a",
            "http://a:",
            "http://a:0",
            "http://a:65536",
            "http://a:+1",
            "http://a:1/",
            "http://a:1/infer",
            "http://u@a:1",
            "http://::1:9000",
            "http://[a]:1",
            "http://a b:1",
        ] {
            assert!(bad.parse::<InferenceUrl>().is_err(), "{bad}");
        }
    }
}
