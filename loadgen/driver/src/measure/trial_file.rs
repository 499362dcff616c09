//! The conditions of a trial, as `trial.json` has them.

use bench_format::{
    SCHEMA,
    result::{Reason, ServiceReadings},
    terms::Terms,
    trial_file::{BOUND_RULES, Cpus, TrialFile},
};

use super::{Trial, pods::pods};
use crate::{coordinator::Upload, stage::Stage};

impl<S: Stage> Trial<'_, S> {
    /// The conditions by which the counts of workers and service are judged.
    pub(super) fn trial_file(
        &self,
        terms: Terms,
        started_at_unix_ns: u64,
        open_at_start: u64,
        uploads: &[Upload],
        readings: &ServiceReadings,
        problems: Vec<Reason>,
    ) -> TrialFile {
        let plan = self.plan.clone();
        let shares = self.stage.shares();
        TrialFile {
            schema: SCHEMA,
            run: plan.run,
            trial: plan.trial,
            attempt: plan.attempt,
            started_at_unix_ns,
            seed: Some(plan.seed),
            load: plan.load,
            message: plan.message,
            objectives: plan.objectives,
            thresholds: plan.thresholds,
            terms,
            keeping: plan.keeping,
            counters: plan.counters,
            workers: plan.workers,
            warmup_ns: Some(plan.warmup.as_nanos() as u64),
            window_ns: plan.window.as_nanos() as u64,
            open_at_start,
            rss_peak_bytes: self.rss_peak_bytes,
            rss_at_rest_bytes: self.rss_at_rest_bytes,
            cpus: Cpus {
                workers: shares.worker_cpus.min(plan.worker_cpus * f64::from(plan.workers)),
                shared_with_service: shares.shared_with_service,
                shared_with_inference: shares.shared_with_inference,
                isolation: shares.isolation,
            },
            bound_rules: Some(BOUND_RULES),
            machine: None,
            others: self.others.clone(),
            problems,
            pods: pods(self.stage.pods(), uploads, readings),
            reproduce: plan.reproduce,
        }
    }
}
