//! What the tests of outcomes and their printing share: a tier, and its trial as the judge's fixture has it.

use bench_format::{
    plan::{Load, Message},
    result::{Reading, ServiceReadings},
    trial_file::BookKeeping,
};
use driver::measure::fixture::of;
use judge::fixture::{Files, flood};

use super::{Asked, Outcome};
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

/// An honest flood of ten connections, with something changed.
pub(crate) fn outcome(asked: Asked, change: impl FnOnce(&mut Files)) -> Outcome {
    Outcome::new(asked, &of(changed(change)), String::new())
}

/// Its trial.
pub(crate) fn changed(change: impl FnOnce(&mut Files)) -> Files {
    let mut files = flood();
    change(&mut files);
    files
}

/// The flood on as many connections as it has.
pub(crate) fn throughput() -> Outcome {
    outcome(asked(Test::Throughput, 10), |_| ())
}

/// The same, and nobody asks the service.
pub(crate) fn unwitnessed() -> Outcome {
    outcome(asked(Test::Throughput, 10), without_counters)
}

/// Nobody asks the service.
pub(crate) fn without_counters(files: &mut Files) {
    files.trial.keeping = BookKeeping::None;
    (files.service.readings, files.service.connections) = (ServiceReadings::default(), None);
}

/// With the connections open, its process and the kernel have grown by so many bytes.
pub(crate) fn with_memory(files: &mut Files, process: u64, kernel: u64) {
    let readings = &mut files.service.readings;
    let before = readings.before.as_mut().expect("the fixture has all readings");
    before.kernel_bytes = Some(1_000_000);
    files.trial.rss_at_rest_bytes = before.rss_bytes;
    let rss_bytes = before.rss_bytes.map(|bytes| bytes + process);
    readings.open = Some(Reading { rss_bytes, kernel_bytes: Some(1_000_000 + kernel), ..before.clone() });
}
