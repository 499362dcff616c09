//! One tier of a run by hand: what was measured, and everything that keeps it from being a clean result.
//!
//! Pure. The rules are those of `docs/METHODOLOGY.md`; a plan run by the operator applies more of them.

use std::collections::BTreeMap;

use bench_format::{
    books::{Books, Equation, compare_connections},
    histogram::{Histogram, Recorder, percentile_ns},
    plan::{Load, Message, Thresholds},
    result::{ConnectionCounts, Figures, Interval, MessageCounts, WindowCounts, Witness, WorkerEvidence, WorkerResult},
    service::{ApplicationStats, ConnectionBooks, MessageStats},
};
use loadgen_core::merge::{Merged, merge};
use serde::Serialize;

use crate::workloads::Workload;

/// Percentiles that are printed, where the samples carry them.
pub const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

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
        let merged = match merge(results) {
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
            intervals: merged.intervals,
            books: books(&merged.connections, &messages, results, service, witness),
            service: service.map(|view| view.whole.clone()),
            workers: results.iter().map(|result| result.evidence.clone()).collect(),
            connections: merged.connections,
            window: merged.window,
            messages,
        }
    }
}

fn percentiles(recorder: &Recorder) -> BTreeMap<String, Option<u64>> {
    let mut all: BTreeMap<_, _> = PERCENTILES
        .iter()
        .map(|(name, percentile)| ((*name).to_owned(), percentile_ns(recorder, *percentile)))
        .collect();
    all.insert("max".into(), percentile_ns(recorder, 100.0));
    all
}

fn figures(
    asked: &Asked,
    workload: Workload,
    window: &WindowCounts,
    connections: &ConnectionCounts,
    messages: &MessageCounts,
    results: &[WorkerResult],
    service: Option<&ServiceView>,
) -> Figures {
    let seconds = window.duration_ns as f64 / 1e9;
    let rate = |count: u64| (seconds > 0.0).then(|| count as f64 / seconds);
    let storm = workload == Workload::ConnectionStorm;
    let in_window = service.and_then(|view| view.window.as_ref());
    let service_rate =
        |count: fn(&MessageStats) -> u64| in_window.map(|(stats, seconds)| count(stats) as f64 / seconds);
    let cpu_seconds = window.cpu_ns as f64 / 1e9;
    let attempts = if storm { connections.attempted } else { messages.due };
    let failures = if storm {
        connections.attempted - connections.open
    } else {
        messages.wrong + messages.lost + messages.unsent + messages.dropped.values().sum::<u64>()
    };
    Figures {
        window_seconds: seconds,
        due_per_second: rate(window.due).filter(|_| matches!(asked.load, Load::Open { .. })),
        written_per_second: rate(window.sent).filter(|_| !storm),
        received_per_second: service_rate(|stats| stats.received),
        delivered_per_second: match workload.witness() {
            Witness::Application => service_rate(|stats| stats.delivered),
            _ => rate(window.replies).filter(|_| !storm),
        },
        dropped_per_second: service_rate(|stats| stats.dropped.values().sum()),
        accepted_per_second: rate(connections.open).filter(|_| storm),
        messages_per_write: (window.writes > 0).then(|| window.sent as f64 / window.writes as f64),
        worker_cpu_seconds: Some(cpu_seconds),
        worker_cpu_share: results
            .iter()
            .map(|result| {
                result.window.cpu_ns as f64 / (result.window.duration_ns.max(1) as f64 * result.evidence.cpu_limit)
            })
            .reduce(f64::max),
        worker_cpu_seconds_per_million: (window.sent > 0).then(|| cpu_seconds * 1e6 / window.sent as f64),
        failed_share: (attempts > 0).then(|| failures as f64 / attempts as f64),
        ..Figures::default()
    }
}

fn books(
    connections: &ConnectionCounts,
    messages: &MessageCounts,
    results: &[WorkerResult],
    service: Option<&ServiceView>,
    witness: Witness,
) -> Books {
    let MessageCounts { due, sent, delivered, late, wrong, lost, unsent, .. } = *messages;
    let dropped = messages.dropped.values().sum();
    let term = |name: &str, value| (name.to_owned(), value);
    let failed = connections.failed.values().sum();
    let mut equations = vec![
        Equation::new(
            "attempted = open + failed",
            connections.attempted,
            [term("open", connections.open), term("failed", failed)],
        ),
        Equation::new("due = sent + unsent", due, [term("sent", sent), term("unsent", unsent)]),
    ];
    let consumed = service.map_or(0, |view| view.whole.consumed);
    match witness {
        Witness::None => {}
        Witness::Reply => equations.push(Equation::new(
            "sent = delivered + late + wrong + lost",
            sent,
            [term("delivered", delivered), term("late", late), term("wrong", wrong), term("lost", lost)],
        )),
        Witness::Application => equations.push(Equation::new(
            "sent + unnumbered = delivered + consumed + dropped + lost",
            sent + unnumbered(results),
            [term("delivered", delivered), term("consumed", consumed), term("dropped", dropped), term("lost", lost)],
        )),
    }
    let workers: Vec<_> = results.iter().flat_map(|result| result.books.iter().cloned()).collect();
    let Some(view) = service else { return Books { equations, connections: None } };
    let whole = &view.whole;
    equations.push(Equation::new(
        "sent + unnumbered = received by the service",
        sent + unnumbered(results),
        [term("received", whole.received)],
    ));
    equations.push(Equation::new(
        "received = consumed + delivered + dropped + queued",
        whole.received,
        [
            term("consumed", whole.consumed),
            term("delivered", whole.delivered),
            term("dropped", whole.dropped.values().sum()),
            term("queued", whole.queued),
        ],
    ));
    if let (Witness::Application, Some(application), 0) = (witness, view.application, dropped) {
        let sum = workers.iter().fold(0_u64, |sum, book| sum.wrapping_add(book.sequence_sum));
        equations.push(Equation::new(
            "sum of sequence numbers sent = seen by the application",
            sum,
            [term("application", application.sequence_sum)],
        ));
    }
    let connections = view.connections.as_ref().map(|books| compare_connections(&workers, &books.connections));
    Books { equations, connections }
}

/// Hellos and the like, over all workers.
fn unnumbered(results: &[WorkerResult]) -> u64 {
    results.iter().flat_map(|result| &result.books).map(|book| book.unnumbered).sum()
}

/// Everything that keeps a tier from being a clean result, in words.
fn problems(asked: &Asked, workload: Workload, measured: &Measured, results: &[WorkerResult]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut expect = |fine: bool, words: String| {
        if !fine {
            problems.push(words);
        }
    };
    let Measured { connections, messages, window, books, .. } = measured;
    let open = connections.open;
    expect(
        open == u64::from(asked.tier),
        format!("{open} of {} connections opened{}", asked.tier, reasons(&connections.failed)),
    );
    let early: u64 = connections.closed_early.values().sum();
    expect(early == 0, format!("{early} connections ended early{}", reasons(&connections.closed_early)));
    for (count, words) in [
        (messages.lost, "sent, but lost"),
        (messages.wrong, "answered wrongly"),
        (messages.unsent, "due, but never sent"),
        (messages.duplicates, "answered twice"),
    ] {
        expect(count == 0, format!("{count} messages {words}"));
    }
    if let (Workload::PingLatency, Load::Closed { messages_per_connection: Some(pings), .. }) = (workload, &asked.load)
    {
        let wanted = u64::from(*pings) * u64::from(asked.tier);
        expect(window.replies == wanted, format!("{} of {wanted} pings answered in the window", window.replies));
    }
    for equation in books.equations.iter().filter(|equation| !equation.holds()) {
        expect(false, format!("unaccounted: {}: {} against {}", equation.name, equation.left, equation.right));
    }
    if let Some(check) = &books.connections {
        let examples = check.examples.join("; ");
        expect(
            check.mismatched == 0,
            format!("unaccounted: books of {} connections differ: {examples}", check.mismatched),
        );
    }
    if matches!(asked.load, Load::Open { .. }) {
        problems.extend(generator_problems(workload, measured, results));
    }
    problems
}

/// Whether the generator kept its own schedule.
fn generator_problems(workload: Workload, measured: &Measured, results: &[WorkerResult]) -> Vec<String> {
    let limits = Thresholds::default();
    let mut problems = Vec::new();
    let delay_ns = measured.percentiles.get("delay_ns").and_then(|delay| delay.get("p99").copied().flatten());
    if let Some(delay_ms) = delay_ns.map(|ns| ns as f64 / 1e6).filter(|ms| *ms > limits.delay_p99_ms) {
        problems.push(format!(
            "generator_late: p99 of its delay is {delay_ms:.1} ms, allowed are {} ms",
            limits.delay_p99_ms
        ));
    }
    if let Some(share) = measured.figures.worker_cpu_share.filter(|share| *share > limits.worker_cpu_share) {
        problems.push(format!(
            "generator_cpu: a worker used {:.0} % of its CPU, allowed are {:.0} %",
            share * 100.0,
            limits.worker_cpu_share * 100.0
        ));
    }
    for WorkerEvidence { throttled_periods, periods, .. } in results.iter().map(|result| &result.evidence) {
        if let (Some(throttled), Some(periods)) = (throttled_periods, periods)
            && *throttled as f64 > *periods as f64 * limits.throttled_share
        {
            problems.push(format!("generator_cpu: throttled in {throttled} of {periods} periods"));
        }
    }
    let (due, sent) = (measured.window.due, measured.window.sent);
    if workload != Workload::ConnectionStorm && (sent as f64) < due as f64 * limits.send_share {
        problems.push(format!("send_rate: {sent} of {due} due messages were sent in the window"));
    }
    problems
}

fn reasons(reasons: &BTreeMap<String, u64>) -> String {
    let words: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
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
