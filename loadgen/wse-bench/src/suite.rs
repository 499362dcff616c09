//! The tests of the published suite: load, tiers and duration of each. Pure.
//!
//! A test is one workload, or one in several variants. Sizes, tiers and bursts are those of the published benchmarks,
//! so that their commands offer the same load here.

use std::time::Duration;

use bench_format::plan::{Load, Message};

pub use crate::test::Test;
use crate::{
    cli::{Cli, FormatFlag},
    workloads::Workload,
};

const TIERS: [u32; 9] = [100, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 50_000];
const MORE_STORM_TIERS: [u32; 2] = [75_000, 100_000];
const FORMAT_TIERS: [u32; 4] = [100, 1000, 5000, 10_000];
const FANOUT_TIERS: [u32; 11] = [10, 100, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000];
const LINKED_FANOUT_TIERS: [u32; 8] = [10, 100, 500, 1000, 2000, 5000, 10_000, 20_000];
const HOLD_TIERS: [u32; 5] = [1000, 5000, 10_000, 30_000, 50_000];
/// Nominal sizes of the matrix, in bytes; [`trade_bytes`](crate::payload::trade_bytes) gives the actual ones.
const SIZES: [u32; 6] = [64, 256, 1024, 4096, 16_384, 65_536];
const FORMATS: [FormatFlag; 3] = [FormatFlag::Json, FormatFlag::Msgpack, FormatFlag::Compressed];
/// Longest window of a cell of the size matrix, in seconds.
const LONGEST_BURST_SECONDS: f64 = 5.0;
/// Interval between two pings of a connection that is held, in seconds.
const PING_EVERY_SECONDS: f64 = 5.0;
/// Longest time for which the connections of a probe have to last, in seconds; each is pinged once in it.
const LONGEST_PROBE_SECONDS: f64 = 3.0;
/// Limit of the window of work that ends by itself.
const LONGEST_WORK: Duration = Duration::from_secs(300);

/// When the measured window ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The window ends after this duration.
    Fixed(Duration),
    /// When all of the requested work is done.
    UntilDone,
}

impl Window {
    /// The length of the window, or the limit of work that ends by itself.
    pub fn longest(self) -> Duration {
        match self {
            Self::Fixed(length) => length,
            Self::UntilDone => LONGEST_WORK,
        }
    }
}

/// One trial of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The test that the trial belongs to.
    pub test: Test,
    /// The workload of the load generator.
    pub workload: Workload,
    /// Number of connections that the tier opens.
    pub tier: u32,
    /// How load is offered.
    pub load: Load,
    /// Format and size of the messages.
    pub message: Message,
    /// Duration of the load before the window.
    pub warmup: Duration,
    /// When the window, which follows the warm-up, ends.
    pub window: Window,
}

impl Test {
    /// The tiers: those of `--tiers`, else the published ones up to `most` connections. A search has none.
    pub fn tiers(self, cli: &Cli, most: u64) -> Vec<u32> {
        if self == Self::ConnectionLimit {
            return Vec::new();
        }
        let fits = |tier: &u32| *tier <= cli.max_connections && u64::from(*tier) <= most;
        cli.tiers.clone().unwrap_or_else(|| self.published_tiers().into_iter().filter(fits).collect())
    }

    /// The tiers of the published benchmarks, in connections.
    pub fn published_tiers(self) -> Vec<u32> {
        match self {
            Self::ConnectionStorm => [&TIERS[..], &MORE_STORM_TIERS].concat(),
            Self::PingLatency | Self::Throughput | Self::SizeMatrix => TIERS.into(),
            Self::FormatComparison => FORMAT_TIERS.into(),
            Self::SustainedHold => HOLD_TIERS.into(),
            Self::ConnectionLimit => Vec::new(),
            Self::FanoutBroadcast => FANOUT_TIERS.into(),
            Self::FanoutRedis | Self::FanoutCluster | Self::FanoutClusterTls => LINKED_FANOUT_TIERS.into(),
        }
    }

    /// The trials of the test, in order. Those of a search depend on the results before: see [`probe`].
    pub fn steps(self, cli: &Cli, most: u64) -> Vec<Step> {
        let tiers = self.tiers(cli, most);
        let plain = || tiers.iter().map(|tier| self.step(cli, *tier));
        match self {
            Self::SizeMatrix => {
                let window = Window::Fixed(seconds(cli.duration.min(LONGEST_BURST_SECONDS)));
                let sized = |size_bytes| {
                    plain().map(move |mut step| {
                        step.message.size_bytes = size_bytes;
                        Step { window, ..step }
                    })
                };
                SIZES.into_iter().flat_map(sized).collect()
            }
            Self::FormatComparison => {
                let formatted = |step: Step| {
                    FORMATS.map(|format| {
                        let mut step = step.clone();
                        step.message.format = format.name().into();
                        step
                    })
                };
                plain().flat_map(formatted).collect()
            }
            _ => plain().collect(),
        }
    }

    fn step(self, cli: &Cli, tier: u32) -> Step {
        let window = match self {
            Self::ConnectionStorm => Window::UntilDone,
            // A number of pings ends when they are answered; at a rate there is no number.
            Self::PingLatency if cli.rate.is_none() => Window::UntilDone,
            Self::SustainedHold => Window::Fixed(seconds(cli.hold())),
            _ => Window::Fixed(seconds(cli.duration)),
        };
        let warmup = match (self, window) {
            // No warm-up: all pings count.
            (Self::SustainedHold, _) | (_, Window::UntilDone) => Duration::ZERO,
            _ => seconds(cli.warmup),
        };
        let workload = self.workload();
        Step { test: self, workload, tier, load: self.load(cli, tier), message: self.message(cli), warmup, window }
    }

    fn load(self, cli: &Cli, tier: u32) -> Load {
        let paced = |rate_per_second| Load::Open { rate_per_second, arrivals: cli.arrivals.into() };
        let every = PING_EVERY_SECONDS.min(cli.hold());
        match (cli.rate, self) {
            (Some(rate), _) => paced(rate),
            (None, Self::SustainedHold) => paced(f64::from(tier) / every),
            (None, _) => Load::Closed {
                messages_per_connection: (self == Self::PingLatency).then_some(cli.pings),
                in_flight: cli.batch_size,
            },
        }
    }

    fn message(self, cli: &Cli) -> Message {
        match self.workload() {
            Workload::Throughput => {
                Message { format: cli.format.name().into(), size_bytes: cli.size, coalesce: cli.coalesce, shapes: 1 }
            }
            Workload::ConnectionStorm
            | Workload::PingLatency
            | Workload::FanoutBroadcast
            | Workload::FanoutRedis
            | Workload::FanoutCluster => Message::default(),
        }
    }
}

/// One probe of the search for the most connections: they open, last until the end of the window, and each is pinged
/// once.
pub fn probe(cli: &Cli, connections: u32) -> Step {
    let length = cli.duration.min(LONGEST_PROBE_SECONDS);
    Step {
        test: Test::ConnectionLimit,
        workload: Workload::PingLatency,
        tier: connections,
        load: Load::Open { rate_per_second: f64::from(connections) / length, arrivals: Default::default() },
        message: Message::default(),
        warmup: Duration::ZERO,
        window: Window::Fixed(seconds(length)),
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn cli(line: &str) -> Cli {
        Cli::try_parse_from(line.split_whitespace()).unwrap()
    }

    fn steps(line: &str, test: Test) -> Vec<Step> {
        test.steps(&cli(line), 1_000_000)
    }

    #[test]
    fn a_publisher_has_a_test_of_its_own_that_the_suite_leaves_out() {
        assert!(!Test::suite().contains(&Test::FanoutBroadcast));
        let published = Test::FanoutBroadcast.tiers(&cli("wse-bench --max-connections 20000"), 1_000_000);
        assert_eq!(published, [10, 100, 500, 1000, 2000, 5000, 10_000, 20_000]);
        let step = &steps("wse-bench --tiers 10 --rate 200", Test::FanoutBroadcast)[0];
        assert!(matches!(step.load, Load::Open { rate_per_second: 200.0, .. }), "{:?}", step.load);
    }

    #[test]
    fn tests_of_two_instances_have_the_published_names_and_tiers() {
        let names = Test::ALL.into_iter().filter(|test| test.has_two_instances()).map(Test::name);
        assert_eq!(names.collect::<Vec<_>>(), ["fanout-redis", "fanout-cluster", "fanout-cluster-tls"]);
        assert_eq!(Test::find("fanout-multi").unwrap(), Test::FanoutRedis);
        for test in [Test::FanoutRedis, Test::FanoutCluster, Test::FanoutClusterTls] {
            assert_eq!(test.tiers(&cli("wse-bench"), 1_000_000), [10, 100, 500, 1000, 2000, 5000, 10_000, 20_000]);
            assert!(test.workload().receives() && !Test::suite().contains(&test));
        }
    }

    #[test]
    fn the_matrix_takes_each_size_over_all_tiers_in_bursts() {
        let steps = steps("wse-bench --tiers 10,20 --duration 10", Test::SizeMatrix);
        let cells: Vec<_> = steps.iter().map(|step| (step.message.size_bytes, step.tier)).collect();
        assert_eq!((cells.len(), &cells[..3]), (12, &[(64, 10), (64, 20), (256, 10)][..]));
        assert!(steps.iter().all(|step| step.window == Window::Fixed(Duration::from_secs(5))));
        let short = self::steps("wse-bench --tiers 10 --duration 2", Test::SizeMatrix);
        assert_eq!(short[0].window, Window::Fixed(Duration::from_secs(2)));
    }

    #[test]
    fn formats_take_turns_at_each_tier() {
        let steps = steps("wse-bench --tiers 10,20 --size 1024", Test::FormatComparison);
        let order: Vec<_> = steps.iter().map(|step| (step.tier, step.message.format.as_str())).collect();
        assert_eq!(order[..4], [(10, "json"), (10, "msgpack"), (10, "compressed"), (20, "json")]);
        assert!(steps.iter().all(|step| step.message.size_bytes == 1024));
    }

    #[test]
    fn a_hold_lasts_as_published_by_default_and_pings_each_connection_every_five_seconds() {
        let step = |line| steps(line, Test::SustainedHold).remove(0);
        let published = step("wse-bench --tiers 1000 --duration 10");
        assert_eq!((published.window, published.warmup), (Window::Fixed(Duration::from_secs(30)), Duration::ZERO));
        assert!(matches!(published.load, Load::Open { rate_per_second: 200.0, .. }), "{:?}", published.load);
        let short = step("wse-bench --tiers 1000 --hold 2");
        assert!(matches!(short.load, Load::Open { rate_per_second: 500.0, .. }), "{:?}", short.load);
        assert_eq!(step("wse-bench --tiers 9 --duration 60").window, Window::Fixed(Duration::from_secs(60)));
    }

    #[test]
    fn counted_work_has_no_warm_up_and_time_to_finish() {
        let step = &steps("wse-bench --duration 1 --tiers 5", Test::PingLatency)[0];
        assert_eq!((step.warmup, step.window.longest()), (Duration::ZERO, Duration::from_secs(300)));
    }

    #[test]
    fn a_flood_lasts_as_long_as_configured() {
        let step = &steps("wse-bench --duration 1.5 --warmup 0.25 --tiers 5", Test::Throughput)[0];
        let expected = (Duration::from_millis(250), Window::Fixed(Duration::from_millis(1500)));
        assert_eq!((step.warmup, step.window), expected);
    }

    #[test]
    fn published_tiers_stop_at_the_limits_but_those_asked_for_do_not() {
        let suite = cli("wse-bench --max-connections 5000");
        assert_eq!(Test::Throughput.tiers(&suite, 1100), [100, 500, 1000]);
        assert_eq!(Test::Throughput.tiers(&suite, 20_000), [100, 500, 1000, 2000, 5000]);
        assert_eq!(Test::Throughput.tiers(&cli("wse-bench --tiers 9000"), 1100), [9000]);
    }

    #[test]
    fn each_connection_of_a_probe_is_pinged_once() {
        let probe = probe(&cli("wse-bench --duration 10"), 3000);
        assert_eq!(probe.window, Window::Fixed(Duration::from_secs(3)));
        assert!(matches!(probe.load, Load::Open { rate_per_second: 1000.0, .. }), "{:?}", probe.load);
    }
}
