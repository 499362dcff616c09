//! The CPU that each side of a trial used, as a share of what was available to it. Pure.
//!
//! If both sides share CPUs, what one side uses isn't available to the other. If the limits of all workers together
//! exceed their CPUs, the workers share these CPUs and are treated as one user of them.

use crate::{case::Case, rates::ratio};

/// CPU use of one worker or of all workers in the window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkerShare {
    /// The worker, or all of them, as the subject of a sentence.
    pub(crate) subject: String,
    /// The matching possessive: `its` or `their`.
    pub(crate) possessive: &'static str,
    /// CPU used, as a share of what was available.
    pub(crate) share: f64,
}

/// The CPU use of each worker, or of all workers if they share CPUs; empty without a window.
pub(crate) fn worker_shares(case: &Case<'_>) -> Vec<WorkerShare> {
    let limits = case.uploads.iter().map(|upload| upload.evidence.cpu_limit);
    let shared = case.trial.cpus.shared_with_service;
    // Workers that share CPUs with the service all run on the CPUs of one worker.
    let remaining = limits.clone().fold(0.0, f64::max) - service_cpus(case).unwrap_or(0.0);
    let available_cpus = if shared { remaining.min(case.trial.cpus.workers) } else { case.trial.cpus.workers };
    if limits.sum::<f64>() > available_cpus {
        let used = ratio(case.merged.window.cpu_ns, case.merged.window.duration_ns as f64);
        let share =
            used.map(|used| if shared { share_of_remaining(used, available_cpus) } else { used / available_cpus });
        let (subject, possessive) = match case.uploads {
            [one] => (format!("worker {}", one.worker), "its"),
            _ => ("all workers together".into(), "their"),
        };
        return share.map(|share| WorkerShare { subject, possessive, share }).into_iter().collect();
    }
    let of_worker = |upload: &&bench_format::result::WorkerResult| {
        let share = ratio(upload.window.cpu_ns, upload.window.duration_ns as f64 * upload.evidence.cpu_limit)?;
        Some(WorkerShare { subject: format!("worker {}", upload.worker), possessive: "its", share })
    };
    case.uploads.iter().filter_map(of_worker).collect()
}

/// Largest share of the available CPU that a worker used in the window.
pub(crate) fn busiest_worker(case: &Case<'_>) -> Option<f64> {
    worker_shares(case).into_iter().map(|worker| worker.share).reduce(f64::max)
}

/// The share of the remaining CPU that was used. It is 1 if more was used than remained, which happens because two
/// clocks measure it, or if nothing remained.
fn share_of_remaining(used: f64, remaining: f64) -> f64 {
    if used < remaining { used / remaining } else { 1.0 }
}

/// Share of the available CPU that a process of the service used on average over the window; `used` and `cpus` are in
/// CPUs.
pub(crate) fn service_share(case: &Case<'_>, used: f64, cpus: f64) -> Option<f64> {
    if !case.trial.cpus.shared_with_service {
        return (cpus > 0.0).then(|| used / cpus);
    }
    let window = &case.merged.window;
    let workers = ratio(window.cpu_ns, window.duration_ns as f64).unwrap_or(0.0);
    Some(share_of_remaining(used, cpus - workers))
}

/// CPUs that the service's own process used on average between the readings at the window's start and end.
fn service_cpus(case: &Case<'_>) -> Option<f64> {
    let readings = &case.service.readings;
    let (start, end) = (readings.window_start.as_ref()?, readings.window_end.as_ref()?);
    let between_ns = end.unix_ns.saturating_sub(start.unix_ns);
    ratio(end.cpu_ns?.saturating_sub(start.cpu_ns?), between_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Files, flood};

    fn shares(files: &Files) -> Vec<(String, f64)> {
        let uploads: Vec<_> = files.uploads.iter().collect();
        let case = Case::new(&files.trial, &uploads, &files.service).unwrap();
        worker_shares(&case).into_iter().map(|worker| (worker.subject, worker.share)).collect()
    }

    /// Two workers that used half a second and a quarter of a second of CPU in a window of two seconds.
    fn two_workers() -> Files {
        let mut files = flood();
        let mut other = files.uploads[0].clone();
        (other.worker, other.window.cpu_ns) = (1, other.window.cpu_ns / 2);
        files.uploads.push(other);
        files
    }

    #[test]
    fn workers_with_a_cpu_each_are_measured_one_by_one() {
        let mut files = two_workers();
        files.trial.cpus.workers = 2.0;
        assert_eq!(shares(&files), [("worker 0".to_owned(), 0.25), ("worker 1".to_owned(), 0.125)]);
    }

    #[test]
    fn workers_that_share_a_cpu_are_one_user_of_it() {
        assert_eq!(shares(&two_workers()), [("all workers together".to_owned(), 0.375)]);
    }

    #[test]
    fn a_worker_that_shares_its_cpu_with_the_service_is_measured_against_the_rest() {
        let mut files = flood();
        files.trial.cpus.shared_with_service = true;
        // The service used one of the two seconds.
        assert_eq!(shares(&files), [("worker 0".to_owned(), 0.5)]);
    }
}
