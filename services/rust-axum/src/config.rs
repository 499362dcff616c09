//! The settings, from flags and from environment variables of the same meaning. A flag overrides its variable.

use std::{net::IpAddr, str::FromStr, thread};

use clap::{Parser, value_parser};

/// The gateway's settings, as listed in `services/README.md` ("Gateways").
#[derive(Clone, Debug, Parser)]
#[command(name = "rust-axum", version, about = "Speech-to-text gateway on Tokio and Axum")]
pub(crate) struct Config {
    /// Address to listen on
    #[arg(long, env = "HOST", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port for WebSocket clients; 0 lets the kernel pick one
    #[arg(long, env = "PORT", default_value_t = 3000)]
    pub(crate) port: u16,
    /// Port of /stats and /metrics; 0 lets the kernel pick one
    #[arg(long, env = "METRICS_PORT", default_value_t = 0)]
    pub(crate) metrics_port: u16,
    /// URL of the inference, as http://host:port
    #[arg(long, env = "INFERENCE_URL", default_value = "http://127.0.0.1:9000")]
    pub(crate) inference_url: InferenceUrl,
    /// Passes that the inference makes over each batch
    #[arg(long, env = "CPU_PASSES", default_value_t = 4, value_parser = value_parser!(u32).range(1..=65_536))]
    pub(crate) cpu_passes: u32,
    /// Model delay that partials report, in milliseconds; it has no other effect
    #[arg(long, env = "MODEL_DELAY_MS", default_value_t = 75)]
    pub(crate) model_delay_ms: u64,
    /// Time between two flush ticks of a session, in milliseconds
    #[arg(long, env = "FLUSH_INTERVAL_MS", default_value_t = 1000, value_parser = value_parser!(u64).range(10..=60_000))]
    pub(crate) flush_interval_ms: u64,
    /// Upper bound of the random offset of a session's ticks, in milliseconds; drawn once per session
    #[arg(long, env = "FLUSH_PHASE_JITTER_MS", default_value_t = 0, value_parser = value_parser!(u64).range(..=60_000))]
    pub(crate) flush_phase_jitter_ms: u64,
    /// Longest time from a tick to the end of the inference's response, in milliseconds
    #[arg(long, env = "INFERENCE_TIMEOUT_MS", default_value_t = 2000, value_parser = value_parser!(u64).range(1..=600_000))]
    pub(crate) inference_timeout_ms: u64,
    /// HTTP/2 connections to the inference; a session uses one of them
    #[arg(long, env = "INFERENCE_HTTP_CLIENTS", default_value_t = 4, value_parser = value_parser!(u16).range(1..=4096))]
    pub(crate) inference_http_clients: u16,
    /// Threads that serve sessions; 0 means one per available CPU
    #[arg(long, env = "WORKER_THREADS", default_value_t = 0, value_parser = value_parser!(u16).range(..=1024))]
    pub(crate) worker_threads: u16,
    /// Frames that may wait in a session, besides the batch in flight; beyond that the oldest are dropped
    #[arg(long, env = "MAX_BUFFERED_FRAMES", default_value_t = 200, value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) max_buffered_frames: u32,
    /// Connections that may be open at once; 0 means no limit
    #[arg(long, env = "MAX_CONNECTIONS", default_value_t = 0)]
    pub(crate) max_connections: u64,
}

impl Config {
    /// Worker threads of the Tokio runtime: the setting, or the number of available CPUs if it is 0.
    pub(crate) fn threads(&self) -> usize {
        match self.worker_threads {
            // Respects CPU affinity and the cgroup's quota. If neither can be read, one thread always works.
            0 => thread::available_parallelism().map_or(1, |threads| threads.get()),
            threads => threads.into(),
        }
    }
}

/// A validated URL of the form `http://host:port`, without path, query, fragment or user.
#[derive(Clone, Debug)]
pub(crate) struct InferenceUrl(reqwest::Url);

impl InferenceUrl {
    /// The URL to which batches are posted.
    pub(crate) fn infer(&self) -> reqwest::Url {
        self.0.join("/infer").expect("an absolute path fits behind any host")
    }
}

impl FromStr for InferenceUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = || format!("{text:?} is not http://host:port");
        let authority = text.strip_prefix("http://").ok_or_else(wanted)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(wanted)?;
        let port: u16 = port.parse().map_err(|_| wanted())?;
        if host.is_empty() || port == 0 || authority.contains(['/', '?', '#', '@']) {
            return Err(wanted());
        }
        reqwest::Url::parse(text).map(Self).map_err(|_| wanted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Config, clap::Error> {
        Config::try_parse_from([&["rust-axum"], arguments].concat())
    }

    #[test]
    fn the_inference_is_a_host_and_a_port() {
        for good in ["http://127.0.0.1:9000", "http://inference-sim:80/", "http://[::1]:9000"] {
            let config = parse(&["--inference-url", good]).unwrap();
            assert_eq!(config.inference_url.infer().path(), "/infer", "{good}");
        }
        for bad in
            ["https://a:1", "http://a", "http://a:0", "http://a:x", "http://:1", "http://a:1/b", "http://u@a:1", ""]
        {
            assert!(parse(&["--inference-url", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_that_makes_no_sense_is_refused_by_its_name() {
        for (flag, value) in [
            ("--port", "65536"),
            ("--host", "localhost"),
            ("--cpu-passes", "0"),
            ("--model-delay-ms", "-1"),
            ("--flush-interval-ms", "0"),
            ("--flush-phase-jitter-ms", "60001"),
            ("--inference-timeout-ms", "0"),
            ("--inference-http-clients", "0"),
            ("--worker-threads", "many"),
            ("--max-buffered-frames", "0"),
            ("--max-connections", "1.5"),
        ] {
            let error = parse(&[&format!("{flag}={value}")]).expect_err(flag).to_string();
            assert!(error.contains(flag) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn without_a_number_of_threads_there_is_at_least_one() {
        assert!(parse(&[]).unwrap().threads() >= 1);
        assert_eq!(parse(&["--worker-threads", "3"]).unwrap().threads(), 3);
    }
}
