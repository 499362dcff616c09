//! The settings of the simulator: flags, or the environment variables of the same names.
//!
//! An invalid value ends the program with an error that names the flag and the value; nothing is guessed.

use std::{net::IpAddr, num::NonZeroUsize};

use clap::Parser;

use crate::{
    faults::FaultPlan,
    values::{not_negative, share},
};

/// Settings of the simulator. The figures of the speech-to-text gateways are stated for the default values.
#[derive(Clone, Debug, Parser)]
#[command(name = "inference-sim", version, about = "Simulates speech-to-text inference: exact compute, seeded latency")]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "HOST", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port of all routes: /infer, /health, /healthz, /readyz, /metrics; 0 lets the kernel choose
    #[arg(long, env = "PORT", default_value_t = 9000)]
    pub port: u16,
    /// Threads for HTTP; 0 means the number of CPUs that the process may use
    #[arg(long, env = "WORKER_THREADS", default_value_t = 0)]
    pub worker_threads: usize,
    /// Passes over the audio of a request without a valid x-cpu-passes header
    #[arg(long, env = "CPU_PASSES", default_value_t = 4)]
    pub cpu_passes: u32,
    /// Median of the modelled computing time, in milliseconds
    #[arg(long, env = "MODEL_DELAY_MS", default_value = "75", value_parser = not_negative)]
    pub model_delay_ms: f64,
    /// Sigma of the log-normal distribution of the computing time; 0 makes it constant
    #[arg(long, env = "MODEL_JITTER_SIGMA", default_value = "0.15", value_parser = not_negative)]
    pub model_jitter_sigma: f64,
    /// Share of requests with a long tail, from 0 to 1
    #[arg(long, env = "MODEL_LONGTAIL_PROB", default_value = "0.01", value_parser = share)]
    pub model_longtail_prob: f64,
    /// Factor by which a long tail multiplies the computing time
    #[arg(long, env = "MODEL_LONGTAIL_MULT", default_value = "3", value_parser = not_negative)]
    pub model_longtail_mult: f64,
    /// Upper bound of the uniformly distributed wait for a batch, in milliseconds; 0 switches the wait off
    #[arg(long, env = "MODEL_BATCH_WAIT_MAX_MS", default_value = "20", value_parser = not_negative)]
    pub model_batch_wait_max_ms: f64,
    /// Requests served at once; further requests wait in the order of their arrival
    #[arg(long, env = "MODEL_MAX_CONCURRENT", default_value = "64")]
    pub model_max_concurrent: NonZeroUsize,
    /// Seed of latencies and faults; both are functions of the seed and the request's number
    #[arg(long, env = "MODEL_SEED", default_value_t = 1)]
    pub model_seed: u64,
    /// Faults to inject; none by default
    #[command(flatten)]
    pub faults: FaultPlan,
}

impl Config {
    /// Number of threads for HTTP, with 0 replaced by the number of CPUs that the process may use.
    pub fn threads(&self) -> usize {
        match self.worker_threads {
            0 => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            threads => threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Config, clap::Error> {
        Config::try_parse_from(["inference-sim"].iter().chain(flags))
    }

    #[test]
    fn the_defaults_are_those_of_the_protocol() {
        let config = parse(&[]).expect("no flag is needed");
        assert_eq!((config.port, config.cpu_passes, config.model_max_concurrent.get()), (9000, 4, 64));
        assert_eq!((config.model_delay_ms, config.model_jitter_sigma), (75.0, 0.15));
        assert_eq!((config.model_longtail_prob, config.model_longtail_mult), (0.01, 3.0));
        assert_eq!((config.model_batch_wait_max_ms, config.worker_threads), (20.0, 0));
    }

    #[test]
    fn an_invalid_value_is_refused_with_the_name_of_its_flag() {
        for (flag, value) in [
            ("--port", "70000"),
            ("--cpu-passes", "-1"),
            ("--model-delay-ms", "-1"),
            ("--model-delay-ms", "NaN"),
            ("--model-jitter-sigma", "much"),
            ("--model-longtail-prob", "1.5"),
            ("--model-max-concurrent", "0"),
            ("--fault-reset", "2"),
        ] {
            let message = parse(&[&format!("{flag}={value}")]).expect_err(value).to_string();
            assert!(message.contains(flag) && message.contains(value), "{message}");
        }
    }
}
