//! One tier of a run by hand: what was measured, and everything that keeps it from being a clean result.
//!
//! Pure. The rules are those of `docs/METHODOLOGY.md`; a plan run by the operator applies more of them.

mod books;
mod bound;
mod figures;
mod limit;
mod problems;

use std::collections::BTreeMap;

use bench_format::{
    histogram::Histogram,
    plan::{Load, Message},
    result::{
        Books, BoundBy, ConnectionCounts, Figures, Interval, MessageCounts, WindowCounts, Witness, WorkerEvidence,
        WorkerResult,
    },
    service::{ApplicationStats, ConnectionBooks, LinksStats, MessageStats, PublisherStats},
};
use judge::{
    merge::Merged,
    published::{self, Told},
};
use loadgen_core::neighbour::Room;
use serde::Serialize;

pub use self::limit::{EndedBy, Limit, Phase, Probe, Side, probed};
use self::{
    books::{books, unnumbered},
    bound::{bound_by, shares},
    figures::{figures, percentiles},
    problems::problems,
};
use crate::{suite::Test, workloads::Workload};

/// What a tier was asked to do.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// The test.
    pub test: Test,
    /// What the generator did for it.
    pub workload: Workload,
    /// Connections.
    pub tier: u32,
    /// How load was offered.
    pub load: Load,
    /// What the messages were.
    pub message: Message,
    /// Worker processes.
    pub workers: u32,
    /// Addresses that connections started from.
    pub source_addresses: u32,
}

/// What a tier came to: a row, also when it failed.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// See [`bench_format::SCHEMA`].
    pub schema: u32,
    /// What it was asked to do.
    #[serde(flatten)]
    pub asked: Asked,
    /// Everything that keeps this from being a clean result; empty when it did what it says.
    pub problems: Vec<String>,
    /// Of a search for the most connections: what this probe came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// What that search found; on its last probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The numbers; absent when there are none.
    pub measured: Option<Measured>,
    /// Command that repeats it.
    pub command: String,
}

/// The numbers of a tier.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Who says that messages arrived: `none` without the service's own counters.
    pub witness: Witness,
    /// What limited a closed loop; absent for open ones, which their schedule limits, and where nobody knows. A rate bound
    /// by the generator is a lower bound.
    pub bound_by: Option<BoundBy>,
    /// Share of the open connections that lasted; only where they are held.
    pub survival: Option<f64>,
    /// Sums over workers.
    pub connections: ConnectionCounts,
    /// Sums over workers, completed from the service's side where it was asked.
    pub messages: MessageCounts,
    /// Sums over workers.
    pub window: WindowCounts,
    /// Rates and costs.
    pub figures: Figures,
    /// Memory that the kernel of this machine took for each connection, both ends together, in bytes; only with the
    /// service on it.
    pub kernel_bytes_per_connection: Option<f64>,
    /// In nanoseconds, by histogram; `null` where the samples can't carry the percentile.
    pub percentiles: BTreeMap<String, BTreeMap<String, Option<u64>>>,
    /// Merged exactly.
    pub histograms: BTreeMap<String, Histogram>,
    /// The same, second by second.
    pub intervals: Vec<Interval>,
    /// The equations; without the service's counters only those of the generator.
    pub books: Books,
    /// What the service counted over the whole trial.
    pub service: Option<MessageStats>,
    /// The publisher's books after the trial; only of a service that publishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher: Option<PublisherStats>,
    /// What carried its messages between the service's instances, over the whole trial; only where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<LinksStats>,
    /// Failures by kind, where they are counted apart from messages.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, u64>,
    /// How each worker fared.
    pub workers: Vec<WorkerEvidence>,
}

/// What the service said around a trial.
#[derive(Clone, Debug, Default)]
pub struct ServiceView {
    /// Counted over the whole trial.
    pub whole: MessageStats,
    /// Counted by the application over the whole trial.
    pub application: Option<ApplicationStats>,
    /// Counted between two readings at the window's edges, and the seconds between them.
    pub window: Option<(MessageStats, f64)>,
    /// Books of each connection.
    pub connections: Option<ConnectionBooks>,
    /// What a service that publishes by itself said of that.
    pub publisher: Option<PublisherView>,
    /// What its instances sent to each other over the whole trial.
    pub links: Option<LinksStats>,
}

/// What a publisher said around a trial.
#[derive(Clone, Debug, Default)]
pub struct PublisherView {
    /// Its books after the trial.
    pub after: PublisherStats,
    /// Messages published over the whole trial.
    pub published: u64,
    /// Messages published between two readings at the window's edges, and the seconds between them.
    pub window: Option<(u64, f64)>,
    /// Its last number at the window's end.
    pub last_of_window: Option<u64>,
}

impl ServiceView {
    /// What the service says of what it sent to subscribers.
    fn told(&self) -> Told {
        Told {
            // A service without books on each connection doesn't count what it publishes either.
            sent: self.connections.is_some().then_some(self.whole.sent),
            dropped: self.whole.send_dropped.clone(),
            last_of_window: self.publisher.as_ref().and_then(|publisher| publisher.last_of_window),
            publisher: self.publisher.as_ref().map(|publisher| publisher.after.clone()),
            published: self.publisher.as_ref().map(|publisher| publisher.published),
            links: self.links.clone(),
        }
    }
}

/// What was seen of a trial beside its workers' results.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What the service said; nothing without its metrics port.
    pub service: Option<ServiceView>,
    /// What the kernel says of its process; nothing where that can't be seen.
    pub process: Option<ProcessView>,
    /// From the first attempt until every connection had its outcome, in seconds; not where connections open in the window.
    pub opening_seconds: Option<f64>,
}

/// What the kernel said of the service's process around a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessView {
    /// The CPUs that it may use.
    pub room: Option<Room>,
    /// CPU used in the window, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// CPU used while connections opened, in nanoseconds.
    pub opening_cpu_ns: Option<u64>,
    /// Least resident memory that was seen before any trial of this run, in bytes.
    pub rss_at_rest_bytes: Option<u64>,
    /// Resident memory with the connections open, in bytes; not where they open in the window.
    pub rss_bytes: Option<u64>,
    /// What the machine's kernel took for both ends of the connections, in bytes; not where they open in the window.
    pub kernel_grown_bytes: Option<i64>,
}

impl Outcome {
    /// A tier that could not be measured.
    pub fn failed(asked: Asked, reason: String, command: String) -> Self {
        Self::from_parts(asked, vec![reason], None, command)
    }

    /// A tier from its workers' results and what else was seen.
    pub fn new(asked: Asked, results: &[WorkerResult], seen: &Seen, command: String) -> Self {
        let merged = match Merged::of(results) {
            Ok(merged) => merged,
            Err(error) => return Self::failed(asked, error.to_string(), command),
        };
        let measured = Measured::new(&asked, merged, results, seen);
        let problems = problems(&asked, &measured, results);
        Self::from_parts(asked, problems, Some(measured), command)
    }

    fn from_parts(asked: Asked, problems: Vec<String>, measured: Option<Measured>, command: String) -> Self {
        Self { schema: bench_format::SCHEMA, asked, problems, probe: None, limit: None, measured, command }
    }

    /// Whether the tier did what it says. A probe that found more connections than there can be did.
    pub fn is_clean(&self) -> bool {
        let found_too_many = self.probe.as_ref().is_some_and(|probe| !probe.held);
        let nothing_held = self.limit.as_ref().is_some_and(|limit| limit.held == 0);
        (self.problems.is_empty() || found_too_many) && !nothing_held
    }
}

impl Measured {
    fn new(asked: &Asked, merged: Merged, results: &[WorkerResult], seen: &Seen) -> Self {
        let service = seen.service.as_ref();
        let by_application = asked.workload.witness() == Witness::Application;
        let intervals = merged.intervals_by_start();
        let receivers: Vec<_> = merged.receivers().collect();
        let told = service.map(ServiceView::told).unwrap_or_default();
        let mut messages = merged.messages.clone();
        if asked.workload.witness() == Witness::Receiver {
            published::complete(&mut messages, &receivers, &told);
        }
        if let (true, Some(view)) = (by_application, service) {
            messages.delivered = view.application.map_or(view.whole.delivered, |application| application.delivered);
            messages.dropped = view.whole.dropped.clone();
            let dropped: u64 = messages.dropped.values().sum();
            // A service that discards everything doesn't tell a hello from a message: both sides count all.
            let accounted = messages.delivered + dropped + view.whole.consumed;
            messages.lost = (messages.sent + unnumbered(results)).saturating_sub(accounted);
        }
        let witness = if by_application && service.is_none() { Witness::None } else { asked.workload.witness() };
        let shares = shares(asked, &merged.window, results, seen.process.as_ref());
        Self {
            witness,
            bound_by: bound_by(&asked.load, shares),
            survival: survival(asked.test, &merged.connections),
            kernel_bytes_per_connection: per_connection(
                seen.process.and_then(|process| process.kernel_grown_bytes),
                merged.connections.open,
            ),
            figures: figures(asked, &merged.window, &merged.connections, &messages, shares, seen),
            percentiles: merged
                .histograms
                .iter()
                .map(|(name, recorder)| (name.clone(), percentiles(recorder)))
                .collect(),
            histograms: merged.histograms.iter().map(|(name, recorder)| (name.clone(), recorder.encode())).collect(),
            intervals,
            books: books(&merged, &messages, results, service, witness),
            service: service.map(|view| view.whole.clone()),
            publisher: service.and_then(|view| view.publisher.as_ref()).map(|publisher| publisher.after.clone()),
            links: service.and_then(|view| view.links.clone()),
            failures: merged.failures.window.clone(),
            workers: results.iter().map(|result| result.evidence.clone()).collect(),
            connections: merged.connections,
            window: merged.window,
            messages,
        }
    }
}

fn per_connection(bytes: Option<i64>, open: u64) -> Option<f64> {
    bytes.filter(|_| open > 0).map(|bytes| bytes as f64 / open as f64)
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
    use bench_format::{histogram::Recorder, result::ReceiverBook};

    use super::{
        fixture::{asked, result, throughput, view},
        *,
    };

    #[test]
    fn without_the_services_counters_nobody_is_witness() {
        let outcome = throughput(None);
        let measured = outcome.measured.as_ref().unwrap();
        assert_eq!(measured.witness, Witness::None);
        assert_eq!((measured.figures.delivered_per_second, measured.messages.delivered), (None, 0));
        assert!(outcome.is_clean(), "{:?}", outcome.problems);
    }

    #[test]
    fn a_counted_drop_is_an_outcome_and_no_problem() {
        let outcome = throughput(Some(view(101, 90, 10)));
        assert!(outcome.is_clean(), "{:?}", outcome.problems);
        assert_eq!(outcome.measured.unwrap().messages.delivered, 90);
    }

    #[test]
    fn a_service_that_discards_hellos_too_is_accounted_for() {
        let mut discarding = view(101, 0, 101);
        discarding.whole.consumed = 0;
        let outcome = throughput(Some(discarding));
        assert!(outcome.is_clean(), "{:?}", outcome.problems);
    }

    #[test]
    fn a_message_that_nobody_accounts_for_is_a_problem() {
        let outcome = throughput(Some(view(101, 99, 0)));
        assert!(outcome.problems.iter().any(|problem| problem.contains("1 messages sent, but lost")));
        assert!(outcome.problems.iter().any(|problem| problem.starts_with("unaccounted: received = consumed")));
    }

    #[test]
    fn a_generator_that_used_up_its_cpu_spoils_an_open_loop() {
        let asked = Asked {
            load: Load::Open { rate_per_second: 100.0, arrivals: Default::default() },
            ..asked(Test::Throughput, 2)
        };
        let mut late = result(&asked, 2, 100);
        late.window.cpu_ns = 950_000_000;
        let outcome = Outcome::new(asked, &[late], &Seen::default(), String::new());
        assert_eq!(outcome.problems, ["generator_cpu: a worker used 95 % of its CPU, allowed are 90 %"]);
    }

    #[test]
    fn a_schedule_that_was_not_sent_spoils_an_open_loop_but_not_the_last_message_of_a_thread() {
        let load = Load::Open { rate_per_second: 51.0, arrivals: Default::default() };
        let asked = Asked { load, ..asked(Test::SustainedHold, 50) };
        let problems = |sent| {
            let mut result = result(&asked, 50, 51);
            (result.window.sent, result.messages.delivered) = (sent, 51);
            Outcome::new(asked.clone(), &[result], &Seen::default(), String::new()).problems
        };
        assert_eq!(problems(50), Vec::<String>::new());
        assert_eq!(problems(49), ["send_rate: 49 of 51 due messages were sent in the window"]);
    }

    #[test]
    fn a_publisher_that_was_silent_for_half_of_the_window_spoils_an_open_loop() {
        let load = Load::Open { rate_per_second: 100.0, arrivals: Default::default() };
        let asked = Asked { load, ..asked(Test::FanoutBroadcast, 1) };
        let problems = |came: u64| {
            let mut result = result(&asked, 1, 0);
            let mut response = Recorder::new();
            (0..came).for_each(|_| response.record(1_000_000));
            result.histograms.insert("response_ns".into(), response.encode());
            result.books[0].receiver = Some(ReceiverBook { reached: true, closed: true, ..Default::default() });
            Outcome::new(asked.clone(), &[result], &Seen::default(), String::new()).problems
        };
        assert_eq!(problems(100), Vec::<String>::new());
        let [problem] = &problems(50)[..] else { panic!("{:?}", problems(50)) };
        assert!(problem.starts_with("send_rate: ") && problem.ends_with("by its rate 100 were due"), "{problem}");
    }

    #[test]
    fn missing_connections_are_a_problem() {
        let asked = asked(Test::ConnectionStorm, 3);
        let mut partly = result(&asked, 2, 0);
        partly.connections.attempted = 3;
        partly.connections.failed.insert("refused".into(), 1);
        let outcome = Outcome::new(asked, &[partly], &Seen::default(), String::new());
        assert_eq!(outcome.problems, ["2 of 3 connections opened (1 refused)"]);
    }

    #[test]
    fn connections_that_ended_while_they_were_held_did_not_survive() {
        let asked = asked(Test::SustainedHold, 4);
        let mut some = result(&asked, 4, 0);
        some.connections.closed_early.insert("reset".into(), 1);
        let outcome = Outcome::new(asked, &[some], &Seen::default(), String::new());
        assert_eq!(outcome.problems, ["1 connections ended early (1 reset)"]);
        assert_eq!(outcome.measured.unwrap().survival, Some(0.75));
    }

    #[test]
    fn memory_per_connection_is_what_the_process_grew_by() {
        let asked = asked(Test::SustainedHold, 4);
        let process = ProcessView { rss_at_rest_bytes: Some(1000), rss_bytes: Some(9000), ..Default::default() };
        let seen = Seen { process: Some(process), ..Default::default() };
        let outcome = Outcome::new(asked.clone(), &[result(&asked, 4, 0)], &seen, String::new());
        let figures = outcome.measured.unwrap().figures;
        assert_eq!((figures.service_rss_bytes, figures.service_bytes_per_connection), (Some(9000), Some(2000.0)));
    }
}
