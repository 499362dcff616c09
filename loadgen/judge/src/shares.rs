//! CPU that each side of a trial used, as a share of what it could have used. Pure.
//!
//! A side that shares CPUs with the other could have used what the other left. Workers that together may use more CPUs than
//! there are for them share those, and one may use what another leaves: then all of them are one user of these CPUs.

use crate::{case::Case, rates::ratio};

/// CPU of one or of all workers in the window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkerShare {
    /// Which worker, or all of them, for a sentence.
    pub(crate) who: String,
    /// Whose CPU it was: `its`, or `their`.
    pub(crate) whose: &'static str,
    /// What they used, of what they could have used.
    pub(crate) share: f64,
}

/// CPU of each worker, or of all of them where they share CPUs; nothing without a window.
pub(crate) fn worker_shares(case: &Case<'_>) -> Vec<WorkerShare> {
    let limits = case.uploads.iter().map(|upload| upload.evidence.cpu_limit);
    let shared = case.trial.cpus.shared_with_service;
    // Workers that share with the service run on one worker's CPUs, all of them.
    let left = limits.clone().fold(0.0, f64::max) - service_cpus(case).unwrap_or(0.0);
    let room = if shared { left.min(case.trial.cpus.workers) } else { case.trial.cpus.workers };
    if limits.sum::<f64>() > room {
        let used = ratio(case.merged.window.cpu_ns, case.merged.window.duration_ns as f64);
        let share = used.map(|used| if shared { share_of_left(used, room) } else { used / room });
        let (who, whose) = match case.uploads {
            [one] => (format!("worker {}", one.worker), "its"),
            _ => ("all workers together".into(), "their"),
        };
        return share.map(|share| WorkerShare { who, whose, share }).into_iter().collect();
    }
    let of_one = |upload: &&bench_format::result::WorkerResult| {
        let share = ratio(upload.window.cpu_ns, upload.window.duration_ns as f64 * upload.evidence.cpu_limit)?;
        Some(WorkerShare { who: format!("worker {}", upload.worker), whose: "its", share })
    };
    case.uploads.iter().filter_map(of_one).collect()
}

/// CPU that the busiest worker used in the window, as a share of what it could have used.
pub(crate) fn busiest_worker(case: &Case<'_>) -> Option<f64> {
    worker_shares(case).into_iter().map(|worker| worker.share).reduce(f64::max)
}

/// What was used of what another one left. More than all of it is a matter of two clocks, and of nothing all was used.
fn share_of_left(used: f64, left: f64) -> f64 {
    if used < left { used / left } else { 1.0 }
}

/// What a part of the service used of its CPUs, on average over the window, as a share of what it could have used.
pub(crate) fn service_share(case: &Case<'_>, used: f64, cpus: f64) -> Option<f64> {
    if !case.trial.cpus.shared_with_service {
        return (cpus > 0.0).then(|| used / cpus);
    }
    let window = &case.merged.window;
    let workers = ratio(window.cpu_ns, window.duration_ns as f64).unwrap_or(0.0);
    Some(share_of_left(used, cpus - workers))
}

/// CPUs that the service's own process used between the readings at the window's edges, on average.
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
        worker_shares(&case).into_iter().map(|worker| (worker.who, worker.share)).collect()
    }

    /// Two workers that used half a second and a quarter of one, in a window of two.
    fn two() -> Files {
        let mut files = flood();
        let mut other = files.uploads[0].clone();
        (other.worker, other.window.cpu_ns) = (1, other.window.cpu_ns / 2);
        files.uploads.push(other);
        files
    }

    #[test]
    fn workers_with_a_cpu_each_are_measured_one_by_one() {
        let mut files = two();
        files.trial.cpus.workers = 2.0;
        assert_eq!(shares(&files), [("worker 0".to_owned(), 0.25), ("worker 1".to_owned(), 0.125)]);
    }

    #[test]
    fn workers_that_share_a_cpu_are_one_user_of_it() {
        assert_eq!(shares(&two()), [("all workers together".to_owned(), 0.375)]);
    }

    #[test]
    fn a_worker_that_shares_its_cpu_with_the_service_has_what_that_leaves() {
        let mut files = flood();
        files.trial.cpus.shared_with_service = true;
        // The service took one second of the two.
        assert_eq!(shares(&files), [("worker 0".to_owned(), 0.5)]);
    }
}
