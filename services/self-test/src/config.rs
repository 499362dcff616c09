//! What the service is told when it starts.

use std::{net::IpAddr, num::NonZeroU64, path::PathBuf};

use clap::{Parser, ValueEnum};

/// Flags of the service. Without `--flaw` it is honest.
#[derive(Clone, Debug, Parser)]
#[command(name = "self-test-service", version, about = "A WSE service with a known flaw, for testing the harness")]
pub struct Config {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port of the WebSocket; 0 lets the kernel pick
    #[arg(long, env = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Port of /stats and /metrics; 0 lets the kernel pick
    #[arg(long, env = "METRICS_PORT", default_value_t = 0)]
    pub metrics_port: u16,
    /// What is wrong with the service
    #[arg(long, value_enum, default_value_t = Flaw::None)]
    pub flaw: Flaw,
    /// The k of the flaws that concern one message in k
    #[arg(long, default_value = "100")]
    pub every: NonZeroU64,
    /// Shortest delay of an answer to a ping, in milliseconds (flaw `delay`)
    #[arg(long, default_value_t = 100)]
    pub delay_ms: u64,
    /// Mean of the exponential part on top of the shortest delay, in milliseconds (flaw `delay`)
    #[arg(long, default_value_t = 20)]
    pub tail_ms: u64,
    /// Messages that a publisher publishes per second (flaws `publisher…`)
    #[arg(long, env = "RATE", default_value_t = 200.0)]
    pub rate: f64,
    /// Seed of the delays
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Secret of HS256 tokens; without one every client is let in
    #[arg(long, env = "JWT_SECRET", hide_env_values = true)]
    pub secret: Option<String>,
    /// Folder that gets `<flaw>-ready.json` at the start and `<flaw>-recorded.json` at the end
    #[arg(long, env = "SELF_TEST_EVIDENCE")]
    pub evidence: Option<PathBuf>,
}

/// What is wrong with the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flaw {
    /// Nothing: every message reaches the application, every ping is answered at once.
    None,
    /// Each ping is answered after a seeded delay, and the service records how long it really took.
    Delay,
    /// One message in k is discarded and counted as dropped.
    Drop,
    /// The k-th message of one connection is discarded and reported as delivered.
    Liar,
    /// One message in k is discarded and counted nowhere.
    SilentDrop,
    /// Every token will do, and frames need no mask.
    Gullible,
    /// Frames are counted and thrown away, as cheaply as we know how.
    Null,
    /// Nothing: the service publishes by itself, and every connection gets every message.
    Publisher,
    /// The same, but one publication in k is sent to nobody and counted nowhere.
    PublisherSilentDrop,
    /// The same, but one publication in k is sent to nobody and counted as sent to all.
    PublisherLiar,
    /// The same, but it publishes half as often as it says.
    PublisherSlow,
}

impl Flaw {
    /// The flaw's word on the command line and in the service's name.
    pub fn word(self) -> &'static str {
        match self {
            Flaw::None => "none",
            Flaw::Delay => "delay",
            Flaw::Drop => "drop",
            Flaw::Liar => "liar",
            Flaw::SilentDrop => "silent-drop",
            Flaw::Gullible => "gullible",
            Flaw::Null => "null",
            Flaw::Publisher => "publisher",
            Flaw::PublisherSilentDrop => "publisher-silent-drop",
            Flaw::PublisherLiar => "publisher-liar",
            Flaw::PublisherSlow => "publisher-slow",
        }
    }

    /// Whether the service publishes by itself.
    pub fn publishes(self) -> bool {
        matches!(self, Flaw::Publisher | Flaw::PublisherSilentDrop | Flaw::PublisherLiar | Flaw::PublisherSlow)
    }

    /// The reason under which what never reached the application is counted.
    pub fn drop_reason(self) -> &'static str {
        match self {
            Flaw::Null => "discarded",
            _ => "self_test",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_flags_the_service_is_honest_and_lets_the_kernel_pick_its_ports() {
        let config = Config::parse_from(["self-test-service"]);
        assert_eq!((config.flaw, config.port, config.metrics_port), (Flaw::None, 0, 0));
    }

    #[test]
    fn every_flaw_is_called_on_the_command_line_as_in_the_registry() {
        for flaw in Flaw::value_variants() {
            assert_eq!(flaw.to_possible_value().expect("no flaw is hidden").get_name(), flaw.word());
        }
    }

    #[test]
    fn one_message_in_zero_is_refused() {
        assert!(Config::try_parse_from(["self-test-service", "--every", "0"]).is_err());
    }
}
