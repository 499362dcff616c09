//! One tier of a run by hand: measurements and problems, as a row.
//!
//! The judge decides whether a trial is valid (`docs/METHODOLOGY.md`). This adds what a user at a terminal needs:
//! whether all requested work was done, whether connections lasted, what they cost.

mod limit;

use std::collections::BTreeMap;

use bench_format::{
    Name,
    histogram::{Histogram, PERCENTILES},
    plan::{Load, Message},
    result::{
        Books, BoundBy, ConnectionCounts, Figures, Interval, MessageCounts, Reading, ReasonKind, ServiceReadings,
        TrialResult, Validity, WindowCounts, Witness, WorkerEvidence,
    },
    service::{LinksStats, MessageStats, PublisherStats},
    trial_file::BookKeeping,
};
use driver::measure;
use judge::{Judged, delta::ServiceDelta, merge::Merged, remarks::remarks};
use serde::Serialize;

pub use self::limit::{EndedBy, Limit, Phase, Probe, Side, probed};
use crate::{suite::Test, workloads::Workload};

/// What the command line requests of a tier.
#[derive(Clone, Debug, Serialize)]
pub struct Request {
    /// The test that the tier belongs to.
    pub test: Test,
    /// The workload of the load generator.
    pub workload: Workload,
    /// Number of connections that the tier opens.
    pub tier: u32,
    /// How load is offered.
    pub load: Load,
    /// Format and size of the messages.
    pub message: Message,
    /// Number of worker processes.
    pub workers: u32,
    /// Number of addresses that connections start from.
    pub source_addresses: u32,
}

/// The result of a tier; a tier that failed also has one.
#[derive(Clone, Debug, Serialize)]
pub struct TierResult {
    /// Version of the format: [`bench_format::SCHEMA`].
    pub schema: u32,
    /// The requested test, tier, load and messages.
    #[serde(flatten)]
    pub request: Request,
    /// Why this is not a clean result; empty when it is one.
    pub problems: Vec<String>,
    /// The result of this probe; absent outside of a search for the most connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The result of the search; only on its last probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The measurements; absent when the trial failed.
    pub measured: Option<Measured>,
    /// Command that repeats it.
    pub command: String,
}

/// The measurements of a tier.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The party that confirms that messages arrived; `none` without the service's counters.
    pub witness: Witness,
    /// What limited a closed loop; absent for open loops, which their schedule limits, and when it isn't known. A rate
    /// that the generator limits is a lower bound.
    pub bound_by: Option<BoundBy>,
    /// Share of the open connections that lasted, from 0 to 1; only for sustained-hold and connection-limit.
    pub survival: Option<f64>,
    /// Connections of all workers.
    pub connections: ConnectionCounts,
    /// Messages of all workers, with the service's counts when its metrics are read.
    pub messages: MessageCounts,
    /// The window's counts of all workers.
    pub window: WindowCounts,
    /// Rates, and costs per message and connection.
    pub figures: Figures,
    /// Memory that this machine's kernel took for each connection, both sides together, in bytes; only when the service
    /// runs on it.
    pub kernel_bytes_per_connection: Option<f64>,
    /// Percentiles in nanoseconds, by histogram; `null` when there are too few samples for one.
    pub percentiles: BTreeMap<Name, BTreeMap<String, Option<u64>>>,
    /// Histograms of all workers, merged without loss.
    pub histograms: BTreeMap<Name, Histogram>,
    /// The histograms in intervals of a second.
    pub intervals: Vec<Interval>,
    /// The equations between counters; without the service's counters only those of the generator.
    pub books: Books,
    /// What the service counted over the whole trial.
    pub service: Option<MessageStats>,
    /// The publisher's books after the trial; only for a service that publishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher: Option<PublisherStats>,
    /// What the links between the service's instances carried over the whole trial; absent for one instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<LinksStats>,
    /// Failures in the window by kind, for workloads that count them apart from messages.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, u64>,
    /// Evidence of each worker.
    pub workers: Vec<WorkerEvidence>,
}

impl TierResult {
    /// The result of a tier that could not be measured.
    pub fn failed(request: Request, reason: String, command: String) -> Self {
        Self::from_parts(request, vec![reason], None, command)
    }

    /// The result of a tier from its trial.
    pub fn new(request: Request, trial: &measure::Measured, command: String) -> Self {
        match trial.judge() {
            Ok(Judged { result, merged }) => {
                let problems = problems(&request, &result, &merged);
                let measured = Measured::new(request.test, trial.trial.keeping, result, merged);
                Self::from_parts(request, problems, Some(measured), command)
            }
            Err(error) => Self::failed(request, error.to_string(), command),
        }
    }

    fn from_parts(request: Request, problems: Vec<String>, measured: Option<Measured>, command: String) -> Self {
        Self { schema: bench_format::SCHEMA, request, problems, probe: None, limit: None, measured, command }
    }

    /// Whether the tier has no problems. A probe whose connections did not hold counts as clean; a search in which none
    /// held doesn't.
    pub fn is_clean(&self) -> bool {
        let found_too_many = self.probe.as_ref().is_some_and(|probe| !probe.held);
        let nothing_held = self.limit.as_ref().is_some_and(|limit| limit.held == 0);
        (self.problems.is_empty() || found_too_many) && !nothing_held
    }
}

/// The reasons why the trial is invalid, then the requested work that was not done.
fn problems(request: &Request, result: &TrialResult, merged: &Merged) -> Vec<String> {
    let reasons = match &result.validity {
        Validity::Valid => &[],
        Validity::Invalid { reasons } => reasons.as_slice(),
    };
    // A probe measures whether connections last, so a late generator doesn't matter.
    let counts = |kind: ReasonKind| request.test != Test::ConnectionLimit || !kind.is_ours();
    let reasons = reasons.iter().filter(|reason| counts(reason.kind)).map(ToString::to_string);
    reasons.chain(remarks(result, merged, request.tier)).collect()
}

impl Measured {
    fn new(test: Test, keeping: BookKeeping, result: TrialResult, merged: Merged) -> Self {
        let readings = &result.service;
        let opening_ns = result.workers.iter().filter_map(|worker| worker.opening_ns).max();
        let mut figures = result.figures;
        if let Some(opening_ns) = opening_ns.filter(|ns| *ns > 0) {
            figures.accepted_per_second = Some(result.connections.open as f64 * 1e9 / opening_ns as f64);
        }
        Self {
            witness: result.witness,
            bound_by: result.bound_by,
            survival: survival(test, &result.connections),
            kernel_bytes_per_connection: kernel_bytes_per_connection(readings, result.connections.open),
            figures,
            percentiles: result.percentiles.into_iter().map(|(name, all)| (name, printed(all))).collect(),
            histograms: result.histograms,
            intervals: merged.intervals_by_start(),
            books: result.books,
            service: counted(readings).filter(|_| keeping != BookKeeping::None),
            publisher: readings.after.as_ref().and_then(|after| after.publisher.clone()),
            links: links(readings),
            failures: result.failures.window,
            workers: result.workers,
            connections: result.connections,
            window: merged.window,
            messages: result.messages,
        }
    }
}

/// The percentiles that a run by hand shows, and the maximum.
fn printed(mut all: BTreeMap<String, Option<u64>>) -> BTreeMap<String, Option<u64>> {
    all.retain(|name, _| name == "max" || PERCENTILES.iter().any(|(percentile, _)| percentile == name));
    all
}

/// What the service counted over the trial.
fn counted(readings: &ServiceReadings) -> Option<MessageStats> {
    let (before, after) = (readings.before.as_ref()?, readings.after.as_ref()?);
    let delta = ServiceDelta::between(&before.stats, &after.stats);
    Some(MessageStats {
        received: delta.received,
        consumed: delta.consumed,
        delivered: delta.delivered,
        dropped: delta.dropped,
        queued: delta.queued,
        malformed: after.stats.messages.malformed.saturating_sub(before.stats.messages.malformed),
        sent: delta.sent,
        send_dropped: delta.send_dropped,
    })
}

/// What the service's instances sent to each other over the trial.
fn links(readings: &ServiceReadings) -> Option<LinksStats> {
    let before = readings.before.as_ref().and_then(|reading| reading.links.clone()).unwrap_or_default();
    Some(readings.after.as_ref()?.links.as_ref()?.since(&before))
}

fn kernel_bytes_per_connection(readings: &ServiceReadings, open: u64) -> Option<f64> {
    let bytes = |reading: &Option<Reading>| reading.as_ref()?.kernel_bytes;
    let grown = bytes(&readings.open)? as f64 - bytes(&readings.before)? as f64;
    (open > 0).then(|| grown / open as f64)
}

fn survival(test: Test, connections: &ConnectionCounts) -> Option<f64> {
    let lasted = connections.open - connections.closed_early.values().sum::<u64>();
    let held = matches!(test, Test::SustainedHold | Test::ConnectionLimit);
    (held && connections.open > 0).then(|| lasted as f64 / connections.open as f64)
}

#[cfg(test)]
pub(crate) mod fixture;

#[cfg(test)]
mod tests {
    use bench_format::plan::Load;

    use super::{
        fixture::{outcome, request},
        *,
    };

    #[test]
    fn without_the_services_counters_there_is_no_witness() {
        let outcome = fixture::unwitnessed();
        let measured = outcome.measured.as_ref().unwrap();
        assert_eq!((measured.witness, measured.service.as_ref()), (Witness::None, None));
        assert_eq!((measured.figures.delivered_per_second, measured.messages.delivered), (None, 0));
        assert!(outcome.is_clean(), "{:?}", outcome.problems);
    }

    #[test]
    fn invalidity_is_printed_before_failed_objectives() {
        let outcome = outcome(request(Test::Throughput, 12), |files| {
            files.trial.load = Load::Open { rate_per_second: 1250.0, arrivals: Default::default() };
            files.uploads[0].window.cpu_ns = 1_900_000_000;
        });
        let problems: Vec<_> = outcome.problems.iter().map(|problem| problem.split(':').next().unwrap()).collect();
        assert_eq!(problems, ["generator_late", "generator_cpu", "10 of 12 connections opened"], "{outcome:?}");
    }

    #[test]
    fn a_probe_is_not_asked_whether_the_generator_kept_its_schedule() {
        let outcome = outcome(request(Test::ConnectionLimit, 10), |files| {
            files.trial.load = Load::Open { rate_per_second: 1250.0, arrivals: Default::default() };
            files.uploads[0].window.cpu_ns = 1_900_000_000;
        });
        assert!(outcome.is_clean(), "{:?}", outcome.problems);
    }

    #[test]
    fn connections_that_ended_while_they_were_held_did_not_survive() {
        let outcome = outcome(request(Test::SustainedHold, 10), |files| {
            files.uploads[0].connections.closed_early.insert("reset".into(), 1);
        });
        assert_eq!(outcome.problems, ["1 connections ended early (1 reset)"]);
        assert_eq!(outcome.measured.unwrap().survival, Some(0.9));
    }

    #[test]
    fn connections_per_second_are_those_of_the_slowest_worker() {
        let of = |opening_ns| {
            let outcome = outcome(request(Test::PingLatency, 10), |files| {
                files.uploads[0].evidence.opening_ns = opening_ns;
            });
            outcome.measured.unwrap().figures.accepted_per_second
        };
        assert_eq!((of(Some(500_000_000)), of(None)), (Some(20.0), None));
    }

    #[test]
    fn memory_per_connection_is_what_process_and_kernel_grew_by() {
        let outcome = outcome(request(Test::SustainedHold, 10), |files| fixture::with_memory(files, 8000, 4000));
        let measured = outcome.measured.unwrap();
        assert_eq!(measured.figures.service_bytes_per_connection, Some(800.0));
        assert_eq!(measured.kernel_bytes_per_connection, Some(400.0));
    }
}
