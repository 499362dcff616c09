//! The command line: the flags of the reference's own `wse-bench`, as its published benchmarks use them, and further
//! ones.

use std::net::IpAddr;

use bench_format::plan::Arrivals;
use clap::{Parser, ValueEnum};

use crate::{protocol::Access, test::Test};

/// The secret of every service that is benchmarked; public, so it protects nothing.
const BENCH_SECRET: &str = "bench-secret-key-for-testing-only";
/// Largest number of worker processes.
pub const MOST_WORKERS: u32 = 1024;
/// Offset from a service's port to its metrics port, when no flag sets that.
const METRICS_OFFSET: u16 = 1000;
/// Shortest time for which the published suite holds its connections, in seconds.
const SHORTEST_HOLD_SECONDS: f64 = 30.0;

/// Puts load on WSE services and accounts for every message.
///
/// Without --test it runs the suite, in this order: connection-storm, ping-latency, throughput, size-matrix,
/// format-comparison, sustained-hold, connection-limit. The fanout tests need a service that publishes and run only
/// when they are named. Exit code: 0 when every test succeeded, 1 when not, 2 for bad usage.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Cli {
    /// Host of the service.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port of the service; with two instances, that of the publishing one.
    #[arg(long, default_value_t = 5006)]
    pub port: u16,
    /// Port of the instance whose clients receive, in fanout-redis, fanout-cluster and fanout-cluster-tls; by default
    /// --port + 1.
    #[arg(long)]
    pub port2: Option<u16>,
    /// Secret that signs the token; better set in the environment than on the command line.
    #[arg(long, env = "WSE_BENCH_SECRET", default_value = BENCH_SECRET, hide_env_values = true, hide_default_value = true)]
    pub secret: String,
    /// One test of the suite: connection-storm (how fast connections open), ping-latency (how long a reply takes while
    /// all connections ping), throughput (how many messages arrive), size-matrix (the same in six sizes),
    /// format-comparison (in three formats), sustained-hold (whether connections last, and what they cost),
    /// connection-limit (how many there can be). Or fanout-broadcast: how many of its own messages a service delivers
    /// to all connections, in order and without a gap. Or the same with messages that another instance publishes:
    /// fanout-redis (also called fanout-multi), fanout-cluster, fanout-cluster-tls.
    #[arg(long)]
    pub test: Option<String>,
    /// Connections of each tier, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub tiers: Option<Vec<u32>>,
    /// Where connection-limit stops; the suite's own tiers above it are left out.
    #[arg(long, default_value_t = 150_000)]
    pub max_connections: u32,
    /// Length of the measured window, in seconds. Cells of size-matrix last at most 5, probes of connection-limit 3.
    #[arg(long, default_value_t = 10.0)]
    pub duration: f64,
    /// How long sustained-hold holds its connections, in seconds; by default --duration, but at least 30. Each
    /// connection is pinged every 5 s.
    #[arg(long)]
    pub hold: Option<f64>,
    /// Format of the results.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Largest number of connection attempts in flight at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_size: u32,
    /// Rate of the load per second over all connections (for a storm: attempts per second), independent of the
    /// service's speed. Without it connections send as fast as they are served. For the fanout tests: the rate at which
    /// the service publishes, unless its metrics report it.
    #[arg(long)]
    pub rate: Option<f64>,
    /// How the messages of --rate are spaced.
    #[arg(long, value_enum, default_value_t = ArrivalsFlag::Constant, requires = "rate")]
    pub arrivals: ArrivalsFlag,
    /// Seed of schedules and masks.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Messages in one write to the socket.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub coalesce: u32,
    /// Encoding of throughput messages.
    #[arg(long, value_enum, default_value_t = FormatFlag::Json)]
    pub format: FormatFlag,
    /// Nominal size of throughput messages, in bytes: up to 64 it gives 54, up to 195 it gives 175, others are ten
    /// bytes shorter.
    #[arg(long, default_value_t = 175)]
    pub size: u32,
    /// Worker processes; by default as many as a tier's connections need for their descriptors.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_WORKERS)))]
    pub workers: Option<u32>,
    /// Addresses of this machine to connect from, separated by commas, each until its ports are used up. By default the
    /// kernel chooses, and for a service on loopback 127.0.0.2 and further addresses are used when the ports of one
    /// don't suffice.
    #[arg(long, value_delimiter = ',')]
    pub source_address: Vec<IpAddr>,
    /// Pings per connection, one after another.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub pings: u32,
    /// Load before the measured window, in seconds.
    #[arg(long, default_value_t = 0.5)]
    pub warmup: f64,
    /// Longest wait after the window for replies that are in flight, in seconds.
    #[arg(long, default_value_t = 10.0)]
    pub drain: f64,
    /// Metrics port of the service, as http://host:port. The results then include its counters, and the books are
    /// compared; without it no witness confirms what reached the application.
    #[arg(long)]
    pub stats_url: Option<String>,
    /// The same as a port of --host. With two instances it is that of the publishing one, by default --port + 1000, and
    /// --stats-url is that of the other, by default --port2 + 1000: both are read once one of the flags is given.
    #[arg(long)]
    pub metrics_port: Option<u16>,
    /// Skips the check of the service's protocol before and after each tier, for a service that accepts every token or
    /// sends no replies.
    #[arg(long, conflicts_with = "coordinator")]
    pub no_conformance: bool,
    /// Takes work from this coordinator, http://host:port. Everything but the secret and the source addresses then
    /// comes from its assignments.
    #[arg(long, requires = "worker")]
    pub coordinator: Option<String>,
    /// Index of this worker, from 0; only with --coordinator.
    #[arg(long, requires = "coordinator")]
    pub worker: Option<u32>,
    /// Token that the coordinator requires; better set in the environment than on the command line.
    #[arg(long, env = "COORDINATOR_TOKEN", hide_env_values = true)]
    pub coordinator_token: Option<String>,
}

/// Metrics of a service, as `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urls {
    /// Metrics of the instance that connections go to.
    pub service: String,
    /// Metrics of another instance, which publishes.
    pub publisher: Option<String>,
}

/// Format of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables for a terminal.
    Text,
    /// One JSON list of results.
    Json,
    /// The same tables in Markdown, for a document.
    Markdown,
}

/// Spacing of messages at a rate: the flag for [`Arrivals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArrivalsFlag {
    /// With equal gaps between messages.
    Constant,
    /// With exponentially distributed gaps.
    Poisson,
}

impl From<ArrivalsFlag> for Arrivals {
    fn from(flag: ArrivalsFlag) -> Self {
        match flag {
            ArrivalsFlag::Constant => Self::Constant,
            ArrivalsFlag::Poisson => Self::Poisson,
        }
    }
}

/// Encoding of throughput messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatFlag {
    /// JSON in text messages.
    Json,
    /// MessagePack after the prefix `M:`.
    Msgpack,
    /// zlib of the JSON after the prefix `C:`, compressed message by message: the generator is probably the bottleneck.
    Compressed,
}

impl FormatFlag {
    /// The format's name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Msgpack => "msgpack",
            Self::Compressed => "compressed",
        }
    }
}

impl Cli {
    /// `host:port` that connections go to.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, if self.has_two_instances() { self.receiving_port() } else { self.port })
    }

    /// `host:port` of another instance, which publishes; `None` when there is only one.
    pub fn publisher_address(&self) -> Option<String> {
        self.has_two_instances().then(|| format!("{}:{}", self.host, self.port))
    }

    /// Metrics of the service; `None` when no flag requests them.
    pub fn stats_urls(&self) -> Option<Urls> {
        let url = |port: u16| format!("http://{}:{port}", self.host);
        let above = |port: u16| url(port.saturating_add(METRICS_OFFSET));
        if self.stats_url.is_none() && self.metrics_port.is_none() {
            return None;
        }
        if !self.has_two_instances() {
            let service = self.stats_url.clone().or(self.metrics_port.map(url))?;
            return Some(Urls { service, publisher: None });
        }
        Some(Urls {
            service: self.stats_url.clone().unwrap_or_else(|| above(self.receiving_port())),
            publisher: Some(self.metrics_port.map_or_else(|| above(self.port), url)),
        })
    }

    fn receiving_port(&self) -> u16 {
        self.port2.unwrap_or(self.port.saturating_add(1))
    }

    fn has_two_instances(&self) -> bool {
        let test = self.test.as_deref().and_then(|name| Test::find(name).ok());
        test.is_some_and(Test::has_two_instances)
    }

    /// The secret, and the addresses to connect from.
    pub fn access(&self) -> Access {
        Access { secret: self.secret.clone(), source_addresses: self.source_address.clone() }
    }

    /// How long connections are held, in seconds.
    pub fn hold(&self) -> f64 {
        self.hold.unwrap_or(self.duration.max(SHORTEST_HOLD_SECONDS))
    }

    /// Checks what the flags' types can't express.
    ///
    /// # Errors
    /// When a duration or a rate isn't above 0, the warm-up is below 0, or --port2 is given for a test of one instance.
    pub fn check(&self) -> Result<(), String> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("--{name} {value} is not above 0")) }
        };
        if self.port2.is_some() && !self.has_two_instances() {
            return Err(
                "--port2 is for the tests of two instances: fanout-redis, fanout-cluster, fanout-cluster-tls".into()
            );
        }
        positive("duration", self.duration)?;
        positive("hold", self.hold())?;
        positive("drain", self.drain)?;
        if let Some(rate) = self.rate {
            positive("rate", rate)?;
        }
        if !(self.warmup.is_finite() && self.warmup >= 0.0) {
            return Err(format!("--warmup {} is below 0", self.warmup));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_line_of_the_published_benchmarks_is_understood() {
        let line = "wse-bench --host 127.0.0.1 --port 5006 --secret s --tiers 100,500 --duration 3 --test throughput \
                    --max-connections 500000 --output markdown --batch-size 500";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!(cli.tiers, Some(vec![100, 500]));
        assert_eq!((cli.batch_size, cli.output), (500, Output::Markdown));
    }

    #[test]
    fn connections_go_to_the_instance_that_does_not_publish() {
        let cli = |line: &str| Cli::try_parse_from(line.split_whitespace()).unwrap();
        let published = cli("wse-bench --test fanout-cluster --port 5006 --port2 5007 --duration 10");
        assert_eq!(published.address(), "127.0.0.1:5007");
        assert_eq!(published.publisher_address().as_deref(), Some("127.0.0.1:5006"));
        assert_eq!(published.stats_urls(), None);
        assert_eq!(cli("wse-bench --test fanout-multi").address(), "127.0.0.1:5007");
        let alone = cli("wse-bench --test fanout-broadcast --metrics-port 6006");
        assert_eq!((alone.address(), alone.publisher_address()), ("127.0.0.1:5006".into(), None));
        assert_eq!(alone.stats_urls(), Some(Urls { service: "http://127.0.0.1:6006".into(), publisher: None }));
        assert!(cli("wse-bench --test fanout-broadcast --port2 5007").check().unwrap_err().contains("--port2"));
    }

    #[test]
    fn two_instances_report_at_two_ports() {
        let urls = |line: &str| Cli::try_parse_from(line.split_whitespace()).unwrap().stats_urls().unwrap();
        let both = |service: &str, publisher: &str| Urls {
            service: format!("http://127.0.0.1:{service}"),
            publisher: Some(format!("http://127.0.0.1:{publisher}")),
        };
        assert_eq!(urls("wse-bench --test fanout-redis --metrics-port 6006"), both("6007", "6006"));
        assert_eq!(urls("wse-bench --test fanout-redis --stats-url http://127.0.0.1:7001"), both("7001", "6006"));
        assert_eq!(urls("wse-bench --test fanout-redis --port2 80 --metrics-port 9"), both("1080", "9"));
    }

    #[test]
    fn help_never_shows_a_secret() {
        let help = Cli::command().render_long_help().to_string();
        assert!(!help.contains(BENCH_SECRET), "{help}");
    }

    #[test]
    fn nonsense_is_refused() {
        for line in
            ["wse-bench --tiers 0", "wse-bench --coalesce 0", "wse-bench --worker 1", "wse-bench --arrivals poisson"]
        {
            assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{line}");
        }
        let cli = Cli::try_parse_from(["wse-bench", "--duration", "0"]).unwrap();
        assert_eq!(cli.check().unwrap_err(), "--duration 0 is not above 0");
    }
}
