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
            (PodRole::Service, _) => {
                pod.throttled_periods = match of_replica(&pod.name, readings) {
                    Some(throttled) => throttled,
                    None => between(&|reading| reading.throttled_periods),
                };
            }
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

/// Throttled periods of one of several pods of a service in the window; `None` where the service has one pod.
fn of_replica(name: &str, readings: &ServiceReadings) -> Option<Option<u64>> {
    let (start, end) = (readings.window_start.as_ref()?, readings.window_end.as_ref()?);
    if end.replicas.is_empty() {
        return None;
    }
    let throttled = |reading: &Reading| reading.replicas.get(name)?.throttled_periods;
    Some(throttled(end).zip(throttled(start)).map(|(end, start)| end.saturating_sub(start)))
}

#[cfg(test)]
mod tests {
    use bench_format::result::ProcessReading;

    use super::*;

    #[test]
    fn each_of_several_pods_of_a_service_has_its_own_throttling() {
        let reading = |left: u64, right: u64| {
            let of = |throttled| ProcessReading { throttled_periods: Some(throttled), ..ProcessReading::default() };
            let replicas = [("left".to_owned(), of(left)), ("right".to_owned(), of(right))].into();
            Some(Reading { throttled_periods: Some(left + right), replicas, ..Reading::default() })
        };
        let readings = ServiceReadings {
            before: reading(0, 0),
            window_start: reading(1, 1),
            window_end: reading(3, 8),
            after: reading(9, 9),
            ..ServiceReadings::default()
        };
        let pod = |name: &str| Pod { name: name.into(), role: PodRole::Service, ..Pod::default() };
        let throttled = |readings: &ServiceReadings| {
            let found = pods(vec![pod("left"), pod("right")], &[], readings);
            found.iter().map(|pod| pod.throttled_periods).collect::<Vec<_>>()
        };
        assert_eq!(throttled(&readings), [Some(2), Some(7)]);
        let [mut before, mut after] = [readings.before.clone(), readings.after.clone()];
        before.iter_mut().chain(&mut after).for_each(|reading| reading.replicas.clear());
        let alone = ServiceReadings { before, after, ..ServiceReadings::default() };
        assert_eq!(throttled(&alone)[0], Some(18), "a single pod has that of the whole trial");
    }
}
