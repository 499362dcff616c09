//! What was measured → the trial's result: merged, completed from the service's side, accounted for and judged. Pure.

use bench_format::{
    SCHEMA,
    merge::Merged,
    result::{TrialResult, Validity, Witness},
};
use driver::measure::Measured;

use crate::{
    equations::{self, ServiceDelta},
    figures, validity, verdict,
};

/// The result, and the merged intervals that the bundle keeps beside it.
///
/// # Errors
/// When a histogram can't be read; uploads with such a histogram were refused before.
pub fn judge(measured: &Measured) -> Result<(TrialResult, Merged), bench_format::histogram::Error> {
    let merged = Merged::of(measured.uploads.iter().map(|upload| &upload.result))?;
    let delta = match (&measured.service.readings.before, &measured.service.readings.after) {
        (Some(before), Some(after)) => ServiceDelta::between(&before.stats, &after.stats),
        _ => ServiceDelta::default(),
    };
    let witness = match merged.witness {
        // An application that isn't there has seen nothing.
        Witness::Application if delta.application.is_none() => Witness::None,
        witness => witness,
    };
    let told = delta.told(measured.trial.keeping, &measured.service.readings);
    let mut messages = merged.messages.clone();
    equations::complete(&merged, &mut messages, witness, &delta, &told);
    let connections = measured.service.connections.as_deref();
    let books = equations::books(&merged, &messages, &delta, connections, measured.trial.keeping, &told);
    let figures = figures::figures(measured, &merged, &messages, witness);
    let validity = validity::validity(measured, &merged, &books);
    let verdict = match validity {
        Validity::Valid => verdict::verdict(&measured.trial.objectives, &figures, &merged.histograms),
        Validity::Invalid { .. } => None,
    };
    let bound_by =
        verdict::bound_by(&measured.trial.load, &figures, verdict.as_ref(), measured.trial.thresholds.bound_share);
    let histograms = merged.histograms.iter();
    let result = TrialResult {
        schema: SCHEMA,
        run: measured.trial.run.clone(),
        trial: measured.trial.trial.clone(),
        attempt: measured.trial.attempt,
        started_at_unix_ns: measured.trial.started_at_unix_ns,
        load: measured.trial.load.clone(),
        message: measured.trial.message.clone(),
        witness,
        validity,
        verdict,
        bound_by,
        connections: merged.connections.clone(),
        messages,
        figures,
        percentiles: histograms
            .clone()
            .map(|(name, recorder)| (name.clone(), figures::percentiles(recorder)))
            .collect(),
        histograms: histograms.map(|(name, recorder)| (name.clone(), recorder.encode())).collect(),
        books,
        failures: merged.failures.clone(),
        service: measured.service.readings.clone(),
        workers: measured.uploads.iter().map(|upload| upload.result.evidence.clone()).collect(),
        pods: measured.trial.pods.clone(),
        reproduce: measured.trial.reproduce.clone(),
    };
    Ok((result, merged))
}

#[cfg(test)]
pub(crate) mod fixture {
    use bench_format::{
        SCHEMA,
        histogram::Recorder,
        plan::{Load, Message, Thresholds},
        result::{
            MessageCounts, Reading, ReceiverBook, ServiceFile, ServiceReadings, WindowCounts, Witness, WorkerBook,
        },
        service::{ApplicationStats, ConnectionBook, PublisherStats, ServiceStats},
        terms::Terms,
        trial_file::{BookKeeping, Cpus, TrialFile},
    };

    use driver::coordinator::upload::fixture::{trial, upload};

    use super::Measured;

    const SECOND: u64 = 1_000_000_000;

    /// The service at a moment: seconds since it started, messages in its books.
    fn reading(second: u64, delivered: u64, cpu_seconds: u64) -> Reading {
        let mut stats = ServiceStats { uptime_seconds: 1.0, ..ServiceStats::default() };
        (stats.connections.accepted, stats.connections.open) = (10, 10);
        stats.messages.delivered = delivered;
        stats.messages.consumed = 10;
        stats.messages.received = delivered + 10;
        stats.application = Some(ApplicationStats { delivered, sequence_sum: delivered, unnumbered: 0 });
        Reading {
            unix_ns: second * SECOND,
            pid: Some(7),
            cpu_ns: Some(cpu_seconds * SECOND),
            rss_bytes: Some(2000),
            kernel_bytes: None,
            cpu_limit: Some(1.0),
            throttled_periods: None,
            periods: None,
            stats,
            publisher: None,
            links: None,
            processes: Default::default(),
            inference: None,
            companions: Default::default(),
        }
    }

    /// A flood of ten connections over two seconds: 2 000 written in the window and 1 800 delivered in it, with all of
    /// the books balanced after the drain.
    pub(crate) fn flood() -> Measured {
        let mut upload = upload(0, 1);
        let result = &mut upload.result;
        (result.messages.due, result.messages.sent) = (2500, 2500);
        let window = &mut result.window;
        (window.duration_ns, window.sent, window.due) = (2 * SECOND, 2000, 2000);
        (window.writes, window.cpu_ns) = (1000, SECOND / 2);
        let book =
            |n| WorkerBook { id: format!("c{n}"), sent: 250, sequence_sum: 250, unnumbered: 1, ..Default::default() };
        result.books = (0..10).map(book).collect();
        let mut before = reading(1, 0, 0);
        before.stats = ServiceStats { application: Some(ApplicationStats::default()), ..ServiceStats::default() };
        before.rss_bytes = Some(1000);
        let application = Some(ApplicationStats { delivered: 250, sequence_sum: 250, unnumbered: 0 });
        let connection = |n| ConnectionBook {
            id: format!("c{n}"),
            received: 251,
            consumed: 1,
            application,
            ..ConnectionBook::default()
        };
        let trial = TrialFile {
            schema: SCHEMA,
            run: "run".into(),
            trial: trial(),
            attempt: 1,
            started_at_unix_ns: 2 * SECOND,
            load: Load::Closed { messages_per_connection: None, in_flight: 1 },
            message: Message::default(),
            objectives: vec![],
            thresholds: Thresholds::default(),
            terms: Terms { witness: Witness::Application, ..Terms::default() },
            keeping: BookKeeping::Connections,
            workers: 1,
            window_ns: 2 * SECOND,
            open_at_start: 10,
            rss_peak_bytes: 3000,
            rss_at_rest_bytes: None,
            cpus: Cpus { workers: 1.0, ..Cpus::default() },
            others: vec![],
            problems: vec![],
            pods: vec![],
            reproduce: String::new(),
        };
        let service = ServiceFile {
            schema: SCHEMA,
            readings: ServiceReadings {
                before: Some(before),
                open: None,
                window_start: Some(reading(3, 400, 1)),
                window_end: Some(reading(5, 2200, 2)),
                after: Some(reading(6, 2500, 2)),
            },
            connections: Some((0..10).map(connection).collect()),
        };
        Measured { trial, uploads: vec![upload], service }
    }

    /// A service that publishes 1 000 messages per second to ten receivers, of which one misses five that the service tells
    /// of.
    pub(crate) fn publisher() -> Measured {
        let mut measured = flood();
        measured.trial.load = Load::Open { rate_per_second: 1000.0, arrivals: Default::default() };
        let result = &mut measured.uploads[0].result;
        result.witness = Witness::Receiver;
        let mut response = Recorder::new();
        (0..20_000).for_each(|_| response.record(1_000_000));
        result.histograms.insert("response_ns".into(), response.encode());
        result.messages = MessageCounts { due: 25_000, delivered: 24_995, lost: 5, ..MessageCounts::default() };
        result.window = WindowCounts {
            duration_ns: 2 * SECOND,
            replies: 20_000,
            answered: 20_000,
            reads: 10_000,
            bytes_read: 2_000_000,
            cpu_ns: SECOND / 2,
            ..WindowCounts::default()
        };
        let receiver = |n: u64| ReceiverBook {
            first: Some(0),
            last: Some(2499),
            received: if n == 0 { 2495 } else { 2500 },
            missing: if n == 0 { 5 } else { 0 },
            others: 1,
            reached: true,
            closed: true,
            ..ReceiverBook::default()
        };
        let book =
            |n| WorkerBook { id: format!("c{n}"), unnumbered: 1, receiver: Some(receiver(n)), ..WorkerBook::default() };
        result.books = (0..10).map(book).collect();
        let readings = &mut measured.service.readings;
        let all = [&mut readings.before, &mut readings.window_start, &mut readings.window_end, &mut readings.after];
        for (reading, published) in all.into_iter().flatten().zip([0, 400, 2400, 2600]) {
            reading.publisher = Some(PublisherStats {
                rate_per_second: Some(1000.0),
                published,
                last_sequence: published.checked_sub(1),
                ..PublisherStats::default()
            });
            let messages = &mut reading.stats.messages;
            (messages.received, messages.consumed, messages.delivered) = (10, 10, 0);
            reading.stats.application = None;
        }
        let before = &mut readings.before.as_mut().unwrap().stats.messages;
        (before.received, before.consumed) = (0, 0);
        let after = &mut readings.after.as_mut().unwrap().stats.messages;
        after.sent = 24_995 + 10;
        after.send_dropped.insert("slow_consumer".into(), 5);
        for book in measured.service.connections.as_mut().unwrap() {
            (book.received, book.application) = (1, None);
        }
        measured
    }

    /// The same as an open loop that kept its schedule.
    pub(crate) fn open() -> Measured {
        let mut measured = flood();
        measured.trial.load = Load::Open { rate_per_second: 1000.0, arrivals: Default::default() };
        let mut delay = Recorder::new();
        (0..1000).for_each(|_| delay.record(1000));
        measured.uploads[0].result.histograms.insert("delay_ns".into(), delay.encode());
        measured
    }
}

#[cfg(test)]
mod tests {
    use bench_format::{
        histogram::Recorder,
        plan::{Figure, Load, Objective},
        result::{BoundBy, ReasonKind},
        service::{LinkStats, LinksStats},
    };

    use super::{
        fixture::{flood, publisher},
        *,
    };

    #[test]
    fn an_honest_flood_is_valid_and_carries_its_sums() {
        let (result, _) = judge(&flood()).unwrap();
        assert_eq!(result.validity, Validity::Valid, "{:?}", result.books);
        assert_eq!((result.messages.delivered, result.messages.lost), (2500, 0));
        assert_eq!((result.witness, result.bound_by), (Witness::Application, Some(BoundBy::Neither)));
    }

    #[test]
    fn what_receivers_got_is_a_throughput_and_what_they_miss_an_outcome() {
        let (result, _) = judge(&publisher()).unwrap();
        assert_eq!(result.validity, Validity::Valid, "{:?}", result.books);
        let (messages, figures) = (&result.messages, &result.figures);
        assert_eq!((messages.due, messages.delivered, messages.lost), (25_000, 24_995, 0));
        assert_eq!(messages.dropped["slow_consumer"], 5);
        assert_eq!((figures.delivered_per_second, figures.published_per_second), (Some(10_000.0), Some(1000.0)));
        assert_eq!((figures.messages_per_read, figures.bytes_read_per_second), (Some(2.0), Some(1e6)));
        assert_eq!(figures.worker_cpu_seconds_per_million, Some(25.0));
        assert_eq!(figures.service_cpu_seconds_per_million, Some(50.0));
    }

    /// The same over Redis, which carried so many of its 2 600 publications and says that it dropped the rest.
    fn over_redis(sent: u64) -> Measured {
        let mut measured = publisher();
        let readings = &mut measured.service.readings;
        readings.before.as_mut().unwrap().links =
            Some(LinksStats { redis: Some(LinkStats::default()), ..LinksStats::default() });
        let dropped = [("queue_full".to_owned(), 2600 - sent)].into();
        let link =
            LinkStats { published: 2600, sent, dropped, received: sent, delivered: sent, ..LinkStats::default() };
        readings.after.as_mut().unwrap().links = Some(LinksStats { redis: Some(link), ..LinksStats::default() });
        measured
    }

    #[test]
    fn a_publication_that_a_link_dropped_by_name_is_an_outcome() {
        let mut measured = over_redis(2595);
        let after = measured.service.readings.after.as_mut().unwrap();
        after.stats.messages.send_dropped.clear();
        let (result, _) = judge(&measured).unwrap();
        assert_eq!(result.validity, Validity::Valid, "{:?}", result.books);
        assert_eq!((result.messages.dropped["link_queue_full"], result.messages.lost), (5, 0));
    }

    #[test]
    fn a_publication_that_a_link_lost_in_silence_makes_the_trial_invalid() {
        let mut measured = over_redis(2600);
        assert_eq!(judge(&measured).unwrap().0.validity, Validity::Valid);
        measured.service.readings.after.as_mut().unwrap().links.as_mut().unwrap().redis.as_mut().unwrap().received -= 1;
        let (result, _) = judge(&measured).unwrap();
        let Validity::Invalid { reasons } = result.validity else { panic!("valid") };
        assert!(reasons[0].detail.starts_with("sent = received + lost (redis): 2600 against 2599"), "{reasons:?}");
    }

    #[test]
    fn a_publisher_at_another_rate_than_the_plans_says_nothing_of_it() {
        let mut measured = publisher();
        let mut said = |load| {
            measured.trial.load = load;
            let (result, _) = judge(&measured).unwrap();
            let Validity::Invalid { reasons } = result.validity else { panic!("valid") };
            reasons[0].detail.clone()
        };
        let words = "the service publishes 1000 messages per second, and the plan's load is";
        let open = Load::Open { rate_per_second: 500.0, arrivals: Default::default() };
        assert_eq!(said(open), format!("{words} 500 messages per second"));
        let closed = Load::Closed { messages_per_connection: None, in_flight: 1 };
        assert_eq!(said(closed), format!("{words} as fast as it can"));
    }

    #[test]
    fn a_publisher_that_was_silent_for_most_of_the_window_says_nothing_of_its_rate() {
        let mut measured = publisher();
        let mut response = Recorder::new();
        (0..10).for_each(|_| response.record(1_000_000));
        measured.uploads[0].result.histograms.insert("response_ns".into(), response.encode());
        let (result, _) = judge(&measured).unwrap();
        let Validity::Invalid { reasons } = result.validity else { panic!("valid") };
        let words = "10 messages due in the window came, and by its rate 20000 were due";
        assert!(reasons[0].kind == ReasonKind::SendRate && reasons[0].detail.ends_with(words), "{reasons:?}");
    }

    #[test]
    fn a_publisher_that_goes_another_way_than_the_workload_asks_for_says_nothing_of_it() {
        let mut measured = publisher();
        measured.trial.trial.workload = "fanout-redis".into();
        let (result, _) = judge(&measured).unwrap();
        let Validity::Invalid { reasons } = result.validity else { panic!("valid") };
        assert_eq!(reasons[0].detail, "the service publishes by \"\", and fanout-redis is about \"pubsub\"");
    }

    #[test]
    fn an_invalid_trial_has_no_verdict() {
        let mut measured = flood();
        let figure = Figure::DeliveredPerSecond;
        measured.trial.objectives = vec![Objective { figure, at_most: None, at_least: Some(1.0) }];
        assert!(judge(&measured).unwrap().0.verdict.unwrap().passed);
        measured.service.readings.after.as_mut().unwrap().stats.application.as_mut().unwrap().sequence_sum -= 1;
        let (result, _) = judge(&measured).unwrap();
        assert!(matches!(result.validity, Validity::Invalid { .. }) && result.verdict.is_none());
    }

    #[test]
    fn a_service_without_an_application_has_no_witness_and_no_throughput() {
        let mut measured = flood();
        let readings = &mut measured.service.readings;
        for reading in [&mut readings.before, &mut readings.window_start, &mut readings.window_end, &mut readings.after]
        {
            let stats = &mut reading.as_mut().unwrap().stats;
            stats.application = None;
            stats.messages.dropped.insert("discarded".into(), stats.messages.delivered);
            stats.messages.delivered = 0;
        }
        for book in measured.service.connections.as_mut().unwrap() {
            (book.application, book.dropped) = (None, 250);
        }
        let (result, _) = judge(&measured).unwrap();
        assert_eq!((result.witness, result.figures.delivered_per_second), (Witness::None, None));
        assert_eq!(result.figures.received_per_second, Some(900.0));
        assert_eq!(result.validity, Validity::Valid, "{:?}", result.books);
    }
}
