//! The pods of a trial with what workers and readings report about them: allowed CPUs and throttled periods.

use bench_format::{
    pod::{Pod, PodRole},
    result::{Reading, ServiceReadings},
};

use crate::coordinator::Upload;

/// Completes the pods with their workers' evidence and with the throttling that the service's readings show.
pub(super) fn pods(mut pods: Vec<Pod>, uploads: &[Upload], readings: &ServiceReadings) -> Vec<Pod> {
    for pod in &mut pods {
        let upload = uploads.iter().find(|upload| Some(upload.result.worker) == pod.worker);
        let between = |throttled: &dyn Fn(&Reading) -> Option<u64>| {
            let (after, before) = (readings.after.as_ref()?, readings.before.as_ref()?);
            Some(throttled(after)?.saturating_sub(throttled(before)?))
        };
        match (pod.role, upload) {
            (PodRole::Service, _) => pod.throttled_periods = between(&|reading| reading.throttled_periods),
            (PodRole::Companion, _) => {
                let name = pod.companion.clone().unwrap_or_default();
                pod.throttled_periods = between(&|reading| reading.companions.get(&name)?.throttled_periods);
            }
            (PodRole::Inference, _) => {
                pod.throttled_periods = between(&|reading| reading.inference.as_ref()?.throttled_periods);
            }
            (PodRole::Worker, Some(upload)) => {
                pod.cpus_allowed.clone_from(&upload.result.environment.cpus_allowed);
                pod.throttled_periods = upload.result.evidence.throttled_periods;
            }
            (PodRole::Worker, None) => {}
        }
    }
    pods
}
