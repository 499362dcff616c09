//! The tests of the published suite by name, and the workload of each. Pure.

use anyhow::bail;
use serde::Serialize;

use crate::workloads::Workload;

/// A test of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// How fast connections open.
    ConnectionStorm,
    /// How long a reply takes while all connections ping.
    PingLatency,
    /// How many messages arrive.
    Throughput,
    /// [`Test::Throughput`] in six sizes.
    SizeMatrix,
    /// [`Test::Throughput`] in three formats.
    FormatComparison,
    /// Whether connections last, and what they cost.
    SustainedHold,
    /// How many connections can be open.
    ConnectionLimit,
    /// How many of its own messages a service delivers.
    FanoutBroadcast,
    /// The same, but another instance publishes, and Redis connects it to the receivers'.
    FanoutRedis,
    /// The same, but another instance publishes, and the instances are connected as peers.
    FanoutCluster,
    /// The same with peers that are connected over TLS.
    FanoutClusterTls,
}

/// Other names of tests, which some versions of the published benchmarks use.
const ALIASES: [(&str, Test); 1] = [("fanout-multi", Test::FanoutRedis)];

impl Test {
    /// All tests, in the order in which the suite runs them; then those that it doesn't run.
    pub const ALL: [Self; 11] = [
        Self::ConnectionStorm,
        Self::PingLatency,
        Self::Throughput,
        Self::SizeMatrix,
        Self::FormatComparison,
        Self::SustainedHold,
        Self::ConnectionLimit,
        Self::FanoutBroadcast,
        Self::FanoutRedis,
        Self::FanoutCluster,
        Self::FanoutClusterTls,
    ];

    /// The tests that one service serves one after another, in order. A service that publishes is another one, so its
    /// tests are left out.
    pub fn suite() -> Vec<Self> {
        Self::ALL.into_iter().filter(|test| !test.workload().receives()).collect()
    }

    /// The test's name in flags and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConnectionStorm => "connection-storm",
            Self::PingLatency => "ping-latency",
            Self::Throughput => "throughput",
            Self::SizeMatrix => "size-matrix",
            Self::FormatComparison => "format-comparison",
            Self::SustainedHold => "sustained-hold",
            Self::ConnectionLimit => "connection-limit",
            Self::FanoutBroadcast => "fanout-broadcast",
            Self::FanoutRedis => "fanout-redis",
            Self::FanoutCluster => "fanout-cluster",
            Self::FanoutClusterTls => "fanout-cluster-tls",
        }
    }

    /// Finds a test by its name or another name of it.
    ///
    /// # Errors
    /// When there is no such test; the error lists the names.
    pub fn find(name: &str) -> anyhow::Result<Self> {
        let known = Self::ALL.into_iter().map(|test| (test.name(), test)).chain(ALIASES);
        match known.into_iter().find_map(|(known, test)| (known == name).then_some(test)) {
            Some(test) => Ok(test),
            None => bail!("there is no test {name:?}; known are {}", Self::ALL.map(Self::name).join(", ")),
        }
    }

    /// The workload of the load generator.
    pub fn workload(self) -> Workload {
        match self {
            Self::ConnectionStorm => Workload::ConnectionStorm,
            Self::PingLatency | Self::SustainedHold | Self::ConnectionLimit => Workload::PingLatency,
            Self::Throughput | Self::SizeMatrix | Self::FormatComparison => Workload::Throughput,
            Self::FanoutBroadcast => Workload::FanoutBroadcast,
            Self::FanoutRedis => Workload::FanoutRedis,
            Self::FanoutCluster | Self::FanoutClusterTls => Workload::FanoutCluster,
        }
    }

    /// Whether the service consists of two instances: one publishes, and clients connect to the other.
    pub fn has_two_instances(self) -> bool {
        self.workload().receives() && self != Self::FanoutBroadcast
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_test_and_another_is_answered_with_all() {
        for test in Test::ALL {
            assert_eq!(Test::find(test.name()).unwrap(), test);
        }
        let error = Test::find("fanout").unwrap_err().to_string();
        assert!(error.starts_with(r#"there is no test "fanout"; known are connection-storm, ping-latency"#), "{error}");
    }
}
