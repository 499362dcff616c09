//! One tier of a run by hand: what was measured, and everything that keeps it from being a clean result.
//!
//! Pure. The rules are those of `docs/METHODOLOGY.md`; a plan run by the operator applies more of them.

mod books;
mod figures;
mod problems;

use std::collections::BTreeMap;

use bench_format::{
    books::Books,
    histogram::Histogram,
    merge::Merged,
    plan::{Load, Message},
    result::{ConnectionCounts, Figures, Interval, MessageCounts, WindowCounts, Witness, WorkerEvidence, WorkerResult},
    service::{ApplicationStats, ConnectionBooks, MessageStats},
};
use serde::Serialize;

use self::{
    books::{books, unnumbered},
    figures::{figures, percentiles},
    problems::problems,
};
use crate::workloads::Workload;

/// What a tier was asked to do.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// The workload's name.
    pub test: &'static str,
    /// Connections.
    pub tier: u32,
    /// How load was offered.
    pub load: Load,
    /// What the messages were.
    pub message: Message,
    /// Worker processes.
    pub workers: u32,
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
    /// Sums over workers.
    pub connections: ConnectionCounts,
    /// Sums over workers, completed from the service's side where it was asked.
    pub messages: MessageCounts,
    /// Sums over workers.
    pub window: WindowCounts,
    /// Rates and costs.
    pub figures: Figures,
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
}

impl Outcome {
    /// A tier that could not be measured.
    pub fn failed(asked: Asked, reason: String, command: String) -> Self {
        Self { schema: bench_format::SCHEMA, asked, problems: vec![reason], measured: None, command }
    }

    /// A tier from its workers' results and what the service said.
    pub fn new(
        asked: Asked,
        workload: Workload,
        results: &[WorkerResult],
        service: Option<ServiceView>,
        command: String,
    ) -> Self {
        let merged = match Merged::of(results) {
            Ok(merged) => merged,
            Err(error) => return Self::failed(asked, error.to_string(), command),
        };
        let measured = Measured::new(&asked, workload, merged, results, service.as_ref());
        let problems = problems(&asked, workload, &measured, results);
        Self { schema: bench_format::SCHEMA, asked, problems, measured: Some(measured), command }
    }

    /// Whether the tier did what it says.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Measured {
    fn new(
        asked: &Asked,
        workload: Workload,
        merged: Merged,
        results: &[WorkerResult],
        service: Option<&ServiceView>,
    ) -> Self {
        let by_application = workload.witness() == Witness::Application;
        let intervals = merged.intervals_by_start();
        let mut messages = merged.messages;
        if let (true, Some(view)) = (by_application, service) {
            messages.delivered = view.application.map_or(view.whole.delivered, |application| application.delivered);
            messages.dropped = view.whole.dropped.clone();
            let dropped: u64 = messages.dropped.values().sum();
            // A service that discards everything doesn't tell a hello from a message: both sides count all.
            let accounted = messages.delivered + dropped + view.whole.consumed;
            messages.lost = (messages.sent + unnumbered(results)).saturating_sub(accounted);
        }
        let witness = if by_application && service.is_none() { Witness::None } else { workload.witness() };
        Self {
            witness,
            figures: figures(asked, workload, &merged.window, &merged.connections, &messages, results, service),
            percentiles: merged
                .histograms
                .iter()
                .map(|(name, recorder)| (name.clone(), percentiles(recorder)))
                .collect(),
            histograms: merged.histograms.iter().map(|(name, recorder)| (name.clone(), recorder.encode())).collect(),
            intervals,
            books: books(&merged.connections, &messages, results, service, witness),
            service: service.map(|view| view.whole.clone()),
            workers: results.iter().map(|result| result.evidence.clone()).collect(),
            connections: merged.connections,
            window: merged.window,
            messages,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests_support {
    use super::*;

    /// An outcome of one worker that did nothing.
    pub(crate) fn empty(workload: Workload, load: Load) -> Outcome {
        let asked = Asked { test: workload.name(), tier: 0, load, message: Message::default(), workers: 1 };
        Outcome::new(asked, workload, &[], None, String::new())
    }
}

#[cfg(test)]
mod tests {
    use bench_format::{result::WorkerBook, trial::TrialId};

    use super::*;

    fn result(workload: Workload, open: u64, sent: u64) -> WorkerResult {
        WorkerResult {
            schema: 1,
            run: "r".into(),
            trial: TrialId {
                service: "s".into(),
                workload: workload.name().into(),
                variant: "v".into(),
                tier: 2,
                process: 1,
                repeat: 1,
            },
            attempt: 1,
            worker: 0,
            witness: workload.witness(),
            connections: ConnectionCounts { attempted: open, open, ..Default::default() },
            messages: MessageCounts { due: sent, sent, ..Default::default() },
            window: WindowCounts { duration_ns: 1_000_000_000, due: sent, sent, ..Default::default() },
            histograms: BTreeMap::new(),
            intervals: Vec::new(),
            books: vec![WorkerBook { id: "a".into(), sent, sequence_sum: sent, unnumbered: 1, replies: 0 }],
            evidence: WorkerEvidence { cpu_limit: 1.0, ..Default::default() },
            environment: Default::default(),
        }
    }

    fn view(received: u64, delivered: u64, dropped: u64) -> ServiceView {
        let dropped = BTreeMap::from([("inbound_overflow".to_owned(), dropped)]);
        let application = Some(ApplicationStats { delivered, sequence_sum: delivered, unnumbered: 0 });
        let whole = MessageStats { received, consumed: 1, delivered, dropped, ..Default::default() };
        ServiceView { whole, application, ..Default::default() }
    }

    fn throughput(service: Option<ServiceView>) -> Outcome {
        let load = Load::Closed { messages_per_connection: None, in_flight: 1 };
        let asked = Asked { test: "throughput", tier: 2, load, message: Message::default(), workers: 1 };
        Outcome::new(asked, Workload::Throughput, &[result(Workload::Throughput, 2, 100)], service, String::new())
    }

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
        let mut late = result(Workload::Throughput, 2, 100);
        late.window.cpu_ns = 950_000_000;
        let load = Load::Open { rate_per_second: 100.0, arrivals: Default::default() };
        let asked = Asked { test: "throughput", tier: 2, load, message: Message::default(), workers: 1 };
        let outcome = Outcome::new(asked, Workload::Throughput, &[late], None, String::new());
        assert_eq!(outcome.problems, ["generator_cpu: a worker used 95 % of its CPU, allowed are 90 %"]);
    }

    #[test]
    fn missing_connections_are_a_problem() {
        let load = Load::Closed { messages_per_connection: None, in_flight: 1 };
        let asked = Asked { test: "connection-storm", tier: 3, load, message: Message::default(), workers: 1 };
        let mut partly = result(Workload::ConnectionStorm, 2, 0);
        partly.connections.attempted = 3;
        partly.connections.failed.insert("refused".into(), 1);
        let outcome = Outcome::new(asked, Workload::ConnectionStorm, &[partly], None, String::new());
        assert_eq!(outcome.problems, ["2 of 3 connections opened (1 refused)"]);
    }
}
