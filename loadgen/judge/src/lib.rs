//! Judges a trial: turns its files into its result. Pure: no sockets, no clocks, no files.
//!
//! In the order in which a trial's data passes: [`case`] ([`merge`] sums the workers' results, [`delta`] subtracts the
//! service's readings; `edges` has those at the window's start and end) → `complete` (message counts, completed with the service's) → `books` (the equations, with
//! [`connections`] for single connections, [`published`] for services that publish, `turnover` for connections that come
//! and go) → [`figures`] (rates, costs, memory; `shares` of CPU) → `validity` (one function per rule, in the order of `docs/METHODOLOGY.md`) → [`verdict`]
//! (objectives against figures, with [`error_budget`]) → `bound` (what limited the load, from what `bound/checks.rs`
//! looks at). For runs by hand, [`remarks`] lists what a valid
//! trial failed to do.
//!
//! Protocols differ only by their [`Terms`](bench_format::terms::Terms). No service, protocol or workload is named
//! here.

mod books;
mod bound;
pub mod case;
mod complete;
pub mod connections;
pub mod delta;
mod edges;
pub mod error_budget;
pub mod figures;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod merge;
pub mod published;
mod rates;
pub mod remarks;
mod shares;
mod turnover;
mod validity;
pub mod verdict;

use bench_format::{
    SCHEMA, histogram,
    result::{ServiceFile, TrialResult, Validity, WorkerResult},
    trial_file::TrialFile,
};

pub use bound::why;
use case::Case;
use merge::Merged;
pub use validity::reason;

/// The result of judging a trial.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The result as `result.json` keeps it.
    pub result: TrialResult,
    /// The sum of the workers' results, with the intervals that the bundle keeps beside the result.
    pub merged: Merged,
}

/// Judges a trial from its three kinds of files.
///
/// # Errors
/// [`histogram::Error`] if a histogram can't be read. The coordinator refuses uploads with such a histogram.
pub fn judge(trial: &TrialFile, uploads: &[&WorkerResult], service: &ServiceFile) -> Result<Judged, histogram::Error> {
    let case = Case::new(trial, uploads, service)?;
    let messages = complete::complete(&case);
    let books = books::books(&case, &messages);
    let figures = figures::figures(&case, &messages);
    let validity = validity::validity(&case, &books);
    let verdict = match validity {
        Validity::Valid => {
            let errors = case.merged.errors();
            verdict::verdict(&trial.objectives, &figures, &case.merged.histograms, Some(&errors))
        }
        Validity::Invalid { .. } => None,
    };
    let (bound_by, bound_checks) = bound::bound(&case, &figures, verdict.as_ref());
    let (witness, merged) = (case.witness(), case.merged);
    let histograms = merged.histograms.iter();
    let result = TrialResult {
        schema: SCHEMA,
        run: trial.run.clone(),
        trial: trial.trial.clone(),
        attempt: trial.attempt,
        started_at_unix_ns: trial.started_at_unix_ns,
        load: trial.load.clone(),
        message: trial.message.clone(),
        witness,
        validity,
        verdict,
        bound_by,
        bound_checks,
        machine: trial.machine.clone(),
        connections: merged.connections.clone(),
        turnover: merged.turnover.clone(),
        messages,
        figures,
        percentiles: histograms
            .clone()
            .map(|(name, recorder)| (name.clone(), figures::percentiles(recorder)))
            .collect(),
        histograms: histograms.map(|(name, recorder)| (name.clone(), recorder.encode())).collect(),
        books,
        failures: merged.failures.clone(),
        service: service.readings.clone(),
        workers: uploads.iter().map(|upload| upload.evidence.clone()).collect(),
        pods: trial.pods.clone(),
        reproduce: trial.reproduce.clone(),
    };
    Ok(Judged { result, merged })
}

#[cfg(test)]
mod tests {
    use bench_format::{
        histogram::Recorder,
        plan::{Figure, Load, Objective},
        result::{BoundBy, ReasonKind, Witness},
        service::{LinkStats, LinksStats},
        trial_file::BookKeeping,
    };

    use super::{
        fixture::{Files, flood, publisher},
        *,
    };

    #[test]
    fn a_consistent_flood_is_valid_and_carries_its_sums() {
        let Judged { result, .. } = flood().judge().unwrap();
        assert_eq!(result.validity, Validity::Valid, "{:?}", result.books);
        assert_eq!((result.messages.delivered, result.messages.lost), (2500, 0));
        assert_eq!((result.witness, result.bound_by), (Witness::Application, Some(BoundBy::Neither)));
    }

    #[test]
    fn received_publications_are_throughput_and_missing_ones_an_outcome() {
        let Judged { result, .. } = publisher().judge().unwrap();
        assert_eq!(result.validity, Validity::Valid, "{:?}", result.books);
        let (messages, figures) = (&result.messages, &result.figures);
        assert_eq!((messages.due, messages.delivered, messages.lost), (25_000, 24_995, 0));
        assert_eq!(messages.dropped["slow_consumer"], 5);
        assert_eq!((figures.delivered_per_second, figures.published_per_second), (Some(10_000.0), Some(1000.0)));
        assert_eq!((figures.messages_per_read, figures.bytes_read_per_second), (Some(2.0), Some(1e6)));
        assert_eq!(figures.worker_cpu_seconds_per_million, Some(25.0));
        assert_eq!(figures.service_cpu_seconds_per_million, Some(50.0));
    }

    /// `publisher()` over Redis, which carried `sent` of its 2 600 publications and reports the rest as dropped.
    fn over_redis(sent: u64) -> Files {
        let mut files = publisher();
        let readings = &mut files.service.readings;
        readings.before.as_mut().unwrap().links =
            Some(LinksStats { redis: Some(LinkStats::default()), ..LinksStats::default() });
        let dropped = [("queue_full".to_owned(), 2600 - sent)].into();
        let link =
            LinkStats { published: 2600, sent, dropped, received: sent, delivered: sent, ..LinkStats::default() };
        readings.after.as_mut().unwrap().links = Some(LinksStats { redis: Some(link), ..LinksStats::default() });
        files
    }

    #[test]
    fn a_publication_that_a_link_reports_as_dropped_is_an_outcome() {
        let mut files = over_redis(2595);
        let after = files.service.readings.after.as_mut().unwrap();
        after.stats.messages.send_dropped.clear();
        let Judged { result, .. } = files.judge().unwrap();
        assert_eq!(result.validity, Validity::Valid, "{:?}", result.books);
        assert_eq!((result.messages.dropped["link_queue_full"], result.messages.lost), (5, 0));
    }

    #[test]
    fn a_publication_that_a_link_lost_in_silence_makes_the_trial_invalid() {
        let mut files = over_redis(2600);
        assert_eq!(files.judge().unwrap().result.validity, Validity::Valid);
        files.service.readings.after.as_mut().unwrap().links.as_mut().unwrap().redis.as_mut().unwrap().received -= 1;
        let Judged { result, .. } = files.judge().unwrap();
        let Validity::Invalid { reasons } = result.validity else { panic!("valid") };
        assert!(reasons[0].detail.starts_with("sent = received + lost (redis): 2600 against 2599"), "{reasons:?}");
    }

    #[test]
    fn a_publisher_at_another_rate_than_planned_makes_the_trial_invalid() {
        let mut files = publisher();
        let mut reason_of = |load| {
            files.trial.load = load;
            let Judged { result, .. } = files.judge().unwrap();
            let Validity::Invalid { reasons } = result.validity else { panic!("valid") };
            reasons[0].detail.clone()
        };
        let description = "the service publishes 1000 messages per second, and the plan's load is";
        let open = Load::Open { rate_per_second: 500.0, arrivals: Default::default() };
        assert_eq!(reason_of(open), format!("{description} 500 messages per second"));
        let closed = Load::Closed { messages_per_connection: None, in_flight: 1 };
        assert_eq!(reason_of(closed), format!("{description} as fast as it can"));
    }

    #[test]
    fn a_publisher_that_was_silent_for_most_of_the_window_makes_the_trial_invalid() {
        let mut files = publisher();
        let mut response = Recorder::new();
        (0..10).for_each(|_| response.record(1_000_000));
        files.uploads[0].histograms.insert(bench_format::Name::from_static("response_ns"), response.encode());
        let Judged { result, .. } = files.judge().unwrap();
        let Validity::Invalid { reasons } = result.validity else { panic!("valid") };
        let description = "10 messages due in the window arrived, and by its rate 20000 were due";
        assert!(reasons[0].kind == ReasonKind::SendRate && reasons[0].detail.ends_with(description), "{reasons:?}");
    }

    #[test]
    fn a_publisher_on_another_path_than_the_workloads_makes_the_trial_invalid() {
        let mut files = publisher();
        files.trial.trial.workload = bench_format::Name::from_static("fanout-redis");
        files.trial.terms.publishes_by = Some("pubsub".into());
        let Judged { result, .. } = files.judge().unwrap();
        let Validity::Invalid { reasons } = result.validity else { panic!("valid") };
        assert_eq!(reasons[0].detail, "the service publishes by \"\", but fanout-redis measures \"pubsub\"");
    }

    #[test]
    fn an_invalid_trial_has_no_verdict() {
        let mut files = flood();
        let figure = Figure::DeliveredPerSecond;
        files.trial.objectives = vec![Objective { figure, at_most: None, at_least: Some(1.0) }];
        assert!(files.judge().unwrap().result.verdict.unwrap().passed);
        files.service.readings.after.as_mut().unwrap().stats.application.as_mut().unwrap().sequence_sum -= 1;
        let Judged { result, .. } = files.judge().unwrap();
        assert!(matches!(result.validity, Validity::Invalid { .. }) && result.verdict.is_none());
    }

    #[test]
    fn an_application_whose_count_cannot_be_checked_is_not_a_witness() {
        let mut files = flood();
        files.trial.keeping = BookKeeping::None;
        let Judged { result, .. } = files.judge().unwrap();
        assert_eq!((result.witness, result.figures.delivered_per_second), (Witness::None, None));
        assert_eq!((result.messages.delivered, result.messages.lost), (0, 0));
    }

    #[test]
    fn a_service_without_an_application_has_no_witness_and_no_throughput() {
        let mut files = flood();
        let readings = &mut files.service.readings;
        for reading in [&mut readings.before, &mut readings.window_start, &mut readings.window_end, &mut readings.after]
        {
            let stats = &mut reading.as_mut().unwrap().stats;
            stats.application = None;
            stats.messages.dropped.insert("discarded".into(), stats.messages.delivered);
            stats.messages.delivered = 0;
        }
        for book in files.service.connections.as_mut().unwrap() {
            (book.application, book.dropped) = (None, 250);
        }
        let Judged { result, .. } = files.judge().unwrap();
        assert_eq!((result.witness, result.figures.delivered_per_second), (Witness::None, None));
        assert_eq!(result.figures.received_per_second, Some(900.0));
        assert_eq!(result.validity, Validity::Valid, "{:?}", result.books);
    }
}
