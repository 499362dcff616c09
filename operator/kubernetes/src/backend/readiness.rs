//! Waits for a pod until the deadline, but shorter if it has a failure that rarely resolves itself.

use std::time::Duration;

use operator::backend::Error;
use tokio::time::{Instant, timeout_at};

use super::Kubernetes;
use crate::{
    caches::Caches,
    pod_failure::{Outlook, PodFailure},
};

/// Longest wait after a failure that rarely resolves itself.
const DOUBTFUL_WAIT: Duration = Duration::from_secs(30);

/// The result of one look at the cluster.
pub(super) enum Readiness<T> {
    /// The awaited object is there.
    Done(T),
    /// Another party changed something that it needs.
    Interrupted(String),
    /// It is not there, with the reason.
    NotYet(PodFailure),
}

impl Kubernetes {
    /// Calls `look` at every change until the object is there, or waiting is pointless. `owner` is the Deployment or Job of
    /// the pods.
    pub(super) async fn wait_for_pods<T>(
        &self,
        name: &str,
        owner: &str,
        look: impl Fn(&Caches) -> Readiness<T>,
    ) -> Result<T, Error> {
        let not_ready = |reason: String| Error::NotReady { name: name.into(), reason, log: String::new() };
        let deadline = Instant::now() + self.start_deadline;
        let mut doubted_at: Option<Instant> = None;
        let mut changes = self.caches.changes();
        loop {
            changes.mark_unchanged();
            let now = Instant::now();
            let pod_failure = match look(&self.caches) {
                Readiness::Done(result) => return Ok(result),
                Readiness::Interrupted(description) => return Err(Error::Interrupted(description)),
                Readiness::NotYet(pod_failure) => pod_failure,
            };
            let outlook = pod_failure.outlook;
            doubted_at = [Outlook::Doubtful, Outlook::Outside].contains(&outlook).then(|| doubted_at.unwrap_or(now));
            let given_up = doubted_at.is_some_and(|at| now >= at + DOUBTFUL_WAIT) || outlook == Outlook::Hopeless;
            // What has run before fits into the cluster as its user set it up.
            let lost_room = outlook == Outlook::NoRoom && self.have_run.contains(owner);
            let is_outside = outlook == Outlook::Outside || lost_room;
            if is_outside && (given_up || now >= deadline) {
                return Err(Error::Interrupted(pod_failure.description));
            }
            if given_up {
                return Err(not_ready(pod_failure.description));
            }
            if now >= deadline {
                return Err(not_ready(format!(
                    "{} (waited {} s)",
                    pod_failure.description,
                    self.start_deadline.as_secs()
                )));
            }
            let until = doubted_at.map_or(deadline, |at| deadline.min(at + DOUBTFUL_WAIT));
            // A timeout leads to another look, as a change does.
            let _ = timeout_at(until, changes.changed()).await;
        }
    }
}
