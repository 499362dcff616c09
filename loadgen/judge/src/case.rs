//! The input of the rules: the files of one trial and what is computed from them first.

use bench_format::{
    histogram,
    result::{Reading, ServiceFile, Witness, WorkerResult},
    service::{LinksStats, PublisherStats},
    trial_file::{BookKeeping, TrialFile},
    websocket::Counter,
};

use crate::{delta::ServiceDelta, merge::Merged, published::ReportedSends};

/// A trial with its workers' results summed and its service's readings subtracted.
#[derive(Debug)]
pub struct Case<'a> {
    /// The conditions of the trial and the terms on which it is judged.
    pub trial: &'a TrialFile,
    /// The result that each worker uploaded.
    pub uploads: &'a [&'a WorkerResult],
    /// Readings and books of the service.
    pub service: &'a ServiceFile,
    /// The sum of the workers' results.
    pub merged: Merged,
    /// What the service counted between the readings before and after the trial; all 0 if one of them is missing.
    pub delta: ServiceDelta,
    /// What the service reports about the messages that it sent to subscribers.
    pub reported: ReportedSends,
}

impl<'a> Case<'a> {
    /// Sums the uploads and subtracts the service's readings.
    ///
    /// # Errors
    /// [`histogram::Error`] if a histogram can't be read.
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
        let merged = Merged::of(uploads.iter().copied())?;
        let reported = reported(trial, service, &delta, &merged);
        Ok(Self { trial, uploads, service, merged, delta, reported })
    }

    /// The party that confirms that a message arrived. It is [`Witness::None`] instead of the application if the
    /// service reports no application, or if it has no books against which the application's count can be checked.
    pub fn witness(&self) -> Witness {
        let uncounted = self.delta.application.is_none() || self.trial.keeping == BookKeeping::None;
        match self.trial.terms.witness {
            Witness::Application if uncounted => Witness::None,
            witness => witness,
        }
    }

    /// Whether the service has this counter: every one if it keeps the harness's books, or those that the plan maps and
    /// that its page has after the load.
    pub(crate) fn counts(&self, counter: Counter) -> bool {
        match &self.trial.counters {
            None => self.trial.keeping != BookKeeping::None,
            Some(reported) => {
                reported.counted.contains(&counter) && self.missing().all(|(name, _)| *name != counter.to_string())
            }
        }
    }

    /// Counters that the plan maps and that the service's page didn't have after the load, with the text of the plan.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&'a String, &'a String)> + use<'a> {
        self.service.readings.after.iter().flat_map(|after| &after.missing)
    }
}

/// Collects what is known about publishing: from the service's readings around the trial and at the end of the window, or
/// from the worker that publishes.
fn reported(trial: &TrialFile, service: &ServiceFile, delta: &ServiceDelta, merged: &Merged) -> ReportedSends {
    let readings = &service.readings;
    let publisher = |reading: &Option<Reading>| reading.as_ref().and_then(|reading| reading.publisher.clone());
    let links = |reading: &Option<Reading>| reading.as_ref().and_then(|reading| reading.links.clone());
    let (before, after) = (publisher(&readings.before), publisher(&readings.after));
    let publishing = merged.books.iter().find(|book| book.last_of_window.is_some());
    let last_of_window = publishing.and_then(|book| book.last_of_window);
    let of_worker =
        publishing.map(|book| PublisherStats { last_sequence: book.sent.checked_sub(1), ..PublisherStats::default() });
    ReportedSends {
        // A service with totals only may not count the messages that it publishes.
        sent: (trial.keeping == BookKeeping::Connections).then_some(delta.sent),
        dropped: delta.send_dropped.clone(),
        last_of_window: publisher(&readings.window_end)
            .and_then(|publisher| publisher.last_sequence)
            .or(last_of_window),
        published: before.zip(after.as_ref()).map(|(before, after)| after.published.saturating_sub(before.published)),
        publisher: after.or(of_worker),
        links: links(&readings.after)
            .map(|after| after.since(&links(&readings.before).unwrap_or_else(LinksStats::default))),
    }
}
