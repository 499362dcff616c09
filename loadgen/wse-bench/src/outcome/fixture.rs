//! What the tests of outcomes and their printing share: a tier, a worker's result, a service's words.

use std::collections::BTreeMap;

use bench_format::{
    plan::{Load, Message},
    result::{ConnectionCounts, MessageCounts, WindowCounts, WorkerBook, WorkerEvidence, WorkerResult},
    service::{ApplicationStats, MessageStats},
    trial::TrialId,
};

use super::{Asked, Outcome, Seen, ServiceView};
use crate::suite::Test;

/// A closed loop on one worker.
pub(crate) fn asked(test: Test, tier: u32) -> Asked {
    Asked {
        test,
        workload: test.workload(),
        tier,
        load: Load::Closed { messages_per_connection: None, in_flight: 1 },
        message: Message::default(),
        workers: 1,
        source_addresses: 1,
    }
}

/// One worker with one CPU in a window of a second.
pub(crate) fn result(asked: &Asked, open: u64, sent: u64) -> WorkerResult {
    WorkerResult {
        schema: 1,
        run: "r".into(),
        trial: TrialId {
            service: "s".into(),
            workload: asked.workload.name().into(),
            variant: "v".into(),
            tier: asked.tier,
            process: 1,
            repeat: 1,
        },
        attempt: 1,
        worker: 0,
        witness: asked.workload.witness(),
        connections: ConnectionCounts { attempted: open, open, ..Default::default() },
        messages: MessageCounts { due: sent, sent, ..Default::default() },
        window: WindowCounts { duration_ns: 1_000_000_000, due: sent, sent, ..Default::default() },
        histograms: BTreeMap::new(),
        intervals: Vec::new(),
        books: vec![WorkerBook { id: "a".into(), sent, sequence_sum: sent, unnumbered: 1, ..Default::default() }],
        failures: Default::default(),
        error_samples: vec![],
        conformance: None,
        evidence: WorkerEvidence { cpu_limit: 1.0, ..Default::default() },
        environment: Default::default(),
    }
}

/// A service that answered one hello itself.
pub(crate) fn view(received: u64, delivered: u64, dropped: u64) -> ServiceView {
    let dropped = BTreeMap::from([("inbound_overflow".to_owned(), dropped)]);
    let application = Some(ApplicationStats { delivered, sequence_sum: delivered, unnumbered: 0 });
    let whole = MessageStats { received, consumed: 1, delivered, dropped, ..Default::default() };
    ServiceView { whole, application, ..Default::default() }
}

/// A flood of 100 messages over two connections.
pub(crate) fn throughput(service: Option<ServiceView>) -> Outcome {
    let asked = asked(Test::Throughput, 2);
    let result = result(&asked, 2, 100);
    Outcome::new(asked, &[result], &Seen { service, ..Default::default() }, String::new())
}
