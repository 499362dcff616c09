//! Signs of life of a trial's processes, where they run on other machines.
//!
//! A cluster takes most of a minute to notice that a node is lost, and longer to say so of its pods. Nothing that is
//! measured in between says anything about the service, so the trial is interrupted after ten seconds of silence: of a
//! worker that reports its progress twice a second, or of the service's pod, whose CPU is read more often than that.

use std::{fmt::Display, time::Duration};

use bench_format::pod::{Pod, PodRole};
use tokio::time::Instant;

use crate::stage::Ended;

/// Longest time without a sign of life. It is longer than a request may take, so that one lost request is no silence.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// When the service's pod last answered.
#[derive(Debug)]
pub(super) struct ServiceSilence {
    heard_at: Instant,
}

impl ServiceSilence {
    /// The pod has just answered, or is first asked now.
    pub(super) fn broken(now: Instant) -> Self {
        Self { heard_at: now }
    }

    /// The end of the trial, if the silence has lasted too long; `why` there was no answer just now.
    pub(super) fn too_long(&self, why: &dyn Display, pods: &[Pod], now: Instant) -> Option<Ended> {
        (now - self.heard_at >= LONGEST_SILENCE).then(|| of_service(why, pods))
    }
}

/// The end of a trial whose service's pod does not answer.
pub(super) fn of_service(why: &dyn Display, pods: &[Pod]) -> Ended {
    let of_service = || pods.iter().filter(|pod| pod.role == PodRole::Service);
    let places = of_service().map(place).collect::<Vec<_>>().join(" or");
    Ended::outside(format!("the service{places} does not answer; its node may be lost or cut off: {why}"))
}

/// The end of a trial whose workers are silent.
pub(super) fn of_workers(workers: &[u32], pods: &[Pod]) -> Ended {
    let seconds = LONGEST_SILENCE.as_secs();
    let workers = named(workers, pods);
    Ended::outside(format!("no sign of life for {seconds} s of {workers}; the node may be lost or cut off"))
}

/// Workers with their pods and nodes, where these are known.
pub(super) fn named(workers: &[u32], pods: &[Pod]) -> String {
    let named = |worker: &u32| {
        let pod = pods.iter().find(|pod| pod.role == PodRole::Worker && pod.worker == Some(*worker));
        format!("worker {worker}{}", pod.map(place).unwrap_or_default())
    };
    workers.iter().map(named).collect::<Vec<_>>().join(", ")
}

fn place(pod: &Pod) -> String {
    format!(" (pod {} on {})", pod.name, pod.node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Cause;

    fn pods() -> Vec<Pod> {
        let pod = |name: &str, role, worker, node: &str| Pod {
            name: name.into(),
            role,
            worker,
            node: node.into(),
            ..Pod::default()
        };
        vec![pod("ours-1", PodRole::Service, None, "left"), pod("tier-1", PodRole::Worker, Some(1), "right")]
    }

    #[test]
    fn a_service_may_be_silent_for_a_while_and_an_answer_ends_its_silence() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let silence = ServiceSilence::broken(start);
        assert_eq!(silence.too_long(&"timed out", &pods(), at(9)), None);
        let Ended { description, cause } = silence.too_long(&"timed out", &pods(), at(10)).unwrap();
        assert_eq!(cause, Cause::Outside);
        assert_eq!(
            description,
            "the service (pod ours-1 on left) does not answer; its node may be lost or cut off: timed out"
        );
        assert_eq!(ServiceSilence::broken(at(9)).too_long(&"timed out", &pods(), at(18)), None);
    }

    #[test]
    fn silent_workers_are_named_with_their_nodes() {
        let description = of_workers(&[0, 1], &pods()).description;
        let expected =
            "no sign of life for 10 s of worker 0, worker 1 (pod tier-1 on right); the node may be lost or cut off";
        assert_eq!(description, expected);
    }
}
