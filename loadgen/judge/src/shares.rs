//! CPU that each side of a trial used, as a share of what it could have used. Pure.

use bench_format::result::WorkerResult;

use crate::{case::Case, rates::ratio};

/// CPU that the busiest worker used in the window, as a share of what it could have used.
pub(crate) fn busiest_worker(case: &Case<'_>) -> Option<f64> {
    case.uploads.iter().filter_map(|upload| worker_share(case, upload)).reduce(f64::max)
}

/// CPU that a worker used in the window, as a share of what it could have used: workers that share CPUs have less each.
pub(crate) fn worker_share(case: &Case<'_>, result: &WorkerResult) -> Option<f64> {
    let limits: f64 = case.uploads.iter().map(|upload| upload.evidence.cpu_limit).sum();
    let limit = result.evidence.cpu_limit * (case.trial.cpus.workers / limits).min(1.0);
    ratio(result.window.cpu_ns, result.window.duration_ns as f64 * limit)
}
