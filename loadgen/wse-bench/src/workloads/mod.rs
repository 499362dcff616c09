//! The workloads by name, and the pattern by which the load generator carries out an assignment of each.

mod connection_storm;
mod fanout;
mod ping_latency;
mod throughput;

use std::collections::BTreeMap;

use anyhow::bail;
use bench_format::{
    plan::Load,
    result::{Witness, WorkerResult},
    terms::Terms,
    trial::Assignment,
};
use loadgen_core::{
    Pattern,
    trial::{self, Gate},
};
use serde::Serialize;

use crate::{
    protocol::{Access, Use, Wse},
    smoke,
};

/// Name and version of this program, for registrations and results.
pub const PROGRAM: &str = concat!("wse-bench ", env!("CARGO_PKG_VERSION"));

/// A workload of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// How fast connections open.
    ConnectionStorm,
    /// How long a reply takes.
    PingLatency,
    /// How many messages arrive.
    Throughput,
    /// How many of its own messages a service delivers.
    FanoutBroadcast,
    /// The same, but another instance publishes, and Redis connects it to the receivers'.
    FanoutRedis,
    /// The same, but another instance publishes, and the instances are connected as peers.
    FanoutCluster,
}

impl Workload {
    /// All workloads, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::ConnectionStorm,
        Self::PingLatency,
        Self::Throughput,
        Self::FanoutBroadcast,
        Self::FanoutRedis,
        Self::FanoutCluster,
    ];

    /// The workload's name in flags, plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConnectionStorm => "connection-storm",
            Self::PingLatency => "ping-latency",
            Self::Throughput => "throughput",
            Self::FanoutBroadcast => "fanout-broadcast",
            Self::FanoutRedis => "fanout-redis",
            Self::FanoutCluster => "fanout-cluster",
        }
    }

    /// The names of all workloads.
    pub fn names() -> Vec<String> {
        Self::ALL.iter().map(|workload| workload.name().to_owned()).collect()
    }

    /// Finds a workload by its name.
    ///
    /// # Errors
    /// When there is no such workload; the error lists the names.
    pub fn find(name: &str) -> anyhow::Result<Self> {
        match Self::ALL.into_iter().find(|workload| workload.name() == name) {
            Some(workload) => Ok(workload),
            None => bail!("there is no workload {name:?}; known are {}", Self::names().join(", ")),
        }
    }

    /// The rules by which the judge counts this workload.
    pub fn terms(self) -> Terms {
        let by = |witness| Terms { witness, ..Terms::default() };
        let published_by = |mode: &str| Terms { publishes_by: Some(mode.into()), ..by(Witness::Receiver) };
        match self {
            Self::ConnectionStorm => Terms { opens_in_window: true, ..by(Witness::Reply) },
            Self::PingLatency => {
                let response = Some("response".to_owned());
                Terms { late_by: response.clone(), ages: response, ..by(Witness::Reply) }
            }
            Self::Throughput => by(Witness::Application),
            Self::FanoutBroadcast => published_by("broadcast"),
            Self::FanoutRedis => published_by("pubsub"),
            Self::FanoutCluster => published_by("cluster"),
        }
    }

    /// The terms of each workload, by name; a worker registers with them.
    pub fn all_terms() -> BTreeMap<String, Terms> {
        Self::ALL.iter().map(|workload| (workload.name().to_owned(), workload.terms())).collect()
    }

    /// The party that confirms that a message of this workload arrived.
    pub fn witness(self) -> Witness {
        self.terms().witness
    }

    /// Whether the service publishes and connections only receive.
    pub fn receives(self) -> bool {
        self.witness() == Witness::Receiver
    }

    /// Whether the service's protocol can be checked before and after the load. A service that publishes to all
    /// connections would flood the check's, and its messages to them would be missing from the receivers' books.
    pub fn allows_check(self) -> bool {
        !self.receives()
    }

    /// The pattern of the load, and the use of the connections.
    ///
    /// # Errors
    /// When the load, its rate or the message isn't possible for this workload.
    pub fn plan(self, assignment: &Assignment) -> anyhow::Result<(Pattern, Use)> {
        if let Load::Open { rate_per_second, .. } = assignment.load
            && !(rate_per_second.is_finite() && rate_per_second > 0.0)
        {
            bail!("a rate of {rate_per_second} per second offers no load; give a number above 0");
        }
        if !matches!(assignment.load, Load::Open { .. } | Load::Closed { .. }) {
            bail!("{} has no pace of its own; its load is open or closed, and no other", self.name());
        }
        match self {
            Self::ConnectionStorm => Ok(connection_storm::plan(&assignment.load)),
            Self::PingLatency => Ok(ping_latency::plan(&assignment.load)),
            Self::Throughput => throughput::plan(&assignment.load, &assignment.message),
            Self::FanoutBroadcast | Self::FanoutRedis | Self::FanoutCluster => Ok(fanout::plan(&assignment.load)),
        }
    }

    /// Carries out an assignment.
    ///
    /// # Errors
    /// When the assignment isn't possible, its address can't be resolved, a token can't be signed, or the trial fails.
    pub fn run(self, assignment: &Assignment, access: &Access, gate: &mut dyn Gate) -> anyhow::Result<WorkerResult> {
        let (pattern, purpose) = self.plan(assignment)?;
        let wse = Wse::new(&access.secret, purpose)?.starting_from(&access.source_addresses);
        let checks = assignment.protocol_check && assignment.worker == 0 && self.allows_check();
        let check = || checks.then(|| smoke::check(&assignment.address, &access.secret)).transpose();
        let before = check()?;
        let mut result = trial::run(wse, assignment, pattern, self.witness(), PROGRAM, gate)?;
        if let (Some(before), Some(after)) = (before, check()?) {
            smoke::add_findings(&mut result, before, after);
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = Workload::find("fanout").unwrap_err().to_string();
        let known = "connection-storm, ping-latency, throughput, fanout-broadcast, fanout-redis, fanout-cluster";
        assert_eq!(error, format!(r#"there is no workload "fanout"; known are {known}"#));
    }

    #[test]
    fn every_name_finds_its_workload() {
        for workload in Workload::ALL {
            assert_eq!(Workload::find(workload.name()).unwrap(), workload);
        }
    }
}
