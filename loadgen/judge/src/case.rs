//! What is judged: the files of one trial, and what follows from them before any rule is applied.

use bench_format::{
    histogram,
    result::{Reading, ServiceFile, Witness, WorkerResult},
    service::LinksStats,
    trial_file::{BookKeeping, TrialFile},
};

use crate::{delta::ServiceDelta, merge::Merged, published::Told};

/// A trial with its workers' results added up and its service's counters subtracted.
#[derive(Debug)]
pub struct Case<'a> {
    /// What was asked of it, and on which terms it is judged.
    pub trial: &'a TrialFile,
    /// What each worker uploaded.
    pub uploads: &'a [&'a WorkerResult],
    /// The service's side.
    pub service: &'a ServiceFile,
    /// The workers' results, added up.
    pub merged: Merged,
    /// What the service counted between the readings around the trial; nothing where one of them is missing.
    pub delta: ServiceDelta,
    /// What the service reports of what it sent to subscribers.
    pub told: Told,
}

impl<'a> Case<'a> {
    /// Adds up and subtracts.
    ///
    /// # Errors
    /// When a histogram can't be read.
    pub fn new(
        trial: &'a TrialFile,
        uploads: &'a [&'a WorkerResult],
        service: &'a ServiceFile,
    ) -> Result<Self, histogram::Error> {
        let readings = &service.readings;
        let delta = match (&readings.before, &readings.after) {
            (Some(before), Some(after)) => ServiceDelta::between(&before.stats, &after.stats),
            _ => ServiceDelta::default(),
        };
        let told = told(trial, service, &delta);
        Ok(Self { trial, uploads, service, merged: Merged::of(uploads.iter().copied())?, delta, told })
    }

    /// Who says that a message arrived. An application that isn't there has seen nothing, and one whose count no book of the
    /// service is held against is no witness.
    pub fn witness(&self) -> Witness {
        let uncounted = self.delta.application.is_none() || self.trial.keeping == BookKeeping::None;
        match self.trial.terms.witness {
            Witness::Application if uncounted => Witness::None,
            witness => witness,
        }
    }
}

/// What the service reports of what it sent to subscribers, by its readings around the trial and at the window's end.
fn told(trial: &TrialFile, service: &ServiceFile, delta: &ServiceDelta) -> Told {
    let readings = &service.readings;
    let publisher = |reading: &Option<Reading>| reading.as_ref().and_then(|reading| reading.publisher.clone());
    let links = |reading: &Option<Reading>| reading.as_ref().and_then(|reading| reading.links.clone());
    let (before, after) = (publisher(&readings.before), publisher(&readings.after));
    Told {
        // A service with totals only may not count what it publishes.
        sent: (trial.keeping == BookKeeping::Connections).then_some(delta.sent),
        dropped: delta.send_dropped.clone(),
        last_of_window: publisher(&readings.window_end).and_then(|publisher| publisher.last_sequence),
        published: before.zip(after.as_ref()).map(|(before, after)| after.published.saturating_sub(before.published)),
        publisher: after,
        links: links(&readings.after)
            .map(|after| after.since(&links(&readings.before).unwrap_or_else(LinksStats::default))),
    }
}
