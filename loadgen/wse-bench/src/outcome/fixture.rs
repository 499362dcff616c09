//! Fixtures for the tests of outcomes and their tables: a tier, and its trial from the judge's fixture.

use bench_format::{
    plan::{Load, Message},
    result::{Reading, ServiceReadings},
    trial_file::BookKeeping,
};
use driver::measure::fixture::of;
use judge::fixture::{Files, flood};

use super::{Request, TierResult};
use crate::suite::Test;

/// The request of a closed loop on one worker.
pub(crate) fn request(test: Test, tier: u32) -> Request {
    Request {
        test,
        workload: test.workload(),
        tier,
        load: Load::Closed { messages_per_connection: None, in_flight: 1 },
        message: Message::default(),
        workers: 1,
        source_addresses: 1,
    }
}

/// The outcome of a correct flood of ten connections, after `change`.
pub(crate) fn outcome(request: Request, change: impl FnOnce(&mut Files)) -> TierResult {
    TierResult::new(request, &of(changed(change)), String::new())
}

/// The files of that flood's trial, after `change`.
pub(crate) fn changed(change: impl FnOnce(&mut Files)) -> Files {
    let mut files = flood();
    change(&mut files);
    files
}

/// The outcome of the unchanged flood.
pub(crate) fn throughput() -> TierResult {
    outcome(request(Test::Throughput, 10), |_| ())
}

/// The outcome of the flood when the service's counters aren't read.
pub(crate) fn unwitnessed() -> TierResult {
    outcome(request(Test::Throughput, 10), without_counters)
}

/// Removes the service's counters.
pub(crate) fn without_counters(files: &mut Files) {
    files.trial.keeping = BookKeeping::None;
    (files.service.readings, files.service.connections) = (ServiceReadings::default(), None);
}

/// Sets by how many bytes the service's process and the kernel grew while connections opened.
pub(crate) fn with_memory(files: &mut Files, process: u64, kernel: u64) {
    let readings = &mut files.service.readings;
    let before = readings.before.as_mut().expect("the fixture has all readings");
    before.kernel_bytes = Some(1_000_000);
    files.trial.rss_at_rest_bytes = before.rss_bytes;
    let rss_bytes = before.rss_bytes.map(|bytes| bytes + process);
    readings.open = Some(Reading { rss_bytes, kernel_bytes: Some(1_000_000 + kernel), ..before.clone() });
}
