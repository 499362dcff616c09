//! Publishes numbered messages to all connections, each due at a time of a fixed schedule.
//!
//! The flaw decides about each publication before any connection gets it, so that a loss is the same for all of them.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use service_contract::PublisherStats;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::{
    config::Flaw,
    disposition::{Disposition, Dispositions},
};

/// Interval between two checks for subscribers while there is none.
const IDLE: Duration = Duration::from_millis(20);
/// A publication later than this counts as late, in microseconds.
const LATE_US: u64 = 1000;

/// What a connection does with a publication.
#[derive(Clone, Debug)]
pub(crate) enum Publication {
    /// Send this text to the client.
    Send(Utf8Bytes),
    /// Send nothing, but count it as sent.
    CountOnly,
}

/// The publisher's subscribers and counters.
#[derive(Debug)]
pub(crate) struct Publisher {
    rate_per_second: f64,
    /// The actual rate, which the flaw may reduce.
    actual_per_second: f64,
    listeners: Mutex<Vec<mpsc::UnboundedSender<Publication>>>,
    publishing: AtomicBool,
    published: AtomicU64,
    bytes: AtomicU64,
    publishing_us: AtomicU64,
    late: AtomicU64,
    lateness_max_us: AtomicU64,
}

impl Publisher {
    /// Creates a publisher that reports this rate; with the flaw `publisher-slow` it publishes at half of it.
    pub(crate) fn new(rate_per_second: f64, flaw: Flaw) -> Self {
        let actual_share = if flaw == Flaw::PublisherSlow { 0.5 } else { 1.0 };
        Self {
            rate_per_second,
            actual_per_second: rate_per_second * actual_share,
            listeners: Mutex::default(),
            publishing: AtomicBool::new(false),
            published: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            publishing_us: AtomicU64::new(0),
            late: AtomicU64::new(0),
            lateness_max_us: AtomicU64::new(0),
        }
    }

    /// Subscribes to everything that is published from now on.
    pub(crate) fn listen(&self) -> mpsc::UnboundedReceiver<Publication> {
        let (listener, publications) = mpsc::unbounded_channel();
        self.listeners.lock().expect("no holder of this lock can panic").push(listener);
        publications
    }

    /// Publishes while there are subscribers, until the service stops.
    pub(crate) async fn run(&self, dispositions: &Dispositions, mut stop: watch::Receiver<bool>) {
        let publish = async {
            loop {
                while !self.has_listeners() {
                    sleep_until(Instant::now() + IDLE).await;
                }
                self.publishing.store(true, Ordering::Release);
                self.publish_on_schedule(dispositions).await;
                self.publishing.store(false, Ordering::Release);
            }
        };
        tokio::select! {
            () = publish => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        self.publishing.store(false, Ordering::Release);
    }

    /// The content of `/stats/publisher`.
    pub(crate) fn stats(&self) -> PublisherStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        let published = read(&self.published);
        PublisherStats {
            mode: "broadcast".into(),
            rate_per_second: Some(self.rate_per_second),
            backpressure: "schedule".into(),
            publishing: self.publishing.load(Ordering::Acquire),
            published,
            bytes: read(&self.bytes),
            first_sequence: (published > 0).then_some(0),
            last_sequence: published.checked_sub(1),
            publishing_seconds: read(&self.publishing_us) as f64 / 1e6,
            late: read(&self.late),
            lateness_max_us: read(&self.lateness_max_us),
        }
    }

    /// Publishes each message when it is due, until no subscriber is left.
    async fn publish_on_schedule(&self, dispositions: &Dispositions) {
        let (start, start_unix) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        for nth in 0_u64.. {
            let after = Duration::from_secs_f64(nth as f64 / self.actual_per_second);
            sleep_until(start + after).await;
            if !self.has_listeners() {
                return;
            }
            self.publish((start_unix + after).as_micros(), dispositions);
            let late_us = (start + after).elapsed().as_micros() as u64;
            self.late.fetch_add(u64::from(late_us > LATE_US), Ordering::Relaxed);
            self.lateness_max_us.fetch_max(late_us, Ordering::Relaxed);
            self.publishing_us.fetch_add((1e6 / self.actual_per_second) as u64, Ordering::Relaxed);
        }
    }

    fn publish(&self, due_unix_us: u128, dispositions: &Dispositions) {
        let number = self.published.load(Ordering::Relaxed);
        let text = format!(
            r#"{{"c":"U","t":"fanout_tick","p":{{"seq":{number},"ts_us":{due_unix_us},"s":"ES","px":5234.75,"q":2}}}}"#
        );
        self.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        let publication = match dispositions.decide(number + 1) {
            Disposition::Deliver => Some(Publication::Send(text.into())),
            Disposition::FakeDelivery => Some(Publication::CountOnly),
            Disposition::Drop | Disposition::DropSilently => None,
        };
        // Counted before it is sent: no receiver may be ahead of this count.
        self.published.store(number + 1, Ordering::Release);
        if let Some(publication) = publication {
            let mut listeners = self.listeners.lock().expect("no holder of this lock can panic");
            listeners.retain(|listener| listener.send(publication.clone()).is_ok());
        }
    }

    fn has_listeners(&self) -> bool {
        let mut listeners = self.listeners.lock().expect("no holder of this lock can panic");
        listeners.retain(|listener| !listener.is_closed());
        !listeners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a subscriber gets of this many publications (`None` for a pretended one), and the publisher's counters.
    async fn received_numbers(flaw: Flaw, publications: u64) -> (Vec<Option<u64>>, PublisherStats) {
        let publisher = Publisher::new(1000.0, flaw);
        let dispositions = Dispositions::new(flaw, 10.try_into().unwrap());
        let mut listener = publisher.listen();
        for _ in 0..publications {
            publisher.publish(1_700_000_000_000_000, &dispositions);
        }
        let mut received_numbers = Vec::new();
        while let Ok(publication) = listener.try_recv() {
            received_numbers.push(match publication {
                Publication::Send(text) => {
                    let message: serde_json::Value = serde_json::from_str(&text).unwrap();
                    message["p"]["seq"].as_u64()
                }
                Publication::CountOnly => None,
            });
        }
        (received_numbers, publisher.stats())
    }

    #[tokio::test]
    async fn an_honest_publisher_sends_every_number() {
        let (received_numbers, stats) = received_numbers(Flaw::Publisher, 25).await;
        assert_eq!(received_numbers, (0..25).map(Some).collect::<Vec<_>>());
        assert_eq!((stats.published, stats.first_sequence, stats.last_sequence), (25, Some(0), Some(24)));
    }

    #[tokio::test]
    async fn one_in_k_is_counted_as_published_but_not_sent() {
        let (received_numbers, stats) = received_numbers(Flaw::PublisherSilentDrop, 25).await;
        assert_eq!(received_numbers, (0..25).filter(|number| ![9, 19].contains(number)).map(Some).collect::<Vec<_>>());
        assert_eq!(stats.published, 25);
    }

    #[tokio::test]
    async fn the_flaw_publisher_liar_counts_one_in_k_as_sent_without_sending_it() {
        let (received_numbers, stats) = received_numbers(Flaw::PublisherLiar, 25).await;
        assert_eq!(
            (
                received_numbers.len(),
                received_numbers.iter().filter(|number| number.is_none()).count(),
                stats.published
            ),
            (25, 2, 25)
        );
    }

    #[tokio::test]
    async fn it_publishes_only_to_subscribers_and_numbers_continue() {
        let publisher = std::sync::Arc::new(Publisher::new(1000.0, Flaw::Publisher));
        let (stop, stopped) = watch::channel(false);
        let running = publisher.clone();
        let run = tokio::spawn(async move {
            running.run(&Dispositions::new(Flaw::Publisher, 10.try_into().unwrap()), stopped).await;
        });
        for _ in 0..2 {
            let before = publisher.stats();
            assert!(!before.publishing, "{before:?}");
            let mut listener = publisher.listen();
            for number in before.published..before.published + 10 {
                let Some(Publication::Send(text)) = listener.recv().await else {
                    panic!("the publisher closed its channel")
                };
                assert!(text.contains(&format!(r#""seq":{number},"#)), "{text}");
            }
            drop(listener);
            while publisher.stats().publishing {
                tokio::task::yield_now().await;
            }
        }
        stop.send_replace(true);
        run.await.unwrap();
    }
}
