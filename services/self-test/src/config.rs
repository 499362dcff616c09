//! The command line of the service.

use std::{net::IpAddr, num::NonZeroU64, path::PathBuf};

use clap::{Parser, ValueEnum};

/// Flags of the service. Without `--flaw` it has no flaw.
#[derive(Clone, Debug, Parser)]
#[command(name = "self-test-service", version, about = "A WSE service with a known flaw, for testing the harness")]
pub struct Config {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port of the WebSocket; 0 lets the kernel choose
    #[arg(long, env = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Port of /stats and /metrics; 0 lets the kernel choose
    #[arg(long, env = "METRICS_PORT", default_value_t = 0)]
    pub metrics_port: u16,
    /// The way in which the service breaks its contract
    #[arg(long, value_enum, default_value_t = Flaw::None)]
    pub flaw: Flaw,
    /// The k of flaws that affect one message in k
    #[arg(long, default_value = "100")]
    pub every: NonZeroU64,
    /// Shortest delay of the reply to a ping, in milliseconds (flaws `delay` and `cold`)
    #[arg(long, default_value_t = 100)]
    pub delay_ms: u64,
    /// Mean of the exponential part that is added to the shortest delay, in milliseconds (flaw `delay`)
    #[arg(long, default_value_t = 20)]
    pub tail_ms: u64,
    /// How many pings are answered later than the others, over all connections (flaw `cold`)
    #[arg(long, default_value_t = 2000)]
    pub cold_pings: u64,
    /// How much later, in milliseconds (flaw `cold`)
    #[arg(long, default_value_t = 50)]
    pub cold_ms: u64,
    /// CPU time that the busy thread uses between two rests, in milliseconds (flaw `busy`)
    #[arg(long, default_value_t = 20)]
    pub busy_ms: u64,
    /// Length of its rests, in milliseconds; 0 lets it never rest (flaw `busy`)
    #[arg(long, default_value_t = 0)]
    pub idle_ms: u64,
    /// Messages per second that a publisher publishes (flaws `publisher…`)
    #[arg(long, env = "RATE", default_value_t = 200.0)]
    pub rate: f64,
    /// Seed of the delays
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Secret of HS256 tokens; without one every client is accepted
    #[arg(long, env = "JWT_SECRET", hide_env_values = true)]
    pub secret: Option<String>,
    /// Folder for `<flaw>-ready.json`, written at the start, and `<flaw>-recorded.json`, written at the end
    #[arg(long, env = "SELF_TEST_EVIDENCE")]
    pub evidence: Option<PathBuf>,
}

/// The way in which the service breaks its contract, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flaw {
    /// None: every message reaches the application, and every ping is answered at once.
    None,
    /// Each ping is answered after a seeded delay, and the service records the actual delay.
    Delay,
    /// Each ping is answered after the shortest delay, and the first ones later, as by a service that warms up.
    Cold,
    /// One message in k is discarded and counted as dropped.
    Drop,
    /// The k-th message of one connection is discarded and counted as delivered.
    Liar,
    /// One message in k is discarded and counted nowhere.
    SilentDrop,
    /// Every token is accepted, and frames without a mask are accepted.
    Gullible,
    /// One ping in k is never answered.
    ReplyLost,
    /// One ping in k is answered twice.
    ReplyTwice,
    /// The answer to one ping in k has another number.
    ReplyWrong,
    /// One ping in k is answered 50 ms later, after others.
    ReplyReordered,
    /// The pings of a connection after its k-th are never answered.
    RepliesEnd,
    /// One upgrade in k is refused with 503.
    RefusesUpgrades,
    /// None, but `/metrics` lacks one message in k.
    Miscounts,
    /// None, but `/metrics` counts from 0 again after every k messages, as after a restart.
    Restarts,
    /// None, but one of its threads is busy regardless of the load.
    Busy,
    /// Frames are counted and discarded, at the lowest possible cost.
    Null,
    /// None: the service publishes by itself, and every connection gets every message.
    Publisher,
    /// Like publisher, but one publication in k is not sent and not counted as sent.
    PublisherSilentDrop,
    /// Like publisher, but one publication in k is not sent and counted as sent to all.
    PublisherLiar,
    /// Like publisher, but it publishes at half of the rate that it reports.
    PublisherSlow,
}

impl Flaw {
    /// The flaw's name on the command line and in the service's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Flaw::None => "none",
            Flaw::Delay => "delay",
            Flaw::Cold => "cold",
            Flaw::Drop => "drop",
            Flaw::Liar => "liar",
            Flaw::SilentDrop => "silent-drop",
            Flaw::Gullible => "gullible",
            Flaw::ReplyLost => "reply-lost",
            Flaw::ReplyTwice => "reply-twice",
            Flaw::ReplyWrong => "reply-wrong",
            Flaw::ReplyReordered => "reply-reordered",
            Flaw::RepliesEnd => "replies-end",
            Flaw::RefusesUpgrades => "refuses-upgrades",
            Flaw::Miscounts => "miscounts",
            Flaw::Restarts => "restarts",
            Flaw::Busy => "busy",
            Flaw::Null => "null",
            Flaw::Publisher => "publisher",
            Flaw::PublisherSilentDrop => "publisher-silent-drop",
            Flaw::PublisherLiar => "publisher-liar",
            Flaw::PublisherSlow => "publisher-slow",
        }
    }

    /// Whether the service publishes messages by itself.
    pub fn publishes(self) -> bool {
        matches!(self, Flaw::Publisher | Flaw::PublisherSilentDrop | Flaw::PublisherLiar | Flaw::PublisherSlow)
    }

    /// The reason by which messages that didn't reach the application are counted.
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
            assert_eq!(flaw.to_possible_value().expect("no flaw is hidden").get_name(), flaw.as_str());
        }
    }

    #[test]
    fn one_message_in_zero_is_refused() {
        assert!(Config::try_parse_from(["self-test-service", "--every", "0"]).is_err());
    }
}
