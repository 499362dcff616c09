//! Restores what the backend changed: the original values are in the [`journal`](crate::journal) before each change.

use operator::backend::Error;

use super::{
    Kubernetes,
    errors::{describe_volume_error, is_creation},
};
use crate::{api, events::RunEvent, journal::Original};

/// Number of attempts to restore everything before it is left to the next start.
const RESTORE_ATTEMPTS: u32 = 2;

impl Kubernetes {
    /// Writes the original value of an object to the journal, before it is changed.
    pub(super) fn note(&mut self, found: Original) -> Result<(), Error> {
        self.journal.note(found).map_err(|error| Error::Remote {
            what: "write the original value to the journal".into(),
            reason: describe_volume_error(&error),
        })
    }

    /// Restores everything in the journal. What could not be restored is left to the next start, and has an Event.
    pub(super) async fn restore_all(&mut self) -> Result<(), Error> {
        let mut last = None;
        for _ in 0..RESTORE_ATTEMPTS {
            last = None;
            // In reverse order of the changes: a service goes before its inference service and companions.
            for found in self.journal.entries().iter().rev().cloned().collect::<Vec<_>>() {
                match self.restore(&found).await {
                    Ok(()) => self.journal.forget(&found),
                    Err(error) => last = Some(error),
                }
            }
            if last.is_none() {
                return Ok(());
            }
        }
        let reason = last.map(|error| error.to_string()).unwrap_or_default();
        let description = format!("not everything was restored, the next start tries again: {reason}");
        eprintln!("ladder: {description}");
        self.events.record(RunEvent::NotPutBack { description });
        Err(Error::Remote { what: "restore everything".into(), reason })
    }

    /// Whether the cluster file has the object of a journal's entry.
    fn is_known(&self, found: &Original) -> bool {
        match found {
            Original::Deployment { name, .. } => self.cluster.deployments().any(|known| known == name),
            Original::Job { name, .. } => self.cluster.job_names().any(|known| known == name),
        }
    }

    /// Restores one object to its original value. An object that the cluster file doesn't have is left alone: an
    /// upgrade of the chart has removed it, or another program has written to the results volume.
    async fn restore(&self, found: &Original) -> Result<(), api::Error> {
        if !self.is_known(found) {
            eprintln!("ladder: not restored, because the cluster file doesn't list it: {found:?}");
            return Ok(());
        }
        let restored = match found {
            Original::Deployment { name, replicas } => self.api.scale(name, *replicas).await,
            Original::Job { name, suspend } => self.api.suspend(name, *suspend).await,
        };
        match restored {
            // The object was deleted, so there is nothing to restore.
            Err(api::Error::NotFound { .. }) => Ok(()),
            Err(api::Error::Refused { reason, .. }) if is_creation(&reason) => Ok(()),
            other => other,
        }
    }
}
