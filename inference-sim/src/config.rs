//! What the simulator is told when it starts: flags, or the variables of the same names. Nothing is guessed: a value
//! that makes no sense ends the program with an error that names it.

use std::{net::IpAddr, num::NonZeroUsize};

use clap::Parser;

use crate::{
    faults::FaultPlan,
    values::{not_negative, share},
};

/// Settings of the simulator. The defaults are those that the numbers of speech-to-text gateways are stated with.
#[derive(Clone, Debug, Parser)]
#[command(name = "inference-sim", version, about = "Simulates speech-to-text inference: exact compute, seeded latency")]
pub struct Config {
    /// Address to listen on
    #[arg(long, env = "HOST", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port of everything: /infer, /health, /healthz, /readyz, /metrics; 0 lets the kernel pick
    #[arg(long, env = "PORT", default_value_t = 9000)]
    pub port: u16,
    /// Threads for HTTP; 0 takes as many as there are CPUs that the process may use
    #[arg(long, env = "WORKER_THREADS", default_value_t = 0)]
    pub worker_threads: usize,
    /// Passes over the audio of a request without a usable x-cpu-passes header
    #[arg(long, env = "CPU_PASSES", default_value_t = 4)]
    pub cpu_passes: u32,
    /// Median of the modelled computing time, in milliseconds
    #[arg(long, env = "MODEL_DELAY_MS", default_value = "75", value_parser = not_negative)]
    pub model_delay_ms: f64,
    /// Sigma of the computing time's log-normal distribution; 0 makes it constant
    #[arg(long, env = "MODEL_JITTER_SIGMA", default_value = "0.15", value_parser = not_negative)]
    pub model_jitter_sigma: f64,
    /// Share of requests with a long tail, from 0 to 1
    #[arg(long, env = "MODEL_LONGTAIL_PROB", default_value = "0.01", value_parser = share)]
    pub model_longtail_prob: f64,
    /// What a long tail multiplies the computing time with
    #[arg(long, env = "MODEL_LONGTAIL_MULT", default_value = "3", value_parser = not_negative)]
    pub model_longtail_mult: f64,
    /// Upper end of the uniform wait for a batch, in milliseconds; 0 switches it off
    #[arg(long, env = "MODEL_BATCH_WAIT_MAX_MS", default_value = "20", value_parser = not_negative)]
    pub model_batch_wait_max_ms: f64,
    /// Requests served at once; others wait, first come, first served
    #[arg(long, env = "MODEL_MAX_CONCURRENT", default_value = "64")]
    pub model_max_concurrent: NonZeroUsize,
    /// Seed of latencies and faults: what becomes of request number n is a function of the seed and n
    #[arg(long, env = "MODEL_SEED", default_value_t = 1)]
    pub model_seed: u64,
    /// Faults to inject; none by default
    #[command(flatten)]
    pub faults: FaultPlan,
}

impl Config {
    /// Threads for HTTP, with 0 replaced by what the process may use.
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
    fn a_value_that_makes_no_sense_is_refused_by_the_name_of_its_flag() {
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
